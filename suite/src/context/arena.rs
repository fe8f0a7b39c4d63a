//! The nodes that a scenario uses.
//!
//! A cluster may have nodes of both scopes, and more nodes than a scenario needs to fill. So a scenario requests its nodes: they carry a
//! label while the scenario runs, and its pods are confined to that label.

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};

use crate::context::Context;
use crate::facts::is_candidate;
use crate::observed::{NodeTopology, Scope};
use crate::resources::Resources;
use crate::step::StepError;
use crate::workload::{PodPlan, ResourceRequest};

/// Label of the nodes of a scenario; the value is its namespace.
pub const ARENA_LABEL: &str = "numaresources-tests/arena";
/// Label with the number of zones, on every node with an NRT; set by the set-up (scenarios-serial.md 2.1).
pub const CELL_COUNT_LABEL: &str = "numa.hardware.openshift-kni.io/cell-count";
/// Key of the soft taint on the target, see [`Context::make_last_choice`].
const LAST_CHOICE: &str = "numaresources-tests/last-choice";
/// Environment variable that names the target node for scenarios that accept any node.
const TARGET_VARIABLE: &str = "E2E_NROP_TARGET_NODE";

/// The resources that the nodes must have free.
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
    /// Returns all nodes.
    pub fn nodes(&self) -> &[NodeTopology] {
        &self.nodes
    }

    /// Returns the node that the scenario is about.
    pub fn target(&self) -> &NodeTopology {
        &self.nodes[self.target]
    }

    /// Returns the other nodes.
    pub fn others(&self) -> impl Iterator<Item = &NodeTopology> {
        self.nodes
            .iter()
            .enumerate()
            .filter(|(index, _)| *index != self.target)
            .map(|(_, node)| node)
    }

    /// Returns the target among these NRTs. It is an error if it is not there.
    pub fn target_in<'a>(
        &self,
        topologies: &'a [NodeTopology],
    ) -> Result<&'a NodeTopology, StepError> {
        let target = &self.target().node;
        let found = topologies.iter().find(|node| node.node == *target);
        found.ok_or_else(|| StepError::fail(format!("the NRT of {target} is gone")))
    }

    /// Returns the names of all nodes.
    pub fn names(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.node.clone()).collect()
    }

    /// Plans a pod that the scheduler under test places on one of these nodes.
    pub fn plan(
        &self,
        ctx: &Context,
        name: &str,
        containers: impl IntoIterator<Item = ResourceRequest>,
    ) -> PodPlan {
        self.confine(PodPlan::new(name, ctx.scheduler(), containers))
    }

    /// Returns the same pod, confined to these nodes.
    pub fn confine(&self, plan: PodPlan) -> PodPlan {
        plan.on_nodes_with(ARENA_LABEL, &self.label)
            .on_nodes_with(CELL_COUNT_LABEL, "2")
    }
}

impl Context {
    /// Takes all nodes with two zones, `single-numa-node`, the scope and the free resources. At least `at_least` nodes must qualify.
    pub async fn arena(
        &self,
        scope: Option<Scope>,
        at_least: usize,
        fit: &Fit,
    ) -> Result<Arena, StepError> {
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
            return Err(StepError::Skip(message));
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

    /// Picks the target where any node is suitable: the node that the user prefers, else one that depends on the scenario, so that the
    /// scenarios spread over all nodes.
    fn pick(&self, nodes: &[NodeTopology]) -> usize {
        let preferred = std::env::var(TARGET_VARIABLE).ok();
        let preferred = preferred.and_then(|name| nodes.iter().position(|node| node.node == name));
        preferred.unwrap_or_else(|| {
            self.recorder.unit().bytes().map(usize::from).sum::<usize>() % nodes.len()
        })
    }

    /// Makes the target the last choice of a scheduler that ignores NUMA zones, by a soft taint.
    ///
    /// The padding makes every other node unfit in its zones only. A scheduler that considers the zones must choose the target. One that
    /// does not certainly chooses another node, so the scenario detects it.
    pub async fn make_last_choice(&self, arena: &Arena) -> Result<(), StepError> {
        self.taint_node(&arena.target().node, LAST_CHOICE, "PreferNoSchedule")
            .await
    }

    /// Returns what the pods of a node request, rounded up (scenarios-serial.md 7.2).
    pub async fn base_load(&self, node: &str) -> Result<Resources, StepError> {
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
                StepError::fail(format!("a pod on {node} has an odd request: {error}"))
            })?;
            load.add(&list);
        }
        Ok(load.rounded_up())
    }
}
