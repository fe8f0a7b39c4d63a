//! Runs the operator as a process: its command line, and its work on an API server with only the permissions of its account. The API server
//! is the embedded one, or a real one with `NUMARESOURCES_LANE=local`.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "what clippy allows in test functions, the code that they share may do too"
)]

mod audit;
mod cli;
mod cluster;
mod crash;
mod events;
mod exporters;
mod faults;
mod fuzz;
mod idle;
mod images;
mod installation;
mod metrics;
mod mixed;
mod openshift;
mod scheduler;
mod swap;
