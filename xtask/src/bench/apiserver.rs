//! The embedded API server under the load of a large cluster: everything is listed and watched by many clients at once.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use apiserver::{Options, Running, Server};
use futures::future::try_join_all;
use futures::{AsyncBufRead as _, AsyncBufReadExt as _};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

use super::{Figure, conclude, progress};

/// Changes of pods that every client hears of.
const CHANGES: usize = 2_000;
/// Rounds of load; the memory after the last is compared with that after the first.
const ROUNDS: usize = 3;

/// Options of the measurement.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Fails when a goal is missed.
    #[arg(long)]
    check: bool,
    /// Nodes.
    #[arg(long, default_value_t = 5_000)]
    nodes: usize,
    /// Pods.
    #[arg(long, default_value_t = 20_000)]
    pods: usize,
    /// Clients, each with a connection for itself.
    #[arg(long, default_value_t = 50)]
    clients: usize,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    let figures = runtime.block_on(measure(args))?;
    conclude(&figures, args.check)
}

async fn measure(args: &Args) -> anyhow::Result<Vec<Figure>> {
    let server = Arc::new(Server::start(Options::default()).await?);
    let began = Instant::now();
    for number in 0..args.nodes {
        server.seed(node(number));
    }
    for number in 0..args.pods {
        server.seed(pod(number, number % args.nodes.max(1), 0));
    }
    progress(&format!("seeded in {:.1} s", began.elapsed().as_secs_f64()));
    let mut lists = Figure::new("all clients list all pods and nodes", "s", 30.0);
    let mut watches = Figure::new("all clients hear of 2,000 changes", "s", 15.0);
    let mut memory = Figure::new(
        "growth of memory from the first to the last round",
        "MiB",
        64.0,
    );
    let mut first = None;
    for round in 1..=ROUNDS {
        let began = Instant::now();
        let version = list_all(&server, args).await?;
        lists.runs.push(began.elapsed().as_secs_f64());
        let began = Instant::now();
        watch_all(&server, args, &version, round).await?;
        watches.runs.push(began.elapsed().as_secs_f64());
        let now = resident()?;
        let before = *first.get_or_insert(now);
        memory.runs = vec![(now - before).max(0.0)];
        progress(&format!("round {round}: {now:.0} MiB"));
    }
    Ok(vec![lists, watches, memory])
}

async fn client(server: &Running) -> anyhow::Result<Client> {
    let config = Kubeconfig::from_yaml(&server.kubeconfig(&server.admin_token))?;
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// All clients list everything at once; the version from which they watch.
async fn list_all(server: &Arc<Running>, args: &Args) -> anyhow::Result<String> {
    let lists = (0..args.clients).map(|_| async {
        let client = client(server).await?;
        let mut bytes = 0;
        for path in ["/api/v1/pods", "/api/v1/nodes"] {
            bytes += drain(&client, path).await?;
        }
        anyhow::Ok(bytes)
    });
    let bytes = try_join_all(lists).await?;
    ensure!(
        bytes
            .iter()
            .all(|read| *read > (args.nodes + args.pods) * 100),
        "a list was cut off"
    );
    let request = http::Request::get("/api/v1/pods?limit=1").body(Vec::new())?;
    let list: Value = client(server).await?.request(request).await?;
    let version = list["metadata"]["resourceVersion"].as_str();
    Ok(version.context("a list has no version")?.to_owned())
}

/// Reads an answer and keeps nothing of it; how long it is.
async fn drain(client: &Client, path: &str) -> anyhow::Result<usize> {
    let request = http::Request::get(path).body(Vec::new())?;
    let mut body = Box::pin(client.request_stream(request).await?);
    let mut bytes = 0;
    loop {
        let read = body.fill_buf().await?.len();
        if read == 0 {
            return Ok(bytes);
        }
        bytes += read;
        body.as_mut().consume(read);
    }
}

/// All clients watch the pods while they change.
async fn watch_all(
    server: &Arc<Running>,
    args: &Args,
    version: &str,
    round: usize,
) -> anyhow::Result<()> {
    let path = format!("/api/v1/pods?watch=true&resourceVersion={version}");
    let watches = (0..args.clients).map(|_| async {
        let client = client(server).await?;
        let request = http::Request::get(&path).body(Vec::new())?;
        let mut body = Box::pin(client.request_stream(request).await?);
        let mut told = 0;
        while told < CHANGES {
            let piece = body.fill_buf().await?;
            ensure!(!piece.is_empty(), "a watch ended after {told} events");
            let read = piece.len();
            told += piece.split(|byte| *byte == b'\n').count() - 1;
            body.as_mut().consume(read);
        }
        anyhow::Ok(())
    });
    let changes = async {
        for number in 0..CHANGES {
            let number = number % args.pods.max(1);
            server.seed(pod(number, number % args.nodes.max(1), round));
            if number.is_multiple_of(50) {
                tokio::task::yield_now().await;
            }
        }
        anyhow::Ok(())
    };
    futures::try_join!(try_join_all(watches), changes)?;
    Ok(())
}

/// Resident memory of this process in MiB.
fn resident() -> anyhow::Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status").context("cannot read own status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    let kib: f64 = number.context("no resident memory is told")?.parse()?;
    Ok(kib / 1024.0)
}

fn node(number: usize) -> Value {
    let amounts =
        json!({"cpu": "64", "memory": "263921516Ki", "pods": "110", "hugepages-1Gi": "0"});
    let condition = |kind: &str, status: &str| {
        json!({"type": kind, "status": status, "reason": "Kubelet", "message": "kubelet says so",
        "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("node-{number:05}"), "labels": {
            "kubernetes.io/hostname": format!("node-{number:05}"), "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}},
        "spec": {}, "status": {"capacity": amounts, "allocatable": amounts,
            "conditions": [condition("MemoryPressure", "False"), condition("DiskPressure", "False"), condition("Ready", "True")],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": format!("node-{number:05}")}]}})
}

fn pod(number: usize, node: usize, round: usize) -> Value {
    let container = |name: &str| {
        json!({"name": name, "image": "registry.example.com/team/program:1.2.3", "args": ["--verbose", "--port=8080"],
        "env": [{"name": "A", "value": "one"}, {"name": "B", "value": "two"}], "imagePullPolicy": "IfNotPresent",
        "resources": {"limits": {"cpu": "2", "memory": "4Gi"}, "requests": {"cpu": "2", "memory": "4Gi"}},
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"})
    };
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("pod-{number:06}"), "namespace": "default",
            "labels": {"app": "program", "round": round.to_string()}},
        "spec": {"nodeName": format!("node-{node:05}"), "schedulerName": "default-scheduler", "restartPolicy": "Always",
            "containers": [container("main"), container("side")], "dnsPolicy": "ClusterFirst", "serviceAccountName": "default"},
        "status": {"phase": "Running", "podIP": "127.0.0.2", "qosClass": "Guaranteed",
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}]}})
}
