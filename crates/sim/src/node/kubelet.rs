//! The kubelet of a simulated node: it follows the pods that are bound to the node and gives each a worker.

pub(super) mod static_pods;
pub(super) mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cluster_spec::images::Images;
use cri_runtime::streaming::session::Attached;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::runtime::watcher::{self, watcher};
use kubelet_model::node::Refusal;
use kubelet_model::predicates::NodeProperties;
use kubelet_model::preemption;
use kubelet_model::workload::Workload;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{mpsc, watch};
use topology::request::Qos;

use super::addresses::NodeAddresses;
use super::events::{Kind, Recorder};
use super::launcher::{Input, Launcher, Output};
use super::layout::Layout;
use super::managers::Managers;
use super::{status, volumes};
use crate::node::kubelet::worker::prepared::Prepared;
use crate::node::kubelet::worker::signals::Signal;
use crate::node::kubelet::worker::snapshot::PodSnapshot;
use crate::node::kubelet::worker::{Worker, is_finished, publish};

/// Prefix of every refusal's message; the event has the rest.
const REJECTED: &str = "Pod was rejected: ";
/// Attempts to write a refusal; the next constant is the time between them.
const MAX_ATTEMPTS: u32 = 30;
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The address of the API server as pods see it.
#[derive(Clone, Debug)]
pub(crate) struct ApiServer {
    pub(crate) url: String,
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl ApiServer {
    /// Returns the variables that every container has.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let (host, port) = (&self.host, self.port);
        let variables = [
            ("KUBERNETES_SERVICE_HOST", host.clone()),
            ("KUBERNETES_SERVICE_PORT", port.to_string()),
            ("KUBERNETES_SERVICE_PORT_HTTPS", port.to_string()),
            ("KUBERNETES_PORT", format!("tcp://{host}:{port}")),
        ];
        variables
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }
}

/// A pod that the kubelet knows.
#[derive(Debug)]
struct KnownPod {
    /// Namespace and name if it is a static pod.
    static_name: Option<FullName>,
    sender: mpsc::UnboundedSender<Signal>,
    shared: Arc<Mutex<PodSnapshot>>,
    task: tokio::task::AbortHandle,
}

/// Namespace and name of a pod.
type FullName = (String, String);

fn full_name(pod: &Pod) -> FullName {
    let metadata = &pod.metadata;
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    (part(&metadata.namespace), part(&metadata.name))
}

/// Mirror pods of static pods, as the API server reports them.
#[derive(Debug, Default)]
struct Mirrors {
    by_name: BTreeMap<FullName, Pod>,
    /// Whether the static pods are known. Only then a mirror pod without a static pod is an orphan.
    static_pods_known: bool,
}

/// The state that the parts of a node share.
pub(crate) struct Kubelet {
    pub(crate) name: String,
    pub(crate) client: kube::Client,
    pub(crate) layout: Arc<Layout>,
    pub(crate) addresses: NodeAddresses,
    pub(crate) images: Images,
    pub(crate) launcher: Launcher,
    pub(crate) events: Recorder,
    pub(crate) managers: Arc<Managers>,
    pub(crate) overrides: BTreeMap<PathBuf, PathBuf>,
    pub(crate) server: ApiServer,
    running: watch::Sender<bool>,
    pods: Mutex<BTreeMap<String, KnownPod>>,
    mirrors: Mutex<Mirrors>,
    /// UID of the node, once it is registered.
    uid: Mutex<Option<String>>,
}

impl std::fmt::Debug for Kubelet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kubelet")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The parts of a new kubelet.
pub(crate) struct Parts {
    pub(crate) name: String,
    pub(crate) client: kube::Client,
    pub(crate) layout: Arc<Layout>,
    pub(crate) addresses: NodeAddresses,
    pub(crate) images: Images,
    pub(crate) launcher: Launcher,
    pub(crate) events: Recorder,
    pub(crate) managers: Arc<Managers>,
    pub(crate) overrides: BTreeMap<PathBuf, PathBuf>,
    pub(crate) server: ApiServer,
}

impl Kubelet {
    /// Creates a kubelet that is not running yet.
    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        let Parts {
            name,
            client,
            layout,
            addresses,
            images,
            launcher,
            events,
            managers,
            overrides,
            server,
        } = parts;
        Arc::new(Self {
            name,
            client,
            layout,
            addresses,
            images,
            launcher,
            events,
            managers,
            overrides,
            server,
            running: watch::Sender::new(false),
            pods: Mutex::default(),
            mirrors: Mutex::default(),
            uid: Mutex::default(),
        })
    }

    /// Returns once the kubelet is running.
    pub(crate) async fn until_running(&self) {
        let mut running = self.running.subscribe();
        // The sender is a field of this value, so it cannot be gone.
        let _ = running.wait_for(|running| *running).await;
    }

    /// Returns once the kubelet is stopped.
    pub(crate) async fn until_stopped(&self) {
        let mut running = self.running.subscribe();
        let _ = running.wait_for(|running| !*running).await;
    }

    /// Starts or stops the kubelet.
    pub(crate) fn set_running(&self, running: bool) {
        self.running.send_replace(running);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, KnownPod>> {
        self.pods.lock()
    }

    /// Returns the context in which volumes of this node are made.
    pub(crate) fn volume_context(&self) -> volumes::Context<'_> {
        volumes::Context {
            client: &self.client,
            layout: &self.layout,
            overrides: &self.overrides,
        }
    }

    /// Forgets a pod whose worker has nothing left to do.
    pub(crate) fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    /// Returns the current state of all pods.
    pub(crate) fn snapshots(&self) -> Vec<PodSnapshot> {
        let shared: Vec<_> = self
            .lock()
            .values()
            .map(|known| Arc::clone(&known.shared))
            .collect();
        shared.iter().map(|shared| shared.lock().clone()).collect()
    }

    /// Aborts all workers at once.
    pub(crate) fn abort_workers(&self) {
        for (_, known) in std::mem::take(&mut *self.lock()) {
            known.task.abort();
        }
    }

    /// Runs a command in a container; returns its output as the error if the exit code is not 0.
    pub(crate) async fn run_in(
        &self,
        prepared: &Prepared,
        command: &[String],
        limit: Duration,
    ) -> Result<(), String> {
        let output = self.exec(prepared, command, limit).await?;
        if output.code == 0 {
            return Ok(());
        }
        let text = if output.stderr.is_empty() {
            output.stdout
        } else {
            output.stderr
        };
        Err(String::from_utf8_lossy(&text).into_owned())
    }

    /// Runs a command in a container.
    pub(crate) async fn exec(
        &self,
        prepared: &Prepared,
        command: &[String],
        limit: Duration,
    ) -> Result<Output, String> {
        let launch = prepared
            .command(command)
            .map_err(|error| error.to_string())?;
        let run = self.launcher.run(&launch, limit).await;
        run.map_err(|error| error.to_string())
    }

    /// Starts a command with streams in a container.
    pub(crate) async fn attach(
        &self,
        prepared: &Prepared,
        command: &[String],
        with_input: bool,
    ) -> Result<Attached, String> {
        let mut launch = prepared
            .command(command)
            .map_err(|error| error.to_string())?;
        if with_input {
            launch.input = Input::Once;
        }
        let started = self.launcher.start_attached(&launch).await;
        started.map_err(|error| error.to_string())
    }

    /// Follows the pods of the node forever.
    pub(crate) async fn follow_pods(self: Arc<Self>) {
        let api: Api<Pod> = Api::all(self.client.clone());
        let mine = watcher::Config::default().fields(&format!("spec.nodeName={}", self.name));
        loop {
            self.until_running().await;
            let mut events = watcher(api.clone(), mine.clone()).boxed();
            let mut listed = Vec::new();
            loop {
                let event = tokio::select! {
                    event = events.next() => event,
                    () = self.until_stopped() => break,
                };
                match event {
                    None => break,
                    Some(Err(error)) => {
                        tracing::debug!(%error, node = self.name, "Watch of pods failed; trying again");
                        // The watcher retries at once, hence the pause.
                        tokio::time::sleep(Duration::from_millis(200)).await;
                    }
                    Some(Ok(watcher::Event::Init)) => listed.clear(),
                    Some(Ok(watcher::Event::InitApply(pod))) => listed.push(pod),
                    Some(Ok(watcher::Event::InitDone)) => {
                        self.handle_list(std::mem::take(&mut listed)).await;
                    }
                    Some(Ok(watcher::Event::Apply(pod))) => self.handle_pod(pod).await,
                    Some(Ok(watcher::Event::Delete(pod))) if static_pods::is_mirror(&pod) => {
                        self.remove_mirror(&pod);
                    }
                    Some(Ok(watcher::Event::Delete(pod))) => {
                        self.handle_removal(pod.metadata.uid.as_deref().unwrap_or_default());
                    }
                }
            }
        }
    }

    /// Follows the node's own object, because its labels and taints decide about pods.
    pub(crate) async fn follow_node(self: Arc<Self>) {
        let api: Api<Node> = Api::all(self.client.clone());
        let mine = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let mut events = watcher(api, mine).boxed();
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Apply(node) | watcher::Event::InitApply(node)) => {
                    self.apply_node(node);
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(%error, node = self.name, "Watch of the node failed; trying again");
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            }
        }
    }

    /// Applies the UID, the labels and the taints of the node.
    pub(crate) fn apply_node(&self, node: Node) {
        let mut uid = self.uid.lock();
        uid.clone_from(&node.metadata.uid);
        drop(uid);
        self.managers.set_place(NodeProperties {
            name: self.name.clone(),
            labels: node.metadata.labels.unwrap_or_default(),
            taints: node.spec.and_then(|spec| spec.taints).unwrap_or_default(),
            supplemental_groups_policy: true,
        });
    }

    /// Returns the UID of the node, once it is registered.
    pub(crate) fn uid(&self) -> Option<String> {
        let uid = self.uid.lock();
        uid.clone()
    }

    fn mirrors(&self) -> MutexGuard<'_, Mirrors> {
        self.mirrors.lock()
    }

    /// Sends the worker of a static pod its mirror pod; returns whether there is such a worker.
    fn send_mirror(&self, name: &FullName, mirror: Option<Pod>) -> bool {
        let pods = self.lock();
        let mut owners = pods
            .values()
            .filter(|known| known.static_name.as_ref() == Some(name));
        let owner = owners.next();
        if let Some(known) = owner {
            // A worker that has ended needs no signal.
            let _ = known.sender.send(Signal::Mirror(mirror.map(Box::new)));
        }
        owner.is_some()
    }

    /// Handles a mirror pod that is new or changed.
    async fn handle_mirror(&self, pod: Pod) {
        let name = full_name(&pod);
        let is_orphan = !self.send_mirror(&name, Some(pod.clone()));
        let are_known = {
            let mut mirrors = self.mirrors();
            mirrors.by_name.insert(name, pod.clone());
            mirrors.static_pods_known
        };
        if is_orphan && are_known {
            static_pods::remove(self, &pod).await;
        }
    }

    fn remove_mirror(&self, pod: &Pod) {
        let name = full_name(pod);
        let known = self.mirrors().by_name.remove(&name);
        if known.is_some() {
            self.send_mirror(&name, None);
        }
    }

    /// Runs exactly these static pods. A pod waits while another with the same name still ends. Refused pods are recorded in `refused` and
    /// not tried again.
    pub(crate) async fn set_static_pods(
        self: &Arc<Self>,
        pods: &[Pod],
        refused: &mut BTreeSet<String>,
    ) {
        let is_wanted = |uid: &String| {
            pods.iter()
                .any(|pod| pod.metadata.uid.as_ref() == Some(uid))
        };
        for (uid, known) in self.lock().iter() {
            if known.static_name.is_some() && !is_wanted(uid) {
                // A worker that has ended needs no signal.
                let _ = known.sender.send(Signal::Removed);
            }
        }
        for pod in pods {
            let uid = pod.metadata.uid.clone().unwrap_or_default();
            let name = full_name(pod);
            let is_there = self
                .lock()
                .iter()
                .any(|(other, known)| *other == uid || known.static_name.as_ref() == Some(&name));
            if is_there || refused.contains(&uid) {
                continue;
            }
            if let Err(refusal) = self.admit(pod).await {
                let text = event_text(&refusal);
                self.events.pod(pod, Kind::Warning, &refusal.reason, text);
                refused.insert(uid);
                continue;
            }
            self.start(pod.clone());
            let mirror = self.mirrors().by_name.get(&name).cloned();
            self.send_mirror(&name, mirror);
        }
        let orphans: Vec<Pod> = {
            let mut mirrors = self.mirrors();
            mirrors.static_pods_known = true;
            let known = self.lock();
            let has_owner = |name: &FullName| {
                let mut owners = known.values();
                owners.any(|known| known.static_name.as_ref() == Some(name))
            };
            let orphans = mirrors.by_name.iter();
            orphans
                .filter(|(name, _)| !has_owner(name))
                .map(|(_, mirror)| mirror.clone())
                .collect()
        };
        for orphan in orphans {
            static_pods::remove(self, &orphan).await;
        }
    }

    async fn handle_list(self: &Arc<Self>, mut pods: Vec<Pod>) {
        let present: BTreeSet<String> = pods
            .iter()
            .filter_map(|pod| pod.metadata.uid.clone())
            .collect();
        let gone: Vec<String> = {
            let known = self.lock();
            let gone = known
                .iter()
                .filter(|(uid, known)| known.static_name.is_none() && !present.contains(*uid));
            gone.map(|(uid, _)| uid.clone()).collect()
        };
        for uid in gone {
            self.handle_removal(&uid);
        }
        let lost: Vec<Pod> = {
            let mirrors = self.mirrors();
            let mirrors = mirrors.by_name.values();
            mirrors
                .filter(|mirror| {
                    !mirror
                        .metadata
                        .uid
                        .as_ref()
                        .is_some_and(|uid| present.contains(uid))
                })
                .cloned()
                .collect()
        };
        for mirror in lost {
            self.remove_mirror(&mirror);
        }
        let created = |pod: &Pod| {
            let time = pod.metadata.creation_timestamp.as_ref();
            time.map_or(Timestamp::MIN, |time| time.0)
        };
        pods.sort_by_key(created);
        for pod in pods {
            self.handle_pod(pod).await;
        }
    }

    /// Handles the removal of a pod from the API server: its resources are free from now on, although its containers may take a while to
    /// end (`HandlePodRemoves`).
    fn handle_removal(&self, uid: &str) {
        if let Some(known) = self.lock().get(uid) {
            // A worker that has ended needs no signal.
            let _ = known.sender.send(Signal::Gone);
        }
        self.managers.stopped(uid);
    }

    /// Handles a pod that is new or changed.
    async fn handle_pod(self: &Arc<Self>, pod: Pod) {
        if static_pods::is_mirror(&pod) {
            return self.handle_mirror(pod).await;
        }
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        if let Some(known) = self.lock().get(&uid) {
            let _ = known.sender.send(Signal::Changed(Box::new(pod)));
            return;
        }
        if is_finished(&pod) {
            return;
        }
        let is_ending = pod.metadata.deletion_timestamp.is_some();
        if !is_ending && let Err(refusal) = self.admit(&pod).await {
            self.refuse(pod, refusal);
            return;
        }
        self.start(pod);
    }

    /// Starts the worker of an admitted pod.
    fn start(self: &Arc<Self>, pod: Pod) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let static_name = static_pods::is_static(&pod).then(|| full_name(&pod));
        let (sender, signals) = mpsc::unbounded_channel();
        let qos = qos(&pod);
        let (worker, shared) = Worker::new(Arc::clone(self), pod, qos, sender.clone(), signals);
        // The worker may end before it is inserted. It removes itself only under this lock, so the order is right.
        let mut pods = self.lock();
        let task = tokio::spawn(worker.run()).abort_handle();
        let known = KnownPod {
            static_name,
            sender,
            shared,
            task,
        };
        pods.insert(uid, known);
    }

    /// Admits all living pods again, like a kubelet that starts without the state of its managers.
    pub(crate) async fn readmit_pods(&self) {
        let mut living: Vec<Pod> = self
            .snapshots()
            .into_iter()
            .filter(|snapshot| !snapshot.is_over)
            .map(|snapshot| snapshot.pod)
            .collect();
        living.sort_by_key(|pod| {
            let time = pod.metadata.creation_timestamp.as_ref();
            time.map_or(Timestamp::MIN, |time| time.0)
        });
        for pod in living {
            if let Err(refusal) = self.admit(&pod).await {
                let uid = pod.metadata.uid.as_deref().unwrap_or_default();
                self.evict(uid, &refusal.reason, &refusal.message);
            }
        }
    }

    async fn admit(&self, pod: &Pod) -> Result<(), Refusal> {
        let outcome = self.managers.admit(pod).await;
        for uid in self.managers.take_preempted() {
            self.evict(&uid, preemption::REASON, preemption::MESSAGE);
        }
        outcome
    }

    /// Ends a pod for a reason of the kubelet.
    fn evict(&self, uid: &str, reason: &str, message: &str) {
        if let Some(known) = self.lock().get(uid) {
            let end = Signal::Evicted(reason.to_owned(), message.to_owned());
            // A worker that has ended needs no signal.
            let _ = known.sender.send(end);
        }
    }

    /// Restores the living pods after a restart with the same settings.
    pub(crate) fn restore_pods(&self) {
        self.evict_all(self.managers.restart());
    }

    /// Ends the pods that are refused after a restart.
    pub(crate) fn evict_all(&self, refused: BTreeMap<String, Refusal>) {
        for (uid, refusal) in refused {
            self.evict(&uid, &refusal.reason, &refusal.message);
        }
    }

    /// Publishes a refusal: an event and the final status of the pod.
    fn refuse(self: &Arc<Self>, pod: Pod, refusal: Refusal) {
        let text = event_text(&refusal);
        let events = &self.events;
        events.pod(&pod, Kind::Warning, &refusal.reason, text);
        let kubelet = Arc::clone(self);
        tokio::spawn(async move {
            let (reason, message) = (&refusal.reason, &refusal.message);
            let status = status::refused(&pod, reason, message, qos(&pod), Timestamp::now());
            for _ in 0..MAX_ATTEMPTS {
                match publish::write(&kubelet.client, &pod, &status).await {
                    Ok(_) => return,
                    Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return,
                    Err(error) => {
                        tracing::debug!(%error, "Refusal is not written yet; trying again");
                        tokio::time::sleep(RETRY_INTERVAL).await;
                    }
                }
            }
        });
    }
}

/// Returns the text of a refusal's event.
fn event_text(refusal: &Refusal) -> String {
    let text = refusal.message.strip_prefix(REJECTED);
    text.unwrap_or(&refusal.message).to_owned()
}

/// Returns the quality-of-service class of a pod.
fn qos(pod: &Pod) -> &'static str {
    match Workload::new(pod).map(|workload| workload.qos) {
        Ok(Qos::Guaranteed) => "Guaranteed",
        Ok(Qos::Burstable) => "Burstable",
        Ok(Qos::BestEffort) | Err(_) => "BestEffort",
    }
}
