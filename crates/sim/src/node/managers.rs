//! The resource managers of a node: the model, its state files, its sockets, and the device plugins.

mod admission;
mod lister;
mod plugins;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use cluster_spec::kubelet::KubeletSettings;
use fixtures::machines::Machine;
use k8s_openapi::api::core::v1::Pod;
use kubelet_model::node::{Node, Refusal, Resize, StartError};
use kubelet_model::predicates::NodeProperties;
use kubelet_model::settings;
use kubelet_model::workload::Amounts;
use parking_lot::{Mutex, MutexGuard};
use podresources::deviceplugin::v1beta1::ContainerAllocateResponse;
use podresources::server::Listener;
use podresources::socket::Socket;
use podresources::v1::pod_resources_lister_server::PodResourcesListerServer;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::service::Routes;

use self::lister::Lister;
use self::plugins::Plugins;
use super::layout::Layout;

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
        let kept = self.kept_state(&model)?;
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

    /// Returns whether a pod is active: admitted, and neither stopped nor dropped since.
    pub(crate) fn is_active(&self, uid: &str) -> bool {
        self.lock().node.active().any(|active| active == uid)
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

    /// Gives a pod the resources that it asks for now, if that is possible; `None` for a pod that is not active.
    pub(crate) fn resize(&self, pod: &Pod) -> Option<Resize> {
        let outcome = self.lock().node.resize(pod);
        outcome.unwrap_or_else(|error| {
            // The API server takes no pod with such an amount.
            tracing::warn!(%error, "A pod is not resized");
            None
        })
    }

    /// Decides again about resizes that found no room. Returns the pods whose decision may have changed, by UID.
    pub(crate) fn retry_resizes(&self) -> Vec<String> {
        self.lock().node.retry_resizes()
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
                tracing::warn!(%error, "The podresources socket is no longer served");
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
