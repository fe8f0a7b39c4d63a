//! Applies objects to a cluster, deletes them, and waits until they are in effect.
//!
//! Reading order:
//! - [`Applier`]: creates or updates one object or an ordered set; writes only where something differs;
//! - [`merge`]: what an update keeps from the existing object (pure);
//! - [`ready`], [`wait`]: whether, and until, a workload or a definition is in effect;
//! - [`again`]: calls that are made again where their answers were lost;
//! - [`platform`]: the kind of cluster that the objects are for.
//!
//! The crate does not know the purpose of the objects, keeps nothing on disk and never forces an owner on an object.

mod again;
mod applier;
mod cause;
pub mod merge;
mod object;
pub mod platform;
pub mod ready;
pub mod wait;

pub use again::{again, is_unanswered};
pub use applier::{Applied, Applier, Error, Outcome};
pub use cause::Cause;
pub use object::{Identity, controller_reference, set_owner};
