//! The kinds of objects that volumes depend on.

use std::fmt;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{
    CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment,
};
use serde::de::DeserializeOwned;

use super::{Attachment, Capacity, Claim, Class, CsiNode, Driver, Volume};
use crate::state::pod::PodKey;

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
