//! StatefulSets: pods with a place in a row, a name that stays, and claims of their own.
//!
//! Follows the stateful set controller of Kubernetes 1.35. Nothing binds the claims here, as in a real cluster without a provisioner, and the
//! nodes have no volumes for them: a pod with claims stays Pending.
//!
//! Reading order: [`Controller::reconcile`], `scale`, then `identity`, `claims`, `history` and `status`.

mod claims;
mod history;
mod identity;
mod scale;
mod status;

use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;

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

fn is_ready(pod: &Pod) -> bool {
    objects::phase(pod) == "Running" && objects::ready(pod)
}

fn min_ready(set: &StatefulSet) -> i32 {
    let spec = set.spec.as_ref();
    spec.and_then(|spec| spec.min_ready_seconds).unwrap_or(0)
}

fn is_available(set: &StatefulSet, pod: &Pod) -> bool {
    objects::available(pod, min_ready(set)).is_ok()
}

impl Controller {
    /// Subscribes to the changes that concern this controller; `claims` is a mirror that another controller follows.
    pub(crate) fn new(world: &Arc<World>) -> Arc<Self> {
        let queue: Arc<Queue<ObjectKey>> = Arc::new(Queue::default());
        let own = Arc::clone(&queue);
        world.stateful_sets.listen(move |before, after| {
            if let Some(set) = after.or(before) {
                own.add(ObjectKey::of(&set.metadata));
            }
        });
        let own = Arc::clone(&queue);
        let sets = Arc::clone(&world.stateful_sets);
        world.pods.listen(move |before, after| {
            for pod in [before, after].into_iter().flatten() {
                let namespace = objects::namespace(&**pod);
                match objects::controller(&pod.metadata) {
                    Some(owner) if owner.kind == "StatefulSet" => {
                        own.add(ObjectKey::new(namespace, &owner.name));
                    }
                    Some(_) => {}
                    None => {
                        for set in sets.within(namespace) {
                            let selector = set.spec.as_ref().map(|spec| &spec.selector);
                            let labels = objects::labels(&**pod);
                            if selector.is_some_and(|selector| selectors::selects(selector, labels))
                            {
                                own.add(ObjectKey::of(&set.metadata));
                            }
                        }
                    }
                }
            }
        });
        let own = Arc::clone(&queue);
        let sets = Arc::clone(&world.stateful_sets);
        world.claims.listen(move |before, after| {
            // a pod may wait for the end of a claim of its name
            if let (Some(claim), None) = (before, after) {
                for set in sets.within(objects::namespace(&**claim)) {
                    let middle = format!("-{}-", objects::name(&*set));
                    if objects::name(&**claim).contains(&middle) {
                        own.add(ObjectKey::of(&set.metadata));
                    }
                }
            }
        });
        Arc::new(Self {
            world: Arc::clone(world),
            queue,
            events: world.events.of("statefulset-controller"),
        })
    }
}

impl Reconcile for Controller {
    const NAME: &'static str = "statefulset";
    const PARALLEL: usize = 5;

    fn queue(&self) -> &Arc<Queue<ObjectKey>> {
        &self.queue
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<(), kube::Error> {
        let Some(set) = self.world.stateful_sets.get(key) else {
            return Ok(());
        };
        let spec = set.spec.clone().unwrap_or_default();
        let is_member = |pod: &Pod| identity::ordinal(&set, pod).is_some();
        let pods = pods::claim(&self.world.pods, &*set, &spec.selector, is_member).await?;
        let history = match self.history(&set).await {
            Err(error) if objects::namespace_terminating(&error) => return Ok(()),
            other => other?,
        };
        let stepped = if objects::deleting(&*set) {
            Ok(0)
        } else {
            self.step(&set, &pods, &history).await
        };
        let leaving = *stepped.as_ref().unwrap_or(&0);
        let status = status::status(&set, &pods, &history, leaving);
        if set.status.as_ref() != Some(&status) {
            let mut object = StatefulSet::clone(&set);
            object.status = Some(status);
            self.world.stateful_sets.replace_status(&object).await?;
        }
        self.forget(&set, &pods, &history).await?;
        stepped?;
        let waits = pods
            .iter()
            .filter_map(|pod| objects::available(pod, min_ready(&set)).err().flatten());
        if let Some(wait) = waits.min() {
            self.queue.add_after(key.clone(), wait);
        }
        Ok(())
    }
}
