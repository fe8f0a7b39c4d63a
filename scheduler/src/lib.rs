//! Secondary scheduler with NodeResourceTopologyMatch.
//!
//! It places the pods that name one of its profiles on nodes whose kubelet can align them. One task owns all state and handles one
//! change or one attempt after another, so nothing here needs a lock. Separate tasks write to the API server.
//!
//! In reading order:
//! - [`run`]: start-up; [`engine`]: the loop that owns all state. Only these two know the other modules.
//! - [`pod`], [`cluster`], [`storage`], [`images`]: what the watches report, as far as placing needs it.
//! - [`cache`]: what is left in the zones, from NRTs and from what was placed since.
//! - [`queue`]: which pod is next.
//! - [`cycle`]: one attempt: [`filter`] and [`score`] on the current state, and [`preemption`] if no node is left.
//! - [`explain`]: the same filters and scores on a snapshot, with every detail.
//! - [`watch`], [`bind`], [`volume_bind`], [`evict`], [`report`], [`limit`]: the API server's side; [`metrics`], [`args`], [`status_dump`].
//!
//! It never writes NRTs and never accesses a node other than through the API server.

pub mod args;
pub mod bind;
pub mod cache;
pub mod cluster;
pub mod cycle;
pub mod engine;
pub mod evict;
pub mod explain;
pub mod filter;
pub mod images;
pub mod limit;
pub mod memo;
pub mod metrics;
pub mod node_info;
pub mod pod;
pub mod preemption;
pub mod profile;
pub mod queue;
pub mod report;
pub mod retry;
pub mod run;
pub mod score;
pub mod status_dump;
pub mod storage;
pub mod touched;
pub mod volume_bind;
pub mod watch;

#[cfg(test)]
mod testing;
