//! Secondary scheduler with NodeResourceTopologyMatch.
//!
//! It places the pods that name one of its profiles on nodes whose kubelet can align them. One task owns all state and handles one
//! change or one attempt after another, so nothing here needs a lock. Separate tasks write to the API server.
//!
//! In reading order:
//! - [`run`]: start-up; [`engine`]: the loop that owns all state. Only these two know the other modules.
//! - [`watch`]: what is watched, and how changes are delivered.
//! - [`state`]: what the scheduler knows, as far as placing needs it.
//! - [`numa`]: what is left in the zones of one node.
//! - [`framework`]: which pod is next, one attempt to place it, and what attempts share.
//! - [`plugins`]: filters and scores, one file for each plugin.
//! - [`api_tasks`]: what sends requests to the API server.
//! - [`explain`]: the same filters and scores on a snapshot, with every detail.
//! - [`metrics`], [`args`].
//!
//! It never writes NRTs and never accesses a node other than through the API server.

pub mod api_tasks;
pub mod args;
pub mod engine;
pub mod explain;
pub mod framework;
pub mod metrics;
pub mod numa;
pub mod plugins;
pub mod run;
pub mod state;
pub mod watch;

#[cfg(test)]
mod testing;
