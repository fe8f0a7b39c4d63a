//! The scheduler as a process: its command line, and its behaviour with only its own rights on an API server. That is the embedded
//! one, or a real one with `NUMARESOURCES_LANE=local`.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "what clippy allows in test functions, the code that they share may do too"
)]

mod admission;
mod binding_volumes;
mod cli;
mod cluster;
mod explain;
mod faults;
mod flags;
mod fuzz;
mod nfd;
mod placing;
mod preempting;
mod recorded;
mod serving;
