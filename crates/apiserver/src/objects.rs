//! Work on whole objects of a known kind.

pub(crate) mod apply;
pub(crate) mod custom;
pub(crate) mod events;
pub(crate) mod selectors;
pub(crate) mod views;
