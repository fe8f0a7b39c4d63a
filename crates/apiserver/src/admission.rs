//! What a write means.

pub(crate) mod attempt;
pub(crate) mod defaults;
pub(crate) mod plugins;
pub(crate) mod strategy;
pub(crate) mod validation;
