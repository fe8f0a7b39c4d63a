//! Tests of the public types.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod types;
