//! Revisions of the template of a StatefulSet.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use kube::api::DeleteParams;

use super::{Controller, identity};
use crate::controllers::revisions::{self, Made, Snapshot};
use crate::controllers::{objects, pods};

/// Label of a revision with the hash of its template.
const HASH: &str = "controller.kubernetes.io/hash";

/// The revisions of a set.
pub(super) struct History {
    /// The one that all pods had before the last change.
    pub(super) current: Arc<ControllerRevision>,
    /// The one of the template as it is now.
    pub(super) update: Arc<ControllerRevision>,
    /// Number of names that other revisions had already.
    pub(super) collisions: i32,
    all: Vec<Arc<ControllerRevision>>,
}

impl History {
    /// Returns the revision and the template of a new pod with an ordinal.
    ///
    /// # Errors
    /// Returns an error if the data of a revision is no template.
    pub(super) fn of_new(
        &self,
        set: &StatefulSet,
        ordinal: i32,
    ) -> Result<(&str, PodTemplateSpec), kube::Error> {
        let strategy = set.spec.clone().unwrap_or_default().update_strategy;
        let strategy = strategy.unwrap_or_default();
        let status = set.status.as_ref();
        // below this place a pod keeps the current revision
        let kept = match &strategy.rolling_update {
            Some(rolling) => rolling.partition.unwrap_or(0),
            None if strategy.type_.as_deref() == Some("RollingUpdate") => status
                .and_then(|status| status.current_replicas)
                .unwrap_or(0),
            None => 0,
        };
        let place = ordinal - identity::range(set).start;
        let revision = if place < kept {
            &self.current
        } else {
            &self.update
        };
        Ok((objects::name(&**revision), revisions::template(revision)?))
    }
}

impl Controller {
    /// Returns the revisions of a set; that of its template is created if it is missing.
    pub(super) async fn history(&self, set: &StatefulSet) -> Result<History, kube::Error> {
        let spec = set.spec.clone().unwrap_or_default();
        let mirror = &self.world.revisions;
        let mut all = pods::claim(mirror, set, &spec.selector, |_| true).await?;
        all.sort_by_cached_key(|revision| (revision.revision, revision.metadata.name.clone()));
        let wanted = revisions::data(&spec.template);
        let next = all.last().map_or(0, |last| last.revision) + 1;
        let same = all
            .iter()
            .rposition(|revision| revision.data.as_ref().is_some_and(|data| data.0 == wanted));
        let status = set.status.clone().unwrap_or_default();
        let mut collisions = status.collision_count.unwrap_or(0);
        let update = match same {
            Some(place) if place + 1 == all.len() => Arc::clone(&all[place]),
            Some(place) => {
                let mut again = ControllerRevision::clone(&all[place]);
                again.revision = next;
                mirror.replace(&again).await?
            }
            None => loop {
                let snapshot = Snapshot {
                    owner: set,
                    template: &spec.template,
                    collisions: Some(collisions),
                    hash_label: HASH,
                };
                match snapshot.create(mirror, next).await? {
                    Made::Revision(made) => break made,
                    Made::Collision(_) => collisions += 1,
                }
            },
        };
        let current = all
            .iter()
            .find(|revision| revision.metadata.name == status.current_revision);
        Ok(History {
            current: Arc::clone(current.unwrap_or(&update)),
            update,
            collisions,
            all,
        })
    }

    /// Deletes revisions beyond the history limit, except those that pods or the status still name.
    pub(super) async fn forget(
        &self,
        set: &StatefulSet,
        pods: &[Arc<Pod>],
        history: &History,
    ) -> Result<(), kube::Error> {
        let limit = set
            .spec
            .as_ref()
            .and_then(|spec| spec.revision_history_limit)
            .unwrap_or(10);
        let kept = [&history.current, &history.update].map(|revision| objects::name(&**revision));
        let is_old = |revision: &&Arc<ControllerRevision>| {
            let name = objects::name(&***revision);
            !kept.contains(&name) && pods.iter().all(|pod| identity::revision(pod) != Some(name))
        };
        let old: Vec<_> = history.all.iter().filter(is_old).collect();
        let surplus = old.len().saturating_sub(limit.max(0) as usize);
        for revision in old.into_iter().take(surplus) {
            let params = DeleteParams::default();
            self.world.revisions.delete(revision, &params).await?;
        }
        Ok(())
    }
}
