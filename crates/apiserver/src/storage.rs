//! The objects of a cluster with a single sequence of resource versions, and the history that watches read.
//!
//! Everything is in memory behind one lock. A request reads, decides and writes in one transaction, so a write is never based on an older
//! state than the one it replaces.
//!
//! Reading order: `key`, `object`, `change`, `state` (what a transaction reads and writes), `store` (the lock, and how watches hear of writes).

mod change;
mod key;
mod object;
mod state;
mod store;

pub(crate) use self::change::HistoricObject;
pub(crate) use self::key::{DEFINITIONS, Key};
pub(crate) use self::object::Object;
pub(crate) use self::state::State;
pub(crate) use self::store::Store;

#[cfg(test)]
mod tests;
