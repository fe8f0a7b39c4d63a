//! A device plugin: serves its devices, registers with the kubelet, and registers again whenever the kubelet has restarted.
//!
//! At its start the kubelet removes every socket in its device plugin directory and creates a new `kubelet.sock` (kubelet-node.md 8.1).
//! The plugin notices both by checking the two files twice a second. Polling is cheap and works on every file system.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::WatchStream;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use crate::deviceplugin::v1beta1 as api;
use crate::deviceplugin::v1beta1::device_plugin_server::{DevicePlugin, DevicePluginServer};
use crate::deviceplugin::v1beta1::registration_client::RegistrationClient;
use crate::server::{self, Identity, Listener};
use crate::socket::{self, Socket};

/// Version of the interface in registrations.
pub const VERSION: &str = "v1beta1";
/// Name of the kubelet's socket in the device plugin directory.
pub const KUBELET_SOCKET: &str = "kubelet.sock";
/// The kubelet's device plugin directory.
pub const DEVICE_PLUGIN_DIR: &str = "/var/lib/kubelet/device-plugins";
/// Health of a device that may be allocated.
pub const HEALTHY: &str = "Healthy";
/// Health of a device that may not be allocated.
pub const UNHEALTHY: &str = "Unhealthy";

/// Interval between two checks of the socket files.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Time limit for the kubelet's answer to a registration. Before it answers, the kubelet connects back, which may take up to 10 s.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(15);

/// Returns a device with its health and its NUMA node, if known.
pub fn device(id: impl Into<String>, healthy: bool, numa: Option<i64>) -> api::Device {
    api::Device {
        id: id.into(),
        health: if healthy { HEALTHY } else { UNHEALTHY }.to_owned(),
        topology: numa.map(|id| api::TopologyInfo {
            nodes: vec![api::NumaNode { id }],
        }),
    }
}

/// Decides what a container gets for the devices that the kubelet picked for it.
pub trait Allocate: Send + Sync + 'static {
    /// Returns the answer for one container, or the reason to refuse it.
    fn allocate(&self, device_ids: &[String]) -> Result<api::ContainerAllocateResponse, Status>;
}

impl<F> Allocate for F
where
    F: Fn(&[String]) -> Result<api::ContainerAllocateResponse, Status> + Send + Sync + 'static,
{
    fn allocate(&self, device_ids: &[String]) -> Result<api::ContainerAllocateResponse, Status> {
        self(device_ids)
    }
}

/// The devices of a plugin. Clones share the list; a change is sent to the kubelet at once.
#[derive(Clone, Debug)]
pub struct Devices(Arc<watch::Sender<Vec<api::Device>>>);

impl Devices {
    /// Replaces the whole list.
    pub fn set(&self, devices: Vec<api::Device>) {
        self.0.send_replace(devices);
    }

    /// Sets the health of one device. Returns `false` when there is no such device.
    pub fn set_health(&self, id: &str, healthy: bool) -> bool {
        let mut found = false;
        self.0.send_if_modified(|devices| {
            let Some(device) = devices.iter_mut().find(|device| device.id == id) else {
                return false;
            };
            found = true;
            let health = if healthy { HEALTHY } else { UNHEALTHY };
            let changed = device.health != health;
            health.clone_into(&mut device.health);
            changed
        });
        found
    }
}

/// A device plugin for one resource.
pub struct Plugin {
    resource: String,
    devices: Devices,
    allocate: Arc<dyn Allocate>,
}

/// A plugin cannot run. An absent kubelet and a refused registration are no such errors: they are logged and retried.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory does not give a usable socket path.
    #[error("unusable device plugin directory")]
    Directory(#[source] socket::Error),
    /// The plugin's own socket cannot be served.
    #[error("cannot serve the device plugin")]
    Serve(#[source] server::Error),
}

impl Plugin {
    /// Creates a plugin for `resource` (`example.com/deviceA`) with these devices.
    pub fn new(
        resource: impl Into<String>,
        devices: Vec<api::Device>,
        allocate: impl Allocate,
    ) -> Self {
        Self {
            resource: resource.into(),
            devices: Devices(Arc::new(watch::Sender::new(devices))),
            allocate: Arc::new(allocate),
        }
    }

    /// Returns a handle that changes the devices while the plugin runs.
    pub fn devices(&self) -> Devices {
        self.devices.clone()
    }

    /// Returns the name of the plugin's socket: the resource name as a valid file name.
    pub fn endpoint(&self) -> String {
        let name: String = self
            .resource
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .collect();
        format!("{name}.sock")
    }

    /// Serves in `dir` and stays registered with the kubelet of `dir` until `stop` is ready.
    pub async fn run(&self, dir: &Path, stop: impl Future<Output = ()>) -> Result<(), Error> {
        let endpoint = self.endpoint();
        let own = Socket::new(dir.join(&endpoint)).map_err(Error::Directory)?;
        let kubelet = Socket::new(dir.join(KUBELET_SOCKET)).map_err(Error::Directory)?;
        let mut stop = std::pin::pin!(stop);
        loop {
            let listener = match Listener::bind(&own, 0o600).await {
                Ok(listener) => listener,
                // a kubelet that starts at this moment removes the socket while it is being created
                Err(server::Error::File { source, .. })
                    if source.kind() == std::io::ErrorKind::NotFound =>
                {
                    tokio::time::sleep(POLL_INTERVAL).await;
                    continue;
                }
                Err(error) => return Err(Error::Serve(error)),
            };
            let identity = listener.identity();
            let (ending, end) = watch::channel(false);
            let service = Service {
                devices: self.devices.clone(),
                allocate: Arc::clone(&self.allocate),
                end: end.clone(),
            };
            let mut ended = end;
            let serving =
                listener.serve(Routes::new(DevicePluginServer::new(service)), async move {
                    // an error means that the sender is gone, which also ends the service
                    let _ = ended.wait_for(|ended| *ended).await;
                });
            let mut serving = std::pin::pin!(serving);
            let stopped = tokio::select! {
                outcome = &mut serving => return outcome.map_err(Error::Serve),
                () = stop.as_mut() => true,
                () = self.stay_registered(&kubelet, own.path(), identity, &endpoint) => false,
            };
            ending.send_replace(true);
            serving.await.map_err(Error::Serve)?;
            if stopped {
                return Ok(());
            }
            tracing::info!(resource = %self.resource, "Own socket is gone, serving again");
        }
    }

    /// Registers with every kubelet that appears. Returns when the plugin's own socket is gone.
    async fn stay_registered(
        &self,
        kubelet: &Socket,
        own: &Path,
        identity: Identity,
        endpoint: &str,
    ) {
        let mut registered: Option<Identity> = None;
        let mut poll = tokio::time::interval(POLL_INTERVAL);
        poll.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            poll.tick().await;
            if Identity::of(own) != Some(identity) {
                return;
            }
            let current = Identity::of(kubelet.path());
            if current.is_none() || current == registered {
                continue;
            }
            match self.register(kubelet, endpoint).await {
                Ok(()) => {
                    tracing::info!(resource = %self.resource, "Registered with the kubelet");
                    registered = current;
                }
                Err(status) => {
                    tracing::warn!(resource = %self.resource, error = %status, "Registration failed, trying again");
                }
            }
        }
    }

    async fn register(&self, kubelet: &Socket, endpoint: &str) -> Result<(), Status> {
        let request = api::RegisterRequest {
            version: VERSION.to_owned(),
            endpoint: endpoint.to_owned(),
            resource_name: self.resource.clone(),
            options: Some(api::DevicePluginOptions::default()),
        };
        let mut client = RegistrationClient::new(kubelet.channel());
        match tokio::time::timeout(REGISTER_TIMEOUT, client.register(request)).await {
            Ok(answer) => answer.map(|_empty| ()),
            Err(_elapsed) => Err(Status::deadline_exceeded("the kubelet does not answer")),
        }
    }
}

/// The plugin's gRPC service.
struct Service {
    devices: Devices,
    allocate: Arc<dyn Allocate>,
    end: watch::Receiver<bool>,
}

#[tonic::async_trait]
impl DevicePlugin for Service {
    async fn get_device_plugin_options(
        &self,
        _request: Request<api::Empty>,
    ) -> Result<Response<api::DevicePluginOptions>, Status> {
        Ok(Response::new(api::DevicePluginOptions::default()))
    }

    async fn list_and_watch(
        &self,
        _request: Request<api::Empty>,
    ) -> Result<Response<tonic::codegen::BoxStream<api::ListAndWatchResponse>>, Status> {
        let lists = WatchStream::new(self.devices.0.subscribe())
            .map(|devices| Some(Ok(api::ListAndWatchResponse { devices })));
        // the server stops only after the stream has ended
        let end = WatchStream::new(self.end.clone()).filter_map(|ended| ended.then_some(None));
        let stream = lists.merge(end).map_while(|item| item);
        Ok(Response::new(Box::pin(stream)))
    }

    async fn allocate(
        &self,
        request: Request<api::AllocateRequest>,
    ) -> Result<Response<api::AllocateResponse>, Status> {
        let container_responses = request
            .into_inner()
            .container_requests
            .iter()
            .map(|container| self.allocate.allocate(&container.devices_ids))
            .collect::<Result<_, _>>()?;
        Ok(Response::new(api::AllocateResponse {
            container_responses,
        }))
    }
}
