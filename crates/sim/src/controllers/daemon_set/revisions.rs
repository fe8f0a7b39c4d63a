//! Revisions of the template of a DaemonSet.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::{Controller, HASH};
use crate::controllers::mirror::ObjectKey;
use crate::controllers::{objects, pods};

/// Returns the data of a revision: a patch that restores the template.
fn patch(set: &DaemonSet) -> Value {
    let template = set.spec.as_ref().map(|spec| &spec.template);
    let mut template = json!(template);
    template["$patch"] = json!("replace");
    json!({"spec": {"template": template}})
}

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
        let wanted = patch(set);
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
            return Ok((self.snapshot(set, wanted, number).await?, old));
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
        data: Value,
        revision: i64,
    ) -> Result<Arc<ControllerRevision>, kube::Error> {
        let template = set.spec.clone().unwrap_or_default().template;
        let status = set.status.clone().unwrap_or_default();
        let hash = objects::template_hash(&template, status.collision_count);
        let mut labels = template
            .metadata
            .and_then(|meta| meta.labels)
            .unwrap_or_default();
        labels.insert(HASH.to_owned(), hash.clone());
        let wanted = ControllerRevision {
            metadata: ObjectMeta {
                name: Some(format!("{}-{hash}", objects::name(set))),
                namespace: set.metadata.namespace.clone(),
                labels: Some(labels),
                annotations: set.metadata.annotations.clone(),
                owner_references: Some(vec![objects::control(set)]),
                ..ObjectMeta::default()
            },
            data: Some(RawExtension(data)),
            revision,
        };
        let result = self
            .world
            .revisions
            .create(objects::namespace(set), &wanted)
            .await;
        let error = match result {
            Ok(made) => return Ok(made),
            Err(error) if objects::code(&error) == 409 => error,
            Err(error) => return Err(error),
        };
        let found = self
            .world
            .revisions
            .fetch(&ObjectKey::of(&wanted.metadata))
            .await?;
        if let Some(found) = found
            && found.data == wanted.data
        {
            return Ok(self.world.revisions.observe(found));
        }
        let mut object = set.clone();
        object.status.get_or_insert_default().collision_count =
            Some(status.collision_count.unwrap_or(0) + 1);
        self.world.daemon_sets.replace_status(&object).await?;
        Err(error)
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
