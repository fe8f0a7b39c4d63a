//! Integration tests of the embedded API server.

#![expect(
    clippy::unwrap_used,
    reason = "tests panic when their preconditions are not met"
)]

mod clients;
mod faults;
mod kubectl;
mod proxy;
mod scale;
mod writes;
