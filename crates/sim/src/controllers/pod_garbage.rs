//! Removal of leftover pods: those of deleted nodes, deleted ones without a node, and terminated ones beyond a limit.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::mirror::ObjectKey;
use super::queue::Queue;
use super::reconcile::Reconcile;
use super::world::World;
use super::{nodes, objects};

/// Number of terminated pods that are kept.
const KEPT: usize = 12_500;

pub(crate) struct Controller {
    world: Arc<World>,
    queue: Arc<Queue<ObjectKey>>,
    /// How long a node must be gone before its pods are removed.
    gone_grace: Duration,
    /// Since when the nodes are gone that pods still name.
    gone: Mutex<HashMap<String, Instant>>,
}

impl Controller {
    /// Subscribes to the changes that concern this controller.
    pub(crate) fn new(world: &Arc<World>, gone_grace: Duration) -> Arc<Self> {
        let queue: Arc<Queue<ObjectKey>> = Arc::new(Queue::default());
        let own = Arc::clone(&queue);
        let known = Arc::clone(&world.nodes);
        world.pods.listen(move |_, after| {
            let Some(pod) = after else { return };
            let concerned = match objects::node_of(pod) {
                Some(node) => known.get(&ObjectKey::new("", node)).is_none(),
                None => objects::deleting(&**pod),
            };
            if concerned || objects::terminal(pod) {
                own.add(ObjectKey::of(&pod.metadata));
            }
        });
        let own = Arc::clone(&queue);
        let pods = Arc::clone(&world.pods);
        world
            .nodes
            .listen(move |before: Option<&Arc<Node>>, after| {
                if let (Some(gone), None) = (before, after) {
                    for pod in pods.indexed(&format!("node:{}", objects::name(&**gone))) {
                        own.add(ObjectKey::of(&pod.metadata));
                    }
                }
            });
        Arc::new(Self {
            world: Arc::clone(world),
            queue,
            gone_grace,
            gone: Mutex::default(),
        })
    }
}

impl Reconcile for Controller {
    const NAME: &'static str = "podgc";
    const PARALLEL: usize = 4;

    fn queue(&self) -> &Arc<Queue<ObjectKey>> {
        &self.queue
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<(), kube::Error> {
        let Some(pod) = self.world.pods.get(key) else {
            return Ok(());
        };
        let Some(node) = objects::node_of(&pod) else {
            if objects::deleting(&*pod) {
                return self.remove(&pod, None).await;
            }
            return Ok(());
        };
        let name = ObjectKey::new("", node);
        if self.world.nodes.get(&name).is_some() {
            self.gone.lock().remove(node);
            return if objects::terminal(&pod) {
                self.limit().await
            } else {
                Ok(())
            };
        }
        let since = *self
            .gone
            .lock()
            .entry(node.to_owned())
            .or_insert_with(Instant::now);
        let spent = since.elapsed();
        if spent < self.gone_grace {
            self.queue
                .add_after(key.clone(), self.gone_grace.saturating_sub(spent));
            return Ok(());
        }
        let api: Api<Node> = Api::all(self.world.client.clone());
        if api.get_opt(node).await?.is_some() {
            return Ok(());
        }
        self.remove(&pod, Some("PodGC: node no longer exists"))
            .await
    }
}

impl Controller {
    /// Removes a pod for good. A pod that has not ended is marked as failed first.
    async fn remove(&self, pod: &Arc<Pod>, why: Option<&str>) -> Result<(), kube::Error> {
        if !objects::terminal(pod) {
            if let Some(why) = why {
                let reason = "DeletionByPodGC";
                nodes::eviction::mark(&self.world.pods, pod, reason, why, Some("Failed")).await?;
            } else {
                let patch = serde_json::json!({"status": {"phase": "Failed"}});
                if let Err(error) = self.world.pods.patch_status(pod, &patch).await
                    && objects::code(&error) != 404
                {
                    return Err(error);
                }
            }
        }
        let now = DeleteParams {
            grace_period_seconds: Some(0),
            ..DeleteParams::default()
        };
        self.world.pods.delete(pod, &now).await
    }

    /// Deletes the oldest terminated pods beyond the limit.
    async fn limit(&self) -> Result<(), kube::Error> {
        let mut ended: Vec<Arc<Pod>> = self
            .world
            .pods
            .all()
            .into_iter()
            .filter(|pod| objects::terminal(pod) && !objects::deleting(&**pod))
            .collect();
        let surplus = ended.len().saturating_sub(KEPT);
        if surplus == 0 {
            return Ok(());
        }
        ended.sort_by_cached_key(|pod| {
            let created = pod.metadata.creation_timestamp.as_ref();
            created.map_or(Timestamp::MIN, |time| time.0)
        });
        for pod in &ended[..surplus] {
            self.remove(pod, None).await?;
        }
        Ok(())
    }
}
