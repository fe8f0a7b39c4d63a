//! The kubelet of a simulated node: it follows the pods that are bound to the node and gives each a worker.

mod admission;
mod commands;
mod follow;
mod mirrors;
pub(super) mod static_pods;
pub(super) mod worker;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use cluster_spec::images::Images;
use k8s_openapi::api::core::v1::{Node, Pod};
use kubelet_model::predicates::NodeProperties;
use kubelet_model::workload::Workload;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{mpsc, watch};
use topology::request::Qos;

use self::mirrors::{FullName, Mirrors, full_name};
use self::worker::Worker;
use self::worker::signals::Signal;
use self::worker::snapshot::PodSnapshot;
use super::addresses::NodeAddresses;
use super::events::Recorder;
use super::launcher::Launcher;
use super::layout::Layout;
use super::managers::Managers;
use super::volumes;

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
    /// What changes while the kubelet runs.
    pub(crate) state: State,
}

/// The pods of a kubelet, and whether it runs. By default it knows nothing and does not run yet.
#[derive(Debug, Default)]
pub(crate) struct State {
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

impl Kubelet {
    /// Returns once the kubelet is running.
    pub(crate) async fn until_running(&self) {
        let mut running = self.state.running.subscribe();
        // The sender is a field of this value, so it cannot be gone.
        let _ = running.wait_for(|running| *running).await;
    }

    /// Returns once the kubelet is stopped.
    pub(crate) async fn until_stopped(&self) {
        let mut running = self.state.running.subscribe();
        let _ = running.wait_for(|running| !*running).await;
    }

    /// Starts or stops the kubelet.
    pub(crate) fn set_running(&self, running: bool) {
        self.state.running.send_replace(running);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, KnownPod>> {
        self.state.pods.lock()
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

    /// Applies the UID, the labels and the taints of the node.
    pub(crate) fn apply_node(&self, node: Node) {
        let mut uid = self.state.uid.lock();
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
        let uid = self.state.uid.lock();
        uid.clone()
    }

    /// Starts the worker of an admitted pod, unless the kubelet has restarted since and dropped the pod: nobody knew then that it would run.
    /// Returns whether it was started; if not, it is to be admitted anew.
    fn start_if_active(self: &Arc<Self>, pod: &Pod) -> bool {
        // A restart drops pods from the managers first and evicts them from this map then, so it finds the pod in one of them.
        let mut pods = self.lock();
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        if !self.managers.is_active(uid) {
            return false;
        }
        self.start_among(&mut pods, pod.clone());
        true
    }

    /// Starts the worker of a pod.
    fn start(self: &Arc<Self>, pod: Pod) {
        self.start_among(&mut self.lock(), pod);
    }

    fn start_among(self: &Arc<Self>, pods: &mut BTreeMap<String, KnownPod>, pod: Pod) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let static_name = static_pods::is_static(&pod).then(|| full_name(&pod));
        let (sender, signals) = mpsc::unbounded_channel();
        let qos = qos(&pod);
        let (worker, shared) = Worker::new(Arc::clone(self), pod, qos, sender.clone(), signals);
        // The worker may end before it is inserted. It removes itself only under the lock of the pods, so the order is right.
        let task = tokio::spawn(worker.run()).abort_handle();
        let known = KnownPod {
            static_name,
            sender,
            shared,
            task,
        };
        pods.insert(uid, known);
    }
}

/// Returns the quality-of-service class of a pod.
fn qos(pod: &Pod) -> &'static str {
    match Workload::new(pod).map(|workload| workload.qos) {
        Ok(Qos::Guaranteed) => "Guaranteed",
        Ok(Qos::Burstable) => "Burstable",
        Ok(Qos::BestEffort) | Err(_) => "BestEffort",
    }
}
