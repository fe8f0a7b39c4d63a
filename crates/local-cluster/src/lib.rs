//! The `local` lane: real etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubelets without containers.
//!
//! All processes of a cluster live below one [holder](supervise) process with a PID, a mount and a network namespace of its own: when it
//! dies, the kernel removes all of them. Only one directory stays, which the next start removes.
//!
//! Reading order: [`cluster`] (the interface for callers), [`cluster::up`] (the steps of a start), [`supervise`], [`net`], [`root`] (what a
//! node sees), [`control_plane`], [`kubelet`], [`node_handle`], `containerd` (instead of
//! the builtin runtime) with `kube_proxy`; [`platform`] and [`policies`] are what the Kubernetes programs do not do;
//! the preconditions are [`privileges`], and the Kubernetes programs (`programs::kubernetes`).

pub mod api_server_process;
pub mod cluster;
mod containerd;
pub mod control_plane;
pub mod enclosing;
pub mod enter;
pub mod faults;
mod helper_process;
mod kube_proxy;
pub mod kubelet;
pub mod mounts;
pub mod net;
pub mod node_handle;
pub mod pki;
pub mod platform;
pub mod policies;
pub mod privileges;
pub mod root;
pub mod supervise;

pub use cluster::LocalCluster;
pub use node_handle::NodeHandle;
