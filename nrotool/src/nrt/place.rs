//! A node with all that is known of it.

use k8s_openapi::api::core::v1::{Node, Pod};
use nrt::decode::NodeTopology;
use topology::request::Pod as Request;
use topology::resource::ResourceName;

/// A pod with what it requests.
#[derive(Debug)]
pub(super) struct Known<'a> {
    /// The object.
    pub(super) pod: &'a Pod,
    /// What it requests.
    pub(super) request: Request,
}

impl<'a> Known<'a> {
    /// Reads a pod. One without a spec, which no API server sends, is `None`.
    pub(super) fn new(pod: &'a Pod) -> Option<Self> {
        let qos = pod.status.as_ref().and_then(|it| it.qos_class.as_deref());
        let request = nrt::request::of_pod(pod.spec.as_ref()?, qos);
        Some(Self { pod, request })
    }

    /// Returns its node.
    pub(super) fn node(&self) -> Option<&'a str> {
        let node = self.pod.spec.as_ref()?.node_name.as_deref()?;
        Some(node).filter(|node| !node.is_empty())
    }

    /// Returns whether it has ended, and so holds nothing.
    pub(super) fn is_terminal(&self) -> bool {
        let phase = self.pod.status.as_ref().and_then(|it| it.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    }
}

/// A node with all that is known of it.
#[derive(Debug)]
pub(super) struct Place<'a> {
    /// Its name.
    pub(super) name: String,
    /// The node's object.
    pub(super) node: Option<&'a Node>,
    /// Its zones.
    pub(super) topology: NodeTopology,
    /// Pods on it that have not ended.
    pub(super) pods: Vec<&'a Known<'a>>,
}

impl Place<'_> {
    /// Returns whether the zones of the node have a resource.
    pub(super) fn zoned(&self) -> impl Fn(&ResourceName) -> bool {
        let zones = &self.topology.zones;
        move |name| zones.iter().any(|zone| zone.resources.contains_key(name))
    }
}
