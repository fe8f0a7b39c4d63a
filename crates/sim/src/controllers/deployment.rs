//! Deployments: ReplicaSets that replace each other.
//!
//! Follows the deployment controller of Kubernetes 1.35: its conditions, annotations and events.

mod annotations;
mod history;
mod rollout;
mod scale;
mod sets;
mod status;

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use self::status::Conditions;
use super::events::Recorder;
use super::mirror::ObjectKey;
use super::queue::Queue;
use super::reconcile::Reconcile;
use super::world::World;
use super::{objects, pods, selectors};

pub(crate) struct Controller {
    world: Arc<World>,
    queue: Arc<Queue<ObjectKey>>,
    events: Recorder,
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
}

impl Reconcile for Controller {
    const NAME: &'static str = "deployment";
    const PARALLEL: usize = 5;

    fn queue(&self) -> &Arc<Queue<ObjectKey>> {
        &self.queue
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
}

impl Controller {
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
}
