//! `NUMAResourcesScheduler`: the secondary scheduler and its settings (operator.md 1.2, 1.3).

pub mod v1;
pub mod v1alpha1;

pub use crate::operator::GROUP;

/// Kind of the object.
pub const KIND: &str = "NUMAResourcesScheduler";
