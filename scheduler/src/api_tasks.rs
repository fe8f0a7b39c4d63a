//! What sends requests to the API server, or writes elsewhere outside the process.
//!
//! In reading order:
//! - [`retry`]: requests that may be repeated.
//! - [`volume_bind`], then [`bind`]: what a chosen node leads to.
//! - [`evict`]: what a preemption leads to.
//! - [`report`]: events and conditions of pods.
//! - [`status_dump`]: files that show which pod sets were compared.

pub mod bind;
pub mod evict;
pub mod report;
pub mod retry;
pub mod status_dump;
pub mod volume_bind;
