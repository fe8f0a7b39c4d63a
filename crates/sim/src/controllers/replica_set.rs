//! ReplicaSets and ReplicationControllers: keep the desired number of pods. A real controller manager, too, treats the older kind as if it were
//! the newer one.

mod older;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{
    ReplicaSet, ReplicaSetCondition, ReplicaSetSpec, ReplicaSetStatus,
};
use k8s_openapi::api::core::v1::Pod;
use kube::Resource;

use super::events::Recorder;
use super::mirror::{Kind, Mirror, ObjectKey};
use super::queue::Queue;
use super::reconcile::Reconcile;
use super::world::World;
use super::{objects, pods, selectors};

/// Largest number of pods that are created or deleted at a time.
const BURST: usize = 500;

/// A kind that keeps a number of pods.
pub(crate) trait Set: Kind + Resource<Scope = NamespaceResourceScope> {
    /// Name in the log.
    const NAME: &'static str;
    /// Name in events.
    const COMPONENT: &'static str;

    /// Returns the mirror of the kind.
    fn mirror(world: &World) -> &Arc<Mirror<Self>>;

    /// Returns what is wanted.
    fn wanted(&self) -> ReplicaSetSpec;

    /// Returns what was last told of it.
    fn told(&self) -> Option<ReplicaSetStatus>;

    /// Changes what is told of it.
    fn tell(&mut self, status: ReplicaSetStatus);

    /// Returns whether it selects a pod.
    fn selects(&self, pod: &Pod) -> bool;
}

impl Set for ReplicaSet {
    const NAME: &'static str = "replicaset";
    const COMPONENT: &'static str = "replicaset-controller";

    fn mirror(world: &World) -> &Arc<Mirror<Self>> {
        &world.replica_sets
    }

    fn wanted(&self) -> ReplicaSetSpec {
        self.spec.clone().unwrap_or_default()
    }

    fn told(&self) -> Option<ReplicaSetStatus> {
        self.status.clone()
    }

    fn tell(&mut self, status: ReplicaSetStatus) {
        self.status = Some(status);
    }

    fn selects(&self, pod: &Pod) -> bool {
        let labels = objects::labels(pod);
        let spec = self.spec.as_ref();
        spec.is_some_and(|spec| selectors::selects(&spec.selector, labels))
    }
}

pub(crate) struct Controller<K: Set> {
    world: Arc<World>,
    sets: Arc<Mirror<K>>,
    queue: Arc<Queue<ObjectKey>>,
    events: Recorder,
}

impl<K: Set> Controller<K> {
    /// Subscribes to the changes that concern this controller.
    pub(crate) fn new(world: &Arc<World>) -> Arc<Self> {
        let queue = Arc::new(Queue::default());
        let sets = K::mirror(world);
        let own = Arc::clone(&queue);
        sets.listen(move |before, after| {
            if let Some(set) = after.or(before) {
                own.add(ObjectKey::of(set.meta()));
            }
        });
        let own = Arc::clone(&queue);
        let all = Arc::clone(sets);
        let kind = K::kind(&());
        world.pods.listen(move |before, after| {
            for pod in [before, after].into_iter().flatten() {
                if let Some(owner) = objects::controller(&pod.metadata) {
                    if owner.kind == kind {
                        own.add(ObjectKey::new(objects::namespace(&**pod), &owner.name));
                    }
                } else if objects::active(pod) {
                    for set in all.within(objects::namespace(&**pod)) {
                        if set.selects(pod) {
                            own.add(ObjectKey::of(set.meta()));
                        }
                    }
                }
            }
        });
        Arc::new(Self {
            world: Arc::clone(world),
            sets: Arc::clone(sets),
            queue,
            events: world.events.of(K::COMPONENT),
        })
    }
}

impl<K: Set> Reconcile for Controller<K> {
    const NAME: &'static str = K::NAME;
    const PARALLEL: usize = 5;

    fn queue(&self) -> &Arc<Queue<ObjectKey>> {
        &self.queue
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<(), kube::Error> {
        let Some(set) = self.sets.get(key) else {
            return Ok(());
        };
        let spec = set.wanted();
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
        let mut object = K::clone(&set);
        object.tell(ReplicaSetStatus {
            observed_generation: set.meta().generation,
            ..status(&*set, &active, terminating, wanted, managed.as_ref().err())
        });
        if object.told() != set.told() {
            self.sets.replace_status(&object).await?;
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

impl<K: Set> Controller<K> {
    async fn manage(
        &self,
        set: &K,
        active: &mut [Arc<Pod>],
        wanted: usize,
    ) -> Result<(), kube::Error> {
        if active.len() < wanted {
            let missing = (wanted - active.len()).min(BURST);
            let template = set.wanted().template.unwrap_or_default();
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

fn status<K: Set>(
    set: &K,
    active: &[Arc<Pod>],
    terminating: usize,
    wanted: usize,
    failure: Option<&kube::Error>,
) -> ReplicaSetStatus {
    let count = |of: &dyn Fn(&Pod) -> bool| active.iter().filter(|pod| of(pod)).count() as i32;
    let nonzero = |number: i32| (number != 0).then_some(number);
    let spec = set.wanted();
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
    let before = set.told().unwrap_or_default();
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
