//! Bad input from outside: faulty sockets, machines and API servers. The exporter reports the problem in its log, a metric and its
//! conditions, publishes nothing incomplete, stays up, and continues when the fault is gone.

use std::path::Path;
use std::process::Stdio;

use apiserver::faults::{Fault, Rule, Selector};
use podresources::server::Listener;
use podresources::socket::Socket;
use podresources::v1;
use podresources::v1::pod_resources_lister_server::{PodResourcesLister, PodResourcesListerServer};
use rstest::rstest;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixListener;
use tokio::process::Child;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use crate::api_server::{NRTS, PATIENCE};
use crate::cluster::{Cluster, STRANGER};
use crate::scene::{Metrics, POD, Scene, condition, cpus, pod, terminate};

/// A running exporter with access to its log and metrics.
struct ExporterProcess {
    child: Child,
    metrics: Metrics,
    log: mpsc::UnboundedReceiver<String>,
}

impl ExporterProcess {
    fn start(scene: &Scene, flags: &[&str]) -> Self {
        let metrics = Metrics::claim();
        let mut command = scene.command(flags);
        command.args(metrics.flags()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (sender, log) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                drop(sender.send(line));
            }
        });
        Self {
            child,
            metrics,
            log,
        }
    }

    /// Waits for a log line that contains this text.
    async fn wait_for_log(&mut self, text: &str) {
        let mut seen = Vec::new();
        let found = async {
            loop {
                let line = self.log.recv().await.unwrap();
                if line.contains(text) {
                    return;
                }
                seen.push(line);
            }
        };
        let found = tokio::time::timeout(PATIENCE, found).await;
        assert!(found.is_ok(), "{text} not in\n{}", seen.join("\n"));
    }

    /// Waits until a counter is above zero.
    async fn wait_for_count(&self, metric: &str) {
        let is_above_zero = |text: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(metric));
            line.is_some_and(|value| value.trim() != "0")
        };
        self.metrics.answers("/metrics", is_above_zero).await;
    }

    async fn terminate(self) {
        terminate(self.child).await;
    }
}

/// What listens on the kubelet's socket.
#[derive(Clone, Copy, Debug)]
enum KubeletSocket {
    Absent,
    /// A listener that accepts connections and never answers.
    Silent,
    /// A listener that does not speak gRPC.
    NotGrpc,
    /// A kubelet whose answer exceeds the size limit.
    Oversized,
}

impl KubeletSocket {
    async fn serve(self, path: &Path) -> JoinHandle<()> {
        match self {
            Self::Absent => tokio::spawn(async {}),
            Self::Silent => {
                let listener = UnixListener::bind(path).unwrap();
                tokio::spawn(async move {
                    let mut held = Vec::new();
                    loop {
                        held.push(listener.accept().await.unwrap());
                    }
                })
            }
            Self::NotGrpc => {
                let listener = UnixListener::bind(path).unwrap();
                tokio::spawn(async move {
                    loop {
                        let (mut stream, _) = listener.accept().await.unwrap();
                        let mut hello = [0; 16];
                        drop(stream.read_exact(&mut hello).await);
                        drop(stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await);
                    }
                })
            }
            Self::Oversized => {
                let listener = Listener::bind(&Socket::new(path).unwrap(), 0o600).await;
                let routes = Routes::new(PodResourcesListerServer::new(OversizedKubelet));
                let serving = listener.unwrap().serve(routes, std::future::pending());
                tokio::spawn(async move { drop(serving.await) })
            }
        }
    }
}

/// A kubelet that lists more than 16 MiB.
struct OversizedKubelet;

#[tonic::async_trait]
impl PodResourcesLister for OversizedKubelet {
    async fn list(
        &self,
        _request: Request<v1::ListPodResourcesRequest>,
    ) -> Result<Response<v1::ListPodResourcesResponse>, Status> {
        let long = v1::PodResources {
            name: "x".repeat(17 << 20),
            ..v1::PodResources::default()
        };
        Ok(Response::new(v1::ListPodResourcesResponse {
            pod_resources: vec![long],
        }))
    }

    async fn get_allocatable_resources(
        &self,
        _request: Request<v1::AllocatableResourcesRequest>,
    ) -> Result<Response<v1::AllocatableResourcesResponse>, Status> {
        Ok(Response::new(v1::AllocatableResourcesResponse::default()))
    }
}

#[rstest]
#[case::missing(KubeletSocket::Absent, "cannot reach the kubelet")]
#[case::hanging(KubeletSocket::Silent, "no answer within 10000 ms")]
#[case::nonsense(
    KubeletSocket::NotGrpc,
    "failed to scan pod resources: cannot ask the kubelet"
)]
#[case::too_much(KubeletSocket::Oversized, "decoded message length too large")]
#[tokio::test]
async fn socket_that_is_bad_is_told_and_got_over(
    #[case] kind: KubeletSocket,
    #[case] log_text: &str,
) {
    let scene = Scene::new().await;
    let socket = scene.path("kubelet.sock");
    let serving = kind.serve(&socket).await;
    let mut exporter = ExporterProcess::start(&scene, &["--sleep-interval=0"]);
    exporter.wait_for_log(log_text).await;
    exporter
        .wait_for_count(
            "rte_podresource_api_call_failures_total{node=\"worker-0\",function_name=\"list\"}",
        )
        .await;
    let failed = |pod: &Value| condition(pod, "PodresourcesFetched").as_deref() == Some("False");
    scene.server.wait_for(POD, failed).await;
    let object = format!("{NRTS}/worker-0");
    assert_eq!(scene.server.get(&object), None, "nothing is published");

    serving.abort();
    drop(serving.await);
    drop(std::fs::remove_file(&socket));
    scene.serve_kubelet().await;
    scene.nrt(|nrt| cpus(nrt) == ["3", "4"]).await;
    exporter.terminate().await;
}

#[rstest]
#[case::no_distances("node1/distance", None, "cannot read")]
#[case::too_few_distances("node1/distance", Some("10\n"), "one distance for each NUMA node")]
#[case::no_memory("node0/meminfo", Some("\n"), "a line with MemTotal in kB")]
#[case::no_core_count("node0/cpu0/online", Some("perhaps\n"), "0 or 1")]
#[tokio::test]
async fn machine_with_holes_ends_the_start(
    #[case] file: &str,
    #[case] text: Option<&str>,
    #[case] log_text: &str,
) {
    let scene = Scene::new().await;
    let path = scene.path("sys/devices/system/node").join(file);
    match text {
        Some(text) => std::fs::write(&path, text).unwrap(),
        None => std::fs::remove_file(&path).unwrap(),
    }
    let (code, _, stderr) = crate::scene::outcome(&scene, &[], "").await;
    assert_eq!(code, Some(255), "{stderr}");
    let fatal = "error while updating node capacity: ";
    assert!(
        stderr.contains(fatal) && stderr.contains(log_text),
        "{stderr}"
    );
}

/// Starts an exporter on a node where one pod holds a CPU.
fn start(cluster: &Cluster) -> ExporterProcess {
    cluster.scene.kubelet.set_pods(Some(vec![pod("p", &[4])]));
    ExporterProcess::start(&cluster.scene, &["--sleep-interval=0"])
}

fn failures(operation: &str) -> String {
    format!(
        "rte_noderesourcetopology_write_failures_total{{node=\"worker-0\",operation=\"{operation}\"}}"
    )
}

#[rstest]
#[case::throttled(Fault::TooManyRequests { retry_after_seconds: 1 }, "create", "create failed for NRT instance")]
#[case::always_in_conflict(
    Fault::Conflict,
    "update",
    "the object changes faster than it can be written"
)]
#[case::broken(Fault::InternalError, "create", "create failed for NRT instance")]
#[case::disconnected(Fault::Disconnect, "create", "create failed for NRT instance")]
#[case::silent(Fault::Hang { milliseconds: None }, "create", "no answer within 20 s")]
#[tokio::test]
async fn api_server_with_a_fault_is_told_and_got_over(
    #[case] fault: Fault,
    #[case] operation: &str,
    #[case] log_text: &str,
) {
    let cluster = Cluster::new(None).await;
    cluster.define().await;
    let writes = Selector::resource("topology.node.k8s.io", "noderesourcetopologies");
    let rule = Rule::new(writes.verbs(&["create"]), fault);
    let rule = cluster.server.faults().add(rule);
    let mut exporter = start(&cluster);
    exporter.wait_for_log(log_text).await;
    exporter.wait_for_count(&failures(operation)).await;
    cluster.updated("False").await;
    cluster.assert_nothing_published().await;

    cluster.server.faults().remove(rule).unwrap();
    cluster.published().await;
    cluster.updated("True").await;
    exporter.terminate().await;
}

#[tokio::test]
async fn missing_definition_is_told_and_got_over() {
    let cluster = Cluster::new(None).await;
    let mut exporter = start(&cluster);
    exporter
        .wait_for_log("create failed for NRT instance")
        .await;
    exporter.wait_for_count(&failures("create")).await;
    cluster.updated("False").await;

    cluster.define().await;
    cluster.published().await;
    cluster.updated("True").await;
    exporter.terminate().await;
}

#[tokio::test]
async fn missing_rights_are_told_and_got_over() {
    let cluster = Cluster::new(Some(STRANGER)).await;
    cluster.define().await;
    let mut exporter = start(&cluster);
    exporter.wait_for_log("get failed for NRT instance").await;
    exporter.wait_for_count(&failures("get")).await;
    cluster.assert_nothing_published().await;

    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": STRANGER},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": STRANGER}],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    cluster.create(bindings, &binding).await;
    cluster.published().await;
    cluster.updated("True").await;
    exporter.terminate().await;
}
