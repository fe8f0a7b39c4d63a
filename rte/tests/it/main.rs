//! The exporter against an API server and a kubelet of the tests' own.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod api_server;
mod arrivals;
mod bad_days;
mod cluster;
mod flaws;
mod kubectl;
mod kubelet;
mod process;
mod publish;
