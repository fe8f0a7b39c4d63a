//! Volumes, claims and what else decides where storage can be had: what the watches told, and which volumes and claims this scheduler has
//! taken for pods whose binding is under way.
//!
//! Objects are kept as far as the volume plugins look at them. Pods without volumes of these kinds never get here.

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

use crate::pod::PodKey;

/// A claim with it is bound for good.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// The node for which a claim's volume is to be made.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// A volume with it was given its claim by a program.
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// The class of a volume or a claim, before there was a field for it.
const CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// In-tree plugins of a node whose volumes a CSI driver serves.
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
/// In-tree plugins whose volumes no node counts.
const NEVER_COUNTED: &[&str] = &["kubernetes.io/azure-file", "kubernetes.io/vsphere-volume"];

/// Kinds of objects that the volume plugins look at.
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

    /// Its objects, as the API names them.
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
    NodeDrivers(NodeDrivers),
    Driver(Driver),
    Capacity(Capacity),
    Attachment(Attachment),
}

/// An object of Kubernetes that is kept here.
pub trait Stored:
    kube::Resource<DynamicType = ()> + Clone + fmt::Debug + DeserializeOwned + Send + 'static
{
    /// Its kind.
    const KIND: Kind;

    /// As far as it matters. Nothing for objects without a name, which no API server sends.
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
    Some(Object::NodeDrivers(NodeDrivers::read(wire)))
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

/// An object with its namespace, empty for objects without, and name.
pub fn read<K: Stored>(wire: K) -> Option<(PodKey, Object)> {
    let key = PodKey {
        namespace: wire.meta().namespace.clone().unwrap_or_default(),
        name: wire.meta().name.clone()?,
    };
    Some((key, wire.into_object()?))
}

/// A volume as only this scheduler can compare it with others: what a node attaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The in-tree plugin; none for volumes of CSI drivers. Then the driver serves it only where the node says so.
    pub plugin: Option<&'static str>,
    /// The CSI driver.
    pub driver: String,
    /// The driver's name of it.
    pub handle: String,
}

impl Source {
    /// The first of the volumes, one for each of [`IN_TREE`].
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

    /// Of a volume that a pod names itself; none if no CSI driver ever serves it.
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

/// A claim as a volume names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Namespace and name of the claim.
    pub claim: PodKey,
    /// Its identity; empty if the volume does not say.
    pub uid: String,
}

/// A PersistentVolume.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Volume {
    /// Name.
    pub name: String,
    /// Identity.
    pub uid: String,
    /// Version of the object.
    pub version: u64,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Its class; empty for none.
    pub class: String,
    /// Its class of attributes; empty for none.
    pub attributes_class: String,
    /// How much it holds.
    pub capacity: Amount,
    /// How it may be used.
    pub access_modes: Vec<String>,
    /// A block device rather than a file system.
    pub is_block: bool,
    /// Where it can be used: any of these; none if everywhere.
    pub node_terms: Option<Vec<NodeSelectorTerm>>,
    /// Whose it is or is meant to be.
    pub owner: Option<Owner>,
    /// Free to be given to a claim.
    pub is_available: bool,
    /// Being deleted.
    pub is_deleting: bool,
    /// What a node attaches; none if that is not counted anywhere.
    pub source: Option<Source>,
}

impl Volume {
    /// Reads a volume. Nothing for objects without a name, which no API server sends.
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
    /// Identity.
    pub uid: String,
    /// Version of the object.
    pub version: u64,
    /// Its class; empty for none.
    pub class: String,
    /// Its class of attributes; empty for none.
    pub attributes_class: String,
    /// How much is asked for; none if it does not say.
    pub wanted: Option<Amount>,
    /// How it is to be used.
    pub access_modes: Vec<String>,
    /// A block device is wanted rather than a file system.
    pub is_block: bool,
    /// The volumes that will do.
    pub selector: Option<LabelSelector>,
    /// Its volume; empty for none.
    pub volume: String,
    /// Bound for good.
    pub is_completed: bool,
    /// Whether pods may use it.
    pub state: ClaimState,
    /// Identity of the controller that made it.
    pub controller: Option<String>,
    /// The node for which its volume is to be made.
    pub selected_node: Option<String>,
}

impl Claim {
    /// Reads a claim. Nothing for objects without name or namespace, which no API server sends.
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
            wanted: requests
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

    /// Whether it has its volume for good.
    pub fn is_bound(&self) -> bool {
        !self.volume.is_empty() && self.is_completed
    }

    /// Whether a volume is meant for it.
    pub fn owns(&self, owner: &Owner) -> bool {
        owner.claim == self.key && (owner.uid.is_empty() || owner.uid == self.uid)
    }
}

/// A StorageClass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Class {
    /// Who makes its volumes.
    pub provisioner: String,
    /// Claims wait for the first pod that uses them.
    pub waits_for_consumer: bool,
    /// Where volumes can be made: any of these, each a list of labels with their values; everywhere if there is none.
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
pub struct NodeDrivers {
    /// How many volumes of a driver the node can have attached.
    pub limits: BTreeMap<String, i64>,
    /// In-tree plugins whose volumes CSI drivers serve there.
    pub migrated: BTreeSet<String>,
}

impl NodeDrivers {
    /// Reads a node's drivers.
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
    /// It tells how much room there is.
    pub tells_capacity: bool,
}

impl Driver {
    /// Reads a driver.
    pub fn read(wire: &CSIDriver) -> Self {
        Self {
            tells_capacity: wire.spec.storage_capacity == Some(true),
        }
    }
}

/// A CSIStorageCapacity.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Capacity {
    /// The class of volumes.
    pub class: String,
    /// The largest volume that there is room for; none if that is not known.
    pub largest: Option<Amount>,
    /// The nodes that can use it; none if no node can.
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
    /// The PersistentVolume; none for volumes that a pod names itself.
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

/// Volumes and claims that are taken for a pod until they are bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reservation {
    /// The pod's node.
    pub node: String,
    /// Volumes that exist, each with the claim that gets it.
    pub volumes: Vec<(String, PodKey)>,
    /// Claims whose volumes are to be made.
    pub provisions: Vec<PodKey>,
}

/// How far the volumes of a pod are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All claims are bound.
    Bound,
    /// Somebody else has to act.
    Waiting,
    /// They will not be bound; why.
    Failed(String),
}

/// Everything that is known.
#[derive(Debug, Default)]
pub struct Storage {
    volumes: BTreeMap<String, Volume>,
    claims: BTreeMap<PodKey, Claim>,
    classes: BTreeMap<String, Class>,
    nodes: BTreeMap<String, NodeDrivers>,
    drivers: BTreeMap<String, Driver>,
    capacities: BTreeMap<PodKey, Capacity>,
    attachments: BTreeMap<String, Attachment>,
    /// Names of the attachments of a node.
    attached: BTreeMap<String, BTreeSet<String>>,
    /// Kinds that were not listed yet.
    unknown: BTreeSet<Kind>,
    /// By the uid of the pod.
    reservations: BTreeMap<String, Reservation>,
}

impl Storage {
    /// One that knows nothing until [`Storage::retain`] says that a kind is complete.
    pub fn unknown() -> Self {
        Self {
            unknown: Kind::ALL.into(),
            ..Self::default()
        }
    }

    /// Kinds whose objects are not known.
    pub fn unknown_kinds(&self) -> impl Iterator<Item = Kind> {
        self.unknown.iter().copied()
    }

    /// One volume.
    pub fn volume(&self, name: &str) -> Option<&Volume> {
        self.volumes.get(name)
    }

    /// Every volume, by name.
    pub fn volumes(&self) -> impl Iterator<Item = &Volume> {
        self.volumes.values()
    }

    /// One claim.
    pub fn claim(&self, key: &PodKey) -> Option<&Claim> {
        self.claims.get(key)
    }

    /// One class.
    pub fn class(&self, name: &str) -> Option<&Class> {
        self.classes.get(name)
    }

    /// The drivers of a node.
    pub fn node(&self, name: &str) -> Option<&NodeDrivers> {
        self.nodes.get(name)
    }

    /// What is attached to a node.
    pub fn attachments(&self, node: &str) -> impl Iterator<Item = &Attachment> {
        let names = self.attached.get(node).into_iter().flatten();
        names.filter_map(|name| self.attachments.get(name))
    }

    /// The room for volumes of a class; none if its driver does not tell.
    pub fn capacities(&self, class: &str) -> Option<impl Iterator<Item = &Capacity>> {
        let provisioner = &self.classes.get(class)?.provisioner;
        let driver = self.drivers.get(provisioner)?;
        driver.tells_capacity.then(|| {
            let class = class.to_owned();
            self.capacities
                .values()
                .filter(move |capacity| capacity.class == class)
        })
    }

    /// An object was added or changed. True if it says anything new.
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
            Object::Class(new) => differs(&mut self.classes, key.name, new),
            Object::NodeDrivers(new) => differs(&mut self.nodes, key.name, new),
            Object::Driver(new) => differs(&mut self.drivers, key.name, new),
            Object::Capacity(new) => differs(&mut self.capacities, key, new),
            Object::Attachment(new) => {
                let names = self.attached.entry(new.node.clone()).or_default();
                names.insert(key.name.clone());
                differs(&mut self.attachments, key.name, new)
            }
        }
    }

    /// An object is gone.
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

    /// These are all objects of a kind: it is known from now on.
    pub fn retain(&mut self, kind: Kind, keys: &BTreeSet<PodKey>) {
        let named = |name: &str| {
            keys.contains(&PodKey {
                namespace: String::new(),
                name: name.to_owned(),
            })
        };
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

    /// Takes volumes and claims for the pod of that uid: no other pod gets them meanwhile.
    pub fn reserve(&mut self, uid: &str, reservation: Reservation) {
        self.reservations.insert(uid.to_owned(), reservation);
    }

    /// Gives back what was taken for the pod of that uid. False if nothing was.
    pub fn release(&mut self, uid: &str) -> bool {
        self.reservations.remove(uid).is_some()
    }

    /// What was taken for which pod.
    pub fn reservations(&self) -> impl Iterator<Item = &Reservation> {
        self.reservations.values()
    }

    /// How far the volumes of a reservation are. `written` has the versions of the objects as they were written, volumes first: older ones
    /// say nothing yet. `fits` tells whether the node can use a volume.
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
                    // it will be seen, or the claim will be unbound
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

/// Puts an object into its place; whether it differs from what was there.
fn differs<K: Ord, V: PartialEq>(map: &mut BTreeMap<K, V>, key: K, new: V) -> bool {
    let same = map.get(&key) == Some(&new);
    map.insert(key, new);
    !same
}

/// The CSI driver that makes the volumes of a provisioner for a node; none if they are not counted there.
pub fn driver_of<'a>(provisioner: &'a str, node: Option<&NodeDrivers>) -> Option<&'a str> {
    if NEVER_COUNTED.contains(&provisioner) {
        return None;
    }
    match IN_TREE.iter().find(|(plugin, _)| *plugin == provisioner) {
        Some((plugin, driver)) => is_counted(plugin, node).then_some(*driver),
        None => Some(provisioner),
    }
}

/// Whether the volumes of an in-tree plugin are counted under its CSI driver on a node: on every node that lists drivers, whether or not it says
/// that the driver serves them, but for one plugin.
pub fn is_counted(plugin: &str, node: Option<&NodeDrivers>) -> bool {
    node.is_some() && (plugin != PORTWORX || is_migrated(plugin, node))
}

/// Whether a node says that a CSI driver serves the volumes of an in-tree plugin.
pub fn is_migrated(plugin: &str, node: Option<&NodeDrivers>) -> bool {
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

/// The version of an object as a number, which grows with every change.
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
        // its volume was not seen yet
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
