//! Runs the deployer as a process: its command line and output, and its work on an API server and on whole clusters.
#![expect(
    clippy::unwrap_used,
    reason = "what clippy allows in test functions, the code that they share may do too"
)]

mod catalogue;
mod cli;
mod cluster;
mod deployment;
mod flags;
mod lanes;
mod nfd;
mod parts;
mod policies;
mod process;
mod refusals;
mod rendered;
