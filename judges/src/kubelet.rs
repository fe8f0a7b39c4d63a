//! The judge of the kubelet model: real kubelets.
//!
//! [`random`] generates seeded pod sequences of [`recipe`]s for [`configurations`], [`record`] runs them on the kubelets of a local cluster,
//! [`corpus`] stores what the kubelets did, [`composition`] counts what the corpus contains, and [`replay`] checks that the model does the
//! same.

pub mod composition;
pub mod configurations;
pub mod corpus;
pub mod random;
pub mod recipe;
pub mod record;
pub mod replay;

#[cfg(test)]
mod tests;
