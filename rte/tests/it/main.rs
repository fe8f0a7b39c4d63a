//! The exporter against an API server and a kubelet of the tests' own.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod api_server;
mod arrivals;
mod flaws;
mod kubelet;
mod process;
mod publish;
