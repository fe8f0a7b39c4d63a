//! The columns of a resource's tables.

use serde_json::{Value, json};

use crate::registry::Resource;
use crate::registry::columns::{PrinterColumn, created_at, name, of_built_in};

/// Returns whether a built-in kind has no columns but those of any kind.
pub(super) fn are_of_any_kind(resource: &Resource) -> bool {
    resource.custom.is_none() && definitions(resource) == json!([name(), created_at()])
}

/// Returns the columns of a resource's tables.
pub(super) fn definitions(resource: &Resource) -> Value {
    if let Some(custom) = &resource.custom {
        let own = custom.columns.iter().map(PrinterColumn::definition);
        return std::iter::once(name()).chain(own.cloned()).collect();
    }
    of_built_in(&resource.storage).unwrap_or_else(|| json!([name(), created_at()]))
}
