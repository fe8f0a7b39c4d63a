//! What to do with an object, by the state of its owners.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;
use kube::api::{DynamicObject, PropagationPolicy};

use super::graph::Entry;
use super::kind::WatchedKind;
use super::{Controller, FOREGROUND, ORPHAN};
use crate::controllers::mirror::ObjectKey;

/// What to do with an object.
pub(super) enum Verdict {
    Keep,
    Later,
    Forget,
    Delete(PropagationPolicy),
    /// Remove these owners: they are gone, but others are not.
    Drop(Vec<String>),
    /// Break the deadlock of two foreground deletions that wait for each other.
    Unblock,
}

impl Controller {
    fn watched_kind(&self, api_version: &str, kind: &str) -> Option<Arc<WatchedKind>> {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        self.kinds
            .lock()
            .values()
            .find(|watched| watched.api.group == group && watched.api.kind == kind)
            .cloned()
    }

    /// Decides about an object by the state of its owners.
    pub(super) async fn judge(
        &self,
        entry: &Entry,
        latest: &DynamicObject,
        uid: &str,
    ) -> Result<Verdict, kube::Error> {
        let owners = latest.owner_references();
        if owners.is_empty() {
            return Ok(Verdict::Keep);
        }
        let (mut solid, mut gone, mut waiting) = (false, Vec::new(), false);
        for owner in owners {
            let Some(kind) = self.watched_kind(&owner.api_version, &owner.kind) else {
                return Ok(Verdict::Later);
            };
            if kind.namespaced && entry.key.namespace.is_empty() {
                return Ok(Verdict::Forget);
            }
            match self.owner_state(&kind, owner, &entry.key.namespace).await? {
                None => gone.push(owner.uid.clone()),
                Some(true) => {
                    waiting = true;
                    gone.push(owner.uid.clone());
                }
                Some(false) => solid = true,
            }
        }
        if solid {
            return Ok(if gone.is_empty() {
                Verdict::Keep
            } else {
                Verdict::Drop(gone)
            });
        }
        let (any, foreground) = self.graph.lock().dependents(uid);
        if waiting && any {
            return Ok(if foreground {
                Verdict::Unblock
            } else {
                Verdict::Delete(PropagationPolicy::Foreground)
            });
        }
        let has = |finalizer: &str| latest.finalizers().iter().any(|held| held == finalizer);
        Ok(Verdict::Delete(if has(ORPHAN) {
            PropagationPolicy::Orphan
        } else if has(FOREGROUND) {
            PropagationPolicy::Foreground
        } else {
            PropagationPolicy::Background
        }))
    }

    /// Returns whether an owner exists (`Some`), and whether it waits for its dependents.
    async fn owner_state(
        &self,
        kind: &WatchedKind,
        owner: &OwnerReference,
        namespace: &str,
    ) -> Result<Option<bool>, kube::Error> {
        let namespace = if kind.namespaced { namespace } else { "" };
        let key = ObjectKey::new(namespace, &owner.name);
        if let Some(entry) = self.graph.lock().get(&owner.uid)
            && entry.key == key
            && entry.kind.group_resource() == kind.group_resource()
        {
            return Ok(Some(entry.foreground));
        }
        let found = self.api(kind, namespace).get_opt(&owner.name).await?;
        Ok(found
            .filter(|found| found.uid().as_deref() == Some(&owner.uid))
            .map(|found| {
                found.metadata.deletion_timestamp.is_some()
                    && found.finalizers().iter().any(|held| held == FOREGROUND)
            }))
    }
}
