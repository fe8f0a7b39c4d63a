//! The state of the unloaded cluster, and checks of its consistency (scenarios-serial.md 1.1, point 2).

use std::collections::BTreeMap;

use api::nrt::v1alpha2::NodeResourceTopology;
use fixtures::machines::SAMPLE_DEVICES;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use serde::{Deserialize, Serialize};

use super::sums::{Managed, differing_sum};
use super::{Options, infra};
use crate::context::topologies;
use crate::facts::{Facts, allocatable, missing_in_status};
use crate::machine_pools;
use crate::observed::{NodeTopology, form};
use crate::recorder::{PollResult, Recorder};
use crate::resources::{DeviceNames, Resources};
use crate::step::StepError;

/// Least number of nodes with `single-numa-node` that the suite needs.
const NEEDED: usize = 2;
/// The unloaded cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Reference {
    /// Its NRTs.
    pub(super) nodes: Vec<NodeTopology>,
    /// Allocatable resources of each of these nodes, by the nodes' own statuses.
    pub(super) allocatable: BTreeMap<String, Resources>,
}

impl Reference {
    fn facts(&self) -> Facts {
        Facts {
            nodes: self.nodes.clone(),
            allocatable: self.allocatable.clone(),
            ..Facts::default()
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kubelet {
    #[serde(default)]
    topology_manager_policy: String,
    #[serde(default)]
    topology_manager_scope: String,
    #[serde(default)]
    cpu_manager_policy: String,
    #[serde(default)]
    cpu_manager_policy_options: BTreeMap<String, String>,
    #[serde(default)]
    memory_manager_policy: String,
}

impl Kubelet {
    fn managed(&self) -> Managed {
        Managed {
            cpus: self.cpu_manager_policy == "static",
            huge_pages: self.memory_manager_policy == "Static",
        }
    }
}

/// Labels the nodes, checks them against their kubelets and takes their NRTs and statuses as the reference. If an earlier reference is
/// known, nothing of it may be missing.
pub(super) async fn take(
    options: &Options,
    recorder: &Recorder,
    client: &Client,
    known: Option<&Reference>,
) -> Result<Reference, StepError> {
    recorder
        .step(
            "nodes are labelled with their number of zones",
            infra::label_cell_counts(recorder, client),
        )
        .await?;
    recorder
        .step("the NRTs agree with the kubelets", async {
            // the control plane may run pods, too, without exporters
            let workers = format!("{},!{}", api::labels::WORKER, api::labels::CONTROL_PLANE);
            let workers = ListParams::default().labels(&workers);
            let workers = Api::<Node>::all(client.clone()).list(&workers).await?.items;
            let names: Vec<_> = workers.iter().map(ResourceExt::name_any).collect();
            recorder
                .until(
                    "every worker has an NRT that agrees with its kubelet",
                    options.deadlines.installed,
                    async || {
                        let nodes = topologies(client).await?;
                        if let Some(name) = names
                            .iter()
                            .find(|name| nodes.iter().all(|node| node.node != **name))
                        {
                            return Ok(PollResult::NotYet(format!(
                                "Unable to find NRT for node {name}"
                            )));
                        }
                        let all = ListParams::default();
                        let statuses = Api::<Node>::all(client.clone()).list(&all).await?.items;
                        for node in &nodes {
                            let status = statuses
                                .iter()
                                .find(|status| status.name_any() == node.node);
                            if let Some(problem) = disagreement(client, node, status).await? {
                                return Ok(PollResult::NotYet(problem));
                            }
                        }
                        Ok(PollResult::Ready(()))
                    },
                )
                .await
        })
        .await?;
    recorder
        .step(
            "the NRTs have all that the original requires of them",
            complete(client),
        )
        .await?;
    recorder
        .step("the reference state is taken", async {
            let what = "every node's status has its devices and every published fingerprint is that of the API's pods";
            let reference = recorder
                .until(what, options.deadlines.installed, async || poll(client, known).await)
                .await?;
            let fitting = reference.nodes.iter().filter(|node| node.single_numa_node()).count();
            if fitting < NEEDED {
                return Err(StepError::fail(format!(
                    "Not enough nodes with \"single-numa-node\" topology found {fitting} needed {NEEDED}"
                )));
            }
            Ok(reference)
        })
        .await
}

/// Checks that no NRT lacks what readers rely on.
async fn complete(client: &Client) -> Result<(), StepError> {
    let objects = Api::<NodeResourceTopology>::all(client.clone());
    let objects = objects.list(&ListParams::default()).await?.items;
    let flaw = objects
        .iter()
        .find_map(|object| Some((object.name_any(), form::flaw(object)?)));
    match flaw {
        None => Ok(()),
        Some((name, flaw)) => Err(StepError::fail(format!("the NRT of {name} {flaw}"))),
    }
}

/// Returns the reference, if it can be taken now.
async fn poll(
    client: &Client,
    known: Option<&Reference>,
) -> Result<PollResult<Reference>, StepError> {
    let topologies = topologies(client).await?;
    let all = ListParams::default();
    let pods = Api::<Pod>::all(client.clone()).list(&all).await?.items;
    let nodes = Api::<Node>::all(client.clone()).list(&all).await?.items;
    if let Some(missing) = known.and_then(|known| known.facts().incomplete(&topologies, &nodes)) {
        return Ok(PollResult::NotYet(missing));
    }
    let mut amounts = BTreeMap::new();
    for topology in &topologies {
        let node = nodes.iter().find(|node| node.name_any() == topology.node);
        let missing = node.and_then(|node| missing_in_status(topology, node));
        if let Some(why) = missing.or_else(|| crate::context::settle::unsettled(topology, &pods)) {
            return Ok(PollResult::NotYet(why));
        }
        amounts.extend(node.map(|node| (topology.node.clone(), allocatable(node))));
    }
    Ok(PollResult::Ready(Reference {
        nodes: topologies,
        allocatable: amounts,
    }))
}

/// Returns where an NRT differs from its node's kubelet. It is an error if the kubelet has settings with which the scenarios' numbers do
/// not hold.
async fn disagreement(
    client: &Client,
    node: &NodeTopology,
    status: Option<&Node>,
) -> Result<Option<String>, StepError> {
    let name = &node.node;
    let kubelet = machine_pools::kubelet(client, name).await?;
    let kubelet: Kubelet = serde_json::from_value(kubelet)
        .map_err(|error| StepError::fail(format!("configz of {name} is not readable: {error}")))?;
    if kubelet
        .cpu_manager_policy_options
        .get("full-pcpus-only")
        .map(String::as_str)
        == Some("true")
    {
        return Err(StepError::fail(format!(
            "SMT alignment enabled for node {name}"
        )));
    }
    let or = |text: &str, default: &str| {
        if text.is_empty() {
            default.to_owned()
        } else {
            text.to_owned()
        }
    };
    let pairs = [
        (
            "policy",
            api::attributes::TOPOLOGY_MANAGER_POLICY,
            or(&kubelet.topology_manager_policy, "none"),
        ),
        (
            "scope",
            api::attributes::TOPOLOGY_MANAGER_SCOPE,
            or(&kubelet.topology_manager_scope, "container"),
        ),
    ];
    let managed = kubelet.managed();
    let sums = status.and_then(|status| differing_sum(node, status, managed));
    let attributes = pairs.into_iter().find_map(|(what, attribute, expected)| match node.attribute(attribute) {
        None => Some(format!("Attribute {attribute} not reported on NRT {name}")),
        Some(seen) if seen != expected => Some(format!(
            "Inconsistent topology manager {what} for node {name}: the kubelet has {expected}, the NRT {seen}"
        )),
        Some(_) => None,
    });
    Ok(attributes.or(sums))
}

/// Returns the names of the sample devices: those of the variables `E2E_NROP_DEVICE_TYPE_1` and so on, else ours if some zone lists them.
pub(super) fn devices(nodes: &[NodeTopology]) -> DeviceNames {
    let listed = |name: &str| {
        nodes
            .iter()
            .flat_map(|node| &node.zones)
            .any(|zone| zone.resources.contains_key(name))
    };
    let name = |index: usize| {
        let given = std::env::var(format!("E2E_NROP_DEVICE_TYPE_{}", index + 1)).ok();
        given.or_else(|| listed(SAMPLE_DEVICES[index]).then(|| SAMPLE_DEVICES[index].to_owned()))
    };
    DeviceNames(
        (0..SAMPLE_DEVICES.len())
            .filter_map(|index| Some((format!("d{}", index + 1), name(index)?)))
            .collect(),
    )
}
