//! The program under each of its names.
#![expect(
    clippy::unwrap_used,
    reason = "what clippy allows in test functions, the code that they share may do too"
)]

mod names;
