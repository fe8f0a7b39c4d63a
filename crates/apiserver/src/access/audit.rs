//! Records the requests that the authorizers saw and their decisions. This shows rules that no request uses, and requests that are denied.
//!
//! A new server records nothing. Decisions about a user's own rights (reviews, escalation) are not recorded, because they are not requests.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::authz::Attributes;
use super::identity::User;

/// A request to the authorizers and their decision. Requests with equal fields are recorded once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Decision {
    /// Name of the user.
    pub user: String,
    /// Verb, as RBAC names it; for a path, the HTTP method in lower case.
    pub verb: String,
    /// API group, empty for the core group.
    pub group: String,
    /// Resource in plural; empty for a path.
    pub resource: String,
    /// Subresource, empty for the resource itself.
    pub subresource: String,
    /// Namespace; empty for a request across all namespaces and for cluster-scoped resources.
    pub namespace: String,
    /// Name of the object; empty for creations and lists that name none.
    pub name: String,
    /// The path of a request that is not for a resource.
    pub path: String,
    /// Whether the request was allowed.
    pub allowed: bool,
}

/// The recorded decisions.
#[derive(Debug, Default)]
pub(crate) struct Record {
    is_on: AtomicBool,
    decisions: Mutex<BTreeSet<Decision>>,
}

impl Record {
    /// Starts recording.
    pub(crate) fn start(&self) {
        self.is_on.store(true, Ordering::Release);
    }

    pub(crate) fn add(&self, user: &User, attributes: &Attributes<'_>, allowed: bool) {
        if !self.is_on.load(Ordering::Acquire) {
            return;
        }
        let decision = Decision {
            user: user.name.clone(),
            verb: attributes.verb.to_owned(),
            group: attributes.group.to_owned(),
            resource: attributes.resource.to_owned(),
            subresource: attributes.subresource.to_owned(),
            namespace: attributes.namespace.to_owned(),
            name: attributes.name.to_owned(),
            path: attributes.path.to_owned(),
            allowed,
        };
        let mut decisions = self.decisions.lock();
        decisions.insert(decision);
    }

    /// Returns all recorded decisions about a user.
    pub(crate) fn of(&self, user: &str) -> Vec<Decision> {
        let decisions = self.decisions.lock();
        let its = decisions.iter().filter(|decision| decision.user == user);
        its.cloned().collect()
    }
}
