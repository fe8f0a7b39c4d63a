//! Installs the stack from two custom resources and keeps it as they say.
//!
//! - [`args`], [`version`]: the command line, in Go's syntax;
//! - [`run`]: start-up in order; the only place that knows all parts;
//! - [`controllers`]: `NUMAResourcesOperator`, `NUMAResourcesScheduler`, and the kubelets' settings;
//! - [`node_groups`], [`images`], [`conditions`]: their rules, pure;
//! - [`platform`]: which kind of cluster this is, and what it asks of everybody; [`render`]: the objects as text.
//!
//! What the objects look like is said in `manifests`, how they get to the cluster in `apply`.

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
