//! Installs the stack from two custom resources and keeps the cluster in the state that they describe.
//!
//! Reading order:
//! 1. [`run`]: the start-up sequence; the only module that knows all parts. [`args`], [`version`]: the command line.
//! 2. [`platform`]: the kind of cluster, its version and its TLS settings. `installation`: what is known at start, for the plans of the
//!    controllers; `context`: what the controllers share besides.
//! 3. [`controllers`]: `NUMAResourcesOperator`, `NUMAResourcesScheduler`, and the kubelets' settings; each as reads, a pure plan, and writes.
//! 4. [`node_groups`], [`images`]: rules of the plans, as pure functions.
//! 5. [`report`]: what users see of a reconciliation: conditions, status, Events. `metrics`: what dashboards see.
//! 6. [`render`]: the objects as text, without a cluster.
//!
//! `manifests` defines the objects, `apply` writes them to the cluster.

pub mod args;
mod context;
pub mod controllers;
pub mod images;
mod installation;
mod metrics;
pub mod node_groups;
pub mod platform;
pub mod render;
pub mod report;
pub mod run;
pub mod version;
