//! Tests of the public functions.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod objects;
