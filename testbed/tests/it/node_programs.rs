//! Programs of the stack image that are part of the testbed, as processes.

use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use podresources::deviceplugin::v1beta1 as plugin;
use podresources::deviceplugin::v1beta1::device_plugin_client::DevicePluginClient;
use podresources::deviceplugin::v1beta1::registration_server::{Registration, RegistrationServer};
use podresources::server::Listener;
use podresources::socket::Socket;
use podresources::v1::pod_resources_lister_client::PodResourcesListerClient;
use podresources::v1::pod_resources_lister_server::{PodResourcesLister, PodResourcesListerServer};
use podresources::v1::{
    AllocatableResourcesRequest, AllocatableResourcesResponse, ContainerResources,
    ListPodResourcesRequest, ListPodResourcesResponse, PodResources,
};
use testbed::eventually;
use tokio::sync::mpsc;
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use wait_timeout::ChildExt as _;

/// Time limit for any operation.
const DEADLINE: Duration = Duration::from_mins(1);

/// A process that is killed when this is dropped.
struct Running(Child);

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_numaresources-testbed"))
            .args(arguments)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }

    fn end(&mut self, signal: Signal) -> ExitStatus {
        kill(Pid::from_raw(self.0.id() as i32), signal).unwrap();
        let status = self.0.wait_timeout(DEADLINE).unwrap();
        status.expect("the process ends in time")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Some tests have ended the process already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn mk_socket(directory: &Path, name: &str) -> Socket {
    Socket::new(directory.join(name)).unwrap()
}

/// Serves until the test ends.
async fn serve(socket: &Socket, routes: Routes) {
    let listener = Listener::bind(socket, 0o600).await.unwrap();
    tokio::spawn(listener.serve(routes, std::future::pending()));
}

/// A kubelet with one pod that has exclusive CPUs.
struct Kubelet;

#[tonic::async_trait]
impl PodResourcesLister for Kubelet {
    async fn list(
        &self,
        _: Request<ListPodResourcesRequest>,
    ) -> Result<Response<ListPodResourcesResponse>, Status> {
        Ok(Response::new(ListPodResourcesResponse {
            pod_resources: vec![PodResources {
                name: "p".to_owned(),
                namespace: "n".to_owned(),
                containers: vec![ContainerResources {
                    name: "c".to_owned(),
                    cpu_ids: vec![2, 3],
                    ..Default::default()
                }],
            }],
        }))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<AllocatableResourcesRequest>,
    ) -> Result<Response<AllocatableResourcesResponse>, Status> {
        Ok(Response::new(AllocatableResourcesResponse {
            cpu_ids: vec![1, 2, 3],
            ..Default::default()
        }))
    }
}

/// Returns what a client sees through the proxy: the CPUs of the pod's container, and the allocatable CPUs.
async fn through_proxy(more: &[&str]) -> (Vec<i64>, Vec<i64>) {
    let directory = tempfile::tempdir().unwrap();
    let kubelet = mk_socket(directory.path(), "kubelet.sock");
    let proxied = mk_socket(directory.path(), "proxy/kubelet.sock");
    serve(
        &kubelet,
        Routes::new(PodResourcesListerServer::new(Kubelet)),
    )
    .await;
    let mut arguments = vec![
        "podresources-proxy",
        "--kubelet-socket",
        kubelet.path().to_str().unwrap(),
        "--listen-socket",
        proxied.path().to_str().unwrap(),
    ];
    arguments.extend(more);
    let mut proxy = Running::start(&arguments);
    let mut client = PodResourcesListerClient::new(proxied.channel());
    let listed = eventually(DEADLINE, async || {
        let answer = client.list(ListPodResourcesRequest {}).await;
        answer.map_err(|error| error.to_string())
    });
    let pods = listed.await.unwrap().into_inner().pod_resources;
    let allocatable = client
        .get_allocatable_resources(AllocatableResourcesRequest {})
        .await
        .unwrap();
    assert_eq!(
        (pods[0].name.as_str(), pods[0].containers[0].name.as_str()),
        ("p", "c")
    );
    drop(client);
    assert!(proxy.end(Signal::SIGTERM).success());
    assert!(!proxied.path().exists(), "the socket is removed at the end");
    let cpus = pods[0].containers[0].cpu_ids.clone();
    (cpus, allocatable.into_inner().cpu_ids)
}

#[tokio::test]
async fn proxy_passes_everything_on() {
    assert_eq!(through_proxy(&[]).await, (vec![2, 3], vec![1, 2, 3]));
}

#[tokio::test]
async fn proxy_hides_what_is_allocated_but_not_what_is_allocatable() {
    let seen = through_proxy(&["--hide-allocations"]).await;
    assert_eq!(seen, (vec![], vec![1, 2, 3]));
}

/// Forwards each registration.
struct Registry(mpsc::UnboundedSender<plugin::RegisterRequest>);

#[tonic::async_trait]
impl Registration for Registry {
    async fn register(
        &self,
        request: Request<plugin::RegisterRequest>,
    ) -> Result<Response<plugin::Empty>, Status> {
        self.0.send(request.into_inner()).unwrap();
        Ok(Response::new(plugin::Empty {}))
    }
}

#[tokio::test]
async fn device_plugin_registers_lists_and_allocates() {
    let directory = tempfile::tempdir().unwrap();
    let (registrations, mut registered) = mpsc::unbounded_channel();
    let kubelet = mk_socket(directory.path(), "kubelet.sock");
    serve(
        &kubelet,
        Routes::new(RegistrationServer::new(Registry(registrations))),
    )
    .await;
    let mut process = Running::start(&[
        "deviceplugin",
        "--resource",
        "example.com/deviceA",
        "--device",
        "a0=0",
        "--device",
        "a1=1",
        "--plugin-dir",
        directory.path().to_str().unwrap(),
    ]);
    let registration = tokio::time::timeout(DEADLINE, registered.recv());
    let registration = registration.await.unwrap().unwrap();
    assert_eq!(registration.resource_name, "example.com/deviceA");

    let own = mk_socket(directory.path(), &registration.endpoint);
    let mut client = DevicePluginClient::new(own.channel());
    let mut lists = client
        .list_and_watch(plugin::Empty {})
        .await
        .unwrap()
        .into_inner();
    let list = tokio::time::timeout(DEADLINE, lists.message()).await;
    let list = list.unwrap().unwrap().unwrap();
    let devices: Vec<_> = list
        .devices
        .iter()
        .map(|device| {
            let node = device.topology.as_ref().unwrap().nodes[0].id;
            (device.id.as_str(), device.health.as_str(), node)
        })
        .collect();
    assert_eq!(devices, [("a0", "Healthy", 0), ("a1", "Healthy", 1)]);
    let request = plugin::AllocateRequest {
        container_requests: vec![plugin::ContainerAllocateRequest {
            devices_ids: vec!["a1".to_owned(), "a0".to_owned()],
        }],
    };
    let answer = client.allocate(request).await.unwrap().into_inner();
    let env = &answer.container_responses[0].envs;
    assert_eq!(env["TESTBED_DEVICES_EXAMPLE_COM_DEVICEA"], "a1,a0");
    assert!(process.end(Signal::SIGTERM).success());
}

#[test]
fn sleep_ends_by_itself_and_on_a_signal() {
    let directory = tempfile::tempdir().unwrap();
    let sleep = directory.path().join("sleep");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_numaresources-testbed"), &sleep).unwrap();
    let status = Command::new(&sleep)
        .args(["0.01", "0.01s"])
        .status()
        .unwrap();
    assert!(status.success());
    let output = Command::new(&sleep).arg("soon").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text, "sleep: invalid time interval 'soon'\n");
}
