//! Tests of the public functions.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod exporter_flags;
mod exporters;
mod objects;
mod operator;
mod pod_security;
mod scheduler;
