//! What is known about the cluster once it is ready: what needs are checked against and reports tell.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::observed::NodeTopology;
use crate::resources::DeviceNames;
use crate::scenario::Scope;

/// Facts of the cluster, found once at the end of the set-up.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Version of the API server.
    pub kubernetes: String,
    /// Whether the API group of machine configs is served.
    pub openshift: bool,
    /// Scheduler that test pods name.
    pub scheduler: String,
    /// Period of the scheduler's cache resynchronisation.
    pub cache_resync: Option<Duration>,
    /// Names of the sample devices.
    pub devices: DeviceNames,
    /// Program of the exporter, where it is one of ours.
    pub exporter: Option<PathBuf>,
    /// The reference: NRTs of the unloaded cluster.
    pub nodes: Vec<NodeTopology>,
}

impl Facts {
    /// Nodes that scenarios can stand on: two zones, `single-numa-node`, the scope if one is asked for.
    pub fn candidates(&self, scope: Option<Scope>) -> impl Iterator<Item = &NodeTopology> {
        self.nodes
            .iter()
            .filter(move |node| is_candidate(node, scope))
    }

    /// For reports.
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
                if self.openshift {
                    "OpenShift"
                } else {
                    "Kubernetes"
                }
                .to_owned(),
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

/// Whether a scenario can stand on a node: two zones, `single-numa-node`, the scope if one is asked for.
pub fn is_candidate(node: &NodeTopology, scope: Option<Scope>) -> bool {
    node.zones.len() == 2
        && node.single_numa_node()
        && scope.is_none_or(|scope| node.scope() == Some(scope))
}
