//! Runs the exporter with a simulated kubelet. The API server is the tests' own or, where permissions and watches matter, the embedded one.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod api_server;
mod arrivals;
mod bad_days;
mod cluster;
mod faults;
mod flaws;
mod kubectl;
mod kubelet;
mod process;
mod publish;
