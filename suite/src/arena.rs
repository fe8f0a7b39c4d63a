//! The nodes that a scenario plays on.
//!
//! A cluster may have nodes of both scopes, and more nodes than a scenario wants to fill. So a scenario asks for its nodes; they get a
//! label for as long as it runs, and its pods are confined to that label.

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};

use crate::context::Context;
use crate::facts::is_candidate;
use crate::observed::NodeTopology;
use crate::resources::Resources;
use crate::scenario::{Scope, Stop};
use crate::workload::PodPlan;

/// Label of the nodes of a scenario; the value is its namespace.
pub const ARENA_LABEL: &str = "numaresources-tests/arena";
/// Label with the number of zones, on every node with an NRT; set by the set-up (scenarios-serial.md 2.1).
pub const CELL_COUNT_LABEL: &str = "numa.hardware.openshift-kni.io/cell-count";
/// Soft taint on the target, see [`Context::make_last_choice`].
const LAST_CHOICE: &str = "numaresources-tests/last-choice";
/// Variable that names the node to be taken where any would do.
const TARGET_VARIABLE: &str = "E2E_NROP_TARGET_NODE";

/// What the nodes must have free.
#[derive(Clone, Debug)]
pub enum Fit {
    /// Nothing in particular.
    Anything,
    /// One zone with all of it.
    Zone(Resources),
    /// All of it in both zones together.
    Node(Resources),
}

/// The nodes of one scenario.
#[derive(Debug)]
pub struct Arena {
    label: String,
    target: usize,
    nodes: Vec<NodeTopology>,
}

impl Arena {
    /// All nodes.
    pub fn nodes(&self) -> &[NodeTopology] {
        &self.nodes
    }

    /// The node on which something is to happen.
    pub fn target(&self) -> &NodeTopology {
        &self.nodes[self.target]
    }

    /// The other nodes.
    pub fn others(&self) -> impl Iterator<Item = &NodeTopology> {
        self.nodes
            .iter()
            .enumerate()
            .filter(|(index, _)| *index != self.target)
            .map(|(_, node)| node)
    }

    /// Names of all nodes.
    pub fn names(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.node.clone()).collect()
    }

    /// The same pod, confined to these nodes.
    pub fn confine(&self, plan: PodPlan) -> PodPlan {
        plan.on_nodes_with(ARENA_LABEL, &self.label)
            .on_nodes_with(CELL_COUNT_LABEL, "2")
    }
}

impl Context {
    /// Takes all nodes with two zones, `single-numa-node`, the scope and the free resources; at least so many.
    pub async fn arena(
        &self,
        scope: Option<Scope>,
        at_least: usize,
        fit: &Fit,
    ) -> Result<Arena, Stop> {
        let nodes: Vec<NodeTopology> = self
            .baseline()
            .await?
            .into_iter()
            .filter(|node| is_candidate(node, scope))
            .filter(|node| match fit {
                Fit::Anything => true,
                Fit::Zone(request) => node.any_zone_fits(&request.zone_level()),
                Fit::Node(request) => node.node_fits(&request.zone_level()),
            })
            .collect();
        if nodes.len() < at_least {
            let wanted = match fit {
                Fit::Anything => String::new(),
                Fit::Zone(request) => format!(" with a zone that has {request} available"),
                Fit::Node(request) => format!(" that have {request} available"),
            };
            let message = format!(
                "wanted at least {at_least} nodes{wanted}; seen {}",
                nodes.len()
            );
            return Err(Stop::Skip(message));
        }
        let labelled = nodes
            .iter()
            .map(|node| self.label_node(&node.node, ARENA_LABEL, &self.namespace));
        try_join_all(labelled).await?;
        let target = self.pick(&nodes);
        let names: Vec<_> = nodes.iter().map(|node| node.node.as_str()).collect();
        self.recorder
            .saw(format!("{}; target {}", names.join(", "), names[target]));
        Ok(Arena {
            label: self.namespace.clone(),
            target,
            nodes,
        })
    }

    /// Any node would do: the one that the user prefers, else one that depends on the scenario, so that all get their turn.
    fn pick(&self, nodes: &[NodeTopology]) -> usize {
        let preferred = std::env::var(TARGET_VARIABLE).ok();
        let preferred = preferred.and_then(|name| nodes.iter().position(|node| node.node == name));
        preferred.unwrap_or_else(|| {
            self.recorder.unit().bytes().map(usize::from).sum::<usize>() % nodes.len()
        })
    }

    /// Makes the target the last choice of a scheduler that does not look at NUMA zones, by a soft taint.
    ///
    /// The padding makes all other nodes unfit by their zones alone; a scheduler that sees the zones is left with the target, one
    /// that does not is drawn elsewhere for certain, and found out.
    pub async fn make_last_choice(&self, arena: &Arena) -> Result<(), Stop> {
        self.taint_node(&arena.target().node, LAST_CHOICE, "PreferNoSchedule")
            .await
    }

    /// What the pods of a node ask for, rounded up (scenarios-serial.md 7.2).
    pub async fn base_load(&self, node: &str) -> Result<Resources, Stop> {
        let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let pods = Api::<Pod>::all(self.client()).list(&params).await?;
        let containers = pods
            .items
            .iter()
            .filter_map(|pod| pod.spec.as_ref())
            .flat_map(|spec| &spec.containers);
        let requests =
            containers.filter_map(|container| container.resources.as_ref()?.requests.as_ref());
        let mut load = Resources::new();
        for list in requests {
            let list = Resources::from_quantities(list).map_err(|error| {
                Stop::fail(format!("a pod on {node} has an odd request: {error}"))
            })?;
            load.add(&list);
        }
        Ok(load.rounded_up())
    }
}
