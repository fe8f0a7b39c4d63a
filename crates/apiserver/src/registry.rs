//! The resources of the server: the built-in ones, and those that definitions of custom resources add.
//!
//! What the server knows of Kubernetes' types is recorded in `corpus/facts`, not written by hand: `built_in` reads the discovery, `columns` the
//! tables, and [`crate::schema`] the schemas.
//!
//! Reading order: `resource`, `table`, `built_in`, `definition` and `custom` (from a definition to its resources), [`Registry`]; `discovery`
//! and `openapi` show the table to clients.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::storage::{DEFINITIONS, State};

mod built_in;
pub(crate) mod columns;
mod custom;
pub(crate) mod definition;
pub(crate) mod discovery;
pub(crate) mod openapi;
mod resource;
mod table;

pub(crate) use self::built_in::{built_in, has_kind};
pub(crate) use self::resource::{Custom, Resource, storage_name};
pub(crate) use self::table::Table;

/// The table of a server's resources. It is cached until a definition changes.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    cached: Mutex<Option<(u64, Arc<Table>)>>,
}

impl Registry {
    /// Returns the present table.
    pub(crate) fn table(&self, state: &State) -> Arc<Table> {
        let version = state.version_of(DEFINITIONS);
        let mut cached = self.cached.lock();
        if let Some((at, table)) = cached.as_ref()
            && *at == version
        {
            return Arc::clone(table);
        }
        let mut table = built_in().clone();
        for (_, definition) in state.list(DEFINITIONS, "") {
            for resource in custom::resources_of(definition) {
                table.add(resource);
            }
        }
        let table = Arc::new(table);
        *cached = Some((version, Arc::clone(&table)));
        table
    }
}
