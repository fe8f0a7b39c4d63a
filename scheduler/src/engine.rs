//! The loop that owns all state: takes changes, tries pods, starts bindings and reports.
//!
//! Everything between two awaits is synchronous, so an attempt sees one consistent state and nothing can change concurrently.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use daemon::admin::Gate;
use daemon::lease::Leadership;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Client;
use nrt::decode::NodeTopology;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api_tasks::bind;
use crate::api_tasks::evict;
use crate::api_tasks::report::{EventKind, Nomination, Reporter};
use crate::api_tasks::status_dump::{self, StatusDump};
use crate::api_tasks::volume_bind::{self, Changes};
use crate::framework::cycle::{Attempted, Outcome, Verdict, attempt};
use crate::framework::memo::Memo;
use crate::framework::plugin::{Plugin, Plugins};
use crate::framework::profile::Profile;
use crate::framework::queue::{Cause, Popped, Queue};
use crate::metrics::{AttemptResult, Metrics, Point, Status};
use crate::plugins::default_preemption::{self, Candidate};
use crate::plugins::{volume_binding, volumes};
use crate::state::cache::Cache;
use crate::state::cluster::{Budget, Cluster, GroupKind, Node};
use crate::state::pod::{Phase, Pod, PodKey};
use crate::state::storage::{Kind, Object, Progress, Reservation, Storage};
use crate::watch::follow::Change;

/// Maximum number of changes that are taken before the next attempt.
const BATCH: usize = 512;
/// Number of kinds of objects that must be known before anything is placed.
const KINDS: usize = 5;
/// Interval between two turns of the loop when no event arrives.
const IDLE: Duration = Duration::from_secs(10);
/// Minimum interval between two publications of sizes: counting takes time that attempts need.
const SIZES: Duration = Duration::from_secs(1);
/// Maximum number of concurrent binding requests. Each uses a connection, and opening one costs more than a binding.
const BINDINGS: usize = 32;

/// A message to the loop.
#[derive(Debug)]
pub enum Message {
    /// A pod changed.
    Pod(Box<Change<Pod, PodKey>>),
    /// A node changed.
    Node(Change<Node, String>),
    /// The topology of a node changed.
    Topology(Change<(String, NodeTopology), String>),
    /// A namespace changed.
    Namespace(Change<(String, BTreeMap<String, String>), String>),
    /// A disruption budget changed.
    Budget(Change<(PodKey, Budget), PodKey>),
    /// A service, or a controller of this kind, changed.
    Group(GroupKind, Change<(PodKey, Option<LabelSelector>), PodKey>),
    /// An object that volumes depend on changed.
    Storage(Kind, Box<Change<(PodKey, Object), PodKey>>),
    /// Objects of this kind may not be listed.
    StorageRefused(Kind),
    /// Volumes of a pod were written to the API server, or the write failed.
    VolumesWritten(Box<VolumesWritten>),
    /// A binding succeeded or failed.
    Bound(Box<Binding>),
    /// The evictions for a pod were attempted.
    Preempted(Box<Preemption>),
}

/// Evictions for a pod that were attempted.
#[derive(Debug)]
pub struct Preemption {
    pod: PodKey,
    rejected_by: Plugins,
}

/// A pod with the chosen node.
#[derive(Debug)]
struct Placement {
    pod: Pod,
    node: String,
    popped: Popped,
    started: Instant,
}

/// A binding that was attempted.
#[derive(Debug)]
pub struct Binding {
    placement: Placement,
    result: Result<(), bind::Error>,
}

/// Volumes and claims that were written, or an error.
#[derive(Debug)]
pub struct VolumesWritten {
    waiting: Waiting,
    result: Result<Vec<u64>, volume_bind::Error>,
}

/// A pod whose volumes are being bound.
#[derive(Debug)]
struct Waiting {
    placement: Placement,
    reservation: Reservation,
    /// Resource versions of the written objects.
    written: Vec<u64>,
    timeout: Duration,
    deadline: Instant,
}

/// The result of leader election, for which [`Engine::run`] waits before it schedules.
#[derive(Debug)]
pub enum Election {
    /// The program was stopped before it held the lease.
    Stopped,
    /// Leader election is disabled.
    NotRequired,
    /// The lease is held.
    Leading(Leadership),
}

/// All state.
pub struct Engine {
    profiles: Vec<Profile>,
    cluster: Cluster,
    cache: Cache,
    memo: Memo,
    queue: Queue,
    /// How many kinds must be known before anything is placed.
    kinds: usize,
    /// Kinds that are listed completely.
    synced: BTreeSet<&'static str>,
    topologies: BTreeSet<String>,
    namespaces: BTreeSet<String>,
    turn: usize,
    client: Client,
    reporter: Reporter,
    metrics: Metrics,
    channel: mpsc::Sender<Message>,
    bindings: JoinSet<()>,
    connections: Arc<Semaphore>,
    dump: Option<StatusDump>,
    /// Cancelled once a pod needs volumes to be known.
    storage_wanted: CancellationToken,
    /// Kinds that volumes depend on and whose first list may still come.
    awaited: BTreeSet<Kind>,
    /// Pods whose volumes are being bound, by uid.
    waiting: BTreeMap<String, Waiting>,
    /// Whether something changed that they may wait for.
    volumes_changed: bool,
}

impl Engine {
    /// Creates an engine with empty state.
    pub fn new(
        profiles: Vec<Profile>,
        cache: Cache,
        queue: Queue,
        client: Client,
        reporter: Reporter,
        metrics: Metrics,
        channel: mpsc::Sender<Message>,
    ) -> Self {
        Self {
            profiles,
            cluster: Cluster::new(),
            cache,
            memo: Memo::default(),
            queue,
            kinds: KINDS,
            synced: BTreeSet::new(),
            topologies: BTreeSet::new(),
            namespaces: BTreeSet::new(),
            turn: 0,
            client,
            reporter,
            metrics,
            channel,
            bindings: JoinSet::new(),
            connections: Arc::new(Semaphore::new(BINDINGS)),
            dump: None,
            storage_wanted: CancellationToken::new(),
            awaited: BTreeSet::new(),
            waiting: BTreeMap::new(),
            volumes_changed: false,
        }
    }

    /// Records which pod sets are compared.
    #[must_use]
    pub fn with_dump(mut self, dump: Option<StatusDump>) -> Self {
        self.dump = dump;
        self
    }

    /// Also waits for services and controllers of pods: they determine how pods are spread by default.
    #[must_use]
    pub fn with_groups(mut self) -> Self {
        self.kinds += GroupKind::ALL.len();
        self
    }

    /// Cancels `wanted` when the first pod arrives that cannot be examined without volumes. Such pods wait for the watches that this starts.
    #[must_use]
    pub fn with_storage(mut self, wanted: CancellationToken) -> Self {
        *self.cluster.storage_mut() = Storage::unknown();
        self.awaited = Kind::ALL.into();
        self.storage_wanted = wanted;
        self
    }

    /// Runs until it is stopped or the lease is lost. Schedules once everything is known and the lease, if any, is held.
    pub async fn run(
        &mut self,
        mut changes: mpsc::Receiver<Message>,
        synced: &Gate,
        mut election: JoinHandle<Election>,
        stop: &CancellationToken,
    ) -> anyhow::Result<ExitCode> {
        let mut leadership: Option<Leadership> = None;
        let mut leading = false;
        let lost = CancellationToken::new();
        let mut lost_lease = lost.clone();
        let mut sizes_due = Instant::now();
        loop {
            let active = leading && self.is_synced();
            if active {
                self.attempt_next();
            }
            let ready = active && self.queue.is_ready();
            let wake = if active { self.queue.next_wake() } else { None };
            let idle = Instant::now() + IDLE;
            let volumes = self.waiting.values().map(|waiting| waiting.deadline).min();
            let limit = [wake, self.cache.next_expiry(), volumes]
                .into_iter()
                .flatten()
                .fold(idle, Instant::min);
            tokio::select! {
                biased;
                () = stop.cancelled() => {
                    if let Some(leadership) = leadership {
                        leadership.release().await;
                    }
                    return Ok(ExitCode::SUCCESS);
                }
                () = lost_lease.cancelled() => return Ok(ExitCode::FAILURE),
                elected = &mut election, if !leading => {
                    leading = true;
                    match elected? {
                        Election::Stopped => return Ok(ExitCode::SUCCESS),
                        Election::NotRequired => {}
                        Election::Leading(held) => {
                            lost_lease = held.lost();
                            leadership = Some(held);
                        }
                    }
                }
                message = changes.recv() => {
                    let Some(message) = message else { return Ok(ExitCode::SUCCESS) };
                    self.handle(message);
                    for _ in 0..BATCH {
                        let Ok(message) = changes.try_recv() else { break };
                        self.handle(message);
                    }
                    if self.is_synced() && !synced.is_open() {
                        tracing::info!(nodes = self.cluster.nodes().count(), pods = self.cluster.pods().count(), "All caches are synced");
                        synced.open();
                    }
                }
                // not a timer, which would round up to its next tick
                () = tokio::task::yield_now(), if ready => {}
                () = tokio::time::sleep_until(limit) => {}
            }
            while self.bindings.try_join_next().is_some() {}
            let expired = self.cache.expire(Instant::now());
            self.wake_if(expired, Plugin::NodeResourceTopologyMatch, Cause::PodGone);
            self.check_volumes(Instant::now());
            self.dump_checks();
            if Instant::now() >= sizes_due {
                self.publish_sizes();
                sizes_due = Instant::now() + SIZES;
            }
        }
    }

    fn dump_checks(&mut self) {
        let Some(dump) = &mut self.dump else { return };
        for check in self.cache.take_checks() {
            dump.add(check, Timestamp::now());
        }
        if let Some(files) = dump.due(Instant::now()) {
            // Not joined: the next write replaces what this one leaves.
            drop(tokio::task::spawn_blocking(|| status_dump::write(files)));
        }
    }

    /// Waits for the bindings in progress, at most `limit`.
    pub async fn finish(mut self, limit: Duration) {
        let all = async { while self.bindings.join_next().await.is_some() {} };
        if tokio::time::timeout(limit, all).await.is_err() {
            tracing::warn!("Some bindings did not end in time");
        }
    }

    fn is_synced(&self) -> bool {
        self.synced.len() == self.kinds
    }

    fn publish_sizes(&mut self) {
        for ((part, cause), count) in self.queue.take_moves() {
            self.metrics.moves(part, cause, count);
        }
        let mut rejected = BTreeMap::new();
        for (key, plugins) in self.queue.rejected() {
            let Some(pod) = self.cluster.pod(key) else {
                continue;
            };
            for plugin in plugins.iter() {
                *rejected
                    .entry((plugin, pod.scheduler.as_str()))
                    .or_default() += 1;
            }
        }
        self.metrics.unschedulable(&rejected);
        self.metrics.sizes(
            self.queue.lengths(),
            self.cluster.nodes().count(),
            self.cluster.pods().count(),
            self.cluster.assumed_count(),
            self.cache.stats(),
        );
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Pod(change) => match *change {
                Change::Apply(pod) => self.apply_pod(pod),
                Change::Delete(key) => self.delete_pod(&key),
                Change::Synced(keys) => {
                    let gone: Vec<PodKey> = self
                        .cluster
                        .pods()
                        .map(|pod| &pod.key)
                        .filter(|key| !keys.contains(key))
                        .cloned()
                        .collect();
                    for key in &gone {
                        self.delete_pod(key);
                    }
                    self.synced.insert("pods");
                }
            },
            Message::Node(change) => match change {
                Change::Apply(node) => {
                    let known = self.cluster.node(&node.name);
                    let cause = match known.and_then(|state| state.node.as_ref()) {
                        Some(_) => Cause::NodeUpdated,
                        None => Cause::NodeAdded,
                    };
                    if self.cluster.apply_node(node) {
                        self.queue.wake_rejected_by(Plugins::ALL, cause);
                    }
                }
                Change::Delete(name) => self.cluster.delete_node(&name),
                Change::Synced(names) => {
                    let gone: Vec<String> = self
                        .cluster
                        .nodes()
                        .map(|(node, _)| node.name.clone())
                        .filter(|name| !names.contains(name))
                        .collect();
                    for name in &gone {
                        self.cluster.delete_node(name);
                    }
                    self.synced.insert("nodes");
                }
            },
            Message::Topology(change) => match change {
                Change::Apply((name, topology)) => {
                    self.metrics.topology_update();
                    let changed = self.cache.apply_nrt(&name, topology);
                    self.topologies.insert(name);
                    self.wake_if(
                        changed,
                        Plugin::NodeResourceTopologyMatch,
                        Cause::TopologyUpdated,
                    );
                }
                Change::Delete(name) => self.delete_topology(&name),
                Change::Synced(names) => {
                    let gone: Vec<String> = self.topologies.difference(&names).cloned().collect();
                    for name in &gone {
                        self.delete_topology(name);
                    }
                    self.synced.insert("noderesourcetopologies");
                }
            },
            Message::Namespace(change) => match change {
                Change::Apply((name, labels)) => {
                    self.namespaces.insert(name.clone());
                    self.cluster.apply_namespace(name, labels);
                }
                Change::Delete(name) => {
                    self.namespaces.remove(&name);
                    self.cluster.delete_namespace(&name);
                }
                Change::Synced(names) => {
                    let gone: Vec<String> = self.namespaces.difference(&names).cloned().collect();
                    for name in &gone {
                        self.cluster.delete_namespace(name);
                    }
                    self.namespaces = names;
                    self.synced.insert("namespaces");
                }
            },
            Message::Budget(change) => match change {
                Change::Apply((key, budget)) => self.cluster.apply_budget(key, budget),
                Change::Delete(key) => self.cluster.delete_budget(&key),
                Change::Synced(keys) => {
                    let known = self.cluster.budgets().map(|(key, _)| key);
                    let gone: Vec<PodKey> =
                        known.filter(|key| !keys.contains(key)).cloned().collect();
                    for key in &gone {
                        self.cluster.delete_budget(key);
                    }
                    self.synced.insert("poddisruptionbudgets");
                }
            },
            Message::Group(kind, change) => match change {
                Change::Apply((key, Some(selector))) => {
                    self.cluster.apply_group(kind, key, selector);
                }
                Change::Apply((key, None)) | Change::Delete(key) => {
                    self.cluster.delete_group(kind, &key);
                }
                Change::Synced(keys) => {
                    self.cluster.retain_groups(kind, &keys);
                    self.synced.insert(kind.plural());
                }
            },
            Message::Storage(kind, change) => self.apply_storage(kind, *change),
            Message::StorageRefused(kind) => {
                if self.awaited.remove(&kind) {
                    tracing::warn!(
                        kind = kind.plural(),
                        "This kind cannot be listed: pods with claims are not placed until it can, all other pods are"
                    );
                    self.wake_for_volumes();
                }
            }
            Message::VolumesWritten(written) => self.volumes_written(*written),
            Message::Bound(binding) => self.bound(*binding),
            Message::Preempted(preemption) => {
                let Preemption { pod, rejected_by } = *preemption;
                self.queue.failed(&pod, rejected_by, Instant::now());
                // The pod was not in the queue while its victims went, so their events did not wake it.
                self.queue.wake(&pod, Cause::PodGone);
            }
        }
    }

    fn apply_storage(&mut self, kind: Kind, change: Change<(PodKey, Object), PodKey>) {
        self.volumes_changed = true;
        let storage = self.cluster.storage_mut();
        let may_help = match change {
            Change::Apply((key, object)) => storage.apply(key, object),
            Change::Delete(key) => {
                storage.delete(kind, &key);
                kind == Kind::VolumeAttachment
            }
            Change::Synced(keys) => {
                storage.retain(kind, &keys);
                self.awaited.remove(&kind);
                true
            }
        };
        if may_help {
            self.wake_for_volumes();
        }
    }

    fn wake_for_volumes(&mut self) {
        self.queue
            .wake_rejected_by(volumes::PLUGINS.into_iter().collect(), Cause::VolumeUpdated);
    }

    fn delete_topology(&mut self, name: &str) {
        self.topologies.remove(name);
        let changed = self.cache.delete_nrt(name);
        self.wake_if(
            changed,
            Plugin::NodeResourceTopologyMatch,
            Cause::TopologyUpdated,
        );
    }

    fn apply_pod(&mut self, pod: Pod) {
        let key = pod.key.clone();
        let before = self.cluster.pod(&key);
        if before.is_some_and(|before| before.uid != pod.uid) {
            self.delete_pod(&key);
        }
        let changed_itself = self.cluster.pod(&key).is_some_and(|before| {
            before.request != pod.request
                || before.labels != pod.labels
                || before.constraints.tolerations != pod.constraints.tolerations
                || before.constraints.node_selector != pod.constraints.node_selector
        });
        let effect = self.cluster.apply_pod(pod);
        let Some(pod) = self.cluster.pod(&key) else {
            return;
        };
        let topology_changed = pod
            .node
            .as_deref()
            .is_some_and(|node| self.cache.apply_pod(node, pod));
        let ours = self
            .profiles
            .iter()
            .any(|profile| profile.name == pod.scheduler);
        let waits = pod.node.is_none() && pod.phase != Phase::Terminal && !pod.deleting;
        if ours && waits {
            if needs_objects(pod) {
                self.storage_wanted.cancel();
            }
            let gated = !pod.constraints.gates.is_empty();
            self.queue
                .upsert(&key, &pod.uid, pod.priority, gated, Instant::now());
            if changed_itself {
                self.queue.wake(&key, Cause::PodUpdated);
            }
        } else if !self.cluster.is_assumed(&key) {
            self.queue.remove(&key);
        }
        let cause = if effect.placed {
            Cause::PodPlaced
        } else {
            Cause::PodGone
        };
        self.wake_if(topology_changed, Plugin::NodeResourceTopologyMatch, cause);
        if effect.freed {
            self.freed();
        } else if effect.placed {
            self.wake_if(true, Plugin::InterPodAffinity, cause);
            self.wake_if(true, Plugin::PodTopologySpread, cause);
        }
    }

    fn delete_pod(&mut self, key: &PodKey) {
        self.queue.remove(key);
        let Some(pod) = self.cluster.delete_pod(key) else {
            return;
        };
        if self.waiting.remove(&pod.uid).is_some() {
            self.release_volumes(&pod);
        }
        let Some(node) = &pod.node else { return };
        let changed = self.cache.delete_pod(node, key, Instant::now());
        self.wake_if(changed, Plugin::NodeResourceTopologyMatch, Cause::PodGone);
        self.freed();
    }

    /// Wakes the pods that waited for room, ports, volumes or distance, after a pod left a node.
    fn freed(&mut self) {
        let plugins = [
            Plugin::NodeResourcesFit,
            Plugin::NodePorts,
            Plugin::VolumeRestrictions,
            Plugin::NodeVolumeLimits,
            Plugin::PodTopologySpread,
            Plugin::InterPodAffinity,
        ];
        self.queue
            .wake_rejected_by(plugins.into_iter().collect(), Cause::PodGone);
    }

    fn wake_if(&mut self, changed: bool, plugin: Plugin, cause: Cause) {
        if changed {
            self.queue
                .wake_rejected_by([plugin].into_iter().collect(), cause);
        }
    }

    /// Tries the next pod, if one is ready.
    fn attempt_next(&mut self) {
        let started = Instant::now();
        let Some(popped) = self.queue.pop(started) else {
            return;
        };
        let Some(pod) = self.cluster.pod(&popped.key).cloned() else {
            self.queue.remove(&popped.key);
            return;
        };
        let Some(profile) = self
            .profiles
            .iter()
            .find(|profile| profile.name == pod.scheduler)
        else {
            self.queue.remove(&popped.key);
            return;
        };
        if !self.awaited.is_empty() && profile.reads_volumes() && needs_objects(&pod) {
            // the objects needed to examine it are not listed yet
            let rejected_by = volumes::PLUGINS.into_iter().collect();
            self.queue.failed(&pod.key, rejected_by, started);
            return;
        }
        tracing::debug!(pod = %pod.key, attempt = popped.attempts, "Attempting to schedule pod");
        self.turn = self.turn.wrapping_add(1);
        let Attempted { outcome, timings } = attempt(
            profile,
            (&mut self.cluster, &mut self.cache),
            &mut self.memo,
            &pod,
            self.turn,
        );
        self.metrics.algorithm(started.elapsed());
        let profile_name = &profile.name;
        let (filtered, preempts) = match outcome {
            Outcome::Placed { .. } => (Status::Success, Status::Success),
            Outcome::Rejected(_) => (Status::Unschedulable, Status::Unschedulable),
            Outcome::Preempting { .. } => (Status::Unschedulable, Status::Success),
        };
        let metrics = &self.metrics;
        metrics.point(Point::Filter, filtered, profile_name, timings.filter);
        if filtered == Status::Success {
            metrics.point(Point::Score, Status::Success, profile_name, timings.score);
        }
        if let Some(duration) = timings.post_filter {
            metrics.point(Point::PostFilter, preempts, profile_name, duration);
        }
        let volume_timeout = profile
            .filters
            .plugins
            .contains(&Plugin::VolumeBinding)
            .then_some(profile.volume_timeout);
        match outcome {
            Outcome::Placed { node, feasible } => {
                tracing::debug!(pod = %pod.key, %node, feasible, "Node chosen");
                let placement = Placement {
                    pod,
                    node,
                    popped,
                    started,
                };
                self.place(placement, volume_timeout);
            }
            Outcome::Rejected(verdict) => {
                let nomination = if verdict.clears_nomination {
                    self.cluster.nominate(&pod.key, None);
                    Nomination::Change(None)
                } else {
                    Nomination::Keep
                };
                self.reject(&pod, &popped, &verdict, nomination, started);
                self.queue
                    .failed(&pod.key, verdict.rejected_by, Instant::now());
            }
            Outcome::Preempting { verdict, candidate } => {
                let nomination = Nomination::Change(Some(candidate.node.clone()));
                self.reject(&pod, &popped, &verdict, nomination, started);
                self.preempt(pod, verdict.rejected_by, candidate);
            }
        }
    }

    /// Evicts the victims for a pod. The pod stays out of the queue until all evictions are attempted.
    fn preempt(&mut self, pod: Pod, rejected_by: Plugins, candidate: Candidate) {
        let Candidate { node, victims, .. } = candidate;
        tracing::info!(pod = %pod.key, %node, victims = ?victims.iter().map(|victim| victim.key.to_string()).collect::<Vec<_>>(), "Preempting");
        self.metrics.preemption(victims.len());
        for key in default_preemption::displaced(&self.cluster, &pod, &node) {
            self.cluster.nominate(&key, None);
            if let Some(other) = self.cluster.pod(&key) {
                self.reporter
                    .not_scheduled(other, None, Nomination::Change(None));
            }
        }
        self.cluster.nominate(&pod.key, Some(node.clone()));
        let to_evict: Vec<_> = victims
            .into_iter()
            .filter(|victim| {
                let known = self.cluster.pod(&victim.key);
                known.is_some_and(|known| !known.deleting)
            })
            .collect();
        let (client, channel, reporter) = (
            self.client.clone(),
            self.channel.clone(),
            self.reporter.clone(),
        );
        self.bindings.spawn(async move {
            for victim in to_evict {
                match evict::evict(client.clone(), &victim, &pod.scheduler).await {
                    Ok(()) => reporter.preempted(&victim, &pod, &node),
                    Err(error) => {
                        tracing::warn!(pod = %pod.key, error = %daemon::log::chain(&error), "Preemption failed");
                    }
                }
            }
            let preemption = Preemption {
                pod: pod.key,
                rejected_by,
            };
            // The receiver is gone only when the process ends.
            drop(channel.send(Message::Preempted(Box::new(preemption))).await);
        });
    }

    /// Assumes a pod on its node, then binds its volumes, if any are unbound, and the pod.
    fn place(&mut self, placement: Placement, volume_timeout: Option<Duration>) {
        let Placement { pod, node, .. } = &placement;
        self.cluster.assume(&pod.key, node);
        self.cache.reserve(node, pod);
        let reservation = self
            .cluster
            .node(node)
            .and_then(|state| state.node.as_ref())
            .filter(|_| volume_timeout.is_some())
            .and_then(|node| volume_binding::reservation(&self.cluster, pod, node));
        match reservation.zip(volume_timeout) {
            None => self.bind(placement),
            Some((reservation, timeout)) => self.bind_volumes(Waiting {
                placement,
                reservation,
                written: Vec::new(),
                timeout,
                deadline: Instant::now() + timeout,
            }),
        }
    }

    fn bind(&mut self, placement: Placement) {
        let (client, channel) = (self.client.clone(), self.channel.clone());
        let connections = Arc::clone(&self.connections);
        let metrics = self.metrics.clone();
        self.bindings.spawn(async move {
            // an error means that the semaphore is closed, which never happens
            let permit = connections.acquire().await;
            let Placement { pod, node, .. } = &placement;
            let started = Instant::now();
            let result = bind::bind(client, &pod.key, &pod.uid, node).await;
            let status = if result.is_ok() {
                Status::Success
            } else {
                Status::Error
            };
            metrics.point(Point::Bind, status, &pod.scheduler, started.elapsed());
            drop(permit);
            let binding = Binding { placement, result };
            // The receiver is gone only when the process ends.
            drop(channel.send(Message::Bound(Box::new(binding))).await);
        });
    }

    /// Writes the choice of a pod's volumes to the API server.
    fn bind_volumes(&mut self, waiting: Waiting) {
        let Waiting {
            placement,
            reservation,
            ..
        } = &waiting;
        tracing::debug!(pod = %placement.pod.key, node = %placement.node, ?reservation, "Binding volumes");
        let storage = self.cluster.storage_mut();
        let changes = Changes::new(storage, reservation);
        storage.reserve(&placement.pod.uid, reservation.clone());
        let (client, channel) = (self.client.clone(), self.channel.clone());
        let connections = Arc::clone(&self.connections);
        self.bindings.spawn(async move {
            // an error means that the semaphore is closed, which never happens
            let permit = connections.acquire().await;
            let result = match changes {
                Some(changes) => changes.write(&client).await,
                None => Err(volume_bind::Error::Undone("a volume is gone".to_owned())),
            };
            drop(permit);
            let written = VolumesWritten { waiting, result };
            // The receiver is gone only when the process ends.
            drop(
                channel
                    .send(Message::VolumesWritten(Box::new(written)))
                    .await,
            );
        });
    }

    fn volumes_written(&mut self, written: VolumesWritten) {
        let VolumesWritten {
            mut waiting,
            result,
        } = written;
        let pod = &waiting.placement.pod;
        let still_exists = self
            .cluster
            .pod(&pod.key)
            .is_some_and(|known| known.uid == pod.uid);
        match result {
            Ok(_) if !still_exists => {
                let pod = waiting.placement.pod;
                self.release_volumes(&pod);
            }
            Ok(versions) => {
                waiting.written = versions;
                let uid = waiting.placement.pod.uid.clone();
                self.waiting.insert(uid, waiting);
                self.volumes_changed = true;
            }
            Err(error) => self.bound(Binding {
                placement: waiting.placement,
                result: Err(error.into()),
            }),
        }
    }

    /// Binds the pods whose volumes are bound, and gives up those whose volumes failed or timed out.
    fn check_volumes(&mut self, now: Instant) {
        let is_due = self.waiting.values().any(|waiting| waiting.deadline <= now);
        if !(is_due || self.volumes_changed) {
            return;
        }
        self.volumes_changed = false;
        let mut ended = Vec::new();
        for (uid, waiting) in &self.waiting {
            let node = &waiting.placement.node;
            let state = self.cluster.node(node);
            let progress = match state.and_then(|state| state.node.as_ref()) {
                None => Progress::Failed(format!("node {node:?} is gone")),
                Some(node) => self.cluster.storage().progress(
                    &waiting.reservation,
                    &waiting.written,
                    |volume| volume_binding::fits(volume, node),
                ),
            };
            let result = match progress {
                Progress::Bound => Ok(()),
                Progress::Failed(reason) => Err(volume_bind::Error::Undone(reason)),
                Progress::Waiting if waiting.deadline <= now => {
                    Err(volume_bind::Error::Timeout(waiting.timeout.as_secs()))
                }
                Progress::Waiting => continue,
            };
            ended.push((uid.clone(), result));
        }
        for (uid, result) in ended {
            let Some(Waiting { placement, .. }) = self.waiting.remove(&uid) else {
                continue;
            };
            match result {
                Ok(()) => self.bind(placement),
                Err(error) => self.bound(Binding {
                    placement,
                    result: Err(error.into()),
                }),
            }
        }
    }

    /// Releases the volumes reserved for a pod and wakes the pods that may now get them.
    fn release_volumes(&mut self, pod: &Pod) {
        let released = self.cluster.storage_mut().release(&pod.uid);
        self.wake_if(released, Plugin::VolumeBinding, Cause::PodGone);
    }

    fn reject(
        &self,
        pod: &Pod,
        popped: &Popped,
        verdict: &Verdict,
        nomination: Nomination,
        started: Instant,
    ) {
        tracing::info!(pod = %pod.key, attempt = popped.attempts, message = verdict.message, "Unable to schedule pod; no fit; waiting");
        for (node, rejection) in &verdict.nodes {
            self.metrics.rejection(rejection);
            let detail = rejection.detail.as_deref().unwrap_or_default();
            tracing::debug!(pod = %pod.key, %node, plugin = %rejection.plugin, reasons = ?rejection.reasons, detail, "Node ruled out");
        }
        self.metrics.attempt(
            AttemptResult::unschedulable,
            &pod.scheduler,
            started.elapsed(),
        );
        let details = verdict.details();
        self.not_scheduled(pod, "Unschedulable", &verdict.message, details, nomination);
    }

    fn not_scheduled(
        &self,
        pod: &Pod,
        reason: &'static str,
        message: &str,
        details: String,
        nomination: Nomination,
    ) {
        let kind = EventKind::Failed {
            message: message.to_owned(),
        };
        self.reporter.event(pod, kind, details);
        let known = pod.constraints.condition.as_ref();
        let is_new = known.is_none_or(|(known_reason, known_message)| {
            known_reason != reason || known_message != message
        });
        let nomination = match nomination {
            Nomination::Change(node) if node != pod.nominated => Nomination::Change(node),
            _ => Nomination::Keep,
        };
        if is_new || nomination != Nomination::Keep {
            let condition = is_new.then_some((reason, message));
            self.reporter.not_scheduled(pod, condition, nomination);
        }
    }

    fn bound(&mut self, binding: Binding) {
        let Binding { placement, result } = binding;
        let Placement {
            pod,
            node,
            popped,
            started,
        } = placement;
        self.release_volumes(&pod);
        match result {
            Ok(()) => {
                tracing::info!(pod = %pod.key, %node, attempt = popped.attempts, "Successfully bound pod to node");
                self.metrics
                    .attempt(AttemptResult::scheduled, &pod.scheduler, started.elapsed());
                self.metrics
                    .scheduled(popped.since.elapsed(), popped.attempts);
                let changed = self.cache.bound(&node, &pod.key);
                self.wake_if(changed, Plugin::NodeResourceTopologyMatch, Cause::PodPlaced);
                self.queue.remove(&pod.key);
                let kind = EventKind::Scheduled { node };
                self.reporter.event(&pod, kind, String::new());
            }
            Err(error) => {
                let error = daemon::log::chain(&error).to_string();
                tracing::warn!(pod = %pod.key, %node, error, "Binding failed");
                self.metrics
                    .attempt(AttemptResult::error, &pod.scheduler, started.elapsed());
                // False if the pod is gone or replaced, or a watch has shown it bound.
                if self.cluster.forget(&pod.key, &pod.uid) {
                    let changed = self.cache.unreserve(&node, &pod.key);
                    self.wake_if(changed, Plugin::NodeResourceTopologyMatch, Cause::PodGone);
                    self.freed();
                    let keep = Nomination::Keep;
                    self.not_scheduled(&pod, "SchedulerError", &error, String::new(), keep);
                    self.queue
                        .failed(&pod.key, Plugins::default(), Instant::now());
                }
            }
        }
    }
}

/// Returns whether a pod cannot be examined without volumes.
fn needs_objects(pod: &Pod) -> bool {
    let volumes = pod.volumes.as_ref();
    volumes.is_some_and(|volumes| volumes.need_objects())
}
