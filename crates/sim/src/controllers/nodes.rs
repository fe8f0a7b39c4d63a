//! Node lifecycle: silent nodes become Unknown, taints follow conditions and cordons, and pods leave nodes whose taints they do not
//! tolerate.
//!
//! Follows the node lifecycle and taint eviction controllers of Kubernetes 1.35. Not implemented: rate limits of evictions, and the rule
//! that no pod is evicted while all nodes are silent.

pub(super) mod eviction;
mod taints;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Taint};
use kube::api::{Api, Patch, PatchParams};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use super::events::Recorder;
use super::mirror::ObjectKey;
use super::placement::{self, NO_EXECUTE};
use super::queue::Queue;
use super::world::World;
use super::{MANAGER, objects};

/// Conditions that become Unknown when a node is silent.
const KUBELET_CONDITIONS: &[&str] = &["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// The last sign of life of a node.
struct LastSign {
    sign: (Option<String>, Option<String>),
    at: Instant,
}

pub(crate) struct Controller {
    world: Arc<World>,
    nodes: Arc<Queue<ObjectKey>>,
    pods: Arc<Queue<ObjectKey>>,
    /// Time without a sign of life after which a node becomes Unknown.
    grace: Duration,
    last_signs: Mutex<HashMap<String, LastSign>>,
    /// Since when a pod is on a node with taints that it does not tolerate forever.
    leaving: Mutex<HashMap<ObjectKey, (String, Instant)>>,
    events: Recorder,
    evictions: Recorder,
}

impl Controller {
    /// Subscribes to the changes that concern this controller.
    pub(crate) fn new(world: &Arc<World>, grace: Duration) -> Arc<Self> {
        let nodes: Arc<Queue<ObjectKey>> = Arc::new(Queue::default());
        let pods: Arc<Queue<ObjectKey>> = Arc::new(Queue::default());
        let (own, own_pods, all) = (
            Arc::clone(&nodes),
            Arc::clone(&pods),
            Arc::clone(&world.pods),
        );
        world.nodes.listen(move |before, after| {
            let Some(node) = after.or(before) else { return };
            own.add(ObjectKey::of(&node.metadata));
            let evicting = |node: &Arc<Node>| -> Vec<Taint> {
                placement::taints(node, NO_EXECUTE).cloned().collect()
            };
            if before.map(evicting).unwrap_or_default() != after.map(evicting).unwrap_or_default() {
                for pod in all.indexed(&format!("node:{}", objects::name(&**node))) {
                    own_pods.add(ObjectKey::of(&pod.metadata));
                }
            }
        });
        let own = Arc::clone(&pods);
        let known = Arc::clone(&world.nodes);
        world.pods.listen(move |before, after| {
            let Some(pod) = after.or(before) else { return };
            let moved = before.and_then(|pod| objects::node_of(pod))
                != after.and_then(|pod| objects::node_of(pod));
            let tainted = || {
                objects::node_of(pod)
                    .and_then(|node| known.get(&ObjectKey::new("", node)))
                    .is_some_and(|node| placement::taints(&node, NO_EXECUTE).next().is_some())
            };
            if after.is_none() || moved && tainted() {
                own.add(ObjectKey::of(&pod.metadata));
            }
        });
        let leases = Arc::clone(&world.leases);
        let own = Arc::clone(&nodes);
        leases.listen(move |before: Option<&Arc<Lease>>, after| {
            if let Some(lease) = after.or(before)
                && objects::namespace(&**lease) == "kube-node-lease"
            {
                own.add(ObjectKey::new("", objects::name(&**lease)));
            }
        });
        Arc::new(Self {
            world: Arc::clone(world),
            nodes,
            pods,
            grace,
            last_signs: Mutex::default(),
            leaving: Mutex::default(),
            events: world.events.of("node-controller"),
            evictions: world.events.of("taint-eviction-controller"),
        })
    }

    /// Runs the controller; never returns by itself.
    pub(crate) async fn run(self: Arc<Self>) {
        let (nodes, pods) = (Arc::clone(&self.nodes), Arc::clone(&self.pods));
        let lifecycle = nodes.work("nodelifecycle", 4, |key| {
            let this = Arc::clone(&self);
            async move { this.monitor_health(&key).await }
        });
        let eviction = pods.work("tainteviction", 4, |key| {
            let this = Arc::clone(&self);
            async move { this.evict(&key).await }
        });
        tokio::join!(lifecycle, eviction);
    }

    async fn monitor_health(&self, key: &ObjectKey) -> Result<(), kube::Error> {
        let Some(node) = self.world.nodes.get(key) else {
            self.last_signs.lock().remove(&key.name);
            return Ok(());
        };
        let remaining = self.remaining_grace(&node);
        let node = match remaining {
            None => self.mark_unknown(&node).await?,
            Some(left) => {
                self.nodes.add_after(key.clone(), left);
                node
            }
        };
        self.taint(&node).await
    }

    /// Records a sign of life. Returns how long the silence may still last, or `None` if it has lasted too long.
    fn remaining_grace(&self, node: &Node) -> Option<Duration> {
        let lease = self
            .world
            .leases
            .get(&ObjectKey::new("kube-node-lease", objects::name(node)));
        let renewed = lease.and_then(|lease| {
            let time = lease.spec.as_ref()?.renew_time.clone()?;
            Some(time.0.to_string())
        });
        let beat = condition(node, "Ready")
            .filter(|ready| ready.status != "Unknown")
            .and_then(|ready| Some(ready.last_heartbeat_time.as_ref()?.0.to_string()));
        let mut signs = self.last_signs.lock();
        let now = Instant::now();
        let entry = signs
            .entry(objects::name(node).to_owned())
            .or_insert_with(|| LastSign {
                sign: (None, None),
                at: now,
            });
        if entry.sign.0 != renewed || beat.is_some() && entry.sign.1 != beat {
            entry.sign = (renewed, beat);
            entry.at = now;
        }
        self.grace
            .checked_sub(now.duration_since(entry.at))
            .filter(|left| !left.is_zero())
    }

    /// Sets the conditions of a silent node to Unknown.
    async fn mark_unknown(&self, node: &Arc<Node>) -> Result<Arc<Node>, kube::Error> {
        let mut conditions = node
            .status
            .clone()
            .and_then(|status| status.conditions)
            .unwrap_or_default();
        let was_ready = condition(node, "Ready").is_some_and(|ready| ready.status == "True");
        let mut changed = false;
        for kind in KUBELET_CONDITIONS {
            match conditions.iter_mut().find(|held| held.type_ == *kind) {
                Some(held) if held.status == "Unknown" => {}
                Some(held) => {
                    "Unknown".clone_into(&mut held.status);
                    held.reason = Some("NodeStatusUnknown".to_owned());
                    held.message = Some("Kubelet stopped posting node status.".to_owned());
                    held.last_transition_time = Some(objects::now());
                    changed = true;
                }
                None => {
                    conditions.push(NodeCondition {
                        type_: (*kind).to_owned(),
                        status: "Unknown".to_owned(),
                        reason: Some("NodeStatusNeverUpdated".to_owned()),
                        message: Some("Kubelet never posted node status.".to_owned()),
                        last_heartbeat_time: node.metadata.creation_timestamp.clone(),
                        last_transition_time: Some(objects::now()),
                    });
                    changed = true;
                }
            }
        }
        if !changed {
            return Ok(Arc::clone(node));
        }
        let patch = json!({
            "metadata": {"resourceVersion": node.metadata.resource_version},
            "status": {"conditions": conditions},
        });
        let api: Api<Node> = Api::all(self.world.client.clone());
        let written = api
            .patch_status(objects::name(&**node), &params(), &Patch::Merge(patch))
            .await?;
        let written = self.world.nodes.observe(written);
        if was_ready {
            let name = objects::name(&**node);
            let what = format!("Node {name} status is now: NodeNotReady");
            self.events.normal(&**node, "NodeNotReady", what);
            self.mark_pods_not_ready(name).await;
        }
        Ok(written)
    }

    /// Marks the pods of a silent node as not ready.
    async fn mark_pods_not_ready(&self, node: &str) {
        for pod in self.world.pods.indexed(&format!("node:{node}")) {
            if !objects::ready(&pod) {
                continue;
            }
            let mut conditions = pod
                .status
                .clone()
                .and_then(|status| status.conditions)
                .unwrap_or_default();
            for held in conditions.iter_mut().filter(|held| held.type_ == "Ready") {
                "False".clone_into(&mut held.status);
                held.last_transition_time = Some(objects::now());
            }
            let patch = json!({"status": {"conditions": conditions}});
            match self.world.pods.patch_status(&pod, &patch).await {
                Ok(_) => self
                    .events
                    .warning(&*pod, "NodeNotReady", "Node is not ready".to_owned()),
                Err(error) => tracing::debug!(%error, "Pod was not marked"),
            }
        }
    }
}

fn condition<'a>(node: &'a Node, kind: &str) -> Option<&'a NodeCondition> {
    node.status
        .as_ref()?
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == kind)
}

fn params() -> PatchParams {
    PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    }
}
