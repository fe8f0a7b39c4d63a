//! ReplicaSets: keep the desired number of pods.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::Pod;

use super::events::Recorder;
use super::mirror::ObjectKey;
use super::queue::Queue;
use super::reconcile::Reconcile;
use super::world::World;
use super::{objects, pods, selectors};

/// Largest number of pods that are created or deleted at a time.
const BURST: usize = 500;

pub(crate) struct Controller {
    world: Arc<World>,
    queue: Arc<Queue<ObjectKey>>,
    events: Recorder,
}

impl Controller {
    /// Subscribes to the changes that concern this controller.
    pub(crate) fn new(world: &Arc<World>) -> Arc<Self> {
        let queue = Arc::new(Queue::default());
        let own = Arc::clone(&queue);
        world.replica_sets.listen(move |before, after| {
            if let Some(set) = after.or(before) {
                own.add(ObjectKey::of(&set.metadata));
            }
        });
        let own = Arc::clone(&queue);
        let sets = Arc::clone(&world.replica_sets);
        world.pods.listen(move |before, after| {
            for pod in [before, after].into_iter().flatten() {
                if let Some(owner) = objects::controller(&pod.metadata) {
                    if owner.kind == "ReplicaSet" {
                        own.add(ObjectKey::new(objects::namespace(&**pod), &owner.name));
                    }
                } else if objects::active(pod) {
                    for set in sets.within(objects::namespace(&**pod)) {
                        if set.spec.as_ref().is_some_and(|spec| {
                            selectors::selects(&spec.selector, objects::labels(&**pod))
                        }) {
                            own.add(ObjectKey::of(&set.metadata));
                        }
                    }
                }
            }
        });
        Arc::new(Self {
            world: Arc::clone(world),
            queue,
            events: world.events.of("replicaset-controller"),
        })
    }
}

impl Reconcile for Controller {
    const NAME: &'static str = "replicaset";
    const PARALLEL: usize = 5;

    fn queue(&self) -> &Arc<Queue<ObjectKey>> {
        &self.queue
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<(), kube::Error> {
        let Some(set) = self.world.replica_sets.get(key) else {
            return Ok(());
        };
        let spec = set.spec.clone().unwrap_or_default();
        let claimed = pods::claim(&self.world.pods, &*set, &spec.selector, objects::active).await?;
        let (mut active, rest): (Vec<_>, Vec<_>) =
            claimed.into_iter().partition(|pod| objects::active(pod));
        let terminating = rest
            .iter()
            .filter(|pod| objects::deleting(&***pod) && !objects::terminal(pod))
            .count();
        let wanted = spec.replicas.unwrap_or(1).max(0) as usize;
        let managed = if objects::deleting(&*set) {
            Ok(())
        } else {
            self.manage(&set, &mut active, wanted).await
        };
        let status = status(&set, &active, terminating, wanted, managed.as_ref().err());
        let mut changed = status.clone();
        changed.observed_generation = set.metadata.generation;
        if set.status.as_ref() != Some(&changed) {
            let mut object = ReplicaSet::clone(&set);
            object.status = Some(changed);
            self.world.replica_sets.replace_status(&object).await?;
        }
        managed?;
        let min_ready = spec.min_ready_seconds.unwrap_or(0);
        let next: Option<Duration> = active
            .iter()
            .filter_map(|pod| objects::available(pod, min_ready).err().flatten())
            .min();
        if let Some(next) = next {
            self.queue.add_after(key.clone(), next);
        }
        Ok(())
    }
}

impl Controller {
    async fn manage(
        &self,
        set: &ReplicaSet,
        active: &mut [Arc<Pod>],
        wanted: usize,
    ) -> Result<(), kube::Error> {
        if active.len() < wanted {
            let missing = (wanted - active.len()).min(BURST);
            let spec = set.spec.clone().unwrap_or_default();
            let template = spec.template.unwrap_or_default();
            let new = vec![pods::from_template(&template, set); missing];
            pods::create(&self.world.pods, &self.events, set, new).await
        } else {
            pods::rank_for_deletion(active);
            let surplus = (active.len() - wanted).min(BURST);
            let unwanted = active[..surplus].to_vec();
            pods::delete(&self.world.pods, &self.events, set, unwanted).await
        }
    }
}

fn status(
    set: &ReplicaSet,
    active: &[Arc<Pod>],
    terminating: usize,
    wanted: usize,
    failure: Option<&kube::Error>,
) -> ReplicaSetStatus {
    let count = |of: &dyn Fn(&Pod) -> bool| active.iter().filter(|pod| of(pod)).count() as i32;
    let nonzero = |number: i32| (number != 0).then_some(number);
    let spec = set.spec.clone().unwrap_or_default();
    let template = spec
        .template
        .as_ref()
        .and_then(|template| template.metadata.as_ref()?.labels.as_ref());
    let labelled = |pod: &Pod| {
        template
            .into_iter()
            .flatten()
            .all(|(key, value)| objects::labels(pod).get(key) == Some(value))
    };
    let min_ready = spec.min_ready_seconds.unwrap_or(0);
    let before = set.status.clone().unwrap_or_default();
    let mut conditions = before.conditions.unwrap_or_default();
    let failed = conditions
        .iter()
        .any(|condition| condition.type_ == "ReplicaFailure");
    match failure {
        Some(error) if !failed => conditions.push(ReplicaSetCondition {
            type_: "ReplicaFailure".to_owned(),
            status: "True".to_owned(),
            reason: Some(if active.len() < wanted {
                "FailedCreate".to_owned()
            } else {
                "FailedDelete".to_owned()
            }),
            message: Some(objects::message(error)),
            last_transition_time: Some(objects::now()),
        }),
        None if failed => conditions.retain(|condition| condition.type_ != "ReplicaFailure"),
        _ => {}
    }
    ReplicaSetStatus {
        replicas: active.len() as i32,
        fully_labeled_replicas: nonzero(count(&labelled)),
        ready_replicas: nonzero(count(&objects::ready)),
        available_replicas: nonzero(count(&|pod| objects::available(pod, min_ready).is_ok())),
        terminating_replicas: Some(terminating as i32),
        conditions: Some(conditions).filter(|list| !list.is_empty()),
        observed_generation: before.observed_generation,
    }
}
