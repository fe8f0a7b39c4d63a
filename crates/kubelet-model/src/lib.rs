//! The kubelet model: what kubelet 1.35's resource managers decide, as a plain value without time, files or processes.
//!
//! In reading order: [`workload`] (a pod as the managers see it), [`cpu`], [`memory`] and [`device`] (the managers), [`settings`] (the
//! values that a kubelet derives from its configuration at start), [`predicates`] and [`preemption`] (the steps after the managers),
//! [`node`] (all of it together, for callers), [`checkpoint`] (its state files).
//!
//! Real kubelets are the reference for the model: `judges` runs random pod sequences on the kubelets of a local cluster, stores what they
//! did, and checks that the model does the same.
//!
//! Where the kubelet's own order is unspecified (it iterates over hash tables there), the model sorts: the pods of `List`, the blocks of a
//! container's memory, and the choice among devices that are equally good. A replay compares the first two sorted. It passes the model the
//! devices that the kubelet chose ([`device::Manager::set_first_choice`]); the model follows that choice only where its own rules leave it open.

pub mod checkpoint;
pub mod cpu;
pub mod device;
pub mod memory;
pub mod node;
pub mod predicates;
pub mod preemption;
pub mod settings;
pub mod workload;
