//! Faults through their common interface, and light nodes, on the embedded API server. Neither needs root.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apiserver::faults::{Fault, Rule, Selector, WatchEnd};
use apiserver::{Options, Running, Server};
use cluster_faults::socket::{SocketFault, SocketProxy};
use cluster_faults::{BoxError, Disturbance, Error, Faults, NodeFaults, Process};
use cri_runtime::control::{Signal, Target};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, Config};
use podresources::socket::Socket;
use podresources::v1::ListPodResourcesRequest;
use podresources::v1::pod_resources_lister_client::PodResourcesListerClient;
use serde_json::json;
use sim::light::{LightNodes, LightSpec};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};

const PATIENCE: Duration = Duration::from_mins(1);

async fn start() -> (Running, Client) {
    start_with(Options::default()).await
}

async fn start_with(options: Options) -> (Running, Client) {
    let server = Server::start(options).await.unwrap();
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig(&server.admin_token)).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let mut config = config.unwrap();
    config.default_retry = false;
    (server, Client::try_from(config).unwrap())
}

/// Nodes that only record the operations on them.
#[derive(Default)]
struct RecordingNodes {
    done: Mutex<Vec<String>>,
    socket: PathBuf,
}

impl RecordingNodes {
    fn record(&self, what: String) -> BoxFuture<'_, Result<(), BoxError>> {
        self.done.lock().unwrap().push(what);
        Box::pin(std::future::ready(Ok(())))
    }
}

impl NodeFaults for RecordingNodes {
    fn has_node(&self, node: &str) -> bool {
        node == "n"
    }

    fn signal<'a>(
        &'a self,
        node: &'a str,
        target: &'a Target,
        signal: Signal,
    ) -> BoxFuture<'a, Result<(), BoxError>> {
        self.record(format!("{signal:?} {node} {target}"))
    }

    fn stop_kubelet<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<(), BoxError>> {
        self.record(format!("stop kubelet {node}"))
    }

    fn start_kubelet<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<(), BoxError>> {
        self.record(format!("start kubelet {node}"))
    }

    fn can_replace_podresources(&self) -> bool {
        true
    }

    fn stop_podresources<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<PathBuf, BoxError>> {
        self.done
            .lock()
            .unwrap()
            .push(format!("stop podresources {node}"));
        Box::pin(std::future::ready(Ok(self.socket.clone())))
    }

    fn start_podresources<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<(), BoxError>> {
        self.record(format!("start podresources {node}"))
    }
}

#[tokio::test]
async fn a_rule_is_in_force_only_as_long_as_it_is_to_last() {
    let (server, client) = start().await;
    let faults = Faults::new(client.clone(), Some(server.faults()), None);
    let rule = Rule::new(Selector::resource("", "nodes"), Fault::Unavailable);
    let nodes: Api<Node> = Api::all(client);
    let what = Disturbance::Api { rule };
    let injected = faults.inject(&what, PATIENCE);
    let everything = ListParams::default();
    tokio::select! {
        _ = injected => panic!("over before its time"),
        refused = nodes.list(&everything) => { refused.unwrap_err(); }
    }
    // The future of the fault was dropped, so the fault is undone.
    nodes.list(&ListParams::default()).await.unwrap();
    assert!(server.faults().rules().is_empty());
}

#[tokio::test]
async fn a_leader_loses_its_lease_to_somebody_else() {
    let (server, client) = start().await;
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
    let held = json!({"metadata": {"name": "leader"},
        "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15, "leaseTransitions": 4}});
    let held = serde_json::from_value(held).unwrap();
    leases.create(&PostParams::default(), &held).await.unwrap();
    let faults = Faults::new(client, Some(server.faults()), None);
    let lost = Disturbance::LoseLease {
        namespace: "kube-system".into(),
        name: "leader".into(),
    };
    faults.inject(&lost, Duration::ZERO).await.unwrap();
    let spec = leases.get("leader").await.unwrap().spec.unwrap();
    assert_ne!(spec.holder_identity.as_deref(), Some("me"));
    assert_eq!(spec.lease_transitions, Some(5));
}

#[tokio::test]
async fn nodes_and_processes_are_disturbed_and_put_right_again() {
    let (server, client) = start().await;
    let nodes = Arc::new(RecordingNodes::default());
    let handles: Arc<dyn NodeFaults> = Arc::clone(&nodes) as _;
    let faults = Faults::new(client, Some(server.faults()), Some(handles));
    let process = Process {
        node: "n".into(),
        namespace: "a".into(),
        pod: "b".into(),
        container: "c".into(),
    };
    let node = || "n".to_owned();
    for what in [
        Disturbance::Kill {
            process: process.clone(),
        },
        Disturbance::Stop { process },
        Disturbance::Silence { node: node() },
    ] {
        faults.inject(&what, Duration::ZERO).await.unwrap();
    }
    let done = [
        "Kill n a/b/c",
        "Stop n a/b/c",
        "Cont n a/b/c",
        "stop kubelet n",
        "start kubelet n",
    ];
    assert_eq!(*nodes.done.lock().unwrap(), done);
    let unknown = Disturbance::RestartKubelet { node: "x".into() };
    let refused = faults.inject(&unknown, Duration::ZERO).await.unwrap_err();
    assert!(matches!(refused, Error::NoNode(name) if name == "x"));
}

#[tokio::test]
async fn a_lost_node_comes_back_as_another_object_with_what_others_gave_it() {
    let (server, client) = start().await;
    let api: Api<Node> = Api::all(client.clone());
    let node = json!({"metadata": {"name": "n", "labels": {"pool": "a"}}, "spec": {"unschedulable": true}});
    let node: Node = serde_json::from_value(node).unwrap();
    let before = api.create(&PostParams::default(), &node).await.unwrap();
    let nodes = Arc::new(RecordingNodes::default());
    let handles: Arc<dyn NodeFaults> = Arc::clone(&nodes) as _;
    let faults = Faults::new(client, Some(server.faults()), Some(handles));
    let lost = Disturbance::LoseNode { node: "n".into() };
    let meanwhile = async {
        assert!(api.get_opt("n").await.unwrap().is_none());
        assert_eq!(*nodes.done.lock().unwrap(), ["stop kubelet n"]);
    };
    faults.inject_until(&lost, meanwhile).await.unwrap();
    let after = api.get("n").await.unwrap();
    assert_ne!(after.metadata.uid, before.metadata.uid);
    assert_eq!(after.metadata.labels, before.metadata.labels);
    assert_eq!(after.spec, before.spec);
    let done = ["stop kubelet n", "start kubelet n"];
    assert_eq!(*nodes.done.lock().unwrap(), done);
}

#[tokio::test]
async fn what_a_cluster_cannot_do_is_said() {
    let (_server, client) = start().await;
    let faults = Faults::new(client, None, None);
    let watches = Disturbance::EndWatches {
        select: Selector::default(),
        how: WatchEnd::Closed,
    };
    let silence = Disturbance::Silence { node: "n".into() };
    for what in [watches, Disturbance::Outage, silence] {
        let refused = faults.inject(&what, Duration::ZERO).await.unwrap_err();
        assert!(matches!(refused, Error::Unsupported(_)), "{refused}");
    }
}

/// Starts a server that echoes its input.
fn echo(path: &Path) -> tokio::task::JoinHandle<()> {
    let listener = UnixListener::bind(path).unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    })
}

async fn ask(stream: &mut UnixStream) -> Vec<u8> {
    let mut answer = vec![0; 4];
    if stream.write_all(b"ping").await.is_err() {
        return Vec::new();
    }
    let answered = tokio::time::timeout(PATIENCE, stream.read_exact(&mut answer)).await;
    match answered.unwrap() {
        Ok(_) => answer,
        Err(_) => Vec::new(),
    }
}

#[tokio::test]
async fn a_socket_passes_hangs_answers_garbage_refuses_and_is_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kubelet.sock");
    let server = echo(&path);
    let proxy = SocketProxy::insert(&path).unwrap();
    let mut passing = UnixStream::connect(&path).await.unwrap();
    assert_eq!(ask(&mut passing).await, b"ping");

    proxy.set(Some(SocketFault::Garbage));
    assert!(ask(&mut passing).await.is_empty(), "not cut");
    let mut garbled = UnixStream::connect(&path).await.unwrap();
    assert_ne!(ask(&mut garbled).await, b"ping");

    proxy.set(Some(SocketFault::Refuses));
    let mut refused = UnixStream::connect(&path).await.unwrap();
    assert!(ask(&mut refused).await.is_empty());

    proxy.set(Some(SocketFault::Hangs));
    let mut hanging = UnixStream::connect(&path).await.unwrap();
    let waited = tokio::time::timeout(Duration::from_millis(50), ask(&mut hanging));
    assert!(waited.await.is_err());
    // The proxy may not have counted the connection yet.
    let counted = testbed::eventually(PATIENCE, async || match proxy.affected() {
        affected if affected < 4 => Err(format!("{affected} connections")),
        _ => Ok(()),
    });
    counted.await.unwrap();
    // The closed connection counts too: it met the first fault.
    assert_eq!(proxy.affected(), 4);

    drop(proxy);
    let mut direct = UnixStream::connect(&path).await.unwrap();
    assert_eq!(ask(&mut direct).await, b"ping");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    server.abort();
}

#[tokio::test]
async fn a_server_that_came_anew_keeps_its_name_and_one_that_was_stopped_is_stood_in_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kubelet.sock");
    let first = echo(&path);
    let proxy = SocketProxy::insert(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let second = echo(&path);
    drop(proxy);
    let mut direct = UnixStream::connect(&path).await.unwrap();
    assert_eq!(ask(&mut direct).await, b"ping");
    first.abort();
    second.abort();
    std::fs::remove_file(&path).unwrap();

    let bad = SocketProxy::replace(&path, SocketFault::Garbage).unwrap();
    let mut garbled = UnixStream::connect(&path).await.unwrap();
    assert_ne!(ask(&mut garbled).await, b"ping");
    assert_eq!(bad.affected(), 1);
    drop(bad);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_client_of_podresources_gets_an_error_for_garbage() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kubelet.sock");
    let server = echo(&path);
    let proxy = SocketProxy::insert(&path).unwrap();
    proxy.set(Some(SocketFault::Garbage));
    let channel = Socket::new(path).unwrap().channel();
    let mut client = PodResourcesListerClient::new(channel);
    let asked = client.list(ListPodResourcesRequest::default());
    tokio::time::timeout(PATIENCE, asked)
        .await
        .unwrap()
        .unwrap_err();
    server.abort();
}

fn pod(name: &str, node: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": node, "serviceAccountName": "default", "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "none"}]},
    }))
    .unwrap()
}

#[tokio::test]
async fn pods_on_light_nodes_run_and_go_when_they_are_deleted() {
    let options = Options {
        disabled_admission: vec!["ServiceAccount".into()],
        ..Options::default()
    };
    let (_server, client) = start_with(options).await;
    let light = LightNodes::start(client.clone(), LightSpec::new(50))
        .await
        .unwrap();
    let nodes: Api<Node> = Api::all(client.clone());
    let listed = nodes.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(listed.len(), 50);
    let schedulable = |node: &Node| {
        let ready = node
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten());
        let tainted = node.spec.iter().any(|spec| spec.taints.is_some());
        ready
            .into_iter()
            .any(|c| c.type_ == "Ready" && c.status == "True")
            && !tainted
    };
    assert!(listed.iter().all(schedulable));

    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    for number in 0..20 {
        let pod = pod(&format!("p{number}"), &format!("light-{}", number * 2));
        pods.create(&PostParams::default(), &pod).await.unwrap();
    }
    let run = futures::stream::iter(0..20).for_each_concurrent(None, async |number| {
        let name = format!("p{number}");
        let running = await_condition(pods.clone(), &name, conditions::is_pod_running());
        tokio::time::timeout(PATIENCE, running)
            .await
            .unwrap()
            .unwrap();
    });
    run.await;
    let addresses: BTreeSet<String> = pods
        .list(&ListParams::default())
        .await
        .unwrap()
        .items
        .into_iter()
        .filter_map(|pod| pod.status?.pod_ip)
        .collect();
    assert_eq!(addresses.len(), 20, "{addresses:?}");
    let changed = json!({"spec": {"activeDeadlineSeconds": 1000}});
    let params = PatchParams::default();
    let changed = pods.patch("p2", &params, &Patch::Merge(changed)).await;
    assert_eq!(changed.unwrap().metadata.generation, Some(2));
    let seen = await_condition(pods.clone(), "p2", |pod: Option<&Pod>| {
        let status = pod.and_then(|pod| pod.status.as_ref());
        status.is_some_and(|status| status.observed_generation == Some(2))
    });
    tokio::time::timeout(PATIENCE, seen).await.unwrap().unwrap();
    let uid = pods.get("p3").await.unwrap().metadata.uid.unwrap();
    let deleted = pods.delete("p3", &DeleteParams::default()).await.unwrap();
    let leaving = deleted.left().unwrap().metadata;
    assert_eq!(
        (leaving.generation, leaving.deletion_timestamp.is_some()),
        (Some(2), true)
    );
    let gone = await_condition(pods.clone(), "p3", conditions::is_deleted(&uid));
    tokio::time::timeout(PATIENCE, gone).await.unwrap().unwrap();

    light.remove().await.unwrap();
    assert!(
        nodes
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
}

#[tokio::test]
async fn leases_of_light_nodes_are_renewed() {
    let (_server, client) = start().await;
    let spec = LightSpec {
        renew_every: Some(Duration::from_millis(100)),
        ..LightSpec::new(3)
    };
    let _light = LightNodes::start(client.clone(), spec).await.unwrap();
    let leases: Api<Lease> = Api::namespaced(client, "kube-node-lease");
    let first = leases.get("light-2").await.unwrap();
    let renewed = await_condition(leases, "light-2", move |lease: Option<&Lease>| {
        lease.is_some_and(|lease| lease.spec != first.spec)
    });
    tokio::time::timeout(PATIENCE, renewed)
        .await
        .unwrap()
        .unwrap();
}
