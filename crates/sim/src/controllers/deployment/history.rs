//! The history of a deployment: the ReplicaSet of the current template is found or created, and old ones are deleted.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::api::DeleteParams;

use super::sets::{HASH, Sets, replicas, same_template};
use super::status::Conditions;
use super::{Controller, annotations, deadline, scale};
use crate::controllers::mirror::ObjectKey;
use crate::controllers::objects;

impl Controller {
    /// Finds the ReplicaSet of the current template, records its revision, and creates it if it is missing and `create` is set.
    pub(super) async fn find_sets(
        &self,
        deployment: &mut Deployment,
        claimed: &[Arc<ReplicaSet>],
        create: bool,
    ) -> Result<Sets, kube::Error> {
        let mut ordered = claimed.to_vec();
        ordered.sort_by_key(|set| {
            (
                set.metadata.creation_timestamp.clone().map(|time| time.0),
                set.metadata.name.clone(),
            )
        });
        let new = ordered
            .iter()
            .position(|set| same_template(deployment, set))
            .map(|place| ordered.remove(place));
        let mut sets = Sets { new, old: ordered };
        let revision = sets
            .old
            .iter()
            .map(|set| annotations::revision(&set.metadata))
            .max()
            .unwrap_or(0)
            + 1;
        if let Some(new) = sets.new.clone() {
            let mut wanted = ReplicaSet::clone(&new);
            let changed = annotations::copy_to(deployment, &mut wanted.metadata, revision);
            let min_ready = deployment
                .spec
                .as_ref()
                .and_then(|spec| spec.min_ready_seconds);
            let spec = wanted.spec.get_or_insert_default();
            if changed || spec.min_ready_seconds.unwrap_or(0) != min_ready.unwrap_or(0) {
                spec.min_ready_seconds = min_ready;
                sets.new = Some(self.world.replica_sets.replace(&wanted).await?);
                return Ok(sets);
            }
            let revision = annotations::revision(&new.metadata).to_string();
            let mut write = annotations::set_revision(deployment, &revision);
            let deadline = deadline(deployment).is_some();
            let status = deployment.status.get_or_insert_default();
            if deadline && status.progressing().is_none() {
                let what = format!("Found new replica set {:?}", objects::name(&*new));
                status.set("Progressing", "True", "FoundNewReplicaSet", &what);
                write = true;
            }
            if write {
                self.write_with_revision(deployment).await?;
            }
        } else if create {
            sets.new = Some(self.create_new_set(deployment, &sets, revision).await?);
        }
        Ok(sets)
    }

    /// Writes the status together with the revision annotation. If the status write did not store the annotation, a patch does.
    async fn write_with_revision(&self, deployment: &mut Deployment) -> Result<(), kube::Error> {
        let wanted = annotations::of(&deployment.metadata, annotations::REVISION);
        self.write_status(deployment).await?;
        if annotations::of(&deployment.metadata, annotations::REVISION) != wanted {
            let patch =
                serde_json::json!({"metadata": {"annotations": {annotations::REVISION: wanted}}});
            let written = self.world.deployments.patch(deployment, &patch).await?;
            *deployment = Deployment::clone(&written);
        }
        Ok(())
    }

    /// Creates the ReplicaSet of the current template.
    async fn create_new_set(
        &self,
        deployment: &mut Deployment,
        sets: &Sets,
        revision: i64,
    ) -> Result<Arc<ReplicaSet>, kube::Error> {
        let wanted = new_set(deployment, sets, revision);
        let count = replicas(&wanted);
        let created = match self
            .world
            .replica_sets
            .create(objects::namespace(deployment), &wanted)
            .await
        {
            Ok(made) => {
                if count > 0 {
                    self.events.normal(
                        deployment,
                        "ScalingReplicaSet",
                        format!(
                            "Scaled up replica set {} from 0 to {count}",
                            objects::name(&*made)
                        ),
                    );
                }
                made
            }
            Err(error) if objects::code(&error) == 409 => {
                self.known_or_collision(deployment, &wanted, error).await?
            }
            Err(error) => {
                self.record_creation_failure(deployment, &wanted, &error)
                    .await;
                return Err(error);
            }
        };
        let mut write = annotations::set_revision(deployment, &revision.to_string());
        if deadline(deployment).is_some() {
            let what = format!("Created new replica set {:?}", objects::name(&*created));
            let status = deployment.status.get_or_insert_default();
            status.set("Progressing", "True", "NewReplicaSetCreated", &what);
            write = true;
        }
        if write {
            self.write_with_revision(deployment).await?;
        }
        Ok(created)
    }

    /// Records that the new ReplicaSet could not be created, unless its namespace is being deleted.
    async fn record_creation_failure(
        &self,
        deployment: &mut Deployment,
        wanted: &ReplicaSet,
        error: &kube::Error,
    ) {
        if objects::namespace_terminating(error) {
            return;
        }
        let why = format!(
            "Failed to create new replica set {:?}: {}",
            objects::name(wanted),
            objects::message(error)
        );
        if deadline(deployment).is_some() {
            let status = deployment.status.get_or_insert_default();
            status.set("Progressing", "False", "ReplicaSetCreateError", &why);
            // The error of the creation matters more than an error of this write.
            let _ = self.write_status(deployment).await;
        }
        self.events
            .warning(deployment, "ReplicaSetCreateError", why);
    }

    /// Returns the existing ReplicaSet with this name if it is the one to be created. Otherwise counts a collision, so that the next hash
    /// differs, and returns the error.
    async fn known_or_collision(
        &self,
        deployment: &mut Deployment,
        wanted: &ReplicaSet,
        error: kube::Error,
    ) -> Result<Arc<ReplicaSet>, kube::Error> {
        let key = ObjectKey::of(&wanted.metadata);
        if let Some(found) = self.world.replica_sets.fetch(&key).await?
            && objects::controlled_by(&found.metadata, objects::uid(deployment))
            && same_template(deployment, &found)
        {
            return Ok(self.world.replica_sets.observe(found));
        }
        let status: &mut DeploymentStatus = deployment.status.get_or_insert_default();
        status.collision_count = Some(status.collision_count.unwrap_or(0) + 1);
        self.write_status(deployment).await?;
        Err(error)
    }

    /// Deletes old ReplicaSets beyond the history limit.
    pub(super) async fn clean_up(
        &self,
        deployment: &Deployment,
        old: &[Arc<ReplicaSet>],
    ) -> Result<(), kube::Error> {
        let keep = deployment
            .spec
            .as_ref()
            .and_then(|spec| spec.revision_history_limit)
            .unwrap_or(10);
        if keep == i32::MAX {
            return Ok(());
        }
        let mut existing: Vec<_> = old
            .iter()
            .filter(|set| !objects::deleting(&***set))
            .collect();
        existing.sort_by_key(|set| annotations::revision(&set.metadata));
        let surplus = existing.len().saturating_sub(keep.max(0) as usize);
        for set in &existing[..surplus] {
            let status = set.status.clone().unwrap_or_default();
            let settled =
                set.metadata.generation.unwrap_or(0) <= status.observed_generation.unwrap_or(0);
            if status.replicas == 0 && replicas(set) == 0 && settled {
                self.world
                    .replica_sets
                    .delete(set, &DeleteParams::default())
                    .await?;
            }
        }
        Ok(())
    }
}

/// Returns the ReplicaSet of the current template as it is created.
fn new_set(deployment: &Deployment, sets: &Sets, revision: i64) -> ReplicaSet {
    let spec = deployment.spec.clone().unwrap_or_default();
    let collisions = deployment
        .status
        .as_ref()
        .and_then(|status| status.collision_count);
    let hash = objects::template_hash(&spec.template, collisions);
    let mut template = spec.template.clone();
    let labels = template
        .metadata
        .get_or_insert_default()
        .labels
        .get_or_insert_default();
    labels.insert(HASH.to_owned(), hash.clone());
    let labels = labels.clone();
    let mut selector: LabelSelector = spec.selector.clone();
    selector
        .match_labels
        .get_or_insert_default()
        .insert(HASH.to_owned(), hash.clone());
    let count = scale::of_new(deployment, sets, 0);
    let prefix = objects::name(deployment);
    let mut wanted = ReplicaSet {
        metadata: ObjectMeta {
            name: Some(format!(
                "{}-{hash}",
                &prefix[..prefix.len().min(253 - 1 - hash.len())]
            )),
            namespace: deployment.metadata.namespace.clone(),
            labels: Some(labels),
            owner_references: Some(vec![objects::control(deployment)]),
            ..ObjectMeta::default()
        },
        spec: Some(ReplicaSetSpec {
            replicas: Some(count),
            min_ready_seconds: spec.min_ready_seconds,
            selector,
            template: Some(template),
        }),
        status: None,
    };
    annotations::copy_to(deployment, &mut wanted.metadata, revision);
    annotations::record_size(deployment, &mut wanted.metadata);
    wanted
}
