//! How pods are tried: which pod is next, one attempt, and what attempts share.
//!
//! In reading order:
//! - [`profile`]: the plugins that place the pods of one scheduler name.
//! - [`extension_points`]: where plugins act and which function runs there.
//! - [`queue`]: pods that wait for a node.
//! - [`cycle`]: one attempt: filter, score, choose, and [`default_preemption`] if no node is left.
//! - [`memo`]: what attempts know about nodes and keep for the next pod.

pub mod cycle;
pub mod default_preemption;
pub mod extension_points;
pub mod memo;
mod message;
pub mod profile;
pub mod queue;
