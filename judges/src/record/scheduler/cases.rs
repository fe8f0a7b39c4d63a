//! Random cases: a few nodes, the pods on them, and a pod that is pinned to one of the nodes.
//!
//! All cases are in one cluster at the same time, so each has its own names, namespace and topology keys. Its pod is pinned to one node,
//! either by a taint that only this pod tolerates or by an affinity to the node's name, whichever the case does not test.

use judges::kubelet::random::Random;

use super::case::{Case, Pin};

pub(super) mod nodes;
mod ports;
pub(super) mod resources;
mod volumes;
pub(super) mod zones;

/// A plugin that is recorded.
pub(super) struct Plugin {
    pub(super) name: &'static str,
    pub(super) pin: Pin,
    fill: fn(&mut Random, &mut Case),
}

impl Plugin {
    const fn new(name: &'static str, pin: Pin, fill: fn(&mut Random, &mut Case)) -> Self {
        Self { name, pin, fill }
    }
}

/// The plugins that are recorded.
pub(super) const PLUGINS: &[Plugin] = &[
    Plugin::new("NodeUnschedulable", Pin::Name, nodes::node_unschedulable),
    Plugin::new("TaintToleration", Pin::Name, nodes::taint_toleration),
    Plugin::new("NodeAffinity", Pin::Taint, nodes::node_affinity),
    Plugin::new("NodePorts", Pin::Name, ports::node_ports),
    Plugin::new("NodeResourcesFit", Pin::Name, resources::node_resources_fit),
    Plugin::new("PodTopologySpread", Pin::Taint, zones::pod_topology_spread),
    Plugin::new("InterPodAffinity", Pin::Taint, zones::inter_pod_affinity),
    Plugin::new(
        "VolumeRestrictions",
        Pin::Name,
        volumes::volume_restrictions,
    ),
    Plugin::new("NodeVolumeLimits", Pin::Name, volumes::node_volume_limits),
    Plugin::new("VolumeBinding", Pin::Name, volumes::volume_binding),
    Plugin::new("VolumeZone", Pin::Name, volumes::volume_zone),
];

/// Builds the case of a plugin and a seed.
pub(super) fn new(plugin: usize, seed: u64) -> Case {
    let Plugin { name, pin, fill } = PLUGINS[plugin];
    let mut random = Random::new(seed.wrapping_mul(31).wrapping_add(plugin as u64));
    let mut case = Case::empty(seed, &name.to_lowercase());
    fill(&mut random, &mut case);
    case.hold(pin);
    case
}
