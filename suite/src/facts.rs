//! Facts of the cluster once it is ready: the needs of scenarios are checked against them, and reports show them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use cluster_faults::Faults;
use cluster_spec::images::Published;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

use crate::environment::{Environment, Platform};
use crate::observed::{NodeTopology, Scope};
use crate::resources::{DeviceNames, Resources, is_native};

/// Facts of the cluster, found once at the end of the set-up.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Version of the API server.
    pub kubernetes: String,
    /// Where the cluster comes from, and its kind.
    pub environment: Environment,
    /// Whether network policies are enforced; assumed on a cluster that the run did not bring up.
    pub network_policies: bool,
    /// Scheduler that test pods name.
    pub scheduler: String,
    /// Whether there is a resource of the scheduler: a run that names another scheduler needs none.
    pub scheduler_resource: bool,
    /// Period of the scheduler's cache resynchronisation.
    pub cache_resync: Option<Duration>,
    /// Names of the sample devices.
    pub devices: DeviceNames,
    /// Program of the exporter, if the cluster is one of ours.
    pub exporter: Option<PathBuf>,
    /// The images of the cluster's own registry; none where it has no such registry.
    pub published: Published,
    /// Faults that can be injected, if the cluster was brought up for the run.
    pub faults: Option<Faults>,
    /// The reference: NRTs of the unloaded cluster.
    pub nodes: Vec<NodeTopology>,
    /// Allocatable resources of each node, as the status of the nodes reported them when the reference was taken.
    pub allocatable: BTreeMap<String, Resources>,
}

impl Facts {
    /// Returns whether the cluster is an `OpenShift` with machine config pools.
    pub fn is_openshift(&self) -> bool {
        self.environment.platform == Platform::Openshift
    }

    /// Returns the nodes that scenarios can use: two zones, `single-numa-node`, and the scope if one is requested.
    pub fn candidates(&self, scope: Option<Scope>) -> impl Iterator<Item = &NodeTopology> {
        self.nodes
            .iter()
            .filter(move |node| is_candidate(node, scope))
    }

    /// Returns the scope that more of these nodes have: `container` when both have the same number.
    pub fn majority_scope(&self) -> Scope {
        let count = |scope| self.candidates(Some(scope)).count();
        if count(Scope::Container) >= count(Scope::Pod) {
            Scope::Container
        } else {
            Scope::Pod
        }
    }

    /// Returns what a node had when the reference was taken and lacks now. A kubelet that has just started knows no devices until their
    /// plugins have registered again. The NRT shows that at once, the node's status seconds later.
    pub fn incomplete(&self, topologies: &[NodeTopology], nodes: &[Node]) -> Option<String> {
        let zones = self.nodes.iter().find_map(|known| {
            let name = &known.node;
            let Some(now) = topologies.iter().find(|now| now.node == *name) else {
                return Some(format!("the NRT of {name} is missing"));
            };
            known.zones.iter().find_map(|zone| {
                let Some(there) = now.zones.iter().find(|now| now.name == zone.name) else {
                    return Some(format!("the NRT of {name} lacks zone {}", zone.name));
                };
                let place = format!("{} in the NRT of {name}", zone.name);
                first_shortage(&place, &zone.allocatable(), &there.allocatable())
            })
        });
        zones.or_else(|| {
            self.allocatable.iter().find_map(|(name, known)| {
                let node = nodes.iter().find(|node| node.name_any() == *name);
                let now = node.map(allocatable).unwrap_or_default();
                first_shortage(&format!("the status of node {name}"), known, &now)
            })
        })
    }

    /// Describes the facts for reports.
    pub fn describe(&self) -> BTreeMap<String, String> {
        let nodes = |scope: Scope| {
            let names: Vec<_> = self
                .candidates(Some(scope))
                .map(|node| node.node.as_str())
                .collect();
            if names.is_empty() {
                "none".to_owned()
            } else {
                names.join(", ")
            }
        };
        let devices: Vec<_> = self
            .devices
            .0
            .iter()
            .map(|(short, name)| format!("{short}={name}"))
            .collect();
        BTreeMap::from([
            ("kubernetes".to_owned(), self.kubernetes.clone()),
            (
                "platform".to_owned(),
                self.environment.platform.as_str().to_owned(),
            ),
            ("scheduler".to_owned(), self.scheduler.clone()),
            ("nodes, scope container".to_owned(), nodes(Scope::Container)),
            ("nodes, scope pod".to_owned(), nodes(Scope::Pod)),
            (
                "devices".to_owned(),
                if devices.is_empty() {
                    "none".to_owned()
                } else {
                    devices.join(", ")
                },
            ),
        ])
    }
}

/// Returns whether scenarios can use a node: two zones, `single-numa-node`, and the scope if one is requested.
pub fn is_candidate(node: &NodeTopology, scope: Option<Scope>) -> bool {
    node.zones.len() == 2
        && node.single_numa_node()
        && scope.is_none_or(|scope| node.scope() == Some(scope))
}

/// Returns what pods may use on a node by its own status. Values that are not quantities are left out.
pub fn allocatable(node: &Node) -> Resources {
    let status = node.status.as_ref();
    let list = status.and_then(|status| status.allocatable.as_ref());
    let amounts = list.into_iter().flatten();
    let milli = |(name, quantity): (&String, _)| {
        let milli = api::quantity::milli(quantity).ok()?;
        Some((name.clone(), milli))
    };
    amounts.filter_map(milli).collect()
}

/// Returns a device of an NRT that the status of its node does not have yet: the kubelet updates the API server seconds later than the
/// exporter.
pub fn missing_in_status(topology: &NodeTopology, node: &Node) -> Option<String> {
    let there = allocatable(node);
    let lists = topology.zones.iter().map(|zone| {
        let devices = |name: &str, _| !is_native(name);
        zone.allocatable().filtered(devices)
    });
    let place = format!("the status of node {}", topology.node);
    lists
        .into_iter()
        .find_map(|zone| first_shortage(&place, &zone, &there))
}

/// Returns the first resource of which there is less than before.
fn first_shortage(place: &str, known: &Resources, now: &Resources) -> Option<String> {
    let (name, milli) = known
        .iter()
        .find(|(name, milli)| now.milli(name) < *milli)?;
    let one = |milli| Resources::from_iter([(name.to_owned(), milli)]);
    let seen = if now.has(name) {
        format!("only {}", one(now.milli(name)))
    } else {
        format!("no {name}")
    };
    Some(format!("{place} has {seen} of {} allocatable", one(milli)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observed::tests::node as topology;
    use k8s_openapi::api::core::v1::NodeStatus;

    fn node(name: &str, allocatable: &str) -> Node {
        let mut node = Node {
            status: Some(NodeStatus {
                allocatable: Some(Resources::literal(allocatable).to_quantities()),
                ..NodeStatus::default()
            }),
            ..Node::default()
        };
        node.metadata.name = Some(name.to_owned());
        node
    }

    #[track_caller]
    fn check(zones: &[&str], status: &str, expected: Option<&str>) {
        let facts = Facts {
            nodes: vec![topology("n", &["2c 2Gi d1=2", "2c 2Gi"])],
            allocatable: [("n".to_owned(), Resources::literal("4c 4Gi d1=2"))].into(),
            ..Facts::default()
        };
        let found = facts.incomplete(&[topology("n", zones)], &[node("n", status)]);
        assert_eq!(found.as_deref(), expected);
    }

    #[test]
    fn a_node_is_complete_with_all_that_it_had_and_more() {
        check(&["2c 2Gi d1=2", "2c 2Gi"], "4c 4Gi d1=2", None);
        check(&["2c 2Gi d1=2", "2c 2Gi d2=1"], "4c 4Gi d1=3 d2=1", None);
    }

    #[test]
    fn devices_that_have_not_registered_again_are_missed() {
        check(
            &["2c 2Gi d1=0", "2c 2Gi"],
            "4c 4Gi d1=2",
            Some("node-0 in the NRT of n has only d1=0 of d1=2 allocatable"),
        );
        check(
            &["2c 2Gi", "2c 2Gi"],
            "4c 4Gi d1=2",
            Some("node-0 in the NRT of n has no d1 of d1=2 allocatable"),
        );
        check(
            &["2c 2Gi d1=2", "2c 2Gi"],
            "4c 4Gi d1=0",
            Some("the status of node n has only d1=0 of d1=2 allocatable"),
        );
        check(
            &["2c 2Gi d1=2"],
            "4c 4Gi d1=2",
            Some("the NRT of n lacks zone node-1"),
        );
    }

    #[test]
    fn devices_that_only_the_exporter_knows_are_unannounced() {
        let topology = topology("n", &["2c d1=1", "2c d1=1"]);
        assert_eq!(missing_in_status(&topology, &node("n", "4c d1=2")), None);
        assert_eq!(
            missing_in_status(&topology, &node("n", "4c")).as_deref(),
            Some("the status of node n has no d1 of d1=1 allocatable")
        );
    }
}
