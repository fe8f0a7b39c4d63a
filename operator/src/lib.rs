//! Installs the stack from two custom resources and keeps the cluster in the state that they describe.
//!
//! - [`args`], [`version`]: the command line, in Go's syntax;
//! - [`run`]: the start-up sequence; the only module that knows all parts;
//! - [`controllers`]: `NUMAResourcesOperator`, `NUMAResourcesScheduler`, and the kubelets' settings;
//! - [`node_groups`], [`images`], [`conditions`]: rules of the controllers, as pure functions;
//! - [`platform`]: the kind of cluster and its TLS settings; [`render`]: the objects as text.
//!
//! `manifests` defines the objects, `apply` writes them to the cluster.

pub mod args;
pub mod conditions;
mod context;
pub mod controllers;
mod events;
pub mod images;
mod metrics;
pub mod node_groups;
pub mod platform;
pub mod render;
pub mod run;
mod status;
mod tls_profile;
pub mod version;
