//! The graph of owners and dependents, by UID.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::kind::WatchedKind;
use super::{FOREGROUND, ORPHAN};
use crate::controllers::mirror::ObjectKey;

/// An object with its owners and the state of its deletion.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) kind: Arc<WatchedKind>,
    pub(super) key: ObjectKey,
    pub(super) owners: Vec<OwnerReference>,
    pub(super) deleting: bool,
    /// It is being deleted and waits for its dependents.
    pub(super) foreground: bool,
    /// It is being deleted and orphans its dependents.
    pub(super) orphaning: bool,
}

/// All objects that were seen. Each change returns the UIDs that have to be processed because of it.
#[derive(Debug, Default)]
pub(super) struct Graph {
    entries: HashMap<String, Entry>,
    dependents: HashMap<String, HashSet<String>>,
}

impl Graph {
    /// Returns the object with a UID.
    pub(super) fn get(&self, uid: &str) -> Option<&Entry> {
        self.entries.get(uid)
    }

    /// Stores the current state of an object.
    pub(super) fn observe(&mut self, kind: &Arc<WatchedKind>, meta: &ObjectMeta) -> Vec<String> {
        let Some(uid) = meta.uid.clone() else {
            return Vec::new();
        };
        let deleting = meta.deletion_timestamp.is_some();
        let has = |finalizer: &str| {
            meta.finalizers
                .iter()
                .flatten()
                .any(|held| held == finalizer)
        };
        let new = Entry {
            kind: Arc::clone(kind),
            key: ObjectKey::of(meta),
            owners: meta.owner_references.clone().unwrap_or_default(),
            deleting,
            foreground: deleting && has(FOREGROUND),
            orphaning: deleting && has(ORPHAN),
        };
        let old = self.entries.get(&uid);
        let mut work = Vec::new();
        if old.is_none_or(|old| old.owners != new.owners) {
            for owner in old.iter().flat_map(|old| &old.owners) {
                if let Some(dependents) = self.dependents.get_mut(&owner.uid) {
                    dependents.remove(&uid);
                }
                // An owner in foreground deletion may have waited for this dependent.
                if self
                    .entries
                    .get(&owner.uid)
                    .is_some_and(|owner| owner.foreground)
                {
                    work.push(owner.uid.clone());
                }
            }
            for owner in &new.owners {
                self.dependents
                    .entry(owner.uid.clone())
                    .or_default()
                    .insert(uid.clone());
            }
            let all_exist = new.owners.iter().all(|owner| {
                let held = self.entries.get(&owner.uid);
                held.is_some_and(|held| !held.foreground && matches_reference(held, owner, &new))
            });
            if !all_exist {
                work.push(uid.clone());
            }
        }
        let old = self.entries.get(&uid);
        if new.orphaning && old.is_none_or(|old| !old.orphaning) {
            work.push(uid.clone());
        }
        if new.foreground && old.is_none_or(|old| !old.foreground) {
            work.extend(self.dependents.get(&uid).into_iter().flatten().cloned());
            work.push(uid.clone());
        }
        self.entries.insert(uid, new);
        work
    }

    /// Removes an object that is gone.
    pub(super) fn forget(&mut self, uid: &str) -> Vec<String> {
        let mut work: Vec<String> = self
            .dependents
            .get(uid)
            .into_iter()
            .flatten()
            .cloned()
            .collect();
        let Some(entry) = self.entries.remove(uid) else {
            return work;
        };
        for owner in entry.owners {
            if let Some(dependents) = self.dependents.get_mut(&owner.uid) {
                dependents.remove(uid);
                if dependents.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
            if self
                .entries
                .get(&owner.uid)
                .is_some_and(|owner| owner.foreground)
            {
                work.push(owner.uid);
            }
        }
        work
    }

    /// Removes the objects of a kind that a new list does not contain.
    pub(super) fn keep_only(
        &mut self,
        kind: &WatchedKind,
        listed: &HashSet<String>,
    ) -> Vec<String> {
        let name = kind.group_resource();
        self.forget_where(|uid, entry| !listed.contains(uid) && entry.kind.group_resource() == name)
    }

    /// Removes all objects of a kind that is no longer served.
    pub(super) fn forget_kind(&mut self, name: &str) -> Vec<String> {
        self.forget_where(|_, entry| entry.kind.group_resource() == name)
    }

    fn forget_where(&mut self, gone: impl Fn(&str, &Entry) -> bool) -> Vec<String> {
        let gone: Vec<String> = self
            .entries
            .iter()
            .filter(|(uid, entry)| gone(uid, entry))
            .map(|(uid, _)| uid.clone())
            .collect();
        gone.iter().flat_map(|uid| self.forget(uid)).collect()
    }

    /// Returns the dependents that block the deletion of an owner.
    pub(super) fn blocking(&self, uid: &str) -> Vec<String> {
        self.dependents_of(uid)
            .into_iter()
            .filter(|(_, entry)| {
                entry
                    .owners
                    .iter()
                    .any(|owner| owner.uid == uid && owner.block_owner_deletion == Some(true))
            })
            .map(|(uid, _)| uid)
            .collect()
    }

    /// Returns whether an object has dependents, and whether one of these waits for its own dependents.
    pub(super) fn dependents(&self, uid: &str) -> (bool, bool) {
        let all = self.dependents_of(uid);
        (
            !all.is_empty(),
            all.iter().any(|(_, entry)| entry.foreground),
        )
    }

    /// Returns the dependents of an object.
    pub(super) fn dependents_of(&self, uid: &str) -> Vec<(String, Entry)> {
        self.dependents
            .get(uid)
            .into_iter()
            .flatten()
            .filter_map(|uid| Some((uid.clone(), self.entries.get(uid)?.clone())))
            .collect()
    }
}

/// Returns whether the object with an owner's UID matches the owner reference of its dependent.
fn matches_reference(held: &Entry, owner: &OwnerReference, dependent: &Entry) -> bool {
    held.key.name == owner.name
        && (!held.kind.namespaced || held.key.namespace == dependent.key.namespace)
        && held.kind.api.kind == owner.kind
}
