//! The simulated parts of an embedded cluster: what kube-controller-manager, the default scheduler and kubelets do in a real one.
//!
//! All of them are clients of an API server over loopback. The programs of the stack are plain child processes.
//!
//! Reading order: [`controllers`], [`default_scheduler`], [`node`] (simulated kubelets and the processes of their pods), [`light`] (nodes
//! without processes), [`faults`] (what goes wrong with nodes on purpose).

pub mod controllers;
pub mod default_scheduler;
pub mod faults;
pub mod light;
pub mod node;
