//! Work on whole objects of a known kind: which of them are selected, who owns their fields, how they are shown, and in which form they are
//! stored.
//!
//! May import `registry` (the kinds), `schema`, `values` and `failure`. It does not read the store, so every function works on what it is
//! given.
//!
//! Reading order: `selectors` (which objects a list has), `custom` (custom objects by the schema of their definition), `events` (the one kind
//! with two forms), `views` (tables, and metadata alone), `apply` (server-side apply and the owners of fields, the largest part).

pub(crate) mod apply;
pub(crate) mod custom;
pub(crate) mod events;
pub(crate) mod selectors;
pub(crate) mod views;
