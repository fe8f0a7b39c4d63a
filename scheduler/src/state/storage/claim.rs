//! Claims on volumes.

use api::quantity::Amount;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::Owner;
use super::fields::{CLASS, annotation, storage, version};
use crate::state::pod::PodKey;

/// Annotation of a claim whose binding is complete.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Annotation with the node for which a claim's volume is to be provisioned.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

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
    /// Its volume.
    pub volume: Option<String>,
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
            volume: spec.volume_name.filter(|name| !name.is_empty()),
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
        self.volume.is_some() && self.is_completed
    }

    /// Returns whether a volume with this owner is meant for it.
    pub fn owns(&self, owner: &Owner) -> bool {
        owner.claim == self.key && owner.uid.as_ref().is_none_or(|uid| *uid == self.uid)
    }
}
