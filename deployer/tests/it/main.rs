//! Runs the deployer as a process: its command line and output, and its work on an API server and on whole clusters.
#![expect(
    clippy::unwrap_used,
    reason = "what clippy allows in test functions, the code that they share may do too"
)]

mod accepted;
mod catalogue;
mod cli;
mod cluster;
mod deployment;
mod findings;
mod flags;
mod lanes;
mod log_lines;
mod lost_answers;
mod nfd;
mod parts;
mod policies;
mod process;
mod reference;
mod refusals;
mod rendered;
mod setup;
