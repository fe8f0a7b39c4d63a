//! Status of PodDisruptionBudgets: how many pods may be evicted now.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::mirror::{Mirror, ObjectKey};
use super::queue::Queue;
use super::reconcile::Reconcile;
use super::world::World;
use super::{objects, selectors};

/// Time after which an allowed eviction that did not happen no longer counts, so that its pod counts as healthy again.
const EVICTION: Duration = Duration::from_mins(2);

pub(crate) struct Controller {
    world: Arc<World>,
    queue: Arc<Queue<ObjectKey>>,
}

impl Controller {
    /// Subscribes to the changes that concern this controller.
    pub(crate) fn new(world: &Arc<World>) -> Arc<Self> {
        let queue: Arc<Queue<ObjectKey>> = Arc::new(Queue::default());
        let budgets = Arc::clone(&world.budgets);
        let own = Arc::clone(&queue);
        budgets.listen(move |_, after: Option<&Arc<PodDisruptionBudget>>| {
            if let Some(budget) = after {
                own.add(ObjectKey::of(&budget.metadata));
            }
        });
        let add_for = |queue: &Arc<Queue<ObjectKey>>, namespace: &str, budgets: &Mirror<_>| {
            for budget in budgets.within(namespace) {
                let budget: Arc<PodDisruptionBudget> = budget;
                queue.add(ObjectKey::of(&budget.metadata));
            }
        };
        let (own, all) = (Arc::clone(&queue), Arc::clone(&budgets));
        world.pods.listen(move |before, after| {
            if let Some(pod) = after.or(before) {
                add_for(&own, objects::namespace(&**pod), &all);
            }
        });
        let (own, all) = (Arc::clone(&queue), Arc::clone(&budgets));
        world.deployments.listen(move |before, after| {
            if let Some(deployment) = after.or(before) {
                add_for(&own, objects::namespace(&**deployment), &all);
            }
        });
        Arc::new(Self {
            world: Arc::clone(world),
            queue,
        })
    }
}

impl Reconcile for Controller {
    const NAME: &'static str = "disruption";
    const PARALLEL: usize = 2;

    fn queue(&self) -> &Arc<Queue<ObjectKey>> {
        &self.queue
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<(), kube::Error> {
        let Some(budget) = self.world.budgets.get(key) else {
            return Ok(());
        };
        let spec = budget.spec.clone().unwrap_or_default();
        let pods: Vec<Arc<Pod>> = match &spec.selector {
            Some(selector) => self
                .world
                .pods
                .within(&key.namespace)
                .into_iter()
                .filter(|pod| {
                    !objects::terminal(pod) && selectors::selects(selector, objects::labels(&**pod))
                })
                .collect(),
            None => Vec::new(),
        };
        let (expected, wanted) = match (&spec.max_unavailable, &spec.min_available) {
            (Some(most), _) => {
                let total = self.scale(&pods);
                (total, (total - objects::scaled(most, total, true)).max(0))
            }
            (None, Some(IntOrString::Int(least))) => (pods.len() as i32, *least),
            (None, Some(least)) => {
                let total = self.scale(&pods);
                (total, objects::scaled(least, total, true))
            }
            (None, None) => (pods.len() as i32, 1),
        };
        let before = budget.status.clone().unwrap_or_default();
        let mut evicted = BTreeMap::new();
        for (name, time) in before.disrupted_pods.iter().flatten() {
            let there = pods.iter().find(|pod| objects::name(&***pod) == name);
            if there.is_none_or(|pod| objects::deleting(&**pod)) {
                continue;
            }
            if let Some(left) = EVICTION.checked_sub(objects::since(time)) {
                self.queue.add_after(key.clone(), left);
                evicted.insert(name.clone(), time.clone());
            }
        }
        let healthy = pods
            .iter()
            .filter(|pod| {
                objects::ready(pod)
                    && !objects::deleting(&***pod)
                    && !evicted.contains_key(objects::name(&***pod))
            })
            .count() as i32;
        let allowed = if expected <= 0 {
            0
        } else {
            (healthy - wanted).max(0)
        };
        let status = PodDisruptionBudgetStatus {
            current_healthy: healthy,
            desired_healthy: wanted,
            expected_pods: expected,
            disruptions_allowed: allowed,
            disrupted_pods: Some(evicted).filter(|map| !map.is_empty()),
            observed_generation: budget.metadata.generation,
            conditions: Some(vec![condition(&budget, allowed)]),
        };
        if budget.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let mut object = PodDisruptionBudget::clone(&budget);
        object.status = Some(status);
        self.world.budgets.replace_status(&object).await?;
        Ok(())
    }
}

impl Controller {
    /// Returns the number of pods that the controllers of the given pods want.
    fn scale(&self, pods: &[Arc<Pod>]) -> i32 {
        let mut seen = HashSet::new();
        let mut total = 0;
        for pod in pods {
            let Some(owner) = objects::controller(&pod.metadata) else {
                continue;
            };
            let key = ObjectKey::new(objects::namespace(&**pod), &owner.name);
            let set = self
                .world
                .replica_sets
                .get(&key)
                .filter(|set| objects::uid(&**set) == owner.uid);
            let stateful = self
                .world
                .stateful_sets
                .get(&key)
                .filter(|set| objects::uid(&**set) == owner.uid)
                .map(|set| set.spec.as_ref().and_then(|spec| spec.replicas));
            let older = self
                .world
                .replication_controllers
                .get(&key)
                .filter(|set| objects::uid(&**set) == owner.uid)
                .map(|set| set.spec.as_ref().and_then(|spec| spec.replicas));
            if let Some(replicas) = stateful.or(older) {
                if seen.insert(owner.uid.clone()) {
                    total += replicas.unwrap_or(1);
                }
                continue;
            }
            let Some(set) = set else {
                // An owner without a scale counts with the pods that it has.
                if seen.insert(owner.uid.clone()) {
                    total += self.world.pods.indexed(&owner.uid).len() as i32;
                }
                continue;
            };
            let deployment = objects::controller(&set.metadata).and_then(|owner| {
                self.world
                    .deployments
                    .get(&ObjectKey::new(&key.namespace, &owner.name))
                    .filter(|deployment| objects::uid(&**deployment) == owner.uid)
            });
            let (uid, replicas) = match &deployment {
                Some(deployment) => (
                    objects::uid(&**deployment),
                    deployment.spec.as_ref().and_then(|spec| spec.replicas),
                ),
                None => (
                    objects::uid(&*set),
                    set.spec.as_ref().and_then(|spec| spec.replicas),
                ),
            };
            if seen.insert(uid.to_owned()) {
                total += replicas.unwrap_or(1);
            }
        }
        total
    }
}

fn condition(budget: &PodDisruptionBudget, allowed: i32) -> Condition {
    let (status, reason) = if allowed > 0 {
        ("True", "SufficientPods")
    } else {
        ("False", "InsufficientPods")
    };
    let held = budget
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref())
        .and_then(|conditions| {
            conditions
                .iter()
                .find(|held| held.type_ == "DisruptionAllowed" && held.status == status)
        });
    Condition {
        type_: "DisruptionAllowed".to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: String::new(),
        observed_generation: budget.metadata.generation,
        last_transition_time: held
            .map_or_else(objects::now, |held| held.last_transition_time.clone()),
    }
}
