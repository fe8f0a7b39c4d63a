//! Device plugins: they register on the node's socket and tell their devices for as long as they live.

use std::collections::BTreeMap;
use std::os::unix::fs::FileTypeExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use podresources::device_plugin::{HEALTHY, KUBELET_SOCKET, VERSION};
use podresources::deviceplugin::v1beta1 as api;
use podresources::deviceplugin::v1beta1::device_plugin_client::DevicePluginClient;
use podresources::deviceplugin::v1beta1::registration_server::{Registration, RegistrationServer};
use podresources::server::Listener;
use podresources::socket::Socket;
use tokio::task::JoinHandle;
use tonic::service::Routes;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};
use topology::mask::ZoneId;

use super::{Error, Managers};
use crate::kubelet::device::Device;

/// Devices of one resource by id.
pub(super) type Devices = BTreeMap<String, Device>;

/// How long a plugin may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The plugins that are there.
#[derive(Debug, Default)]
pub(super) struct Plugins {
    by_resource: Mutex<BTreeMap<String, Plugin>>,
}

#[derive(Debug)]
struct Plugin {
    client: DevicePluginClient<Channel>,
    watching: JoinHandle<()>,
}

impl Plugins {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Plugin>> {
        self.by_resource
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Hangs up on all.
    pub(super) fn clear(&self) {
        for (_, plugin) in std::mem::take(&mut *self.lock()) {
            plugin.watching.abort();
        }
    }

    fn insert(&self, resource: String, plugin: Plugin) {
        if let Some(old) = self.lock().insert(resource, plugin) {
            old.watching.abort();
        }
    }

    /// Asks the plugin of a resource what a container with these devices needs.
    pub(super) async fn allocate(
        &self,
        resource: &str,
        ids: Vec<String>,
    ) -> Result<Vec<api::ContainerAllocateResponse>, Status> {
        let client = self
            .lock()
            .get(resource)
            .map(|plugin| plugin.client.clone());
        let Some(mut client) = client else {
            return Err(Status::unavailable("the device plugin is gone"));
        };
        let request = api::AllocateRequest {
            container_requests: vec![api::ContainerAllocateRequest { devices_ids: ids }],
        };
        let answer = tokio::time::timeout(PATIENCE, client.allocate(request))
            .await
            .map_err(|_| Status::deadline_exceeded("context deadline exceeded"))??;
        Ok(answer.into_inner().container_responses)
    }
}

/// Removes the sockets of former plugins, which tells them to come again, and serves the registration.
pub(super) async fn serve(managers: &Arc<Managers>) -> Result<JoinHandle<()>, Error> {
    let dir = managers.layout.kubelet("device-plugins");
    for entry in fs_err::read_dir(&dir)? {
        let entry = entry?;
        let is_socket = entry.file_type().is_ok_and(|kind| kind.is_socket());
        if is_socket && let Err(error) = fs_err::remove_file(entry.path()) {
            // A plugin that ends removes its own.
            if error.kind() != std::io::ErrorKind::NotFound {
                return Err(error.into());
            }
        }
    }
    let socket = Socket::new(dir.join(KUBELET_SOCKET))?;
    let listener = Listener::bind(&socket, 0o660).await?;
    let service = RegistrationServer::new(Registrar {
        dir,
        managers: Arc::clone(managers),
    });
    Ok(tokio::spawn(async move {
        let served = listener.serve(Routes::new(service), std::future::pending());
        if let Err(error) = served.await {
            tracing::warn!(%error, "Device plugins cannot register any longer");
        }
    }))
}

struct Registrar {
    dir: PathBuf,
    managers: Arc<Managers>,
}

#[tonic::async_trait]
impl Registration for Registrar {
    async fn register(
        &self,
        request: Request<api::RegisterRequest>,
    ) -> Result<Response<api::Empty>, Status> {
        let request = request.into_inner();
        if request.version != VERSION {
            return Err(Status::unknown(format!(
                "requested API version {:?} is not supported by kubelet. Supported version is [{VERSION:?}]",
                request.version
            )));
        }
        let resource = request.resource_name;
        let is_extended = resource
            .split_once('/')
            .is_some_and(|(domain, name)| !name.is_empty() && !domain.ends_with("kubernetes.io"));
        if !is_extended {
            return Err(Status::unknown(format!(
                "the ResourceName {resource:?} is invalid"
            )));
        }
        let socket = Socket::new(self.dir.join(&request.endpoint))
            .map_err(|error| Status::unknown(error.to_string()))?;
        let mut client = DevicePluginClient::new(socket.channel());
        let stream = tokio::time::timeout(PATIENCE, client.list_and_watch(api::Empty {}))
            .await
            .map_err(|_| Status::unknown("context deadline exceeded"))??;
        let (managers, name) = (Arc::clone(&self.managers), resource.clone());
        let watching = tokio::spawn(async move {
            let mut stream = stream.into_inner();
            while let Ok(Some(list)) = stream.message().await {
                managers.announce(&name, devices(list));
            }
            managers.lose(&name);
        });
        self.managers
            .plugins
            .insert(resource, Plugin { client, watching });
        Ok(Response::new(api::Empty {}))
    }
}

fn devices(list: api::ListAndWatchResponse) -> Devices {
    list.devices
        .into_iter()
        .map(|device| {
            let zones = device.topology.map(|topology| {
                topology
                    .nodes
                    .iter()
                    .filter_map(|node| ZoneId::new(u64::try_from(node.id).ok()?))
                    .collect()
            });
            let known = Device {
                zones,
                healthy: device.health == HEALTHY,
            };
            (device.id, known)
        })
        .collect()
}
