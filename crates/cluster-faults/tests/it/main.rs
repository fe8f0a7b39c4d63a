//! Integration tests of faults: one module a topic.
#![allow(clippy::unwrap_used, reason = "tests")]

mod compactions;
mod outages;
mod server;
