//! Brings objects to a cluster, takes them away, and waits until they are in effect.
//!
//! - [`Applier`]: makes one object, or an ordered set, what it should be; writes only where something differs;
//! - [`merge`]: what is taken from the object that is there (pure);
//! - [`ready`], [`wait`]: whether, and until, a workload or a definition is in effect.
//!
//! It knows nothing of what the objects are for, keeps nothing on disk and never forces an owner on an object.

mod applier;
mod cause;
pub mod merge;
mod object;
pub mod ready;
pub mod wait;

pub use applier::{Applied, Applier, Error, Outcome};
pub use cause::Cause;
pub use object::{Identity, controller_reference, set_owner};
