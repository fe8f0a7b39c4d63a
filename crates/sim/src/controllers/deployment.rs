//! Deployments: ReplicaSets that replace each other.
//!
//! Follows the deployment controller of Kubernetes 1.35: its conditions, annotations and events.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::api::DeleteParams;

use self::status::Conditions;
use super::events::Recorder;
use super::mirror::ObjectKey;
use super::queue::Queue;
use super::world::World;
use super::{objects, pods, selectors};

mod annotations;
mod rollout;
mod scale;
mod status;

/// Label that distinguishes the pods of one template from those of others.
const HASH: &str = "pod-template-hash";

pub(crate) struct Controller {
    world: Arc<World>,
    queue: Arc<Queue<ObjectKey>>,
    events: Recorder,
}

/// The ReplicaSets of a deployment.
#[derive(Clone, Default)]
struct Sets {
    /// The ReplicaSet with the current template.
    new: Option<Arc<ReplicaSet>>,
    /// All others, oldest first.
    old: Vec<Arc<ReplicaSet>>,
}

impl Sets {
    fn all(&self) -> impl Iterator<Item = &Arc<ReplicaSet>> {
        self.old.iter().chain(&self.new)
    }

    /// Returns the ReplicaSets that are scaled above zero.
    fn active(&self) -> Vec<Arc<ReplicaSet>> {
        self.all()
            .filter(|set| replicas(set) > 0)
            .cloned()
            .collect()
    }

    /// Replaces one of the ReplicaSets with its new state.
    fn update(&mut self, set: &Arc<ReplicaSet>) {
        let same = |held: &Arc<ReplicaSet>| objects::uid(&**held) == objects::uid(&**set);
        if let Some(held) = self
            .new
            .iter_mut()
            .chain(&mut self.old)
            .find(|held| same(held))
        {
            *held = Arc::clone(set);
        }
    }
}

/// Returns the desired number of pods of a ReplicaSet.
fn replicas(set: &ReplicaSet) -> i32 {
    set.spec
        .as_ref()
        .and_then(|spec| spec.replicas)
        .unwrap_or(1)
}

/// Returns the desired number of pods of a deployment.
fn desired(deployment: &Deployment) -> i32 {
    deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.replicas)
        .unwrap_or(1)
}

fn rolling(deployment: &Deployment) -> bool {
    deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.strategy.as_ref()?.type_.as_deref())
        != Some("Recreate")
}

/// Returns the surge and the unavailability that are allowed, both in pods.
fn limits(deployment: &Deployment) -> (i32, i32) {
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
    if !rolling(deployment) {
        return (0, 0);
    }
    let quarter = IntOrString::String("25%".to_owned());
    let rolling = deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.strategy.as_ref()?.rolling_update.as_ref());
    let total = desired(deployment);
    let surge = rolling.and_then(|rolling| rolling.max_surge.as_ref());
    let surge = objects::scaled(surge.unwrap_or(&quarter), total, true);
    let unavailable = rolling.and_then(|rolling| rolling.max_unavailable.as_ref());
    let unavailable = objects::scaled(unavailable.unwrap_or(&quarter), total, false);
    if surge == 0 && unavailable == 0 {
        // Without this exception no pod could ever be replaced.
        return (0, 1.min(total));
    }
    (surge, unavailable.min(total))
}

/// Returns the progress deadline in seconds, or `None` if the deployment has none.
fn deadline(deployment: &Deployment) -> Option<i32> {
    let seconds = deployment.spec.as_ref()?.progress_deadline_seconds;
    Some(seconds.unwrap_or(600)).filter(|seconds| *seconds != i32::MAX)
}

/// Returns a template without the hash label, so that templates can be compared.
fn without_hash(template: &PodTemplateSpec) -> PodTemplateSpec {
    let mut template = template.clone();
    if let Some(meta) = &mut template.metadata {
        if let Some(labels) = &mut meta.labels {
            labels.remove(HASH);
        }
        meta.labels = meta.labels.take().filter(|labels| !labels.is_empty());
        meta.creation_timestamp = None;
    }
    template
}

fn same_template(deployment: &Deployment, set: &ReplicaSet) -> bool {
    let Some(spec) = &deployment.spec else {
        return false;
    };
    let held = set.spec.as_ref().and_then(|spec| spec.template.as_ref());
    held.is_some_and(|held| without_hash(&spec.template) == without_hash(held))
}

impl Controller {
    /// Subscribes to the changes that concern this controller.
    pub(crate) fn new(world: &Arc<World>) -> Arc<Self> {
        let queue = Arc::new(Queue::default());
        let own = Arc::clone(&queue);
        world.deployments.listen(move |before, after| {
            if let Some(deployment) = after.or(before) {
                own.add(ObjectKey::of(&deployment.metadata));
            }
        });
        let own = Arc::clone(&queue);
        let deployments = Arc::clone(&world.deployments);
        world.replica_sets.listen(move |before, after| {
            for set in [before, after].into_iter().flatten() {
                let namespace = objects::namespace(&**set);
                if let Some(owner) = objects::controller(&set.metadata) {
                    if owner.kind == "Deployment" {
                        own.add(ObjectKey::new(namespace, &owner.name));
                    }
                } else if !objects::deleting(&**set) {
                    for deployment in deployments.within(namespace) {
                        if deployment.spec.as_ref().is_some_and(|spec| {
                            selectors::selects(&spec.selector, objects::labels(&**set))
                        }) {
                            own.add(ObjectKey::of(&deployment.metadata));
                        }
                    }
                }
            }
        });
        // A `Recreate` rollout continues when the last old pod is gone.
        let own = Arc::clone(&queue);
        let sets = Arc::clone(&world.replica_sets);
        let deployments = Arc::clone(&world.deployments);
        world.pods.listen(move |before, after| {
            let (Some(gone), None) = (before, after) else {
                return;
            };
            let namespace = objects::namespace(&**gone);
            let owner = objects::controller(&gone.metadata)
                .filter(|owner| owner.kind == "ReplicaSet")
                .and_then(|owner| sets.get(&ObjectKey::new(namespace, &owner.name)));
            let Some(owner) = owner
                .as_ref()
                .and_then(|set| objects::controller(&set.metadata))
            else {
                return;
            };
            let key = ObjectKey::new(namespace, &owner.name);
            if deployments.get(&key).is_some_and(|found| !rolling(&found)) {
                own.add(key);
            }
        });
        Arc::new(Self {
            world: Arc::clone(world),
            queue,
            events: world.events.of("deployment-controller"),
        })
    }

    /// Runs the controller; never returns by itself.
    pub(crate) async fn run(self: Arc<Self>) {
        let queue = Arc::clone(&self.queue);
        queue
            .work("deployment", 5, |key| {
                let this = Arc::clone(&self);
                async move { this.reconcile(&key).await }
            })
            .await;
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<(), kube::Error> {
        let Some(found) = self.world.deployments.get(key) else {
            return Ok(());
        };
        let mut deployment = Deployment::clone(&found);
        let Some(spec) = deployment.spec.clone() else {
            return Ok(());
        };
        if selectors::is_empty(&spec.selector) {
            self.events.warning(
                &deployment,
                "SelectingAll",
                "This deployment is selecting all pods. A non-empty selector is required.".into(),
            );
            return Ok(());
        }
        let claimed = pods::claim(
            &self.world.replica_sets,
            &deployment,
            &spec.selector,
            |_| true,
        )
        .await?;
        if objects::deleting(&deployment) {
            let sets = self.find_sets(&mut deployment, &claimed, false).await?;
            return self.store_status(&mut deployment, &sets).await;
        }
        self.record_pause(&mut deployment).await?;
        let paused = spec.paused == Some(true);
        if paused || annotations::scaled(&deployment, &claimed) {
            let mut sets = self.find_sets(&mut deployment, &claimed, false).await?;
            self.scale(&deployment, &mut sets).await?;
            if paused {
                self.clean_up(&deployment, &sets.old).await?;
            }
            return self.store_status(&mut deployment, &sets).await;
        }
        if rolling(&deployment) {
            self.roll(&mut deployment, &claimed).await
        } else {
            self.recreate(&mut deployment, &claimed).await
        }
    }

    async fn record_pause(&self, deployment: &mut Deployment) -> Result<(), kube::Error> {
        if deadline(deployment).is_none() {
            return Ok(());
        }
        let paused = deployment.spec.as_ref().and_then(|spec| spec.paused) == Some(true);
        let status = deployment.status.get_or_insert_default();
        let reason = status
            .progressing()
            .and_then(|condition| condition.reason.clone());
        let recorded = reason.as_deref() == Some("DeploymentPaused");
        if reason.as_deref() == Some("ProgressDeadlineExceeded") || paused == recorded {
            return Ok(());
        }
        if paused {
            status.set(
                "Progressing",
                "Unknown",
                "DeploymentPaused",
                "Deployment is paused",
            );
        } else {
            status.set(
                "Progressing",
                "Unknown",
                "DeploymentResumed",
                "Deployment is resumed",
            );
        }
        self.write_status(deployment).await
    }

    /// Writes the status and takes over the answer, so that further writes carry its resource version.
    async fn write_status(&self, deployment: &mut Deployment) -> Result<(), kube::Error> {
        let written = self.world.deployments.replace_status(deployment).await?;
        *deployment = Deployment::clone(&written);
        Ok(())
    }

    /// Finds the ReplicaSet of the current template, records its revision, and creates it if it is missing and `create` is set.
    async fn find_sets(
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

    async fn create_new_set(
        &self,
        deployment: &mut Deployment,
        sets: &Sets,
        revision: i64,
    ) -> Result<Arc<ReplicaSet>, kube::Error> {
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
            Err(error) if objects::namespace_terminating(&error) => return Err(error),
            Err(error) => {
                let why = format!(
                    "Failed to create new replica set {:?}: {}",
                    objects::name(&wanted),
                    objects::message(&error)
                );
                if deadline(deployment).is_some() {
                    let status = deployment.status.get_or_insert_default();
                    status.set("Progressing", "False", "ReplicaSetCreateError", &why);
                    // The error of the creation matters more than an error of this write.
                    let _ = self.write_status(deployment).await;
                }
                self.events
                    .warning(deployment, "ReplicaSetCreateError", why);
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
    async fn clean_up(
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
