//! The kubelet model: what kubelet 1.35's resource managers decide, as a plain value without time, files or processes.
//!
//! In reading order: [`workload`] (a pod as the managers see it), [`cpu`], [`memory`] and [`device`] (the managers),
//! [`settings`] (what a start makes of the configuration), [`predicates`] and [`preemption`] (what comes after the managers),
//! [`node`] (all of it together: what callers use), [`checkpoint`] (its state files).
//!
//! The model is judged by real kubelets: [`random`] makes seeded pod sequences of [`recipe`]s for [`configurations`],
//! [`record`] runs them on the kubelets of a local cluster, [`corpus`] keeps what they did, [`composition`] counts what is in
//! it, and [`replay`] demands the same of the model.
//!
//! Where the kubelet's own order is unspecified (it walks hash tables there), the model sorts: the pods of `List`, the blocks
//! of a container's memory, and the choice among devices that are equally good. A replay compares the first two sorted, and
//! tells the model which devices the kubelet chose ([`device::Manager::favour`]), which it follows only where its own rules
//! leave the choice open.

pub mod checkpoint;
pub mod composition;
pub mod configurations;
pub mod corpus;
pub mod cpu;
pub mod device;
pub mod memory;
pub mod node;
pub mod predicates;
pub mod preemption;
pub mod random;
pub mod recipe;
pub mod record;
pub mod replay;
pub mod settings;
pub mod workload;

#[cfg(test)]
mod tests;
