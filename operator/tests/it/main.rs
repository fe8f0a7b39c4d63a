//! The operator as a process: its command line, and what it does to an API server with no more rights than it is given: the
//! embedded one, with `NUMARESOURCES_LANE=local` a real one.
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
mod idle;
mod installation;
mod mixed;
mod openshift;
mod scheduler;
