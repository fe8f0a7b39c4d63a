//! How the outcome of a reconciliation reaches the users of a resource.
//!
//! - [`conditions`]: the outcome, and the conditions that say it (pure);
//! - `events`: an Event when the conditions are about to change;
//! - `patch`: the write of the whole status, conditions included.

pub mod conditions;
pub(crate) mod events;
pub(crate) mod patch;
