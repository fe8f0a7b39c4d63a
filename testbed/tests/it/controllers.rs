//! The controllers and the default scheduler on the embedded API server. The tests take the part of the kubelets.

mod batch;
mod certificates;
mod compared;
mod eviction;
mod harness;
mod life;
mod limits;
mod owners;
mod placing;
mod stateful;
mod workloads;
