//! Integration tests of the testbed. Tests that need root or the Kubernetes programs are ignored by default.

#![expect(
    clippy::unwrap_used,
    reason = "what a test stands on has to be there: it panics where it is not"
)]

mod api_server;
mod cluster;
mod containerd;
mod controllers;
mod disturbed;
mod embedded_node;
mod embedded_privacy;
mod faults;
mod kubectl;
mod kubelet;
mod node;
mod node_programs;
mod openshift;
