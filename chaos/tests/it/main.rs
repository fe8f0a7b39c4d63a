//! Integration tests of chaos: one module a topic.
#![expect(
    clippy::unwrap_used,
    reason = "what a test stands on has to be there: it panics where it is not"
)]

mod seed;
mod seeds;
