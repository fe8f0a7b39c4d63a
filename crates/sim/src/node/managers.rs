//! The resource managers of a node: the model, its state files, its sockets, and the device plugins.

mod plugins;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use cluster_spec::kubelet::KubeletSettings;
use fixtures::machines::Machine;
use k8s_openapi::api::core::v1::Pod;
use kubelet_model::device::{DeviceEntry, DevicePreferences};
use kubelet_model::node::{Node, Refusal, StartError, StateFiles};
use kubelet_model::predicates::NodeProperties;
use kubelet_model::workload::Amounts;
use kubelet_model::{checkpoint, settings};
use parking_lot::{Mutex, MutexGuard};
use podresources::deviceplugin::v1beta1::ContainerAllocateResponse;
use podresources::server::Listener;
use podresources::socket::Socket;
use podresources::v1;
use podresources::v1::pod_resources_lister_server::{PodResourcesLister, PodResourcesListerServer};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use self::plugins::Plugins;
use super::layout::Layout;

/// Reason of a refusal when a manager fails.
const UNEXPECTED: &str = "UnexpectedAdmissionError";
/// State files of the managers, relative to the kubelet's directory.
const CPU_STATE: &str = "cpu_manager_state";
const MEMORY_STATE: &str = "memory_manager_state";
const DEVICE_STATE: &str = "device-plugins/kubelet_internal_checkpoint";

/// Why the managers did not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The settings are invalid.
    #[error(transparent)]
    Settings(#[from] settings::Error),
    /// The managers refuse to start with the existing state.
    #[error("the kubelet ends")]
    Start(#[from] StartError),
    /// The kubelet did not write this state file.
    #[error(
        "could not restore state from checkpoint: checkpoint is corrupted, please drain this node and delete the checkpoint file \"/var/lib/kubelet/{0}\" before restarting Kubelet"
    )]
    Corrupted(&'static str),
    /// The path cannot be that of a socket.
    #[error("unusable socket path")]
    Socket(#[from] podresources::socket::Error),
    /// A socket could not be served.
    #[error("cannot serve a socket of the node")]
    Serve(#[from] podresources::server::Error),
    /// A file could not be used.
    #[error("cannot use a file of the node")]
    File(#[from] io::Error),
}

/// The managers of one node.
#[derive(Debug)]
pub(crate) struct Managers {
    layout: Arc<Layout>,
    model: Mutex<Model>,
    plugins: Plugins,
    /// Number of changes of capacity and allocatable.
    changes: watch::Sender<u64>,
}

#[derive(Debug)]
struct Model {
    node: Node,
    place: NodeProperties,
    /// Answers of plugins by pod, container and resource.
    answers: BTreeMap<(String, String, String), ContainerAllocateResponse>,
    /// The last written content of each state file.
    written: BTreeMap<&'static str, String>,
}

impl Managers {
    /// Creates the managers of an empty node.
    pub(crate) fn new(
        layout: Arc<Layout>,
        machine: &Machine,
        settings: &KubeletSettings,
    ) -> Result<Arc<Self>, Error> {
        let model = Model {
            node: Node::without_devices(machine, settings)?,
            place: NodeProperties::default(),
            answers: BTreeMap::new(),
            written: BTreeMap::new(),
        };
        Ok(Arc::new(Self {
            layout,
            model: Mutex::new(model),
            plugins: Plugins::default(),
            changes: watch::Sender::new(0),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Model> {
        self.model.lock()
    }

    /// Starts over with other settings: nothing is allocated, and no plugin is registered.
    pub(crate) fn reset(&self, machine: &Machine, settings: &KubeletSettings) -> Result<(), Error> {
        let mut node = Node::without_devices(machine, settings)?;
        let mut model = self.lock();
        node.set_properties(model.place.clone());
        model.node = node;
        model.answers.clear();
        Ok(())
    }

    /// Restores pods and state after a restart of the kubelet with other settings. Returns the pods that are refused now, by UID. A state
    /// file whose content is not what was written last counts as corrupted.
    pub(crate) fn resume(
        &self,
        machine: &Machine,
        settings: &KubeletSettings,
    ) -> Result<BTreeMap<String, Refusal>, Error> {
        let mut model = self.lock();
        let found = |name: &'static str| -> Result<bool, Error> {
            let path = self.layout.kubelet(name);
            if !path.exists() {
                return Ok(false);
            }
            let text = fs_err::read_to_string(path)?;
            if model.written.get(name) != Some(&text) {
                return Err(Error::Corrupted(name));
            }
            Ok(true)
        };
        let kept = StateFiles {
            cpu: found(CPU_STATE)?,
            memory: found(MEMORY_STATE)?,
        };
        let refused = model.node.reconfigure(machine, settings, kept)?;
        model.written.clear();
        self.write(&mut model);
        Ok(refused)
    }

    /// Returns a receiver for changes of capacity and allocatable.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Returns capacity and allocatable of the node: CPU in thousandths, all else in units.
    pub(crate) fn amounts(&self) -> (Amounts, Amounts) {
        let model = self.lock();
        (model.node.capacity(), model.node.allocatable())
    }

    /// Sets name, labels and taints of the node, which decide about pods.
    pub(crate) fn set_place(&self, place: NodeProperties) {
        let mut model = self.lock();
        model.place = place.clone();
        model.node.set_properties(place);
    }

    /// Returns the UIDs of the pods that were ended in favour of critical pods since the last call.
    pub(crate) fn take_preempted(&self) -> Vec<String> {
        self.lock().node.take_preempted()
    }

    /// Restores pods and state after a restart of the kubelet. Returns the pods that are refused now, by UID.
    pub(crate) fn restart(&self) -> BTreeMap<String, Refusal> {
        let mut model = self.lock();
        let refused = model.node.restart().unwrap_or_else(|error| {
            // A real kubelet exits until somebody removes the state. Here the pods just stay.
            tracing::error!(%error, "A real kubelet would not start");
            BTreeMap::new()
        });
        self.write(&mut model);
        refused
    }

    /// Admits a pod and allocates what its containers need.
    pub(crate) async fn admit(&self, pod: &Pod) -> Result<(), Refusal> {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let held = self.decide(pod, &uid).await?;
        for (container, resource, ids) in held {
            match self.plugins.allocate(&resource, ids).await {
                Ok(answer) => {
                    let key = (uid.clone(), container, resource);
                    let answer = answer.into_iter().next().unwrap_or_default();
                    self.lock().answers.insert(key, answer);
                }
                Err(status) => {
                    self.stopped(&uid);
                    return Err(allocation_failed(&status));
                }
            }
        }
        self.write(&mut self.lock());
        Ok(())
    }

    /// Lets the model decide about a pod, and repeats that as long as a plugin has to be asked for its preferred devices. Returns the
    /// devices that the containers hold afterwards.
    async fn decide(
        &self,
        pod: &Pod,
        uid: &str,
    ) -> Result<Vec<(String, String, Vec<String>)>, Refusal> {
        let mut preferences = DevicePreferences {
            resources: self.plugins.with_preferred_allocation(),
            answers: Vec::new(),
        };
        loop {
            let request = {
                let mut model = self.lock();
                let before = (!preferences.resources.is_empty()).then(|| model.node.clone());
                model.node.devices().set_preferences(preferences.clone());
                let outcome = model.node.admit(pod).unwrap_or_else(|error| {
                    Err(Refusal {
                        reason: UNEXPECTED.to_owned(),
                        message: format!("Pod was rejected: {error}"),
                    })
                });
                model
                    .node
                    .devices()
                    .set_preferences(DevicePreferences::default());
                let request = model.node.devices().take_preference_request();
                let (Some(request), Some(before)) = (request, before) else {
                    if outcome.is_err() {
                        self.write(&mut model);
                    }
                    return outcome.map(|()| held(&mut model.node, pod, uid));
                };
                model.node = before;
                request
            };
            let preferred = self.plugins.prefer(&request).await;
            let preferred = preferred.map_err(|status| allocation_failed(&status))?;
            preferences.answers.push((request, preferred));
        }
    }

    /// Calls `PreStartContainer` of the plugins that require it before a container with their devices starts. Returns why the container
    /// must not start.
    pub(crate) async fn pre_start(&self, uid: &str, container: &str) -> Result<(), String> {
        for resource in self.plugins.with_pre_start() {
            let ids = {
                let mut model = self.lock();
                let held = model.node.devices().held(uid, container);
                held.and_then(|held| held.get(&resource)).cloned()
            };
            let Some(ids) = ids else { continue };
            let called = self.plugins.pre_start(&resource, ids.into_iter().collect());
            called.await.map_err(|status| {
                format!(
                    "device plugin PreStartContainer rpc failed with err: {}",
                    rpc_error(&status)
                )
            })?;
        }
        Ok(())
    }

    /// Returns what plugins want a container to have.
    pub(crate) fn answers(&self, uid: &str, container: &str) -> Vec<ContainerAllocateResponse> {
        let model = self.lock();
        let all = model.answers.iter();
        all.filter(|((pod, name, _), _)| pod == uid && name == container)
            .map(|(_, answer)| answer.clone())
            .collect()
    }

    /// Records that a container has been started.
    pub(crate) fn started(&self, uid: &str, container: &str) {
        let mut model = self.lock();
        model.node.started(uid, container);
        self.write(&mut model);
    }

    /// Records that a pod is no longer active: its containers have stopped, or the pod is unknown. The files keep its allocations until
    /// something else needs them.
    pub(crate) fn stopped(&self, uid: &str) {
        let mut model = self.lock();
        model.node.stopped(uid);
        model.answers.retain(|(pod, _, _), _| pod != uid);
        self.write(&mut model);
    }

    /// Releases the allocations of pods that are gone, as kubelets do from time to time.
    pub(crate) fn reconcile(&self) {
        let mut model = self.lock();
        model.node.release();
        self.write(&mut model);
    }

    /// Returns the CPU set and the memory nodes of a container; empty if the container shares them.
    pub(crate) fn sets(&self, namespace: &str, pod: &str, container: &str) -> (Vec<i64>, Vec<i64>) {
        let model = self.lock();
        let found = model.node.get(namespace, pod).ok().and_then(|pod| {
            let mut containers = pod.containers.into_iter();
            containers.find(|one| one.name == container)
        });
        let Some(found) = found else {
            return (Vec::new(), Vec::new());
        };
        let nodes: BTreeSet<i64> = found
            .memory
            .iter()
            .filter_map(|block| block.topology.as_ref())
            .flat_map(|topology| topology.nodes.iter().map(|node| node.id))
            .collect();
        (found.cpu_ids, nodes.into_iter().collect())
    }

    /// Writes the state files that changed.
    fn write(&self, model: &mut Model) {
        let files = [
            (
                CPU_STATE,
                checkpoint::cpu_manager_state(&model.node.cpu_state()),
            ),
            (
                MEMORY_STATE,
                checkpoint::memory_manager_state(&model.node.memory_state()),
            ),
            (DEVICE_STATE, device_state(model)),
        ];
        for (name, text) in files {
            let text = match text {
                Ok(text) => text,
                Err(error) => {
                    tracing::warn!(%error, "State of a manager was not written");
                    continue;
                }
            };
            if model.written.get(name) == Some(&text) {
                continue;
            }
            let path = self.layout.kubelet(name);
            let draft = path.with_extension("draft");
            let written = fs_err::write(&draft, &text).and_then(|()| fs_err::rename(&draft, &path));
            match written {
                Ok(()) => {
                    model.written.insert(name, text);
                }
                Err(error) => tracing::warn!(%error, "State of a manager was not written"),
            }
        }
    }

    /// Removes the state files that a kubelet does not accept after a change of its settings.
    pub(crate) fn remove_state(&self) -> io::Result<()> {
        let mut model = self.lock();
        for name in [CPU_STATE, MEMORY_STATE] {
            model.written.remove(name);
            let path = self.layout.kubelet(name);
            if path.exists() {
                fs_err::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// Serves the registration of device plugins until the task is aborted.
    pub(crate) async fn serve(self: &Arc<Self>) -> Result<JoinHandle<()>, Error> {
        self.write(&mut self.lock());
        plugins::serve(self).await
    }

    /// Serves PodResources. The connections end with the task.
    pub(crate) async fn serve_podresources(self: &Arc<Self>) -> Result<JoinHandle<()>, Error> {
        let socket = Socket::new(self.layout.kubelet(super::PODRESOURCES))?;
        let listener = Listener::bind(&socket, 0o660).await?;
        let service = PodResourcesListerServer::new(Lister(Arc::clone(self)));
        Ok(tokio::spawn(async move {
            let served = listener.serve(Routes::new(service), std::future::pending());
            if let Err(error) = served.await {
                tracing::warn!(%error, "The podresources socket is served no longer");
            }
        }))
    }

    /// Closes the connections to the plugins, as when a kubelet stops. The plugins register again.
    pub(crate) fn disconnect_plugins(&self) {
        self.plugins.clear();
    }

    fn announce(&self, resource: &str, devices: plugins::Devices) {
        let mut model = self.lock();
        model.node.devices().set_devices(resource, devices);
        self.write(&mut model);
        drop(model);
        self.changes.send_modify(|count| *count += 1);
    }

    /// Handles the loss of a plugin: its devices remain, but become unhealthy.
    fn handle_plugin_loss(&self, resource: &str) {
        let mut devices = {
            let mut model = self.lock();
            let plugins = model.node.devices().plugins();
            plugins.get(resource).cloned().unwrap_or_default()
        };
        for device in devices.values_mut() {
            device.healthy = false;
        }
        self.announce(resource, devices);
    }
}

/// Formats an error of a plugin in the kubelet's words.
fn rpc_error(status: &Status) -> String {
    format!(
        "rpc error: code = {:?} desc = {}",
        status.code(),
        status.message()
    )
}

/// Returns the refusal of a pod because of an error of a plugin.
fn allocation_failed(status: &Status) -> Refusal {
    Refusal {
        reason: UNEXPECTED.to_owned(),
        message: format!(
            "Pod was rejected: Allocate failed due to {}, which is unexpected",
            rpc_error(status)
        ),
    }
}

/// Returns container, resource and ids of all devices that a pod holds.
fn held(node: &mut Node, pod: &Pod, uid: &str) -> Vec<(String, String, Vec<String>)> {
    let Some(spec) = &pod.spec else {
        return Vec::new();
    };
    let containers = spec
        .init_containers
        .iter()
        .flatten()
        .chain(&spec.containers);
    let mut all = Vec::new();
    for container in containers {
        let held = node.devices().held(uid, &container.name);
        for (resource, ids) in held.into_iter().flatten() {
            let ids = ids.iter().cloned().collect();
            all.push((container.name.clone(), resource.clone(), ids));
        }
    }
    all
}

/// Returns the checkpoint of the device manager.
fn device_state(model: &mut Model) -> Result<String, checkpoint::Error> {
    let devices = model.node.devices().plugins().iter();
    let registered: BTreeMap<String, Vec<String>> = devices
        .map(|(resource, devices)| (resource.clone(), devices.keys().cloned().collect()))
        .collect();
    let entries = model.node.device_entries();
    let answer = |entry: &DeviceEntry| {
        let key = (
            entry.pod.clone(),
            entry.container.clone(),
            entry.resource.clone(),
        );
        let answer = model.answers.get(&key);
        answer
            .map(prost::Message::encode_to_vec)
            .unwrap_or_default()
    };
    checkpoint::device_checkpoint(entries, answer, &registered)
}

/// The PodResources service.
struct Lister(Arc<Managers>);

#[tonic::async_trait]
impl PodResourcesLister for Lister {
    async fn list(
        &self,
        _request: Request<v1::ListPodResourcesRequest>,
    ) -> Result<Response<v1::ListPodResourcesResponse>, Status> {
        Ok(Response::new(self.0.lock().node.list()))
    }

    async fn get_allocatable_resources(
        &self,
        _request: Request<v1::AllocatableResourcesRequest>,
    ) -> Result<Response<v1::AllocatableResourcesResponse>, Status> {
        Ok(Response::new(self.0.lock().node.allocatable_resources()))
    }

    async fn get(
        &self,
        request: Request<v1::GetPodResourcesRequest>,
    ) -> Result<Response<v1::GetPodResourcesResponse>, Status> {
        let request = request.into_inner();
        let found = self
            .0
            .lock()
            .node
            .get(&request.pod_namespace, &request.pod_name);
        match found {
            Ok(pod) => Ok(Response::new(v1::GetPodResourcesResponse {
                pod_resources: Some(pod),
            })),
            Err(error) => Err(Status::unknown(error.to_string())),
        }
    }
}
