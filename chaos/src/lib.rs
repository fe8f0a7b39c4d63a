//! The whole stack under churn, faults and load.
//!
//! A [`plan`] is drawn from a seed: pods, Deployments, nodes and custom resources that change, and what goes wrong meanwhile. [`run`] carries
//! it out on a cluster of either lane with the stack on it, while [`recorder`] writes down everything that the API server tells about it.
//! Then the faults end, the stack settles, and [`check`] states what must hold: over the [`recording`], and of the end, which [`end`] looks
//! at. [`load`] is the other half: many pods for a long time, and the memory, files and requests of the stack.
//!
//! Reading order: [`plan`], [`recording`], [`recorder`], [`churn`] and [`inject`] (which carry the plan out), [`check`], [`end`], `start`, [`run`],
//! [`seeds`] (many plans), [`load`].

pub mod check;
pub mod churn;
pub mod end;
pub mod inject;
pub mod load;
pub mod plan;
pub mod recorder;
pub mod recording;
pub mod run;
pub mod scheduler;
pub mod seeds;
mod start;
pub mod wanted;
