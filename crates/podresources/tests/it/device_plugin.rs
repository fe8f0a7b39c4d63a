//! Runs a device plugin against a simulated kubelet that accepts registrations, connects back and restarts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use podresources::device_plugin::{HEALTHY, KUBELET_SOCKET, Plugin, UNHEALTHY, device};
use podresources::deviceplugin::v1beta1 as api;
use podresources::deviceplugin::v1beta1::device_plugin_client::DevicePluginClient;
use podresources::deviceplugin::v1beta1::registration_server::{Registration, RegistrationServer};
use podresources::server::Listener;
use podresources::socket::Socket;
use tokio::sync::{mpsc, oneshot};
use tonic::service::Routes;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

const PATIENCE: Duration = Duration::from_secs(30);

struct Kubelet(mpsc::UnboundedSender<api::RegisterRequest>);

#[tonic::async_trait]
impl Registration for Kubelet {
    async fn register(
        &self,
        request: Request<api::RegisterRequest>,
    ) -> Result<Response<api::Empty>, Status> {
        self.0.send(request.into_inner()).unwrap();
        Ok(Response::new(api::Empty {}))
    }
}

/// Starts like the kubelet: removes all sockets of the directory, then creates its own.
async fn start_kubelet(
    dir: &Path,
) -> (
    mpsc::UnboundedReceiver<api::RegisterRequest>,
    oneshot::Sender<()>,
) {
    for entry in std::fs::read_dir(dir).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let (sender, receiver) = mpsc::unbounded_channel();
    let (stop, stopped) = oneshot::channel();
    let socket = Socket::new(dir.join(KUBELET_SOCKET)).unwrap();
    let listener = Listener::bind(&socket, 0o600).await.unwrap();
    let routes = Routes::new(RegistrationServer::new(Kubelet(sender)));
    tokio::spawn(listener.serve(routes, async {
        let _ = stopped.await;
    }));
    (receiver, stop)
}

fn dial(dir: &Path, endpoint: &str) -> DevicePluginClient<Channel> {
    DevicePluginClient::new(Socket::new(dir.join(endpoint)).unwrap().channel())
}

async fn soon<T>(what: impl Future<Output = Option<T>>) -> T {
    tokio::time::timeout(PATIENCE, what).await.unwrap().unwrap()
}

fn plugin() -> Plugin {
    let devices = vec![device("DevA1", true, Some(0)), device("DevA2", false, None)];
    Plugin::new("example.com/deviceA", devices, |ids: &[String]| match ids {
        [id] => Ok(api::ContainerAllocateResponse {
            envs: [("DEVICE".to_owned(), id.clone())].into(),
            ..Default::default()
        }),
        _ => Err(Status::invalid_argument("one device at a time")),
    })
}

struct Running {
    dir: tempfile::TempDir,
    stop: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<Result<(), podresources::device_plugin::Error>>,
}

impl Running {
    fn start(plugin: Plugin) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path: PathBuf = dir.path().to_owned();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            plugin
                .run(&path, async {
                    let _ = stopped.await;
                })
                .await
        });
        Self { dir, stop, task }
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        tokio::time::timeout(PATIENCE, self.task)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert_eq!(
            sockets(self.dir.path()),
            [KUBELET_SOCKET],
            "the plugin's socket is gone"
        );
    }
}

fn sockets(dir: &Path) -> Vec<String> {
    std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[tokio::test]
async fn plugin_registers_lists_and_allocates() {
    let plugin = plugin();
    let devices = plugin.devices();
    let running = Running::start(plugin);
    let (mut registrations, _kubelet) = start_kubelet(running.dir.path()).await;

    let request = soon(registrations.recv()).await;
    assert_eq!(request.version, "v1beta1");
    assert_eq!(request.resource_name, "example.com/deviceA");

    let mut client = dial(running.dir.path(), &request.endpoint);
    let mut lists = client
        .list_and_watch(api::Empty {})
        .await
        .unwrap()
        .into_inner();
    let list = soon(async { lists.message().await.unwrap() }).await.devices;
    assert_eq!(list.len(), 2);
    assert_eq!(list[0].topology.as_ref().unwrap().nodes[0].id, 0);
    assert_eq!(
        (list[1].health.as_str(), &list[1].topology),
        (UNHEALTHY, &None)
    );

    assert!(devices.set_health("DevA2", true));
    assert!(!devices.set_health("DevA3", true));
    let list = soon(async { lists.message().await.unwrap() }).await.devices;
    assert_eq!(list[1].health, HEALTHY);

    let ask = |ids: &[&str]| api::AllocateRequest {
        container_requests: vec![api::ContainerAllocateRequest {
            devices_ids: ids.iter().map(ToString::to_string).collect(),
        }],
    };
    let answer = client.allocate(ask(&["DevA1"])).await.unwrap().into_inner();
    assert_eq!(answer.container_responses[0].envs["DEVICE"], "DevA1");
    let refusal = client.allocate(ask(&["DevA1", "DevA2"])).await.unwrap_err();
    assert_eq!(refusal.message(), "one device at a time");

    let unused = client
        .pre_start_container(api::PreStartContainerRequest::default())
        .await
        .unwrap_err();
    assert_eq!(unused.code(), tonic::Code::Unimplemented);
    running.stop().await;
    let rest = soon(async { Some(lists.message().await) }).await;
    assert_eq!(rest.ok().flatten(), None, "the stream ends");
}

#[tokio::test]
async fn plugin_registers_again_with_a_restarted_kubelet() {
    let running = Running::start(plugin());
    let (mut first, stop) = start_kubelet(running.dir.path()).await;
    soon(first.recv()).await;
    drop(stop);
    soon(async { first.recv().await.is_none().then_some(()) }).await;

    let (mut second, _kubelet) = start_kubelet(running.dir.path()).await;
    let request = soon(second.recv()).await;
    let mut client = dial(running.dir.path(), &request.endpoint);
    let mut lists = client
        .list_and_watch(api::Empty {})
        .await
        .unwrap()
        .into_inner();
    let list = soon(async { lists.message().await.unwrap() }).await;
    assert_eq!(list.devices.len(), 2);
    running.stop().await;
}
