//! The scheduler as a process: its command line, and what it does on an API server with no more rights than it is given: the
//! embedded one, with `NUMARESOURCES_LANE=local` a real one.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "what clippy allows in test functions, the code that they share may do too"
)]

mod binding_volumes;
mod cli;
mod cluster;
mod explain;
mod faults;
mod judge;
mod placing;
mod preempting;
mod recorded;
mod serving;
