//! The watched kinds: the one table that the live watches ([`start`](super::start::start)) and
//! [`explain`](crate::explain::snapshot) read.
//!
//! A kind has a variant of [`Kind`], an implementation of [`Watched`] for its type, and a line in [`each`].

use std::collections::BTreeMap;
use std::fmt::Debug;

use api::nrt::v1alpha2::NodeResourceTopology;
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{
    Namespace, Node as WireNode, PersistentVolume, PersistentVolumeClaim, Pod as WirePod,
    ReplicationController, Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{
    CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{Resource, ResourceExt as _};
use nrt::decode::{NodeTopology, decode};
use serde::de::DeserializeOwned;

use crate::framework::profile::Profile;
use crate::state::cluster::{Budget, labelled};
use crate::state::group_kind::GroupKind;
use crate::state::node::Node;
use crate::state::pod::{Pod, PodKey};
use crate::state::storage::{self, Stored};

/// A kind of objects that the scheduler reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are Kubernetes' own")]
pub enum Kind {
    Node,
    NodeResourceTopology,
    Pod,
    PodDisruptionBudget,
    Namespace,
    /// A service or a controller of pods.
    Group(GroupKind),
    /// A kind that volumes depend on.
    Storage(storage::Kind),
}

/// When a kind is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Always.
    Always,
    /// If a profile spreads pods that have no constraints: the objects say which pods belong together.
    DefaultSpread,
    /// Once there is a pod that cannot be examined without volumes: clusters without claims do not pay for these watches. Without the
    /// right to list the objects, pods without such volumes are still placed.
    Volumes,
}

/// Which kinds are needed in addition to those that always are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Those for [`Need::DefaultSpread`].
    pub default_spread: bool,
    /// Those for [`Need::Volumes`].
    pub volumes: bool,
}

impl Needs {
    /// Returns which kinds of objects these profiles need.
    pub fn of(profiles: &[Profile]) -> Self {
        Self {
            default_spread: profiles.iter().any(Profile::spreads_by_default),
            volumes: profiles.iter().any(Profile::reads_volumes),
        }
    }

    /// Returns whether a kind is needed.
    pub fn include(self, kind: Kind) -> bool {
        match kind.need() {
            Need::Always => true,
            Need::DefaultSpread => self.default_spread,
            Need::Volumes => self.volumes,
        }
    }
}

impl Kind {
    /// Returns the plural name of its objects in the API.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Node => "nodes",
            Self::NodeResourceTopology => "noderesourcetopologies",
            Self::Pod => "pods",
            Self::PodDisruptionBudget => "poddisruptionbudgets",
            Self::Namespace => "namespaces",
            Self::Group(kind) => kind.plural(),
            Self::Storage(kind) => kind.plural(),
        }
    }

    /// Returns when it is watched.
    pub fn need(self) -> Need {
        match self {
            Self::Node
            | Self::NodeResourceTopology
            | Self::Pod
            | Self::PodDisruptionBudget
            | Self::Namespace => Need::Always,
            Self::Group(_) => Need::DefaultSpread,
            Self::Storage(_) => Need::Volumes,
        }
    }
}

/// An object of one of the kinds, as far as the scheduler reads it.
#[derive(Clone, Debug)]
pub enum Object {
    /// A node.
    Node(Box<Node>),
    /// What an NRT says of its node.
    Topology(Box<NodeTopology>),
    /// A pod.
    Pod(Box<Pod>),
    /// A disruption budget.
    Budget(Budget),
    /// The labels of a namespace.
    Namespace(BTreeMap<String, String>),
    /// The selector of a service or of a controller of pods, if it has one.
    Group(GroupKind, Option<LabelSelector>),
    /// An object that volumes depend on.
    Storage(storage::Object),
}

/// A Kubernetes object of a watched kind.
pub trait Watched:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static
{
    /// Its kind.
    const KIND: Kind;

    /// Returns namespace (empty for cluster-scoped objects), name and relevant part of the object; `None` for objects without a name, which
    /// no API server sends. `note` gets the name and each part that is not used because it is invalid.
    fn read(self, note: impl FnMut(&str, String)) -> Option<(PodKey, Object)>;
}

/// What is done with each kind.
pub trait Visitor {
    /// Does it with one kind.
    fn visit<K: Watched>(&mut self);
}

/// Visits every kind.
pub fn each(visitor: &mut impl Visitor) {
    visitor.visit::<WireNode>();
    visitor.visit::<NodeResourceTopology>();
    visitor.visit::<WirePod>();
    visitor.visit::<PodDisruptionBudget>();
    visitor.visit::<Namespace>();

    visitor.visit::<Service>();
    visitor.visit::<ReplicationController>();
    visitor.visit::<ReplicaSet>();
    visitor.visit::<StatefulSet>();

    visitor.visit::<PersistentVolume>();
    visitor.visit::<PersistentVolumeClaim>();
    visitor.visit::<StorageClass>();
    visitor.visit::<CSINode>();
    visitor.visit::<CSIDriver>();
    visitor.visit::<CSIStorageCapacity>();
    visitor.visit::<VolumeAttachment>();
}

/// Returns every kind.
pub fn all() -> Vec<Kind> {
    let mut all = Vec::new();
    each(&mut all);
    all
}

impl Visitor for Vec<Kind> {
    fn visit<K: Watched>(&mut self) {
        self.push(K::KIND);
    }
}

macro_rules! watched {
    ($wire:ty, $kind:expr, $read:expr) => {
        impl Watched for $wire {
            const KIND: Kind = $kind;

            fn read(self, _: impl FnMut(&str, String)) -> Option<(PodKey, Object)> {
                let read: fn(Self) -> Option<(PodKey, Object)> = $read;
                read(self)
            }
        }
    };
}

watched!(WireNode, Kind::Node, |wire| {
    let node = Node::read(wire)?;
    Some((
        PodKey::unscoped(node.name.clone()),
        Object::Node(Box::new(node)),
    ))
});
watched!(WirePod, Kind::Pod, |wire| {
    let pod = Pod::read(wire)?;
    Some((pod.key.clone(), Object::Pod(Box::new(pod))))
});
watched!(PodDisruptionBudget, Kind::PodDisruptionBudget, |wire| {
    let (key, budget) = Budget::read(wire)?;
    Some((key, Object::Budget(budget)))
});
watched!(Namespace, Kind::Namespace, |wire| {
    let key = PodKey::unscoped(wire.name_any());
    let labels = wire.metadata.labels.unwrap_or_default();
    Some((key, Object::Namespace(labels)))
});

impl Watched for NodeResourceTopology {
    const KIND: Kind = Kind::NodeResourceTopology;

    fn read(self, mut note: impl FnMut(&str, String)) -> Option<(PodKey, Object)> {
        let name = self.name_any();
        let (topology, problems) = decode(&self);
        for problem in problems {
            note(&name, problem.to_string());
        }
        Some((PodKey::unscoped(name), Object::Topology(Box::new(topology))))
    }
}

macro_rules! group {
    ($wire:ty, $kind:expr, $selector:expr) => {
        watched!($wire, Kind::Group($kind), |wire| {
            let key = PodKey::of(wire.meta())?;
            let selector: fn($wire) -> Option<LabelSelector> = $selector;
            Some((key, Object::Group($kind, selector(wire))))
        });
    };
}

group!(Service, GroupKind::Service, |wire| {
    wire.spec.and_then(|spec| spec.selector).map(labelled)
});
group!(
    ReplicationController,
    GroupKind::ReplicationController,
    |wire| wire.spec.and_then(|spec| spec.selector).map(labelled)
);
group!(ReplicaSet, GroupKind::ReplicaSet, |wire| {
    wire.spec.map(|spec| spec.selector)
});
group!(StatefulSet, GroupKind::StatefulSet, |wire| {
    wire.spec.map(|spec| spec.selector)
});

impl<K: Stored> Watched for K {
    const KIND: Kind = Kind::Storage(K::KIND);

    fn read(self, _: impl FnMut(&str, String)) -> Option<(PodKey, Object)> {
        storage::read(self).map(|(key, object)| (key, Object::Storage(object)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[derive(Default)]
    struct Seen(BTreeSet<Kind>);

    impl Visitor for Seen {
        fn visit<K: Watched>(&mut self) {
            assert_eq!(K::plural(&()), K::KIND.plural());
            assert!(self.0.insert(K::KIND), "{:?} is there twice", K::KIND);
        }
    }

    #[test]
    fn every_kind_is_in_the_table_once_under_its_name() {
        let mut seen = Seen::default();
        each(&mut seen);
        let groups = GroupKind::ALL.map(Kind::Group);
        let storage = storage::Kind::ALL.map(Kind::Storage);
        for kind in groups.into_iter().chain(storage) {
            assert!(seen.0.contains(&kind), "{kind:?}");
        }
        assert_eq!(seen.0.len(), 5 + groups.len() + storage.len());
    }
}
