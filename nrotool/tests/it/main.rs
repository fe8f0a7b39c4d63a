//! The tools as processes: their command lines, their work on an API server with recorded objects, and on an embedded cluster with the stack.
#![expect(
    clippy::unwrap_used,
    reason = "what clippy allows in test functions, the code that they share may do too"
)]

mod catalogue;
mod checklist;
mod command_lines;
mod failed_scenario;
mod fingerprints;
mod gathering;
mod lost_answers;
mod machines;
mod openshift;
mod picture;
mod server;
mod stack;
mod validating;
mod watching;
