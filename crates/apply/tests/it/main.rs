//! Against a real etcd and kube-apiserver: what the definitions accept and refuse, and what the applier writes.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what clippy allows in test functions, the code that they share may do too"
)]

mod applier;
mod control_plane;
mod definitions;
mod install;
