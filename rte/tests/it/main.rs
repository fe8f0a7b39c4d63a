//! The exporter against a kubelet of the tests' own, and an API server that is the tests' own or, where it matters who asks and what is
//! watched, the embedded one.
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
