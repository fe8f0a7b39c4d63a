//! The types from outside.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod types;
