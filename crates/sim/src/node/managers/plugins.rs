//! Device plugins: they register on the node's socket and report their devices as long as they live.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::FileTypeExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kubelet_model::device::{Device, PreferenceRequest};
use parking_lot::{Mutex, MutexGuard};
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

/// Devices of one resource by id.
pub(super) type Devices = BTreeMap<String, Device>;

/// Time limit for most requests to a plugin.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for a plugin to prepare devices for a container.
const PRE_START_TIMEOUT: Duration = Duration::from_secs(30);

/// The registered plugins.
#[derive(Debug, Default)]
pub(super) struct Plugins {
    by_resource: Mutex<BTreeMap<String, Plugin>>,
}

#[derive(Debug)]
struct Plugin {
    client: DevicePluginClient<Channel>,
    options: api::DevicePluginOptions,
    watching: JoinHandle<()>,
}

impl Plugins {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Plugin>> {
        self.by_resource.lock()
    }

    /// Closes the connections to all plugins.
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

    fn client(&self, resource: &str) -> Result<DevicePluginClient<Channel>, Status> {
        let client = self
            .lock()
            .get(resource)
            .map(|plugin| plugin.client.clone());
        client.ok_or_else(|| Status::unavailable("the device plugin is gone"))
    }

    /// Returns the resources whose plugins have an option.
    fn with(&self, option: impl Fn(&api::DevicePluginOptions) -> bool) -> BTreeSet<String> {
        let plugins = self.lock();
        let having = plugins.iter().filter(|(_, plugin)| option(&plugin.options));
        having.map(|(resource, _)| resource.clone()).collect()
    }

    /// Returns the resources whose plugins offer preferred allocations.
    pub(super) fn with_preferred_allocation(&self) -> BTreeSet<String> {
        self.with(|options| options.get_preferred_allocation_available)
    }

    /// Returns the resources whose plugins require `PreStartContainer`.
    pub(super) fn with_pre_start(&self) -> BTreeSet<String> {
        self.with(|options| options.pre_start_required)
    }

    /// Asks a plugin which of its devices it prefers.
    pub(super) async fn prefer(
        &self,
        question: &PreferenceRequest,
    ) -> Result<BTreeSet<String>, Status> {
        let list = |ids: &BTreeSet<String>| ids.iter().cloned().collect();
        let mut client = self.client(&question.resource)?;
        let request = api::PreferredAllocationRequest {
            container_requests: vec![api::ContainerPreferredAllocationRequest {
                available_device_i_ds: list(&question.available),
                must_include_device_i_ds: list(&question.included),
                allocation_size: i32::try_from(question.count).unwrap_or(i32::MAX),
            }],
        };
        let answer =
            tokio::time::timeout(REQUEST_TIMEOUT, client.get_preferred_allocation(request))
                .await
                .map_err(|_| Status::deadline_exceeded("context deadline exceeded"))??;
        let answers = answer.into_inner().container_responses;
        let first = answers.into_iter().next().unwrap_or_default();
        Ok(first.device_i_ds.into_iter().collect())
    }

    /// Notifies a plugin that a container with these devices is about to start.
    pub(super) async fn pre_start(&self, resource: &str, ids: Vec<String>) -> Result<(), Status> {
        let mut client = self.client(resource)?;
        let request = api::PreStartContainerRequest { devices_ids: ids };
        let answer =
            tokio::time::timeout(PRE_START_TIMEOUT, client.pre_start_container(request)).await;
        answer
            .map_err(|_| Status::deadline_exceeded("context deadline exceeded"))?
            .map(drop)
    }

    /// Asks the plugin of a resource what a container with these devices needs.
    pub(super) async fn allocate(
        &self,
        resource: &str,
        ids: Vec<String>,
    ) -> Result<Vec<api::ContainerAllocateResponse>, Status> {
        let mut client = self.client(resource)?;
        let request = api::AllocateRequest {
            container_requests: vec![api::ContainerAllocateRequest { devices_ids: ids }],
        };
        let answer = tokio::time::timeout(REQUEST_TIMEOUT, client.allocate(request))
            .await
            .map_err(|_| Status::deadline_exceeded("context deadline exceeded"))??;
        Ok(answer.into_inner().container_responses)
    }
}

/// Removes the sockets of former plugins, which makes them register again, and serves the registration.
pub(super) async fn serve(managers: &Arc<Managers>) -> Result<JoinHandle<()>, Error> {
    let dir = managers.layout.kubelet("device-plugins");
    for entry in fs_err::read_dir(&dir)? {
        let entry = entry?;
        let is_socket = entry.file_type().is_ok_and(|kind| kind.is_socket());
        if is_socket && let Err(error) = fs_err::remove_file(entry.path()) {
            // A plugin that ends removes its own socket.
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
        let options = tokio::time::timeout(
            REQUEST_TIMEOUT,
            client.get_device_plugin_options(api::Empty {}),
        )
        .await
        .map_err(|_| Status::unknown("context deadline exceeded"))?
        .map_err(|error| {
            Status::unknown(format!(
                "failed to get device plugin options: {}",
                error.message()
            ))
        })?;
        let stream = tokio::time::timeout(REQUEST_TIMEOUT, client.list_and_watch(api::Empty {}))
            .await
            .map_err(|_| Status::unknown("context deadline exceeded"))??;
        let (managers, name) = (Arc::clone(&self.managers), resource.clone());
        let watching = tokio::spawn(async move {
            let mut stream = stream.into_inner();
            while let Ok(Some(list)) = stream.message().await {
                managers.announce(&name, devices(list));
            }
            managers.handle_plugin_loss(&name);
        });
        let plugin = Plugin {
            client,
            options: options.into_inner(),
            watching,
        };
        self.managers.plugins.insert(resource, plugin);
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
