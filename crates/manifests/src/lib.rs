//! Every object that the operator and the deployer install, as typed values built from plain options.
//!
//! - [`rte`]: the exporters: one DaemonSet per pool, and the objects that they share;
//! - [`scheduler`]: the secondary scheduler and its configuration;
//! - [`operator`]: the operator's own installation;
//! - [`nfd`]: node-feature-discovery's topology updater, another exporter;
//! - [`pod_groups`]: the definition of pod groups and the controller that keeps their status;
//! - [`platform`]: what the objects depend on in a cluster; [`hash`]: how a changed ConfigMap gets to the pods that read it.
//!
//! Start with `new` and `objects` of a set. Below them, `rbac`, `network`, `control_plane`, `confinement` and `meta` build the parts that
//! several sets have.
//!
//! Every function is pure: no cluster, no clock, no environment. The custom resource definitions are in `api::crd`.
//! Rules and literals: operator.md 6.

mod confinement;
mod control_plane;
pub mod hash;
mod meta;
mod network;
pub mod nfd;
pub mod operator;
pub mod platform;
pub mod pod_groups;
mod rbac;
pub mod rte;
pub mod scheduler;

use serde::Serialize;
use serde_json::Value;

/// Converts an object to the JSON that the API server accepts, with `apiVersion` and `kind`.
///
/// # Panics
/// Never for the types of this crate: all their maps have string keys.
pub fn to_value<T: Serialize>(object: &T) -> Value {
    serde_json::to_value(object).expect("a Kubernetes object is valid JSON")
}
