//! Integration tests of the testbed. Those that need root or the Kubernetes programs are ignored unless they are asked for.

#![expect(
    clippy::unwrap_used,
    reason = "what a test stands on has to be there: it panics where it is not"
)]

mod cluster;
mod controllers;
mod disturbed;
mod embedded_node;
mod faults;
mod kubectl;
mod kubelet;
mod node;
mod node_programs;
mod openshift;
