//! Runs the exporter with a simulated kubelet. The API server is the tests' own or, where permissions and watches matter, the embedded one.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod api_server;
mod arrivals;
mod cluster;
mod external_faults;
mod faults;
mod flaws;
mod fuzz;
mod kubectl;
mod kubelet;
mod metrics_readers;
mod own_node;
mod process;
mod publish;
mod scene;
