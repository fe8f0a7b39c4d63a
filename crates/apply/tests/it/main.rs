//! Against a real etcd and kube-apiserver: what the definitions accept and refuse, and what the applier writes.

mod applier;
mod control_plane;
mod definitions;
mod install;
