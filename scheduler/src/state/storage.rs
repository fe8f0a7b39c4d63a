//! Volumes, claims and the other objects that decide where storage is available: what the watches reported, and which volumes and claims
//! this scheduler has reserved for pods whose binding is in progress.
//!
//! Objects keep only the fields that the volume plugins read. Pods without volumes of these kinds do not use this module.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use api::quantity::Amount;
use k8s_openapi::api::core::v1::{
    NodeSelectorTerm, ObjectReference, PersistentVolume, PersistentVolumeClaim,
    PersistentVolumeSpec, Volume as WireVolume,
};
use k8s_openapi::api::storage::v1::{
    CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::de::DeserializeOwned;

use crate::state::pod::PodKey;

/// Annotation of a claim whose binding is complete.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Annotation with the node for which a claim's volume is to be provisioned.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Annotation of a volume that a program bound to its claim.
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// Annotation with the class of a volume or a claim, used before the field existed.
const CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// Annotation with the in-tree plugins of a node whose volumes a CSI driver serves.
const MIGRATED: &str = "storage.alpha.kubernetes.io/migrated-plugins";

/// In-tree plugins with the CSI driver that serves their volumes on nodes that say so.
const IN_TREE: [(&str, &str); 5] = [
    ("kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
    ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
    ("kubernetes.io/azure-disk", "disk.csi.azure.com"),
    ("kubernetes.io/cinder", "cinder.csi.openstack.org"),
    (PORTWORX, "pxd.portworx.com"),
];
const PORTWORX: &str = "kubernetes.io/portworx-volume";
/// In-tree plugins whose volumes are not counted on any node.
const NEVER_COUNTED: &[&str] = &["kubernetes.io/azure-file", "kubernetes.io/vsphere-volume"];

/// Kinds of objects that the volume plugins read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are Kubernetes' own")]
pub enum Kind {
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    CsiNode,
    CsiDriver,
    CsiStorageCapacity,
    VolumeAttachment,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 7] = [
        Self::PersistentVolume,
        Self::PersistentVolumeClaim,
        Self::StorageClass,
        Self::CsiNode,
        Self::CsiDriver,
        Self::CsiStorageCapacity,
        Self::VolumeAttachment,
    ];

    /// Returns the plural name of its objects in the API.
    pub fn plural(self) -> &'static str {
        match self {
            Self::PersistentVolume => "persistentvolumes",
            Self::PersistentVolumeClaim => "persistentvolumeclaims",
            Self::StorageClass => "storageclasses",
            Self::CsiNode => "csinodes",
            Self::CsiDriver => "csidrivers",
            Self::CsiStorageCapacity => "csistoragecapacities",
            Self::VolumeAttachment => "volumeattachments",
        }
    }
}

/// An object of one of the kinds.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are those of the types")]
pub enum Object {
    Volume(Box<Volume>),
    Claim(Box<Claim>),
    Class(Class),
    CsiNode(CsiNode),
    Driver(Driver),
    Capacity(Capacity),
    Attachment(Attachment),
}

/// A Kubernetes object that is kept here.
pub trait Stored:
    kube::Resource<DynamicType = ()> + Clone + fmt::Debug + DeserializeOwned + Send + 'static
{
    /// Its kind.
    const KIND: Kind;

    /// Returns the relevant part of the object, or `None` for objects without a name, which no API server sends.
    fn into_object(self) -> Option<Object>;
}

macro_rules! stored {
    ($wire:ty, $kind:expr, $read:expr) => {
        impl Stored for $wire {
            const KIND: Kind = $kind;

            fn into_object(self) -> Option<Object> {
                let read: fn(Self) -> Option<Object> = $read;
                read(self)
            }
        }
    };
}

stored!(PersistentVolume, Kind::PersistentVolume, |wire| {
    Volume::read(wire).map(|volume| Object::Volume(Box::new(volume)))
});
stored!(PersistentVolumeClaim, Kind::PersistentVolumeClaim, |wire| {
    Claim::read(wire).map(|claim| Object::Claim(Box::new(claim)))
});
stored!(StorageClass, Kind::StorageClass, |wire| {
    Some(Object::Class(Class::read(wire)))
});
stored!(CSINode, Kind::CsiNode, |wire| {
    Some(Object::CsiNode(CsiNode::read(wire)))
});
stored!(CSIDriver, Kind::CsiDriver, |wire| {
    Some(Object::Driver(Driver::read(&wire)))
});
stored!(CSIStorageCapacity, Kind::CsiStorageCapacity, |wire| {
    Some(Object::Capacity(Capacity::read(wire)))
});
stored!(VolumeAttachment, Kind::VolumeAttachment, |wire| {
    Some(Object::Attachment(Attachment::read(wire)))
});

/// Returns an object with its namespace (empty for cluster-scoped objects) and name.
pub fn read<K: Stored>(wire: K) -> Option<(PodKey, Object)> {
    let key = PodKey {
        namespace: wire.meta().namespace.clone().unwrap_or_default(),
        name: wire.meta().name.clone()?,
    };
    Some((key, wire.into_object()?))
}

/// What a node attaches for a volume, in a form that is equal for equal volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The in-tree plugin; `None` for volumes of CSI drivers. A CSI driver serves an in-tree volume only where the node says so.
    pub plugin: Option<&'static str>,
    /// The CSI driver.
    pub driver: String,
    /// The driver's name of the volume.
    pub handle: String,
}

impl Source {
    /// Returns the source of the first handle that is given; the handles are in the order of [`IN_TREE`].
    fn in_tree(handles: [Option<&String>; IN_TREE.len()]) -> Option<Self> {
        let (handle, (plugin, driver)) = handles
            .into_iter()
            .zip(IN_TREE)
            .find_map(|(handle, names)| Some((handle?, names)))?;
        Some(Self {
            plugin: Some(plugin),
            driver: (*driver).to_owned(),
            // some names begin with the zone
            handle: handle.rsplit('/').next().unwrap_or(handle).to_owned(),
        })
    }

    fn of_volume(spec: &PersistentVolumeSpec) -> Option<Self> {
        if let Some(csi) = &spec.csi {
            return Some(Self {
                plugin: None,
                driver: csi.driver.clone(),
                handle: csi.volume_handle.clone(),
            });
        }
        Self::in_tree([
            spec.aws_elastic_block_store
                .as_ref()
                .map(|disk| &disk.volume_id),
            spec.gce_persistent_disk.as_ref().map(|disk| &disk.pd_name),
            spec.azure_disk.as_ref().map(|disk| &disk.disk_uri),
            spec.cinder.as_ref().map(|disk| &disk.volume_id),
            spec.portworx_volume.as_ref().map(|disk| &disk.volume_id),
        ])
    }

    /// Returns the source of a volume that a pod defines inline; `None` if no CSI driver ever serves it.
    pub fn of_inline(volume: &WireVolume) -> Option<Self> {
        Self::in_tree([
            volume
                .aws_elastic_block_store
                .as_ref()
                .map(|disk| &disk.volume_id),
            volume
                .gce_persistent_disk
                .as_ref()
                .map(|disk| &disk.pd_name),
            volume.azure_disk.as_ref().map(|disk| &disk.disk_uri),
            volume.cinder.as_ref().map(|disk| &disk.volume_id),
            volume.portworx_volume.as_ref().map(|disk| &disk.volume_id),
        ])
    }
}

/// A claim as a volume refers to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Namespace and name of the claim.
    pub claim: PodKey,
    /// UID of the claim; empty if the volume does not give it.
    pub uid: String,
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
        uid: reference.uid.unwrap_or_default(),
    }
}

/// Whether pods may use a claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClaimState {
    /// They may.
    #[default]
    Usable,
    /// Its volume does not exist any more.
    Lost,
    /// It is being deleted.
    Deleting,
}

/// A PersistentVolumeClaim.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claim {
    /// Namespace and name.
    pub key: PodKey,
    /// UID.
    pub uid: String,
    /// Resource version of the object.
    pub version: u64,
    /// Its class; empty for none.
    pub class: String,
    /// Its class of attributes; empty for none.
    pub attributes_class: String,
    /// Requested size; `None` if the claim gives none.
    pub requested: Option<Amount>,
    /// Requested access modes.
    pub access_modes: Vec<String>,
    /// Whether it requests a block device and not a file system.
    pub is_block: bool,
    /// Selector of acceptable volumes.
    pub selector: Option<LabelSelector>,
    /// Its volume; empty for none.
    pub volume: String,
    /// Whether its binding is complete.
    pub is_completed: bool,
    /// Whether pods may use it.
    pub state: ClaimState,
    /// UID of the controller that owns it.
    pub controller: Option<String>,
    /// The node for which its volume is to be provisioned.
    pub selected_node: Option<String>,
}

impl Claim {
    /// Reads a claim. Returns `None` for objects without name or namespace, which no API server sends.
    pub fn read(wire: PersistentVolumeClaim) -> Option<Self> {
        let key = PodKey::of(&wire.metadata)?;
        let metadata = wire.metadata;
        let spec = wire.spec.unwrap_or_default();
        let annotations = metadata.annotations.as_ref();
        let requests = spec.resources.and_then(|resources| resources.requests);
        Some(Self {
            key,
            uid: metadata.uid.unwrap_or_default(),
            version: version(metadata.resource_version.as_deref()),
            class: annotation(annotations, CLASS)
                .or(spec.storage_class_name)
                .unwrap_or_default(),
            attributes_class: spec.volume_attributes_class_name.unwrap_or_default(),
            requested: requests
                .as_ref()
                .filter(|requests| requests.contains_key("storage"))
                .map(|requests| storage(Some(requests))),
            access_modes: spec.access_modes.unwrap_or_default(),
            is_block: spec.volume_mode.as_deref() == Some("Block"),
            selector: spec.selector,
            volume: spec.volume_name.unwrap_or_default(),
            is_completed: annotation(annotations, BIND_COMPLETED).is_some(),
            state: match wire.status.and_then(|status| status.phase).as_deref() {
                Some("Lost") => ClaimState::Lost,
                _ if metadata.deletion_timestamp.is_some() => ClaimState::Deleting,
                _ => ClaimState::Usable,
            },
            controller: metadata
                .owner_references
                .into_iter()
                .flatten()
                .find(|owner| owner.controller == Some(true))
                .map(|owner| owner.uid),
            selected_node: annotation(annotations, SELECTED_NODE),
        })
    }

    /// Returns whether it is bound to its volume and the binding is complete.
    pub fn is_bound(&self) -> bool {
        !self.volume.is_empty() && self.is_completed
    }

    /// Returns whether a volume with this owner is meant for it.
    pub fn owns(&self, owner: &Owner) -> bool {
        owner.claim == self.key && (owner.uid.is_empty() || owner.uid == self.uid)
    }
}

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

/// Volumes and claims that are reserved for a pod until they are bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reservation {
    /// The pod's node.
    pub node: String,
    /// Existing volumes, each with the claim that gets it.
    pub volumes: Vec<(String, PodKey)>,
    /// Claims whose volumes are to be provisioned.
    pub provisions: Vec<PodKey>,
}

/// Progress of binding the volumes of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All claims are bound.
    Bound,
    /// Another component has to act.
    Waiting,
    /// They will not be bound; the reason.
    Failed(String),
}

/// All known storage objects.
#[derive(Debug, Default)]
pub struct Storage {
    volumes: BTreeMap<String, Volume>,
    claims: BTreeMap<PodKey, Claim>,
    classes: BTreeMap<String, Class>,
    nodes: BTreeMap<String, CsiNode>,
    drivers: BTreeMap<String, Driver>,
    capacities: BTreeMap<PodKey, Capacity>,
    attachments: BTreeMap<String, Attachment>,
    /// Names of the attachments of a node.
    attached: BTreeMap<String, BTreeSet<String>>,
    /// Kinds that are not listed yet.
    unknown: BTreeSet<Kind>,
    /// By uid of the pod.
    reservations: BTreeMap<String, Reservation>,
}

impl Storage {
    /// Creates a storage in which every kind is unknown until [`Storage::retain`] says that it is complete.
    pub fn unknown() -> Self {
        Self {
            unknown: Kind::ALL.into(),
            ..Self::default()
        }
    }

    /// Iterates over the kinds whose objects are not known.
    pub fn unknown_kinds(&self) -> impl Iterator<Item = Kind> {
        self.unknown.iter().copied()
    }

    /// Returns a volume by name.
    pub fn volume(&self, name: &str) -> Option<&Volume> {
        self.volumes.get(name)
    }

    /// Iterates over all volumes, by name.
    pub fn volumes(&self) -> impl Iterator<Item = &Volume> {
        self.volumes.values()
    }

    /// Returns a claim.
    pub fn claim(&self, key: &PodKey) -> Option<&Claim> {
        self.claims.get(key)
    }

    /// Returns a class by name.
    pub fn class(&self, name: &str) -> Option<&Class> {
        self.classes.get(name)
    }

    /// Returns the CSINode of a node.
    pub fn node(&self, name: &str) -> Option<&CsiNode> {
        self.nodes.get(name)
    }

    /// Iterates over the attachments of a node.
    pub fn attachments(&self, node: &str) -> impl Iterator<Item = &Attachment> {
        let names = self.attached.get(node).into_iter().flatten();
        names.filter_map(|name| self.attachments.get(name))
    }

    /// Returns the capacities for volumes of a class; `None` if its driver does not publish them.
    pub fn capacities(&self, class: &str) -> Option<impl Iterator<Item = &Capacity>> {
        let provisioner = &self.classes.get(class)?.provisioner;
        let driver = self.drivers.get(provisioner)?;
        driver.publishes_capacity.then(|| {
            let class = class.to_owned();
            self.capacities
                .values()
                .filter(move |capacity| capacity.class == class)
        })
    }

    /// Adds or updates an object. Returns whether anything but its resource version changed.
    pub fn apply(&mut self, key: PodKey, object: Object) -> bool {
        match object {
            Object::Volume(new) => {
                let same = |old: &Volume| {
                    Volume {
                        version: new.version,
                        ..old.clone()
                    } == *new
                };
                let changed = self.volumes.get(&key.name).is_none_or(|old| !same(old));
                self.volumes.insert(key.name, *new);
                changed
            }
            Object::Claim(new) => {
                let same = |old: &Claim| {
                    Claim {
                        version: new.version,
                        ..old.clone()
                    } == *new
                };
                let changed = self.claims.get(&key).is_none_or(|old| !same(old));
                self.claims.insert(key, *new);
                changed
            }
            Object::Class(new) => insert_and_compare(&mut self.classes, key.name, new),
            Object::CsiNode(new) => insert_and_compare(&mut self.nodes, key.name, new),
            Object::Driver(new) => insert_and_compare(&mut self.drivers, key.name, new),
            Object::Capacity(new) => insert_and_compare(&mut self.capacities, key, new),
            Object::Attachment(new) => {
                let names = self.attached.entry(new.node.clone()).or_default();
                names.insert(key.name.clone());
                insert_and_compare(&mut self.attachments, key.name, new)
            }
        }
    }

    /// Removes an object.
    pub fn delete(&mut self, kind: Kind, key: &PodKey) {
        match kind {
            Kind::PersistentVolume => drop(self.volumes.remove(&key.name)),
            Kind::PersistentVolumeClaim => drop(self.claims.remove(key)),
            Kind::StorageClass => drop(self.classes.remove(&key.name)),
            Kind::CsiNode => drop(self.nodes.remove(&key.name)),
            Kind::CsiDriver => drop(self.drivers.remove(&key.name)),
            Kind::CsiStorageCapacity => drop(self.capacities.remove(key)),
            Kind::VolumeAttachment => self.detach(&key.name),
        }
    }

    /// Keeps only the listed objects of a kind and marks the kind as known.
    pub fn retain(&mut self, kind: Kind, keys: &BTreeSet<PodKey>) {
        let named = |name: &str| keys.contains(&PodKey::unscoped(name));
        match kind {
            Kind::PersistentVolume => self.volumes.retain(|name, _| named(name)),
            Kind::PersistentVolumeClaim => self.claims.retain(|key, _| keys.contains(key)),
            Kind::StorageClass => self.classes.retain(|name, _| named(name)),
            Kind::CsiNode => self.nodes.retain(|name, _| named(name)),
            Kind::CsiDriver => self.drivers.retain(|name, _| named(name)),
            Kind::CsiStorageCapacity => self.capacities.retain(|key, _| keys.contains(key)),
            Kind::VolumeAttachment => {
                let names = self.attachments.keys().filter(|name| !named(name));
                let gone: Vec<String> = names.cloned().collect();
                for name in &gone {
                    self.detach(name);
                }
            }
        }
        self.unknown.remove(&kind);
    }

    fn detach(&mut self, name: &str) {
        let Some(attachment) = self.attachments.remove(name) else {
            return;
        };
        if let Some(names) = self.attached.get_mut(&attachment.node) {
            names.remove(name);
            if names.is_empty() {
                self.attached.remove(&attachment.node);
            }
        }
    }

    /// Reserves volumes and claims for the pod of that uid, so that no other pod gets them.
    pub fn reserve(&mut self, uid: &str, reservation: Reservation) {
        self.reservations.insert(uid.to_owned(), reservation);
    }

    /// Releases the reservation for the pod of that uid. Returns false if there is none.
    pub fn release(&mut self, uid: &str) -> bool {
        self.reservations.remove(uid).is_some()
    }

    /// Iterates over all reservations.
    pub fn reservations(&self) -> impl Iterator<Item = &Reservation> {
        self.reservations.values()
    }

    /// Returns the progress of a reservation's volumes. `written` holds the versions of the objects as they were written, volumes first; a
    /// cached object with an older version says nothing yet. `fits` decides whether the node can use a volume.
    pub fn progress(
        &self,
        reservation: &Reservation,
        written: &[u64],
        fits: impl Fn(&Volume) -> bool,
    ) -> Progress {
        let failed = |text: String| Progress::Failed(text);
        let misfit = |volume: &Volume| {
            let Reservation { node, .. } = reservation;
            failed(format!(
                "pv {:?} node affinity doesn't match node {node:?}",
                volume.name
            ))
        };
        let mut all_bound = true;
        let mut versions = written.iter().copied();
        for (name, key) in &reservation.volumes {
            let version = versions.next().unwrap_or(0);
            let (Some(volume), Some(claim)) = (self.volumes.get(name), self.claims.get(key)) else {
                return failed(format!("pv {name:?} or its claim {key} is gone"));
            };
            if volume.version < version {
                return Progress::Waiting;
            }
            if !fits(volume) {
                return misfit(volume);
            }
            if volume.owner.as_ref().is_none_or(|it| it.uid.is_empty()) {
                return failed(format!("ClaimRef got reset for pv {name:?}"));
            }
            all_bound &= claim.is_bound();
        }
        for key in &reservation.provisions {
            let version = versions.next().unwrap_or(0);
            let Some(claim) = self.claims.get(key) else {
                return failed(format!("claim {key} is gone"));
            };
            if claim.version < version {
                return Progress::Waiting;
            }
            if claim.selected_node.as_ref() != Some(&reservation.node) {
                return failed(format!("provisioning failed for PVC {:?}", key.name));
            }
            if !claim.volume.is_empty() {
                let Some(volume) = self.volumes.get(&claim.volume) else {
                    // either a watch shows the volume later, or the claim is unbound
                    return Progress::Waiting;
                };
                if !fits(volume) {
                    return misfit(volume);
                }
            }
            all_bound &= claim.is_bound();
        }
        if all_bound {
            Progress::Bound
        } else {
            Progress::Waiting
        }
    }
}

/// Stores an object and returns whether it differs from the previous one.
fn insert_and_compare<K: Ord, V: PartialEq>(map: &mut BTreeMap<K, V>, key: K, new: V) -> bool {
    let same = map.get(&key) == Some(&new);
    map.insert(key, new);
    !same
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

fn annotation(annotations: Option<&BTreeMap<String, String>>, name: &str) -> Option<String> {
    annotations.and_then(|all| all.get(name)).cloned()
}

fn storage(list: Option<&BTreeMap<String, Quantity>>) -> Amount {
    list.and_then(|list| list.get("storage"))
        .and_then(|quantity| Amount::try_from(quantity).ok())
        .unwrap_or_default()
}

/// Parses the resource version of an object as a number that grows with every change; 0 if it is absent or not a number.
pub fn version(text: Option<&str>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::mk_key;

    fn apply_volume(storage: &mut Storage, version: u64, owner: Option<&str>) -> bool {
        let volume = Volume {
            name: "v".to_owned(),
            version,
            owner: owner.map(|uid| Owner {
                claim: mk_key("ns", "c"),
                uid: uid.to_owned(),
            }),
            ..Volume::default()
        };
        storage.apply(mk_key("", "v"), Object::Volume(Box::new(volume)))
    }

    fn apply_claim(storage: &mut Storage, version: u64, volume: &str, node: Option<&str>) {
        let claim = Claim {
            key: mk_key("ns", "c"),
            version,
            volume: volume.to_owned(),
            is_completed: !volume.is_empty(),
            selected_node: node.map(str::to_owned),
            ..Claim::default()
        };
        storage.apply(mk_key("ns", "c"), Object::Claim(Box::new(claim)));
    }

    #[test]
    fn a_given_volume_is_waited_for_until_its_claim_is_bound_or_it_is_taken_back() {
        let reservation = Reservation {
            node: "n".to_owned(),
            volumes: vec![("v".to_owned(), mk_key("ns", "c"))],
            provisions: Vec::new(),
        };
        let mut storage = Storage::default();
        let progress = |storage: &Storage| storage.progress(&reservation, &[5], |_| true);
        apply_volume(&mut storage, 4, None);
        apply_claim(&mut storage, 3, "", None);
        assert_eq!(progress(&storage), Progress::Waiting);
        apply_volume(&mut storage, 5, Some("uid"));
        assert_eq!(progress(&storage), Progress::Waiting);
        apply_claim(&mut storage, 6, "v", None);
        assert_eq!(progress(&storage), Progress::Bound);
        let misfit = storage.progress(&reservation, &[5], |_| false);
        assert!(matches!(misfit, Progress::Failed(_)), "{misfit:?}");
        apply_volume(&mut storage, 7, None);
        assert!(matches!(progress(&storage), Progress::Failed(_)));
    }

    #[test]
    fn a_provisioner_that_gives_up_takes_the_node_off_the_claim() {
        let reservation = Reservation {
            node: "n".to_owned(),
            volumes: Vec::new(),
            provisions: vec![mk_key("ns", "c")],
        };
        let mut storage = Storage::default();
        let progress = |storage: &Storage| storage.progress(&reservation, &[5], |_| true);
        apply_claim(&mut storage, 4, "", None);
        assert_eq!(progress(&storage), Progress::Waiting);
        apply_claim(&mut storage, 5, "", Some("n"));
        assert_eq!(progress(&storage), Progress::Waiting);
        apply_claim(&mut storage, 6, "v", Some("n"));
        // no watch has shown its volume yet
        assert_eq!(progress(&storage), Progress::Waiting);
        apply_volume(&mut storage, 5, Some("uid"));
        assert_eq!(progress(&storage), Progress::Bound);
        apply_claim(&mut storage, 7, "", None);
        assert!(matches!(progress(&storage), Progress::Failed(_)));
    }

    #[test]
    fn attachments_are_those_of_a_node_until_they_end() {
        let mut storage = Storage::default();
        for (name, node) in [("x", "a"), ("y", "a"), ("z", "b")] {
            let attachment = Attachment {
                node: node.to_owned(),
                driver: name.to_owned(),
                volume: None,
            };
            storage.apply(mk_key("", name), Object::Attachment(attachment));
        }
        let drivers = |storage: &Storage, node| -> Vec<String> {
            let attachments = storage.attachments(node);
            attachments.map(|it| it.driver.clone()).collect()
        };
        assert_eq!(drivers(&storage, "a"), ["x", "y"]);
        storage.delete(Kind::VolumeAttachment, &mk_key("", "x"));
        assert_eq!(drivers(&storage, "a"), ["y"]);
        storage.retain(Kind::VolumeAttachment, &[mk_key("", "z")].into());
        assert_eq!(drivers(&storage, "a"), [""; 0]);
        assert_eq!(drivers(&storage, "b"), ["z"]);
    }

    #[test]
    fn a_new_version_alone_is_nothing_new() {
        let mut storage = Storage::default();
        assert!(apply_volume(&mut storage, 1, None));
        assert!(!apply_volume(&mut storage, 2, None));
        assert_eq!(storage.volume("v").expect("kept").version, 2);
        assert!(apply_volume(&mut storage, 3, Some("uid")));
    }
}
