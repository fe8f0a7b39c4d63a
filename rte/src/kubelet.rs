//! The kubelet of this node: what it is set to, what it answers, and whether it has finished what it answers about.
//!
//! Reading order: [`configuration`] (the settings of its managers), `answers` (the source of its answers about resources), `demand` (what
//! the node's pods request of it), `arrivals` (which of the pods in an answer do not hold that yet), `terminal_pods` (which of them hold
//! nothing any more).

pub(crate) mod answers;
pub(crate) mod arrivals;
pub mod configuration;
pub(crate) mod demand;
pub(crate) mod terminal_pods;
