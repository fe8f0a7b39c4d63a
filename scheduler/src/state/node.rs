//! What is kept of a node.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node as WireNode, Taint};
use nrt::request::resources;
use topology::resource::Resources;

use crate::state::images::Images;
use crate::state::pod::PodKey;
use crate::state::totals::Totals;

/// The fields of a node object that the scheduler reads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// Name.
    pub name: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Taints.
    pub taints: Vec<Taint>,
    /// Whether it is closed to new pods.
    pub unschedulable: bool,
    /// What pods may use in total.
    pub allocatable: Resources,
    /// Images on the node. They affect scores only.
    pub images: Images,
}

impl Node {
    /// Returns whether every filter treats both nodes alike.
    pub(super) fn is_alike_for_filters(&self, other: &Self) -> bool {
        // every field by name, so that the compiler asks about a new one
        let Self {
            name: _,
            labels,
            taints,
            unschedulable,
            allocatable,
            images: _,
        } = self;
        *labels == other.labels
            && *taints == other.taints
            && *unschedulable == other.unschedulable
            && *allocatable == other.allocatable
    }

    /// Reads a node. Returns `None` for objects without a name, which no API server sends.
    pub fn read(wire: WireNode) -> Option<Self> {
        let (spec, status) = (
            wire.spec.unwrap_or_default(),
            wire.status.unwrap_or_default(),
        );
        Some(Self {
            name: wire.metadata.name?,
            labels: wire.metadata.labels.unwrap_or_default(),
            taints: spec.taints.unwrap_or_default(),
            unschedulable: spec.unschedulable.unwrap_or(false),
            allocatable: resources(status.allocatable.as_ref()),
            images: Images::read(status.images.as_deref().unwrap_or_default()),
        })
    }
}

/// A node and what its pods use.
#[derive(Clone, Debug, Default)]
pub struct NodeState {
    /// The object; `None` while only pods name the node.
    pub node: Option<Node>,
    /// Pods that hold resources there.
    pub pods: BTreeSet<PodKey>,
    /// Sum of their requests.
    pub used: Totals,
    /// Sum of their requests as scores count them: CPU (milli), memory.
    pub nonzero_request: (i128, i128),
    /// Number of these pods by priority.
    pub priorities: BTreeMap<i32, usize>,
}
