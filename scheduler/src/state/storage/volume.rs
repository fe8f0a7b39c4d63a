//! Volumes, and what a node attaches for them.

use std::collections::BTreeMap;

use api::quantity::Amount;
use k8s_openapi::api::core::v1::{NodeSelectorTerm, ObjectReference, PersistentVolume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::CsiNode;
use super::fields::{CLASS, annotation, storage, version};
use crate::state::pod::PodKey;
use crate::state::volume_source::{IN_TREE, PORTWORX, Source};

/// Annotation of a volume that a program bound to its claim.
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";

/// In-tree plugins whose volumes are not counted on any node.
const NEVER_COUNTED: &[&str] = &["kubernetes.io/azure-file", "kubernetes.io/vsphere-volume"];

/// A claim as a volume refers to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Namespace and name of the claim.
    pub claim: PodKey,
    /// UID of the claim, if the volume gives it.
    pub uid: Option<String>,
}

/// A PersistentVolume.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Volume {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Resource version of the object.
    pub version: u64,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Its class; empty for none.
    pub class: String,
    /// Its class of attributes; empty for none.
    pub attributes_class: String,
    /// Its size.
    pub capacity: Amount,
    /// Its access modes.
    pub access_modes: Vec<String>,
    /// Whether it is a block device and not a file system.
    pub is_block: bool,
    /// Nodes that can use it: those that match any of these terms; all nodes if `None`.
    pub node_terms: Option<Vec<NodeSelectorTerm>>,
    /// The claim that owns it or is meant to.
    pub owner: Option<Owner>,
    /// Whether it can be given to a claim.
    pub is_available: bool,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// What a node attaches for it; `None` if it is not counted on any node.
    pub source: Option<Source>,
}

impl Volume {
    /// Reads a volume. Returns `None` for objects without a name, which no API server sends.
    pub fn read(wire: PersistentVolume) -> Option<Self> {
        let ObjectMeta {
            name,
            uid,
            labels,
            annotations,
            resource_version,
            deletion_timestamp,
            ..
        } = wire.metadata;
        let spec = wire.spec.unwrap_or_default();
        Some(Self {
            name: name?,
            uid: uid.unwrap_or_default(),
            version: version(resource_version.as_deref()),
            labels: labels.unwrap_or_default(),
            source: Source::of_volume(&spec),
            class: annotation(annotations.as_ref(), CLASS)
                .or(spec.storage_class_name)
                .unwrap_or_default(),
            attributes_class: spec.volume_attributes_class_name.unwrap_or_default(),
            capacity: storage(spec.capacity.as_ref()),
            access_modes: spec.access_modes.unwrap_or_default(),
            is_block: spec.volume_mode.as_deref() == Some("Block"),
            node_terms: spec
                .node_affinity
                .and_then(|affinity| affinity.required)
                .map(|required| required.node_selector_terms),
            owner: spec.claim_ref.map(owner),
            is_available: wire.status.and_then(|status| status.phase).as_deref()
                == Some("Available"),
            is_deleting: deletion_timestamp.is_some(),
        })
    }
}

fn owner(reference: ObjectReference) -> Owner {
    Owner {
        claim: PodKey {
            namespace: reference.namespace.unwrap_or_default(),
            name: reference.name.unwrap_or_default(),
        },
        uid: reference.uid.filter(|uid| !uid.is_empty()),
    }
}

/// Returns the CSI driver that provides the volumes of a provisioner on a node; `None` if they are not counted there.
pub fn driver_of<'a>(provisioner: &'a str, node: Option<&CsiNode>) -> Option<&'a str> {
    if NEVER_COUNTED.contains(&provisioner) {
        return None;
    }
    match IN_TREE.iter().find(|(plugin, _)| *plugin == provisioner) {
        Some((plugin, driver)) => is_counted(plugin, node).then_some(*driver),
        None => Some(provisioner),
    }
}

/// Returns whether the volumes of an in-tree plugin are counted under its CSI driver on a node. They are on every node that lists drivers,
/// whether or not the node says that the driver serves them. For one plugin the node has to say so.
pub fn is_counted(plugin: &str, node: Option<&CsiNode>) -> bool {
    node.is_some() && (plugin != PORTWORX || is_migrated(plugin, node))
}

/// Returns whether a node says that a CSI driver serves the volumes of an in-tree plugin.
pub fn is_migrated(plugin: &str, node: Option<&CsiNode>) -> bool {
    node.is_some_and(|node| node.migrated.contains(plugin))
}
