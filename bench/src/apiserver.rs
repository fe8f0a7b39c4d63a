//! The embedded API server under the load of a large cluster: many clients list and watch everything at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use apiserver::{Options, Running, Server};
use futures::future::try_join_all;
use futures::{AsyncBufRead as _, AsyncBufReadExt as _, StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use procfs::process::Process;
use programs::cargo;
use programs::console::note;
use serde_json::{Value, json};
use sim::light::{LightNodes, LightSpec};

use super::{Figure, conclude};

/// Changes of pods, each of which every client receives.
const CHANGES: usize = 2_000;
/// Rounds of load; the memory after the last is compared with that after the first.
const ROUNDS: usize = 5;
/// Concurrent requests while the cluster is filled.
const CONCURRENCY: usize = 32;
/// Namespace of the pods.
const NAMESPACE: &str = "default";
/// How long the light nodes may take to run all pods.
const RUN_TIMEOUT: Duration = Duration::from_mins(5);
/// Time between two polls of the pods.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

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
    /// Measures in this program, which is one built with optimisation.
    #[arg(long, hide = true)]
    in_this_program: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if !args.in_this_program {
        return in_release(args);
    }
    let runtime = tokio::runtime::Runtime::new()?;
    let figures = runtime.block_on(measure(args))?;
    conclude(&figures, args.check)
}

/// Runs the same measurement built with optimisation, because the server is part of this program.
fn in_release(args: &Args) -> anyhow::Result<()> {
    note("building with optimisation");
    let mut command = cargo::command();
    command
        .args(["run", "--locked", "--release", "--quiet"])
        .args(["--package", env!("CARGO_PKG_NAME"), "--"])
        .args(["apiserver", "--in-this-program"])
        .args(["--nodes", &args.nodes.to_string()])
        .args(["--pods", &args.pods.to_string()])
        .args(["--clients", &args.clients.to_string()]);
    if args.check {
        command.arg("--check");
    }
    let status = command.status().context("starting cargo run")?;
    ensure!(status.success(), "the measurement ended with {status}");
    Ok(())
}

async fn measure(args: &Args) -> anyhow::Result<Vec<Figure>> {
    let server = Arc::new(Server::start(Options::default()).await?);
    let client = client(&server).await?;
    let began = Instant::now();
    // from here on the nodes renew their leases and run the pods that are bound to them
    let nodes = LightNodes::start(client.clone(), LightSpec::new(args.nodes)).await?;
    note(&format!(
        "{} nodes after {:.1} s",
        args.nodes,
        began.elapsed().as_secs_f64()
    ));
    let names: Vec<String> = nodes.names().collect();
    populate(&client, &names, args.pods).await?;
    note(&format!(
        "{} pods run after {:.1} s",
        args.pods,
        began.elapsed().as_secs_f64()
    ));
    let mut lists = Figure::new("all clients list all pods and nodes", "s", 30.0);
    let mut watches = Figure::new("all clients hear of 2,000 changes", "s", 15.0);
    let mut memory = Figure::new(
        "growth of memory from the first to the last round",
        "MiB",
        64.0,
    );
    note(&format!("before the load: {:.0} MiB", resident()?));
    let mut first = None;
    for round in 1..=ROUNDS {
        let began = Instant::now();
        let version = list_all(&server, args).await?;
        lists.runs.push(began.elapsed().as_secs_f64());
        let began = Instant::now();
        watch_all(&server, &client, args, &version, round).await?;
        watches.runs.push(began.elapsed().as_secs_f64());
        let now = resident()?;
        let before = *first.get_or_insert(now);
        memory.runs = vec![(now - before).max(0.0)];
        note(&format!("round {round}: {now:.0} MiB"));
    }
    Ok(vec![lists, watches, memory])
}

/// Creates the pods, each bound to a node, and waits until all of them run.
async fn populate(client: &Client, nodes: &[String], count: usize) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    let account = serde_json::from_value(json!({"metadata": {"name": "default"}}))?;
    accounts.create(&PostParams::default(), &account).await?;
    stream::iter(0..count)
        .map(|number| anyhow::Ok((number, &nodes[number % nodes.len()])))
        .try_for_each_concurrent(CONCURRENCY, |(number, node)| {
            let pods = &pods;
            async move {
                let pod = serde_json::from_value(pod(number, node))?;
                pods.create(&PostParams::default(), &pod).await?;
                anyhow::Ok(())
            }
        })
        .await
        .context("making the pods")?;
    let waiting = ListParams::default().fields("status.phase!=Running");
    let deadline = Instant::now() + RUN_TIMEOUT;
    loop {
        let left = pods.list_metadata(&waiting).await?.items.len();
        if left == 0 {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "{left} of {count} pods do not run on the light nodes"
        );
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn client(server: &Running) -> anyhow::Result<Client> {
    let config = Kubeconfig::from_yaml(&server.kubeconfig(&server.admin_token))?;
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// Lets all clients list everything at once. Returns the resource version from which they watch.
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

/// Reads an answer and discards it. Returns its length.
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

/// Lets all clients watch the pods while they change.
async fn watch_all(
    server: &Arc<Running>,
    writer: &Client,
    args: &Args,
    version: &str,
    round: usize,
) -> anyhow::Result<()> {
    let path = format!("/api/v1/pods?watch=true&resourceVersion={version}");
    let watches = (0..args.clients).map(|_| async {
        let client = client(server).await?;
        let request = http::Request::get(&path).body(Vec::new())?;
        let mut body = Box::pin(client.request_stream(request).await?);
        let mut received = 0;
        while received < CHANGES {
            let piece = body.fill_buf().await?;
            ensure!(!piece.is_empty(), "a watch ended after {received} events");
            let read = piece.len();
            received += piece.split(|byte| *byte == b'\n').count() - 1;
            body.as_mut().consume(read);
        }
        anyhow::Ok(())
    });
    let pods: Api<Pod> = Api::namespaced(writer.clone(), NAMESPACE);
    let change = Patch::Merge(json!({"metadata": {"labels": {"round": round.to_string()}}}));
    let changes =
        stream::iter((0..CHANGES).map(Ok)).try_for_each_concurrent(CONCURRENCY, |number| {
            let (pods, change) = (&pods, &change);
            async move {
                let name = pod_name(number % args.pods.max(1));
                let params = PatchParams::default();
                pods.patch_metadata(&name, &params, change).await?;
                anyhow::Ok(())
            }
        });
    futures::try_join!(try_join_all(watches), changes)?;
    Ok(())
}

/// Returns the resident memory of this process in MiB.
fn resident() -> anyhow::Result<f64> {
    let status = Process::myself()
        .and_then(|process| process.status())
        .context("cannot read the status of this process")?;
    let kib = status.vmrss.context("the status has no VmRSS")? as f64;
    Ok(kib / 1024.0)
}

fn pod_name(number: usize) -> String {
    format!("pod-{number:06}")
}

/// Builds a pod with two containers of typical size, already bound.
fn pod(number: usize, node: &str) -> Value {
    let container = |name: &str| {
        json!({"name": name, "image": "registry.example.com/team/program:1.2.3", "args": ["--verbose", "--port=8080"],
        "env": [{"name": "A", "value": "one"}, {"name": "B", "value": "two"}],
        "resources": {"limits": {"cpu": "2", "memory": "4Gi"}}})
    };
    json!({"metadata": {"name": pod_name(number), "labels": {"app": "program", "round": "0"}},
        "spec": {"nodeName": node, "containers": [container("main"), container("side")]}})
}
