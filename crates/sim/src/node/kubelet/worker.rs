//! The worker of one pod, from its admission to its end.
//!
//! A worker is one task. It takes signals (the object changed, a process ended, a probe answered) from a queue, does what is due next, and
//! reports to the API server.

mod hooks;
pub(crate) mod probes;
pub(crate) mod publish;
mod refresh;
mod start;
mod stop;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Container, ContainerStateTerminated, Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use self::probes::Outcome;
use crate::node::events::Kind;
use crate::node::kubelet::Kubelet;
use crate::node::launcher::{Exit, Process};
use crate::node::status::facts::{Facts, Role, Run, restarts};
use crate::node::volumes::{self, References, Tokens};

/// First and longest restart backoff of a container.
const FIRST_BACKOFF: Duration = Duration::from_secs(10);
const LONGEST_BACKOFF: Duration = Duration::from_mins(5);
/// A container that ran this long starts again with the first backoff.
const BACKOFF_RESET: Duration = Duration::from_mins(10);
/// First and longest delay after volumes could not be made.
const FIRST_MOUNT_RETRY: Duration = Duration::from_millis(500);
const LONGEST_MOUNT_RETRY: Duration = Duration::from_mins(2);

/// A signal to the worker of a pod.
#[derive(Debug)]
pub(crate) enum Signal {
    /// The pod's object changed.
    Changed(Box<Pod>),
    /// The pod's object was removed.
    Gone,
    /// The mirror pod of a static pod changed or was removed.
    Mirror(Option<Box<Pod>>),
    /// The file of a static pod was removed.
    Removed,
    /// The kubelet ends the pod: reason and message.
    Evicted(String, String),
    /// A container's process ended.
    Exited {
        index: usize,
        attempt: i32,
        exit: Exit,
    },
    /// A probe has a new outcome.
    Probed {
        index: usize,
        attempt: i32,
        kind: probes::Kind,
        outcome: Outcome,
    },
    /// The `postStart` hook failed.
    HookFailed { index: usize, attempt: i32 },
    /// The `preStop` hook failed.
    PreStopFailed { index: usize },
}

/// A container with the state that only its worker knows.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) facts: Facts,
    pub(super) process: Option<Process>,
    /// Tasks that watch the running container.
    pub(super) watchers: Vec<JoinHandle<()>>,
    /// Backoff of the next start; zero before the first restart.
    delay: Duration,
    /// Earliest time of the next start.
    not_before: Option<Instant>,
    /// Backoff after a failed image pull.
    pull_delay: Duration,
    began: Option<Instant>,
}

impl Slot {
    fn new(facts: Facts) -> Self {
        Self {
            facts,
            process: None,
            watchers: Vec::new(),
            delay: Duration::ZERO,
            not_before: None,
            pull_delay: FIRST_BACKOFF,
            began: None,
        }
    }
}

/// The state of a pod that others may see.
#[derive(Clone, Debug)]
pub(crate) struct PodSnapshot {
    /// The object.
    pub(crate) pod: Pod,
    /// The address, once the pod has one.
    pub(crate) address: Option<Ipv4Addr>,
    /// The containers.
    pub(crate) containers: Vec<ContainerSnapshot>,
    /// Whether nothing of the pod runs any more.
    pub(crate) is_over: bool,
}

/// The state of a container that others may see.
#[derive(Clone, Debug)]
pub(crate) struct ContainerSnapshot {
    pub(crate) name: String,
    pub(crate) id: Option<String>,
    pub(crate) attempt: i32,
    pub(crate) process: Option<Process>,
    pub(crate) run: Run,
    pub(crate) env: Arc<start::Prepared>,
}

pub(crate) use start::Prepared;

/// The worker of one pod.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own: what was set up, what is over, what is gone"
)]
pub(crate) struct Worker {
    kubelet: Arc<Kubelet>,
    pod: Pod,
    uid: String,
    slots: Vec<Slot>,
    prepared: Vec<Arc<Prepared>>,
    sender: mpsc::UnboundedSender<Signal>,
    signals: mpsc::UnboundedReceiver<Signal>,
    shared: Arc<Mutex<PodSnapshot>>,
    since: Timestamp,
    qos: &'static str,
    address: Option<Ipv4Addr>,
    has_sandbox: bool,
    volumes: Option<BTreeMap<String, PathBuf>>,
    tokens: Tokens,
    refresher: Option<JoinHandle<()>>,
    mount_delay: Duration,
    mount_again: Option<Instant>,
    verdict: Option<(String, String)>,
    was_initialized: bool,
    is_over: bool,
    is_gone: bool,
    written_status: Option<PodStatus>,
    /// The mirror pod of a static pod, as the API server has it.
    mirror: Option<Pod>,
    /// Whether the status must be written again although it has not changed.
    must_rewrite: bool,
}

impl Drop for Worker {
    /// Aborts the tasks that watch the pod.
    fn drop(&mut self) {
        let watchers = self
            .slots
            .iter_mut()
            .flat_map(|slot| slot.watchers.drain(..));
        for task in watchers.chain(self.refresher.take()) {
            task.abort();
        }
    }
}

/// What follows a round.
enum Next {
    /// Wait for a signal, at most until this time.
    Wait(Option<Instant>),
    /// Nothing is left to do.
    Done,
}

impl Worker {
    /// Creates the worker of an admitted pod.
    pub(crate) fn new(
        kubelet: Arc<Kubelet>,
        pod: Pod,
        qos: &'static str,
        sender: mpsc::UnboundedSender<Signal>,
        signals: mpsc::UnboundedReceiver<Signal>,
    ) -> (Self, Arc<Mutex<PodSnapshot>>) {
        let spec = pod.spec.clone().unwrap_or_default();
        let slots = slots(&spec);
        let shared = Arc::new(Mutex::new(PodSnapshot {
            pod: pod.clone(),
            address: None,
            containers: Vec::new(),
            is_over: false,
        }));
        let is_over = is_finished(&pod);
        let worker = Self {
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            prepared: slots.iter().map(|_| Arc::default()).collect(),
            slots,
            sender,
            signals,
            shared: Arc::clone(&shared),
            since: Timestamp::now(),
            qos,
            address: None,
            has_sandbox: false,
            volumes: None,
            tokens: Tokens::default(),
            refresher: None,
            mount_delay: FIRST_MOUNT_RETRY,
            mount_again: None,
            verdict: None,
            was_initialized: false,
            is_over,
            is_gone: false,
            written_status: None,
            mirror: None,
            must_rewrite: false,
            kubelet,
            pod,
        };
        (worker, shared)
    }

    /// Runs until the object is gone.
    pub(crate) async fn run(mut self) {
        if !self.is_over {
            self.publish().await;
        }
        loop {
            self.kubelet.until_running().await;
            let next = self.sync().await;
            self.update_snapshot();
            let until = match next {
                Next::Done => break,
                Next::Wait(until) => until,
            };
            tokio::select! {
                signal = self.signals.recv() => match signal {
                    Some(signal) => self.apply_signal(signal),
                    None => break,
                },
                () = sleep_until(until) => {}
            }
            while let Ok(signal) = self.signals.try_recv() {
                self.apply_signal(signal);
            }
        }
        self.kubelet.forget(&self.uid);
    }

    /// Applies a signal.
    fn apply_signal(&mut self, signal: Signal) {
        match signal {
            Signal::Changed(pod) => {
                if version(&pod) >= version(&self.pod) {
                    self.pod = *pod;
                    self.add_ephemeral();
                }
            }
            Signal::Gone => self.is_gone = true,
            Signal::Mirror(mirror) => {
                let uid = |pod: Option<&Pod>| pod.and_then(|pod| pod.metadata.uid.clone());
                let mirror = mirror.map(|mirror| *mirror);
                self.must_rewrite |= uid(mirror.as_ref()) != uid(self.mirror.as_ref());
                self.mirror = mirror;
            }
            Signal::Removed => {
                let metadata = &mut self.pod.metadata;
                let now = || Time(Timestamp::now());
                metadata.deletion_timestamp.get_or_insert_with(now);
            }
            Signal::Evicted(reason, message) => {
                self.verdict.get_or_insert((reason, message));
            }
            Signal::Exited {
                index,
                attempt,
                exit,
            } => self.exited(index, attempt, exit),
            Signal::Probed {
                index,
                attempt,
                kind,
                outcome,
            } => self.probed(index, attempt, kind, &outcome),
            Signal::PreStopFailed { index } => {
                self.record_event(
                    index,
                    Kind::Warning,
                    "FailedPreStopHook",
                    "PreStopHook failed",
                );
            }
            Signal::HookFailed { index, attempt } => {
                if self.is_current(index, attempt) {
                    // The output of the hook may contain secrets.
                    let text = "PostStartHook failed";
                    self.record_event(index, Kind::Warning, "FailedPostStartHook", text);
                    self.kill(index, "FailedPostStartHook");
                }
            }
        }
    }

    /// Adds the ephemeral containers that were added to the pod.
    fn add_ephemeral(&mut self) {
        let spec = self.pod.spec.clone().unwrap_or_default();
        for slot in ephemeral(&spec) {
            let name = &slot.facts.container.name;
            let mut known = self.slots.iter().map(|slot| &slot.facts.container.name);
            if !known.any(|known| known == name) {
                self.slots.push(slot);
                self.prepared.push(Arc::default());
            }
        }
    }

    fn is_current(&self, index: usize, attempt: i32) -> bool {
        self.slots
            .get(index)
            .is_some_and(|slot| slot.facts.restarts == attempt && slot.facts.is_running())
    }

    fn exited(&mut self, index: usize, attempt: i32, exit: Exit) {
        if !self.is_current(index, attempt) {
            return;
        }
        let message = self.termination_message(index, exit.code);
        let slot = &mut self.slots[index];
        let Run::Running { since } = slot.facts.run else {
            return;
        };
        for watcher in slot.watchers.drain(..) {
            watcher.abort();
        }
        slot.process = None;
        slot.facts.ready = false;
        slot.facts.started = false;
        let ran = slot.began.map_or(Duration::ZERO, |began| began.elapsed());
        if ran > BACKOFF_RESET {
            slot.delay = Duration::ZERO;
        }
        slot.not_before = Some(Instant::now() + slot.delay);
        slot.facts.run = Run::Exited(ContainerStateTerminated {
            exit_code: exit.code,
            reason: Some(if exit.code == 0 { "Completed" } else { "Error" }.to_owned()),
            message,
            started_at: Some(Time(since)),
            finished_at: Some(Time(exit.at)),
            container_id: slot.facts.id.clone(),
            signal: None,
        });
    }

    fn probed(&mut self, index: usize, attempt: i32, kind: probes::Kind, outcome: &Outcome) {
        if !self.is_current(index, attempt) {
            return;
        }
        if let Some(problem) = &outcome.problem {
            let text = format!("{} probe failed: {problem}", kind.name());
            self.record_event(index, Kind::Warning, "Unhealthy", text);
        }
        let Some(verdict) = outcome.verdict else {
            return;
        };
        let slot = &mut self.slots[index];
        match (kind, verdict) {
            (probes::Kind::Readiness, ready) => slot.facts.ready = ready,
            (probes::Kind::Startup, true) => {
                slot.facts.started = true;
                let has_readiness = slot.facts.container.readiness_probe.is_some();
                slot.facts.ready = !has_readiness;
                self.watch(index, false);
            }
            (probes::Kind::Startup, false) => {
                self.kill(
                    index,
                    "Container {} failed startup probe, will be restarted",
                );
            }
            (probes::Kind::Liveness, false) => {
                self.kill(
                    index,
                    "Container {} failed liveness probe, will be restarted",
                );
            }
            (probes::Kind::Liveness, true) => {}
        }
    }

    /// Does one round: everything that is due now.
    async fn sync(&mut self) -> Next {
        if self.is_over {
            return self.finish().await;
        }
        let deadline = self.deadline();
        if deadline.is_some_and(|at| at <= Instant::now()) && self.verdict.is_none() {
            let text = "Pod was active on the node longer than the specified deadline";
            self.verdict = Some(("DeadlineExceeded".to_owned(), text.to_owned()));
            let events = &self.kubelet.events;
            events.pod(&self.pod, Kind::Normal, "DeadlineExceeded", text);
        }
        if self.is_gone || self.verdict.is_some() || self.pod.metadata.deletion_timestamp.is_some()
        {
            self.publish().await;
            self.stop().await;
            return self.finish().await;
        }
        let mut wake = deadline;
        let mut earlier = |at: Instant| wake = Some(wake.map_or(at, |wake: Instant| wake.min(at)));
        if let Some(again) = self.make_ready().await {
            earlier(again);
            if !self.publish().await {
                earlier(Instant::now() + stop::RETRY_DELAY);
            }
            return Next::Wait(wake);
        }
        if let Some(again) = self.start_due().await {
            earlier(again);
        }
        if self.has_ended() {
            self.stop().await;
            return self.finish().await;
        }
        if !self.publish().await {
            earlier(Instant::now() + stop::RETRY_DELAY);
        }
        Next::Wait(wake)
    }

    /// Returns when the active deadline of the pod expires.
    fn deadline(&self) -> Option<Instant> {
        let seconds = self.spec()?.active_deadline_seconds?;
        let ran = Timestamp::now().duration_since(self.since);
        let ran = Duration::try_from(ran).unwrap_or_default();
        let whole = Duration::from_secs(seconds.unsigned_abs());
        Some(Instant::now() + whole.saturating_sub(ran))
    }

    fn spec(&self) -> Option<&PodSpec> {
        self.pod.spec.as_ref()
    }

    /// Makes volumes and network ready; returns a time if something has to be repeated.
    async fn make_ready(&mut self) -> Option<Instant> {
        if self.volumes.is_none() {
            if let Some(again) = self.mount_again
                && again > Instant::now()
            {
                return Some(again);
            }
            let context = self.kubelet.volume_context();
            match volumes::mount(&context, &self.pod, &mut self.tokens).await {
                Ok(directories) => {
                    self.volumes = Some(directories);
                    self.refresh();
                }
                Err(error) => {
                    let events = &self.kubelet.events;
                    events.pod(&self.pod, Kind::Warning, "FailedMount", error.to_string());
                    let again = Instant::now() + self.mount_delay;
                    self.mount_delay = (self.mount_delay * 2).min(LONGEST_MOUNT_RETRY);
                    self.mount_again = Some(again);
                    return Some(again);
                }
            }
        }
        if !self.has_sandbox {
            let on_host = self.spec().and_then(|spec| spec.host_network) == Some(true);
            let address = if on_host {
                Some(self.kubelet.addresses.node())
            } else {
                self.kubelet.addresses.take()
            };
            let Some(address) = address else {
                let text = "Failed to create pod sandbox: no address is free";
                let events = &self.kubelet.events;
                events.pod(&self.pod, Kind::Warning, "FailedCreatePodSandBox", text);
                return Some(Instant::now() + FIRST_BACKOFF);
            };
            self.address = Some(address);
            self.has_sandbox = true;
        }
        None
    }

    /// Starts the task that keeps the volumes up to date while the pod lives.
    fn refresh(&mut self) {
        let references = References::of(&self.pod);
        let tokens = std::mem::take(&mut self.tokens);
        if references == References::default() && tokens.renewal().is_none() {
            return;
        }
        let (kubelet, pod) = (Arc::clone(&self.kubelet), self.pod.clone());
        self.refresher = Some(tokio::spawn(crate::node::kubelet::worker::refresh::run(
            kubelet, pod, references, tokens,
        )));
    }

    /// Starts the containers that are due, in order; returns when the next one is due.
    async fn start_due(&mut self) -> Option<Instant> {
        let spec = self.pod.spec.clone().unwrap_or_default();
        let mut wake: Option<Instant> = None;
        let is_ephemeral = |index: &usize| self.slots[*index].facts.role == Role::Ephemeral;
        // Ephemeral containers wait for no other container.
        let (first, then): (Vec<_>, Vec<_>) = (0..self.slots.len()).partition(is_ephemeral);
        for index in first.into_iter().chain(then) {
            let facts = &self.slots[index].facts;
            let role = facts.role;
            if role == Role::App && !self.was_initialized {
                self.was_initialized = true;
            }
            if role == Role::Init && self.was_initialized {
                continue;
            }
            let is_due = match &facts.run {
                Run::Running { .. } => false,
                Run::Waiting { .. } => true,
                Run::Exited(end) => restarts(&spec, role, end.exit_code),
            };
            if is_due {
                let later = self.start_or_wait(index).await;
                wake = match (wake, later) {
                    (Some(one), Some(other)) => Some(one.min(other)),
                    (one, other) => one.or(other),
                };
            }
            let facts = &self.slots[index].facts;
            let may_continue = match role {
                Role::Init => facts.exit_code() == Some(0),
                Role::Sidecar => self.was_initialized || (facts.is_running() && facts.started),
                Role::App | Role::Ephemeral => true,
            };
            if !may_continue {
                break;
            }
        }
        wake
    }

    /// Starts a container, unless it is in backoff; returns when to try again.
    async fn start_or_wait(&mut self, index: usize) -> Option<Instant> {
        let slot = &mut self.slots[index];
        if let Some(at) = slot.not_before
            && at > Instant::now()
        {
            if let Run::Exited(end) = &slot.facts.run {
                slot.facts.last = Some(end.clone());
                let text = format!(
                    "back-off {}s restarting failed container={} pod={}_{}({})",
                    slot.delay.as_secs(),
                    slot.facts.container.name,
                    self.pod.metadata.name.as_deref().unwrap_or_default(),
                    self.pod.metadata.namespace.as_deref().unwrap_or_default(),
                    self.uid,
                );
                slot.facts.run = Run::Waiting {
                    reason: "CrashLoopBackOff".to_owned(),
                    message: Some(text),
                };
                let text = format!(
                    "Back-off restarting failed container {} in pod {}_{}({})",
                    slot.facts.container.name,
                    self.pod.metadata.name.as_deref().unwrap_or_default(),
                    self.pod.metadata.namespace.as_deref().unwrap_or_default(),
                    self.uid,
                );
                self.record_event(index, Kind::Warning, "BackOff", text);
            }
            return Some(at);
        }
        self.start(index).await
    }

    /// Returns whether no app container will run again.
    fn has_ended(&self) -> bool {
        let Some(spec) = self.spec() else {
            return false;
        };
        let mut apps = self
            .slots
            .iter()
            .filter(|slot| slot.facts.role == Role::App);
        let init_failed = self.slots.iter().any(|slot| {
            slot.facts.role == Role::Init
                && slot
                    .facts
                    .exit_code()
                    .is_some_and(|code| code != 0 && !restarts(spec, slot.facts.role, code))
        });
        init_failed
            || apps.all(|slot| {
                let code = slot.facts.exit_code();
                code.is_some_and(|code| !restarts(spec, slot.facts.role, code))
            })
    }

    /// Records an event about a container.
    fn record_event(&self, index: usize, kind: Kind, reason: &str, message: impl Into<String>) {
        let facts = &self.slots[index].facts;
        let list = match facts.role {
            Role::App => "containers",
            Role::Init | Role::Sidecar => "initContainers",
            Role::Ephemeral => "ephemeralContainers",
        };
        let field = format!("spec.{list}{{{}}}", facts.container.name);
        let events = &self.kubelet.events;
        events.container(&self.pod, &field, kind, reason, message);
    }

    /// Updates the snapshot that others see.
    fn update_snapshot(&self) {
        let containers = self
            .slots
            .iter()
            .zip(&self.prepared)
            .map(|(slot, prepared)| ContainerSnapshot {
                name: slot.facts.container.name.clone(),
                id: slot.facts.id.clone(),
                attempt: slot.facts.restarts,
                process: slot.process.clone(),
                run: slot.facts.run.clone(),
                env: Arc::clone(prepared),
            })
            .collect();
        let snapshot = PodSnapshot {
            pod: self.pod.clone(),
            address: self.address,
            containers,
            is_over: self.is_over,
        };
        *self.shared.lock() = snapshot;
    }
}

/// Returns whether the API server reports the pod as finished.
pub(crate) fn is_finished(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Returns the resource version as a number, which orders two states of one object.
fn version(pod: &Pod) -> u64 {
    let version = pod.metadata.resource_version.as_deref();
    version
        .and_then(|text| text.parse().ok())
        .unwrap_or_default()
}

fn slots(spec: &PodSpec) -> Vec<Slot> {
    let init = spec.init_containers.iter().flatten();
    let has_init = init.clone().next().is_some();
    let init = init.map(|container| {
        let role = if container.restart_policy.as_deref() == Some("Always") {
            Role::Sidecar
        } else {
            Role::Init
        };
        (container, role)
    });
    let app = spec
        .containers
        .iter()
        .map(|container| (container, Role::App));
    init.chain(app)
        .map(|(container, role)| Slot::new(Facts::new(container, role, has_init)))
        .chain(ephemeral(spec))
        .collect()
}

/// Returns the ephemeral containers of a pod.
fn ephemeral(spec: &PodSpec) -> impl Iterator<Item = Slot> {
    let containers = spec.ephemeral_containers.iter().flatten();
    containers.filter_map(|container| {
        // Apart from its target, an ephemeral container is a container like any other.
        let container = serde_json::to_value(container).and_then(serde_json::from_value);
        let container: Container = container
            .inspect_err(
                |error| tracing::warn!(%error, "Ephemeral container is invalid and ignored"),
            )
            .ok()?;
        Some(Slot::new(Facts::new(&container, Role::Ephemeral, false)))
    })
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
