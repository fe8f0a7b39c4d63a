//! The loop that owns all state: takes changes, tries pods, hands out bindings and reports.
//!
//! Everything between two awaits is synchronous, so an attempt sees one consistent state and nothing can change beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::Duration;

use daemon::admin::Gate;
use daemon::lease::Leadership;
use jiff::Timestamp;
use kube::Client;
use nrt::decode::NodeTopology;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::bind;
use crate::cache::Cache;
use crate::cluster::{Cluster, Node};
use crate::cycle::{Outcome, Verdict, attempt};
use crate::filter::{Plugin, Plugins};
use crate::metrics::{AttemptResult, Metrics};
use crate::pod::{Phase, Pod, PodKey};
use crate::profile::Profile;
use crate::queue::{Popped, Queue};
use crate::report::{Happening, Reporter};
use crate::status_dump::{self, StatusDump};
use crate::watch::Change;

/// Changes that are taken before the next attempt.
const BATCH: usize = 512;
/// With nothing to do, the loop turns so often all the same.
const IDLE: Duration = Duration::from_secs(10);
/// Sizes are published so often at most: counting takes time that attempts need.
const SIZES: Duration = Duration::from_secs(1);

/// What the loop is told.
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
    /// A binding ended.
    Bound(Box<Binding>),
}

/// A binding that was tried.
#[derive(Debug)]
pub struct Binding {
    pod: Pod,
    node: String,
    popped: Popped,
    started: Instant,
    result: Result<(), bind::Error>,
}

/// What [`Engine::run`] waits for before it schedules: nothing if stopped, the lease if one was wanted.
pub type Election = JoinHandle<Option<Option<Leadership>>>;

/// All state.
pub struct Engine {
    profiles: Vec<Profile>,
    cluster: Cluster,
    cache: Cache,
    queue: Queue,
    /// Kinds that were listed completely.
    synced: BTreeSet<&'static str>,
    topologies: BTreeSet<String>,
    namespaces: BTreeSet<String>,
    turn: usize,
    client: Client,
    reporter: Reporter,
    metrics: Metrics,
    channel: mpsc::Sender<Message>,
    bindings: JoinSet<()>,
    dump: Option<StatusDump>,
}

impl Engine {
    /// State that knows nothing yet.
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
            queue,
            synced: BTreeSet::new(),
            topologies: BTreeSet::new(),
            namespaces: BTreeSet::new(),
            turn: 0,
            client,
            reporter,
            metrics,
            channel,
            bindings: JoinSet::new(),
            dump: None,
        }
    }

    /// Records which pod sets were compared.
    #[must_use]
    pub fn with_dump(mut self, dump: Option<StatusDump>) -> Self {
        self.dump = dump;
        self
    }

    /// Runs until stopped or until the lease is lost. Schedules once everything is known and the lease, if any, is held.
    pub async fn run(
        &mut self,
        mut changes: mpsc::Receiver<Message>,
        synced: &Gate,
        mut election: Election,
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
            let wake = if active { self.next_attempt() } else { None };
            let idle = Instant::now() + IDLE;
            let limit = [wake, self.cache.next_expiry()]
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
                        None => return Ok(ExitCode::SUCCESS),
                        Some(None) => {}
                        Some(Some(held)) => {
                            lost_lease = held.lost();
                            leadership = Some(held);
                        }
                    }
                }
                message = changes.recv() => {
                    let Some(message) = message else { return Ok(ExitCode::SUCCESS) };
                    self.take(message);
                    for _ in 0..BATCH {
                        let Ok(message) = changes.try_recv() else { break };
                        self.take(message);
                    }
                    if self.is_synced() && !synced.is_open() {
                        tracing::info!(nodes = self.cluster.nodes().count(), pods = self.cluster.pods().count(), "All caches are synced");
                        synced.open();
                    }
                }
                () = tokio::time::sleep_until(limit) => {}
            }
            while self.bindings.try_join_next().is_some() {}
            let expired = self.cache.expire(Instant::now());
            self.wake_if(expired, Plugin::NodeResourceTopologyMatch);
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
            // Joined by nobody: the next write replaces what this one leaves.
            drop(tokio::task::spawn_blocking(|| status_dump::write(files)));
        }
    }

    /// Waits for the bindings that are under way, at most that long.
    pub async fn finish(mut self, limit: Duration) {
        let all = async { while self.bindings.join_next().await.is_some() {} };
        if tokio::time::timeout(limit, all).await.is_err() {
            tracing::warn!("Some bindings did not end in time");
        }
    }

    fn is_synced(&self) -> bool {
        self.synced.len() == 4
    }

    /// At once while pods are ready, else when the next one wakes.
    fn next_attempt(&self) -> Option<Instant> {
        let lengths = self.queue.lengths();
        if lengths.active + lengths.backoff > 0 {
            Some(Instant::now())
        } else {
            self.queue.next_wake()
        }
    }

    fn publish_sizes(&self) {
        self.metrics.sizes(
            self.queue.lengths(),
            self.cluster.nodes().count(),
            self.cluster.pods().count(),
            self.cluster.assumed_count(),
            self.cache.stats(),
        );
    }

    fn take(&mut self, message: Message) {
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
                    if self.cluster.apply_node(node) {
                        self.queue.wake_rejected_by(Plugins::ALL);
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
                    self.wake_if(changed, Plugin::NodeResourceTopologyMatch);
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
            Message::Bound(binding) => self.bound(*binding),
        }
    }

    fn delete_topology(&mut self, name: &str) {
        self.topologies.remove(name);
        let changed = self.cache.delete_nrt(name);
        self.wake_if(changed, Plugin::NodeResourceTopologyMatch);
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
                || before.wishes.tolerations != pod.wishes.tolerations
                || before.wishes.node_selector != pod.wishes.node_selector
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
            let gated = !pod.wishes.gates.is_empty();
            self.queue
                .upsert(&key, &pod.uid, pod.priority, gated, Instant::now());
            if changed_itself {
                self.queue.wake(&key);
            }
        } else if !self.cluster.is_assumed(&key) {
            self.queue.remove(&key);
        }
        self.wake_if(topology_changed, Plugin::NodeResourceTopologyMatch);
        if effect.freed {
            self.freed();
        } else if effect.placed {
            self.wake_if(true, Plugin::InterPodAffinity);
            self.wake_if(true, Plugin::PodTopologySpread);
        }
    }

    fn delete_pod(&mut self, key: &PodKey) {
        self.queue.remove(key);
        let Some(pod) = self.cluster.delete_pod(key) else {
            return;
        };
        let Some(node) = &pod.node else { return };
        let changed = self.cache.delete_pod(node, key, Instant::now());
        self.wake_if(changed, Plugin::NodeResourceTopologyMatch);
        self.freed();
    }

    /// A pod left a node: whoever waited for room, ports or distance may have it now.
    fn freed(&mut self) {
        let plugins = [
            Plugin::NodeResourcesFit,
            Plugin::NodePorts,
            Plugin::PodTopologySpread,
            Plugin::InterPodAffinity,
        ];
        self.queue.wake_rejected_by(plugins.into_iter().collect());
    }

    fn wake_if(&mut self, changed: bool, plugin: Plugin) {
        if changed {
            self.queue.wake_rejected_by([plugin].into_iter().collect());
        }
    }

    /// Tries the next pod, if any is ready.
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
        tracing::debug!(pod = %pod.key, attempt = popped.attempts, "Attempting to schedule pod");
        self.turn = self.turn.wrapping_add(1);
        let outcome = attempt(profile, &self.cluster, &self.cache, &pod, self.turn);
        self.metrics.algorithm(started.elapsed());
        match outcome {
            Outcome::Placed { node, feasible } => {
                tracing::debug!(pod = %pod.key, %node, feasible, "Node chosen");
                self.place(pod, node, popped, started);
            }
            Outcome::Rejected(verdict) => self.reject(&pod, &popped, &verdict, started),
        }
    }

    fn place(&mut self, pod: Pod, node: String, popped: Popped, started: Instant) {
        self.cluster.assume(&pod.key, &node);
        self.cache.reserve(&node, &pod);
        let (client, channel) = (self.client.clone(), self.channel.clone());
        self.bindings.spawn(async move {
            let result = bind::bind(client, &pod.key, &pod.uid, &node).await;
            let binding = Binding {
                pod,
                node,
                popped,
                started,
                result,
            };
            // The loop is gone only when the process ends.
            drop(channel.send(Message::Bound(Box::new(binding))).await);
        });
    }

    fn reject(&mut self, pod: &Pod, popped: &Popped, verdict: &Verdict, started: Instant) {
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
        self.not_scheduled(pod, "Unschedulable", &verdict.message, verdict.details());
        self.queue
            .failed(&pod.key, verdict.rejected_by, Instant::now());
    }

    fn not_scheduled(&self, pod: &Pod, reason: &'static str, message: &str, details: String) {
        let happening = Happening::Failed {
            message: message.to_owned(),
        };
        self.reporter.event(pod, happening, details);
        let known = pod.wishes.condition.as_ref();
        if known.is_none_or(|(known_reason, known_message)| {
            known_reason != reason || known_message != message
        }) {
            self.reporter.not_scheduled(pod, reason, message);
        }
    }

    fn bound(&mut self, binding: Binding) {
        let Binding {
            pod,
            node,
            popped,
            started,
            result,
        } = binding;
        match result {
            Ok(()) => {
                tracing::info!(pod = %pod.key, %node, attempt = popped.attempts, "Successfully bound pod to node");
                self.metrics
                    .attempt(AttemptResult::scheduled, &pod.scheduler, started.elapsed());
                self.metrics
                    .scheduled(popped.since.elapsed(), popped.attempts);
                let changed = self.cache.bound(&node, &pod.key);
                self.wake_if(changed, Plugin::NodeResourceTopologyMatch);
                self.queue.remove(&pod.key);
                let happening = Happening::Scheduled { node };
                self.reporter.event(&pod, happening, String::new());
            }
            Err(error) => {
                let error = daemon::log::chain(&error).to_string();
                tracing::warn!(pod = %pod.key, %node, error, "Binding failed");
                self.metrics
                    .attempt(AttemptResult::error, &pod.scheduler, started.elapsed());
                // False if the pod is gone, replaced, or was seen to be bound after all.
                if self.cluster.forget(&pod.key, &pod.uid) {
                    let changed = self.cache.unreserve(&node, &pod.key);
                    self.wake_if(changed, Plugin::NodeResourceTopologyMatch);
                    self.freed();
                    self.not_scheduled(&pod, "SchedulerError", &error, String::new());
                    self.queue
                        .failed(&pod.key, Plugins::default(), Instant::now());
                }
            }
        }
    }
}
