//! What the objects say of the zones of each node.
//!
//! The JSON form is stable: fields are added, but never renamed or removed while [`FORMAT`] stays the same.

use std::collections::BTreeMap;

use api::nrt::v1alpha2::NodeResourceTopology;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use nrt::decode::decode;
use nrt::fingerprint::{self, Method};
use serde::Serialize;
use topology::resource::ResourceName;
use topology::zone::{Amounts, Zone};

use super::amount::exact;
use super::fits::{self, Pending};
use super::holders::{self, Holder};
use super::observe::Snapshot;
use super::place::{Known, Place};

/// Version of the JSON form.
pub(crate) const FORMAT: &str = "nrt.numaresources/v1";

/// A node was asked for that is not there.
#[derive(Debug, thiserror::Error)]
#[error("there is neither a node nor a NodeResourceTopology named {0}")]
pub(crate) struct NoSuchNode(String);

/// The whole picture.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Picture {
    /// Version of this form.
    pub(crate) format: &'static str,
    /// Nodes with a NodeResourceTopology, by name.
    pub(crate) nodes: Vec<NodePicture>,
    /// Nodes without one, by name.
    pub(crate) without_topology: Vec<String>,
    /// Pods that no scheduler has bound, by namespace and name.
    pub(crate) pending: Vec<Pending>,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodePicture {
    /// Its name.
    pub(crate) name: String,
    /// Policy of its topology manager.
    pub(crate) policy: String,
    /// Scope of its topology manager.
    pub(crate) scope: String,
    /// Whether the amounts account for the pods that the API server has on the node.
    pub(crate) fingerprint: Fingerprint,
    /// What else is noteworthy.
    pub(crate) notes: Vec<String>,
    /// Its zones, by id.
    pub(crate) zones: Vec<ZonePicture>,
    /// Containers that hold something exclusively, in a zone that is not known.
    pub(crate) elsewhere: Vec<Holder>,
}

/// What the published fingerprint says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Fingerprint {
    /// The amounts account for exactly the node's pods.
    Matches,
    /// They account for other pods: some came or went since.
    Differs,
    /// None is published.
    Missing,
}

/// One zone.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ZonePicture {
    /// Its id.
    pub(crate) id: u8,
    /// What it has, by name.
    pub(crate) resources: Vec<ResourcePicture>,
    /// Containers that hold something here exclusively.
    pub(crate) holders: Vec<Holder>,
}

/// One resource of a zone.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ResourcePicture {
    /// Its name.
    pub(crate) name: ResourceName,
    /// Its amounts.
    pub(crate) amounts: Amounts,
}

impl Serialize for ResourcePicture {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let amounts = self.amounts;
        let written = |amount| exact(&self.name, amount);
        BTreeMap::from([
            ("name", self.name.to_string()),
            ("capacity", written(amounts.capacity)),
            ("allocatable", written(amounts.allocatable)),
            ("available", written(amounts.available)),
        ])
        .serialize(serializer)
    }
}

impl Picture {
    /// Draws the nodes with these names; all of them if none is named.
    pub(crate) fn new(snapshot: &Snapshot, only: &[String]) -> Result<Self, NoSuchNode> {
        let known: Vec<Known<'_>> = snapshot.pods.iter().filter_map(Known::new).collect();
        let living: Vec<&Known<'_>> = known.iter().filter(|pod| !pod.is_terminal()).collect();
        let nodes: BTreeMap<String, &Node> = snapshot
            .nodes
            .iter()
            .map(|node| (node.name_any(), node))
            .collect();
        let with_topology: BTreeMap<String, &NodeResourceTopology> = snapshot
            .topologies
            .iter()
            .map(|topology| (topology.name_any(), topology))
            .collect();
        let exists = |name: &String| nodes.contains_key(name) || with_topology.contains_key(name);
        if let Some(name) = only.iter().find(|name| !exists(name)) {
            return Err(NoSuchNode(name.clone()));
        }
        let shown = |name: &String| only.is_empty() || only.contains(name);
        let mut places = Vec::new();
        let mut pictures = Vec::new();
        for (name, wire) in with_topology.iter().filter(|(name, _)| shown(name)) {
            let (topology, problems) = decode(wire);
            let on_node = living.iter().filter(|pod| pod.node() == Some(name));
            let place = Place {
                name: name.clone(),
                node: nodes.get(name).copied(),
                topology,
                pods: on_node.copied().collect(),
            };
            let problems = problems.iter().map(ToString::to_string).collect();
            pictures.push(NodePicture::new(&place, problems));
            places.push(place);
        }
        let without_topology: Vec<String> = nodes
            .keys()
            .filter(|name| shown(name) && !with_topology.contains_key(*name))
            .cloned()
            .collect();
        let waiting = living.iter().filter(|pod| pod.node().is_none());
        let mut pending: Vec<Pending> = waiting.map(|pod| fits::pending(pod, &places)).collect();
        pending.sort_by(|one, other| {
            (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name))
        });
        Ok(Self {
            format: FORMAT,
            nodes: pictures,
            without_topology,
            pending,
        })
    }
}

impl NodePicture {
    fn new(place: &Place<'_>, mut notes: Vec<String>) -> Self {
        match place.node {
            None => notes.push("there is no such node".to_owned()),
            Some(node) => {
                let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable);
                if cordoned == Some(true) {
                    notes.push("the node is cordoned".to_owned());
                }
                if !is_ready(node) {
                    notes.push("the node is not Ready".to_owned());
                }
            }
        }
        let mut held = holders::of(place);
        notes.extend(held.note);
        let config = &place.topology.config;
        let mut zones: Vec<&Zone> = place.topology.zones.iter().collect();
        zones.sort_by_key(|zone| zone.id);
        Self {
            name: place.name.clone(),
            policy: config.policy.to_string(),
            scope: config.scope.to_string(),
            fingerprint: compare(place),
            notes,
            zones: zones
                .into_iter()
                .map(|zone| ZonePicture {
                    id: zone.id.get(),
                    resources: zone
                        .resources
                        .iter()
                        .map(|(name, amounts)| ResourcePicture {
                            name: name.clone(),
                            amounts: *amounts,
                        })
                        .collect(),
                    holders: held.by_zone.remove(&zone.id).unwrap_or_default(),
                })
                .collect(),
            elsewhere: held.elsewhere,
        }
    }
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|it| it.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Compares the published fingerprint with the one of the pods that the API server has on the node (rte.md 6.2).
fn compare(place: &Place<'_>) -> Fingerprint {
    let Some(published) = &place.topology.fingerprint else {
        return Fingerprint::Missing;
    };
    let covered = place.pods.iter().filter(|pod| match published.method {
        Method::All => true,
        Method::WithExclusiveResources => pod.request.is_exclusive(place.zoned()),
    });
    let names: Vec<(String, String)> = covered
        .map(|pod| (pod.pod.namespace().unwrap_or_default(), pod.pod.name_any()))
        .collect();
    let names = names
        .iter()
        .map(|(namespace, name)| (namespace.as_str(), name.as_str()));
    if fingerprint::compute(names).to_string() == published.text {
        Fingerprint::Matches
    } else {
        Fingerprint::Differs
    }
}

#[cfg(test)]
pub(crate) mod tests;
