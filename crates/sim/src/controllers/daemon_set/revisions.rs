//! Revisions of the template of a DaemonSet.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use kube::api::DeleteParams;

use super::{Controller, HASH};
use crate::controllers::revisions::{self, Made, Snapshot};
use crate::controllers::{objects, pods};

impl Controller {
    /// Returns the revision of the current template, which is created if it is missing, and all older revisions.
    pub(super) async fn revisions(
        &self,
        set: &DaemonSet,
    ) -> Result<(Arc<ControllerRevision>, Vec<Arc<ControllerRevision>>), kube::Error> {
        let Some(spec) = &set.spec else {
            return Ok((Arc::default(), Vec::new()));
        };
        let all = pods::claim(&self.world.revisions, set, &spec.selector, |_| true).await?;
        let wanted = revisions::data(&spec.template);
        let (mut current, old): (Vec<_>, Vec<_>) = all
            .into_iter()
            .partition(|revision| revision.data.as_ref().is_some_and(|data| data.0 == wanted));
        let number = old
            .iter()
            .map(|revision| revision.revision)
            .max()
            .unwrap_or(0)
            + 1;
        current.sort_by_key(|revision| std::cmp::Reverse(revision.revision));
        let Some(newest) = current.first() else {
            return Ok((self.snapshot(set, number).await?, old));
        };
        let mut newest = Arc::clone(newest);
        for double in current.iter().skip(1) {
            self.world
                .revisions
                .delete(double, &DeleteParams::default())
                .await?;
        }
        if newest.revision < number {
            let mut object = ControllerRevision::clone(&newest);
            object.revision = number;
            newest = self.world.revisions.replace(&object).await?;
        }
        Ok((newest, old))
    }

    async fn snapshot(
        &self,
        set: &DaemonSet,
        revision: i64,
    ) -> Result<Arc<ControllerRevision>, kube::Error> {
        let status = set.status.clone().unwrap_or_default();
        let snapshot = Snapshot {
            owner: set,
            template: &set.spec.clone().unwrap_or_default().template,
            collisions: status.collision_count,
            hash_label: HASH,
        };
        match snapshot.create(&self.world.revisions, revision).await? {
            Made::Revision(made) => Ok(made),
            Made::Collision(error) => {
                let mut object = set.clone();
                object.status.get_or_insert_default().collision_count =
                    Some(status.collision_count.unwrap_or(0) + 1);
                self.world.daemon_sets.replace_status(&object).await?;
                Err(error)
            }
        }
    }

    /// Deletes revisions beyond the history limit, except those that pods still use.
    pub(super) async fn forget_revisions(
        &self,
        set: &DaemonSet,
        mut old: Vec<Arc<ControllerRevision>>,
    ) -> Result<(), kube::Error> {
        let keep = set
            .spec
            .as_ref()
            .and_then(|spec| spec.revision_history_limit)
            .unwrap_or(10);
        let mut surplus = old.len().saturating_sub(keep.max(0) as usize);
        if surplus == 0 {
            return Ok(());
        }
        old.sort_by_key(|revision| revision.revision);
        let pods = self.world.pods.indexed(objects::uid(set));
        for revision in old {
            let hash = objects::labels(&*revision).get(HASH);
            if surplus == 0 {
                break;
            }
            if pods
                .iter()
                .any(|pod| objects::labels(&**pod).get(HASH) == hash)
            {
                continue;
            }
            self.world
                .revisions
                .delete(&revision, &DeleteParams::default())
                .await?;
            surplus -= 1;
        }
        Ok(())
    }
}
