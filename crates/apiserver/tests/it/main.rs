//! Integration tests of the embedded API server.

#![expect(
    clippy::unwrap_used,
    reason = "what a test stands on has to be there: it panics where it is not"
)]

mod clients;
mod faults;
mod kubectl;
mod proxy;
mod scale;
mod writes;
