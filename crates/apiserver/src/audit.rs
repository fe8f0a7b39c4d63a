//! What was asked of the authorizers and what they said: to find rules that nobody uses, and requests that nobody may make.
//!
//! A new server records nothing. Decisions about one's own rights (reviews, escalation) are not recorded: they are no requests.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::authz::{Attributes, User};

/// A request as the authorizers saw it, and their answer. Requests that differ in nothing of this are one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Decision {
    /// Who asked.
    pub user: String,
    /// Verb, as RBAC names it; the method in small letters for what is no resource.
    pub verb: String,
    /// API group, empty for the core group.
    pub group: String,
    /// Resource in plural; empty for what is no resource.
    pub resource: String,
    /// Subresource, empty for the resource itself.
    pub subresource: String,
    /// Namespace, empty for a request across all of them and for what has none.
    pub namespace: String,
    /// Name of the object; creations and lists that name none have none.
    pub name: String,
    /// The path of what is no resource.
    pub path: String,
    /// Whether the request was let through.
    pub allowed: bool,
}

/// The record.
#[derive(Debug, Default)]
pub(crate) struct Record {
    is_on: AtomicBool,
    decisions: Mutex<BTreeSet<Decision>>,
}

impl Record {
    /// Records from now on.
    pub(crate) fn start(&self) {
        self.is_on.store(true, Ordering::Release);
    }

    pub(crate) fn add(&self, user: &User, asked: &Attributes<'_>, allowed: bool) {
        if !self.is_on.load(Ordering::Acquire) {
            return;
        }
        let decision = Decision {
            user: user.name.clone(),
            verb: asked.verb.to_owned(),
            group: asked.group.to_owned(),
            resource: asked.resource.to_owned(),
            subresource: asked.subresource.to_owned(),
            namespace: asked.namespace.to_owned(),
            name: asked.name.to_owned(),
            path: asked.path.to_owned(),
            allowed,
        };
        let mut decisions = self
            .decisions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        decisions.insert(decision);
    }

    /// All decisions about a user so far.
    pub(crate) fn of(&self, user: &str) -> Vec<Decision> {
        let decisions = self
            .decisions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let its = decisions.iter().filter(|decision| decision.user == user);
        its.cloned().collect()
    }
}
