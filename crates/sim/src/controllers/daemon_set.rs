//! DaemonSets: one pod on every node that fits.
//!
//! Follows the daemon set controller of Kubernetes 1.35: its tolerations, labels, revisions and events.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use parking_lot::Mutex;
use tokio::time::Instant;

use self::tie::{should_run_on, target};
use super::events::Recorder;
use super::mirror::ObjectKey;
use super::queue::Queue;
use super::reconcile::Reconcile;
use super::world::World;
use super::{objects, pods, selectors};

mod revisions;
mod status;
mod tie;
mod update;

/// Label of a pod with the hash of the revision of its template.
const HASH: &str = "controller-revision-hash";
/// Backoff before a failed pod on a node is replaced again; it doubles with each further failure.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
/// Longest backoff.
const LONGEST_BACKOFF: Duration = Duration::from_mins(15);
/// Largest number of pods that are created, and of pods that are deleted, at a time.
const BURST: usize = 250;

pub(crate) struct Controller {
    world: Arc<World>,
    queue: Arc<Queue<ObjectKey>>,
    events: Recorder,
    /// Time of the last replacement of a failed pod and the current backoff, by DaemonSet and node.
    failed: Mutex<HashMap<BackoffKey, (Instant, Duration)>>,
}

/// UID and generation of a DaemonSet, and a node.
type BackoffKey = (String, i64, String);
/// Pods of a DaemonSet by their target node.
type ByNode = BTreeMap<String, Vec<Arc<Pod>>>;

impl Controller {
    /// Subscribes to the changes that concern this controller.
    pub(crate) fn new(world: &Arc<World>) -> Arc<Self> {
        let queue = Arc::new(Queue::default());
        let own = Arc::clone(&queue);
        world.daemon_sets.listen(move |before, after| {
            if let Some(set) = after.or(before) {
                own.add(ObjectKey::of(&set.metadata));
            }
        });
        let own = Arc::clone(&queue);
        let sets = Arc::clone(&world.daemon_sets);
        world.pods.listen(move |before, after| {
            for pod in [before, after].into_iter().flatten() {
                let namespace = objects::namespace(&**pod);
                if let Some(owner) = objects::controller(&pod.metadata) {
                    if owner.kind == "DaemonSet" {
                        own.add(ObjectKey::new(namespace, &owner.name));
                    }
                } else if !objects::deleting(&**pod) {
                    for set in sets.within(namespace) {
                        let spec = set.spec.as_ref();
                        if spec.is_some_and(|spec| {
                            selectors::selects(&spec.selector, objects::labels(&**pod))
                        }) {
                            own.add(ObjectKey::of(&set.metadata));
                        }
                    }
                }
            }
        });
        let own = Arc::clone(&queue);
        let sets = Arc::clone(&world.daemon_sets);
        world.nodes.listen(move |before, after| {
            let matters = |node: &Node| {
                let spec = node.spec.clone().unwrap_or_default();
                (node.metadata.labels.clone(), spec.taints)
            };
            if before.map(|node| matters(node)) != after.map(|node| matters(node)) {
                for set in sets.all() {
                    own.add(ObjectKey::of(&set.metadata));
                }
            }
        });
        Arc::new(Self {
            world: Arc::clone(world),
            queue,
            events: world.events.of("daemonset-controller"),
            failed: Mutex::new(HashMap::new()),
        })
    }
}

impl Reconcile for Controller {
    const NAME: &'static str = "daemonset";
    const PARALLEL: usize = 2;

    fn queue(&self) -> &Arc<Queue<ObjectKey>> {
        &self.queue
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<(), kube::Error> {
        let Some(set) = self.world.daemon_sets.get(key) else {
            let mut failed = self.failed.lock();
            let existing: Vec<String> = self
                .world
                .daemon_sets
                .all()
                .iter()
                .map(|set| objects::uid(&**set).to_owned())
                .collect();
            failed.retain(|(uid, _, _), _| existing.contains(uid));
            return Ok(());
        };
        let Some(spec) = &set.spec else { return Ok(()) };
        if selectors::is_empty(&spec.selector) {
            self.events.warning(
                &*set,
                "SelectingAll",
                "This daemon set is selecting all pods. A non-empty selector is required.".into(),
            );
            return Ok(());
        }
        if objects::deleting(&*set) {
            return Ok(());
        }
        let (revision, old) = self.revisions(&set).await?;
        let hash = objects::labels(&*revision)
            .get(HASH)
            .cloned()
            .unwrap_or_default();
        let nodes = self.world.nodes.all();
        let managed = self.manage(&set, &nodes, &hash).await;
        let rolled = match managed {
            Ok(()) if !update::on_delete(&set) => self.roll(&set, &nodes, &hash).await,
            other => other,
        };
        if rolled.is_ok() {
            self.forget_revisions(&set, old).await?;
        }
        let stored = self.store_status(&set, &nodes, &hash).await;
        rolled.and(stored)
    }
}

impl Controller {
    async fn by_node(&self, set: &DaemonSet) -> Result<ByNode, kube::Error> {
        let selector = set.spec.clone().unwrap_or_default().selector;
        let claimed = pods::claim(&self.world.pods, set, &selector, |_| true).await?;
        let mut by_node = ByNode::new();
        for pod in claimed {
            if let Some(node) = target(&pod) {
                by_node.entry(node).or_default().push(pod);
            }
        }
        for pods in by_node.values_mut() {
            sort(pods);
        }
        Ok(by_node)
    }

    async fn manage(
        &self,
        set: &DaemonSet,
        nodes: &[Arc<Node>],
        hash: &str,
    ) -> Result<(), kube::Error> {
        let by_node = self.by_node(set).await?;
        let (mut needed, mut surplus) = (Vec::new(), Vec::new());
        for node in nodes {
            self.decide_for_node(set, node, &by_node, hash, &mut needed, &mut surplus);
        }
        // Pods that wait for a node that no longer exists.
        for (node, pods) in &by_node {
            if self.world.nodes.get(&ObjectKey::new("", node)).is_none() {
                let unbound = pods
                    .iter()
                    .filter(|pod| objects::node_of(pod).is_none() && !objects::deleting(&***pod));
                surplus.extend(unbound.cloned());
            }
        }
        self.sync(set, needed, surplus, hash).await
    }

    /// Decides for one node: adds its name to `needed` if it lacks a pod, and its superfluous pods to `surplus`.
    fn decide_for_node(
        &self,
        set: &DaemonSet,
        node: &Node,
        by_node: &ByNode,
        hash: &str,
        needed: &mut Vec<String>,
        surplus: &mut Vec<Arc<Pod>>,
    ) {
        let name = objects::name(node);
        let (run, stay) = should_run_on(set, node);
        let existing = by_node.get(name);
        match existing {
            None => {
                if run {
                    needed.push(name.to_owned());
                }
            }
            Some(pods) if !stay => {
                surplus.extend(
                    pods.iter()
                        .filter(|pod| !objects::deleting(&***pod))
                        .cloned(),
                );
            }
            Some(pods) => {
                let mut running = Vec::new();
                for pod in pods.iter().filter(|pod| !objects::deleting(&***pod)) {
                    match objects::phase(pod) {
                        "Failed" => {
                            if self.may_replace(set, name) {
                                let what = format!(
                                    "Found failed daemon pod {}/{} on node {name}, will try to kill it",
                                    objects::namespace(&**pod),
                                    objects::name(&**pod)
                                );
                                self.events.warning(set, "FailedDaemonPod", what);
                                surplus.push(Arc::clone(pod));
                            }
                        }
                        "Succeeded" => {
                            let what = format!(
                                "Found succeeded daemon pod {}/{} on node {name}, will try to delete it",
                                objects::namespace(&**pod),
                                objects::name(&**pod)
                            );
                            self.events.normal(set, "SucceededDaemonPod", what);
                            surplus.push(Arc::clone(pod));
                        }
                        _ => running.push(Arc::clone(pod)),
                    }
                }
                if update::surges(set) {
                    if running.is_empty() {
                        if run {
                            needed.push(name.to_owned());
                        }
                    } else {
                        surplus.extend(update::superfluous(set, &running, hash));
                    }
                } else {
                    surplus.extend(running.into_iter().skip(1));
                }
            }
        }
    }

    /// Returns whether a failed pod on a node may be replaced now. If not, the DaemonSet is queued again for later.
    fn may_replace(&self, set: &DaemonSet, node: &str) -> bool {
        let key = (
            objects::uid(set).to_owned(),
            set.status
                .as_ref()
                .and_then(|status| status.observed_generation)
                .unwrap_or(0),
            node.to_owned(),
        );
        let now = Instant::now();
        let mut failed = self.failed.lock();
        let wait = match failed.get(&key) {
            Some((at, wait)) if now.duration_since(*at) < *wait => {
                self.queue.add_after(ObjectKey::of(&set.metadata), *wait);
                return false;
            }
            Some((at, wait)) if now.duration_since(*at) < 2 * LONGEST_BACKOFF => {
                (*wait * 2).min(LONGEST_BACKOFF)
            }
            _ => FIRST_BACKOFF,
        };
        failed.insert(key, (now, wait));
        true
    }

    /// Creates and deletes pods, at most [`BURST`] of each.
    async fn sync(
        &self,
        set: &DaemonSet,
        mut needed: Vec<String>,
        mut surplus: Vec<Arc<Pod>>,
        hash: &str,
    ) -> Result<(), kube::Error> {
        needed.truncate(BURST);
        surplus.truncate(BURST);
        let new = needed.iter().map(|node| pod_for(set, node, hash)).collect();
        let made = pods::create(&self.world.pods, &self.events, set, new).await;
        let removed = pods::delete(&self.world.pods, &self.events, set, surplus).await;
        made.and(removed)
    }
}

/// Sorts pods: those with a node first, then by age, the oldest first.
fn sort(pods: &mut [Arc<Pod>]) {
    pods.sort_by_cached_key(|pod| {
        let created = pod.metadata.creation_timestamp.as_ref();
        (
            objects::node_of(pod).is_none(),
            created.map_or(Timestamp::MAX, |time| time.0),
            pod.metadata.name.clone(),
        )
    });
}

/// Returns the pod for a node.
fn pod_for(set: &DaemonSet, node: &str, hash: &str) -> Pod {
    let template = set.spec.clone().unwrap_or_default().template;
    let mut pod = pods::from_template(&template, set);
    let labels = pod.metadata.labels.get_or_insert_default();
    if let Some(generation) = update::template_generation(set) {
        labels.insert("pod-template-generation".to_owned(), generation.to_string());
    }
    labels.insert(HASH.to_owned(), hash.to_owned());
    tie::to_node(pod.spec.get_or_insert_default(), node);
    pod
}
