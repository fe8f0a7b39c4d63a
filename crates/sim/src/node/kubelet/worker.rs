//! The worker of one pod, from its admission to its end.
//!
//! A worker is one task. It takes signals (the object changed, a process ended, a probe answered) from a queue, does what is due next, and
//! reports to the API server.
//!
//! Reading order: [`Worker`], `signals`, `sandbox`, `due`, `start`, `stop`, `publish`.

mod due;
mod hooks;
pub(crate) mod prepared;
pub(crate) mod probes;
pub(crate) mod publish;
mod refresh;
mod resize;
mod sandbox;
pub(crate) mod signals;
mod slot;
pub(crate) mod snapshot;
mod start;
mod stop;
mod termination;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus};
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use self::prepared::Prepared;
use self::resize::Resizing;
use self::signals::Signal;
use self::slot::{Slot, slots};
use self::snapshot::PodSnapshot;
use crate::node::events::Kind;
use crate::node::kubelet::Kubelet;
use crate::node::status::facts::Role;
use crate::node::volumes::Tokens;

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
    resizing: Resizing,
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
            mount_delay: sandbox::FIRST_MOUNT_RETRY,
            mount_again: None,
            verdict: None,
            resizing: Resizing::default(),
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
        self.resize().await;
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

    /// Returns the directory of the pod's logs.
    fn logs(&self) -> PathBuf {
        self.kubelet.layout.pod_logs(
            self.pod.metadata.namespace.as_deref().unwrap_or_default(),
            self.pod.metadata.name.as_deref().unwrap_or_default(),
            &self.uid,
        )
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

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
