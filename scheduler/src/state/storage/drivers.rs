//! Classes, the drivers that serve their volumes, and what is attached to nodes.

use std::collections::{BTreeMap, BTreeSet};

use api::quantity::Amount;
use k8s_openapi::api::storage::v1::{
    CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::fields::annotation;

/// Annotation with the in-tree plugins of a node whose volumes a CSI driver serves.
const MIGRATED: &str = "storage.alpha.kubernetes.io/migrated-plugins";

/// A StorageClass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Class {
    /// Name of the provisioner of its volumes.
    pub provisioner: String,
    /// Whether its claims wait for the first pod that uses them.
    pub waits_for_consumer: bool,
    /// Where volumes can be provisioned: any of these terms, each a list of labels with their values; everywhere if there are none.
    pub topologies: Vec<Vec<(String, Vec<String>)>>,
}

impl Class {
    /// Reads a class.
    pub fn read(wire: StorageClass) -> Self {
        let topologies = wire.allowed_topologies.unwrap_or_default();
        Self {
            provisioner: wire.provisioner,
            waits_for_consumer: wire.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"),
            topologies: topologies
                .into_iter()
                .map(|term| {
                    let labels = term.match_label_expressions.into_iter().flatten();
                    labels.map(|label| (label.key, label.values)).collect()
                })
                .collect(),
        }
    }
}

/// A CSINode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsiNode {
    /// How many volumes of each driver the node can have attached.
    pub limits: BTreeMap<String, i64>,
    /// In-tree plugins whose volumes CSI drivers serve on this node.
    pub migrated: BTreeSet<String>,
}

impl CsiNode {
    /// Reads a CSINode.
    pub fn read(wire: CSINode) -> Self {
        let annotations = wire.metadata.annotations.as_ref();
        let migrated = annotation(annotations, MIGRATED).unwrap_or_default();
        let limit = |allocatable: Option<i32>| allocatable.map(i64::from);
        Self {
            limits: wire
                .spec
                .drivers
                .into_iter()
                .filter_map(|driver| {
                    let count = driver.allocatable.and_then(|allocatable| allocatable.count);
                    Some((driver.name, limit(count)?))
                })
                .collect(),
            migrated: migrated.split(',').map(str::to_owned).collect(),
        }
    }
}

/// A CSIDriver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Driver {
    /// Whether it publishes storage capacity.
    pub publishes_capacity: bool,
}

impl Driver {
    /// Reads a driver.
    pub fn read(wire: &CSIDriver) -> Self {
        Self {
            publishes_capacity: wire.spec.storage_capacity == Some(true),
        }
    }
}

/// A CSIStorageCapacity.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Capacity {
    /// The class of volumes.
    pub class: String,
    /// The largest volume that fits; `None` if unknown.
    pub largest: Option<Amount>,
    /// The nodes that can use it; no node if `None`.
    pub nodes: Option<LabelSelector>,
}

impl Capacity {
    /// Reads a capacity.
    pub fn read(wire: CSIStorageCapacity) -> Self {
        let largest = wire.maximum_volume_size.or(wire.capacity);
        Self {
            class: wire.storage_class_name,
            largest: largest.and_then(|quantity| Amount::try_from(&quantity).ok()),
            nodes: wire.node_topology,
        }
    }
}

/// A VolumeAttachment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attachment {
    /// The node.
    pub node: String,
    /// The CSI driver.
    pub driver: String,
    /// The PersistentVolume; `None` for volumes that a pod defines inline.
    pub volume: Option<String>,
}

impl Attachment {
    /// Reads an attachment.
    pub fn read(wire: VolumeAttachment) -> Self {
        Self {
            node: wire.spec.node_name,
            driver: wire.spec.attacher,
            volume: wire.spec.source.persistent_volume_name,
        }
    }
}
