//! What decides whether our models of Kubernetes are right: recordings of the real parts, and their replay.

pub mod api;
pub mod conformance;
pub mod kubelet;
pub mod manifests;
