//! A write on its way through admission.

use serde_json::Value;

use crate::access::identity::Identity;
use crate::failure::{Failure, Subject};
use crate::registry::Resource;

/// User name prefix of kubelets.
const NODE_USER_PREFIX: &str = "system:node:";

/// A write under admission.
#[derive(Clone, Copy)]
pub(crate) struct Attempt<'a> {
    /// The resource.
    pub(crate) resource: &'a Resource,
    /// The subresource, or empty.
    pub(crate) subresource: &'a str,
    /// Namespace, or empty.
    pub(crate) namespace: &'a str,
    /// Name of the object.
    pub(crate) name: &'a str,
    /// The user of the request.
    pub(crate) identity: &'a Identity,
    /// The object before the write; `None` for a new one.
    pub(crate) before: Option<&'a Value>,
    /// Names of the disabled plugins.
    pub(crate) disabled: &'a [String],
}

impl Attempt<'_> {
    /// Returns the refusal of a plugin.
    pub(crate) fn forbidden(&self, why: &str) -> Failure {
        let subject = Subject {
            group: &self.resource.group,
            resource: &self.resource.plural,
            name: self.name,
        };
        Failure::forbidden(&subject, why)
    }

    pub(super) fn is_enabled(&self, plugin: &str) -> bool {
        !self.disabled.iter().any(|name| name == plugin)
    }

    /// Returns the node that the request's kubelet runs on; `None` for any other user.
    pub(super) fn node(&self) -> Option<&str> {
        node_of(self.identity)
    }
}

/// Returns the node of a kubelet; `None` for any other user.
pub(crate) fn node_of(identity: &Identity) -> Option<&str> {
    identity
        .user
        .groups
        .iter()
        .any(|group| group == "system:nodes")
        .then(|| identity.user.name.strip_prefix(NODE_USER_PREFIX))
        .flatten()
}
