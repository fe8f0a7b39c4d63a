//! Tests the `PodResources` client against servers that answer, refuse, hang, disappear or speak another protocol.

use std::time::Duration;

use podresources::client::{Error, PodResources};
use podresources::server::{self, Listener};
use podresources::socket::Socket;
use podresources::v1;
use podresources::v1::pod_resources_lister_server::{PodResourcesLister, PodResourcesListerServer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

const PATIENCE: Duration = Duration::from_secs(20);

/// Lists the given number of pods and leaves the other calls unimplemented.
struct Kubelet {
    pods: usize,
    name_length: usize,
}

#[tonic::async_trait]
impl PodResourcesLister for Kubelet {
    async fn list(
        &self,
        _request: Request<v1::ListPodResourcesRequest>,
    ) -> Result<Response<v1::ListPodResourcesResponse>, Status> {
        let pod = |i| v1::PodResources {
            name: format!("pod-{i}{}", "x".repeat(self.name_length)),
            namespace: "default".to_owned(),
            containers: Vec::new(),
        };
        Ok(Response::new(v1::ListPodResourcesResponse {
            pod_resources: (0..self.pods).map(pod).collect(),
        }))
    }
}

struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), server::Error>>,
}

impl Running {
    async fn start(socket: &Socket, kubelet: Kubelet) -> Self {
        let (stop, stopped) = oneshot::channel();
        let listener = Listener::bind(socket, 0o600).await.unwrap();
        let routes = Routes::new(PodResourcesListerServer::new(kubelet));
        let task = tokio::spawn(listener.serve(routes, async {
            let _ = stopped.await;
        }));
        Self { stop, task }
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        tokio::time::timeout(PATIENCE, self.task)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
    }
}

fn scene() -> (tempfile::TempDir, Socket) {
    let dir = tempfile::tempdir().unwrap();
    let socket = Socket::new(dir.path().join("pod-resources/kubelet.sock")).unwrap();
    (dir, socket)
}

fn client(socket: &Socket) -> PodResources {
    PodResources::new(socket, PATIENCE)
}

#[tokio::test]
async fn answers_arrive_and_left_out_calls_are_unimplemented() {
    let (_dir, socket) = scene();
    let kubelet = Kubelet {
        pods: 2,
        name_length: 0,
    };
    let server = Running::start(&socket, kubelet).await;
    let client = client(&socket);

    let pods = client.list().await.unwrap().pod_resources;
    assert_eq!(pods.len(), 2);
    assert_eq!(pods[1].name, "pod-1");

    let error = client.get("default", "pod-1").await.unwrap_err();
    let Error::Answer {
        call: "Get",
        source,
    } = error
    else {
        panic!("unexpected error: {error:?}")
    };
    assert_eq!(source.code(), tonic::Code::Unimplemented);
    server.stop().await;
    assert!(
        !socket.path().exists(),
        "the socket is removed when serving ends"
    );
}

#[tokio::test]
async fn message_above_four_mebibytes_is_received() {
    let (_dir, socket) = scene();
    let kubelet = Kubelet {
        pods: 6,
        name_length: 1 << 20,
    };
    let server = Running::start(&socket, kubelet).await;
    assert_eq!(client(&socket).list().await.unwrap().pod_resources.len(), 6);
    server.stop().await;
}

#[tokio::test]
async fn client_finds_the_server_again_after_a_restart() {
    let (_dir, socket) = scene();
    let client = client(&socket);
    let missing = client.list().await.unwrap_err();
    assert!(matches!(missing, Error::Unreachable { call: "List", .. }));

    for pods in [1, 3] {
        let kubelet = Kubelet {
            pods,
            name_length: 0,
        };
        let server = Running::start(&socket, kubelet).await;
        assert_eq!(client.list().await.unwrap().pod_resources.len(), pods);
        server.stop().await;
    }
}

#[tokio::test]
async fn server_that_never_answers_is_a_timeout() {
    let (dir, _) = scene();
    let socket = Socket::new(dir.path().join("mute.sock")).unwrap();
    let _mute = tokio::net::UnixListener::bind(socket.path()).unwrap();
    let client = PodResources::new(&socket, Duration::from_millis(100));
    let error = client.allocatable().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "GetAllocatableResources: no answer within 100 ms"
    );
}

#[tokio::test]
async fn garbage_is_an_error() {
    let (dir, _) = scene();
    let socket = Socket::new(dir.path().join("garbage.sock")).unwrap();
    let listener = tokio::net::UnixListener::bind(socket.path()).unwrap();
    let talker = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut hello = [0; 16];
        stream.read_exact(&mut hello).await.unwrap();
        stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .await
            .unwrap();
    });
    client(&socket).list().await.unwrap_err();
    let ended = tokio::time::timeout(PATIENCE, talker).await;
    ended.unwrap().unwrap();
}

#[tokio::test]
async fn stale_socket_is_replaced_but_a_live_one_or_a_file_is_not() {
    let (dir, _) = scene();
    let socket = Socket::new(dir.path().join("x.sock")).unwrap();

    // a listener of the standard library leaves its file behind, like a killed process
    drop(std::os::unix::net::UnixListener::bind(socket.path()).unwrap());
    assert!(socket.path().exists());
    let listener = Listener::bind(&socket, 0o600).await.unwrap();

    let in_use = Listener::bind(&socket, 0o600).await.unwrap_err();
    assert!(matches!(in_use, server::Error::InUse(_)));
    drop(listener);
    assert!(!socket.path().exists());

    std::fs::write(socket.path(), "precious").unwrap();
    let not_socket = Listener::bind(&socket, 0o600).await.unwrap_err();
    assert!(matches!(not_socket, server::Error::NotSocket(_)));
    assert_eq!(std::fs::read_to_string(socket.path()).unwrap(), "precious");
}

#[tokio::test]
async fn socket_gets_the_permissions_that_were_asked_for() {
    use std::os::unix::fs::PermissionsExt as _;
    let (_dir, socket) = scene();
    let _listener = Listener::bind(&socket, 0o640).await.unwrap();
    let mode = std::fs::metadata(socket.path())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o640);
}
