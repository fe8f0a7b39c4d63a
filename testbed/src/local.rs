//! The `local` lane: real etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubelets without containers.
//!
//! All processes of a cluster live below one [holder](supervise) process with a PID, a mount and a network namespace of its own: when it
//! dies, the kernel removes all of them. Only one directory stays, which the next start removes.
//!
//! Reading order: [`cluster`] (the interface for callers), [`cluster::up`] (the steps of a start), [`supervise`], [`net`], [`root`] and
//! [`sysfs`] (what a node sees), [`control_plane`], [`kubelet`], [`node_handle`]; the preconditions are [`privileges`] and [`assets`].

pub mod assets;
pub mod cluster;
pub mod control_plane;
pub mod enter;
pub mod helper_process;
pub mod kubelet;
pub mod mounts;
pub mod net;
pub mod node_handle;
pub mod pki;
pub mod platform;
pub mod policies;
pub mod privileges;
pub mod process;
pub mod progress;
pub mod root;
pub mod supervise;
pub mod sysfs;

pub use cluster::{ClusterSpec, LocalCluster, NodePlan};
pub use kubelet::KubeletSettings;
pub use node_handle::NodeHandle;
pub use progress::Progress;
