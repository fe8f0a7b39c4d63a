//! What scenarios wait for and check (scenarios-serial.md 7.7).
//!
//! `pods` and `workloads` wait until something runs, `scheduling` reads from events what schedulers did, `zones` compares NRTs.

mod pods;
mod scheduling;
mod workloads;
mod zones;

pub use pods::{describe, is_ready, node_of, phase};
pub use scheduling::event_lines;
pub use workloads::{Rollout, first_container};
