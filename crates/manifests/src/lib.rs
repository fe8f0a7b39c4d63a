//! Every object that the operator installs, as typed values made from plain options.
//!
//! - [`rte`]: the exporters: one DaemonSet a pool and what it needs;
//! - [`scheduler`]: the secondary scheduler with its configuration;
//! - [`operator`]: the operator's own installation;
//! - [`flags`], [`hash`], [`platform`]: pieces of those.
//!
//! Everything here is a pure function: no cluster, no clock, no environment. Custom resource definitions come from `api::crd`.
//! Rules and literals (operator.md 6).

pub mod flags;
pub mod hash;
mod meta;
mod network;
pub mod operator;
pub mod platform;
mod rbac;
pub mod rte;
pub mod scheduler;

use serde::Serialize;
use serde_json::Value;

/// An object as the API server takes it, with `apiVersion` and `kind`.
///
/// # Panics
/// Never for the types of this crate, whose maps all have string keys.
pub fn to_value<T: Serialize>(object: &T) -> Value {
    serde_json::to_value(object).expect("a Kubernetes object is valid JSON")
}
