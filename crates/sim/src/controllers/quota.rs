//! Status of ResourceQuotas: what the objects of a namespace use. Admission charges new objects to it; this controller counts again when
//! objects go, and pods end or are resized.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apiserver::quota;
use k8s_openapi::api::core::v1::{Pod, ResourceQuota, ResourceQuotaStatus, ResourceRequirements};
use kube::api::ListParams;
use serde_json::Value;

use super::mirror::{Mirror, ObjectKey};
use super::queue::Queue;
use super::reconcile::Reconcile;
use super::world::World;
use super::{garbage, objects};

/// Returns the resources of the containers of a pod.
fn resources(pod: &Pod) -> impl Iterator<Item = Option<&ResourceRequirements>> {
    let spec = pod.spec.iter();
    let containers = spec.flat_map(objects::containers);
    containers.map(|container| container.resources.as_ref())
}

pub(crate) struct Controller {
    world: Arc<World>,
    garbage: Arc<garbage::Controller>,
    queue: Arc<Queue<ObjectKey>>,
}

impl Controller {
    /// Subscribes to the changes that concern this controller.
    pub(crate) fn new(world: &Arc<World>, garbage: &Arc<garbage::Controller>) -> Arc<Self> {
        let queue: Arc<Queue<ObjectKey>> = Arc::new(Queue::default());
        let quotas = Arc::clone(&world.quotas);
        let own = Arc::clone(&queue);
        quotas.listen(move |_, after: Option<&Arc<ResourceQuota>>| {
            if let Some(quota) = after {
                own.add(ObjectKey::of(&quota.metadata));
            }
        });
        let add_all =
            |queue: &Queue<ObjectKey>, quotas: &Mirror<ResourceQuota>, namespace: &str| {
                for quota in quotas.within(namespace) {
                    queue.add(ObjectKey::of(&quota.metadata));
                }
            };
        let (own, all) = (Arc::clone(&queue), Arc::clone(&quotas));
        world.pods.listen(move |before, after| {
            if let (Some(before), Some(after)) = (before, after)
                && (objects::terminal(after) && !objects::terminal(before)
                    || resources(before).ne(resources(after)))
            {
                add_all(&own, &all, objects::namespace(&**after));
            }
        });
        let (own, all) = (Arc::clone(&queue), Arc::clone(&quotas));
        garbage.when_gone(move |namespace| add_all(&own, &all, namespace));
        Arc::new(Self {
            world: Arc::clone(world),
            garbage: Arc::clone(garbage),
            queue,
        })
    }
}

impl Reconcile for Controller {
    const NAME: &'static str = "resourcequota";
    const PARALLEL: usize = 2;

    fn queue(&self) -> &Arc<Queue<ObjectKey>> {
        &self.queue
    }

    async fn ready(&self) {
        self.garbage.discovered().await;
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<(), kube::Error> {
        // the version of this quota is written back, so that what admission charges meanwhile is not lost
        let Some(before) = self.world.quotas.get(key) else {
            return Ok(());
        };
        let hard = before.spec.clone().unwrap_or_default().hard;
        let as_json = serde_json::to_value(&*before).map_err(kube::Error::SerdeError)?;
        let mut used = quota::Usage::new();
        let resources: BTreeSet<(&str, &str)> = hard
            .iter()
            .flat_map(BTreeMap::keys)
            .map(|name| quota::counted(name))
            .collect();
        for (plural, group) in resources {
            for object in self.objects(key, plural, group).await? {
                if !quota::is_in_scope(&as_json, group, plural, &object) {
                    continue;
                }
                for (name, amount) in quota::usage(group, plural, &object) {
                    let sum = used.get(&name).copied();
                    let sum = sum.map_or(amount, |sum| sum + amount);
                    used.insert(name, sum);
                }
            }
        }
        let used = hard.as_ref().map(|hard| {
            let names = hard.keys().cloned();
            names
                .map(|name| {
                    let amount = used.get(&name).copied().unwrap_or_default();
                    (name, amount.to_quantity())
                })
                .collect()
        });
        let status = ResourceQuotaStatus { hard, used };
        if before.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let mut after = ResourceQuota::clone(&before);
        after.status = Some(status);
        self.world.quotas.replace_status(&after).await?;
        Ok(())
    }
}

impl Controller {
    /// Returns the objects of one resource in the namespace of a quota; none of a resource that does not exist.
    async fn objects(
        &self,
        key: &ObjectKey,
        plural: &str,
        group: &str,
    ) -> Result<Vec<Value>, kube::Error> {
        let name = format!("{plural}.{group}");
        let kinds = self.garbage.namespaced_kinds();
        let Some(kind) = kinds.iter().find(|kind| kind.group_resource() == name) else {
            return Ok(Vec::new());
        };
        let api = kind.api_in(&self.world.client, &key.namespace);
        let list = api.list(&ListParams::default()).await?;
        let objects = list.items.into_iter().map(serde_json::to_value);
        objects
            .collect::<Result<_, _>>()
            .map_err(kube::Error::SerdeError)
    }
}
