//! The scheduler as a process: its command line, and what it does on a real API server with no more rights than it is given.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "what clippy allows in test functions, the code that they share may do too"
)]

mod cli;
mod cluster;
#[path = "../../../crates/apply/tests/it/control_plane.rs"]
mod control_plane;
mod explain;
mod judge;
mod placing;
