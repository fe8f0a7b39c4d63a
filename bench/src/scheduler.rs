//! The scheduler against kube-scheduler: how fast pods get their nodes, and at what cost.
//!
//! etcd and kube-apiserver are real. The nodes are objects without kubelets, each with a NodeResourceTopology. All pods exist before a
//! scheduler starts. The measured time is that between the first and the last binding in a watch of the API server. Both schedulers run in
//! turn on the same cluster, with all permissions, without leader election, and with client limits that have no effect.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use api::attributes;
use api::nrt::v1alpha2::NodeResourceTopology;
use apply::{Applier, wait};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, ResourceExt as _};
use programs::console::note;
use programs::kubernetes::{self, SearchPath};
use serde_json::{Value, json};
use sim::light::{LightNodes, LightSpec};
use testbed::api_server::{self, ApiServer};
use testbed::lane::Lane;

use super::process::Measured;
use super::{Figure, conclude, shipped};

/// Pods that are pending when a scheduler starts.
const PODS: usize = 1_000;
/// Namespace of the pods.
const NAMESPACE: &str = "default";
/// Concurrent requests while the cluster is filled.
const CONCURRENCY: usize = 16;
/// Time in which at least one more pod must be bound.
const PROGRESS_TIMEOUT: Duration = Duration::from_mins(2);
/// A scheduler that used no processor time for this long has also finished the events about its bindings.
const IDLE_AFTER: Duration = Duration::from_millis(500);
/// Requests per second of each client, and burst: more than any of them can make.
const LIMIT: u32 = 100_000;

/// Options of the measurement.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Fails when a goal is missed.
    #[arg(long)]
    check: bool,
    /// Runs of each scheduler at each size, in turn; the median counts.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Sizes of the cluster.
    #[arg(long, value_delimiter = ',', default_values_t = [500, 2_000, 5_000])]
    nodes: Vec<usize>,
    /// A program to measure instead of ours as the image has it.
    #[arg(long)]
    scheduler: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let ours = shipped::program(args.scheduler.as_deref(), "numaresources-scheduler")?;
    let kubernetes = kubernetes::locate(&SearchPath::from_environment(None), &|_| {})?;
    let runtime = tokio::runtime::Runtime::new()?;
    let mut figures = Vec::new();
    for nodes in &args.nodes {
        let environment = Environment::start(*nodes, &ours, &kubernetes.kube_scheduler);
        let results = runtime.block_on(async { environment.await?.measure(args.runs).await })?;
        write!(std::io::stdout(), "{}", results.table(*nodes))?;
        figures.extend(results.figures(*nodes));
    }
    conclude(&figures, args.check)
}

/// The scheduler that places pods.
#[derive(Clone, Copy)]
enum Scheduler {
    Kubernetes,
    Ours,
}

impl Scheduler {
    fn name(self) -> &'static str {
        match self {
            Self::Kubernetes => "kube-scheduler",
            Self::Ours => "numaresources-scheduler",
        }
    }

    /// Builds its configuration: all defaults for kube-scheduler; for ours also the settings of the operator's ConfigMap.
    fn config(self, kubeconfig: &Path) -> Value {
        let profile = match self {
            Self::Kubernetes => json!({"schedulerName": self.name()}),
            Self::Ours => json!({
                "schedulerName": self.name(),
                "plugins": {"multiPoint": {"enabled": [{"name": "NodeResourceTopologyMatch"}]}},
                "pluginConfig": [{"name": "NodeResourceTopologyMatch", "args": {"cacheResyncPeriodSeconds": 5}}],
            }),
        };
        json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": false},
            "clientConnection": {"kubeconfig": kubeconfig, "qps": LIMIT, "burst": LIMIT},
            "profiles": [profile],
        })
    }
}

/// The cost of one run.
struct Run {
    /// Time from first to last binding.
    time: Duration,
    /// Processor time of the whole process, from its start until it was idle again.
    cpu: Duration,
    /// Peak resident memory, MB.
    memory: f64,
}

/// All runs at one size.
#[derive(Default)]
struct Results {
    kubernetes: Vec<Run>,
    ours: Vec<Run>,
}

/// Returns one measure of every run as a figure, so that the same median is used everywhere.
fn figure(
    what: &'static str,
    unit: &'static str,
    goal: f64,
    runs: &[Run],
    of: fn(&Run) -> f64,
) -> Figure {
    Figure {
        runs: runs.iter().map(of).collect(),
        ..Figure::new(what, unit, goal)
    }
}

fn cpu_per_pod(run: &Run) -> f64 {
    run.cpu.as_secs_f64() * 1e3 / PODS as f64
}

impl Results {
    fn of(&self, scheduler: Scheduler) -> &[Run] {
        match scheduler {
            Scheduler::Kubernetes => &self.kubernetes,
            Scheduler::Ours => &self.ours,
        }
    }

    fn push(&mut self, scheduler: Scheduler, run: Run) {
        match scheduler {
            Scheduler::Kubernetes => self.kubernetes.push(run),
            Scheduler::Ours => self.ours.push(run),
        }
    }

    /// Formats both schedulers side by side.
    fn table(&self, nodes: usize) -> String {
        let mut text = format!(
            "| {nodes} nodes | pods/s | CPU a pod | peak memory | pods/s of each run |\n|---|---|---|---|---|\n"
        );
        for scheduler in [Scheduler::Kubernetes, Scheduler::Ours] {
            let runs = self.of(scheduler);
            let median = |of| figure("", "", 0.0, runs, of).value();
            let rate = |run: &Run| PODS as f64 / run.time.as_secs_f64();
            let rates: Vec<String> = runs.iter().map(|run| format!("{:.0}", rate(run))).collect();
            writeln!(
                text,
                "| {} | {:.0} | {:.2} ms | {:.0} MB | {} |",
                scheduler.name(),
                PODS as f64 / median(|run: &Run| run.time.as_secs_f64()),
                median(cpu_per_pod),
                median(|run| run.memory),
                rates.join(" "),
            )
            .expect("writing to a string cannot fail");
        }
        text
    }

    /// Returns our figures with the goals for that size. Where only the speed has a goal, the other figures are only in the table.
    fn figures(&self, nodes: usize) -> Vec<Figure> {
        let seconds = |run: &Run| run.time.as_secs_f64();
        let theirs = figure("", "", 0.0, &self.kubernetes, seconds).value();
        let speed = "first to last binding; kube-scheduler's median";
        let mut figures = vec![figure(speed, "s", round(theirs), &self.ours, seconds)];
        let goals = match nodes {
            500 => Some((1.0, 40.0)),
            2_000 => Some((2.0, 80.0)),
            _ => None,
        };
        if let Some((cpu, memory)) = goals {
            let peak = |run: &Run| run.memory;
            figures.push(figure(
                "processor time a pod",
                "ms",
                cpu,
                &self.ours,
                cpu_per_pod,
            ));
            figures.push(figure(
                "peak resident memory",
                "MB",
                memory,
                &self.ours,
                peak,
            ));
        }
        figures
    }
}

/// Rounds to the precision of the table.
fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// A cluster of light nodes.
struct Environment {
    /// Ends with this value.
    _server: ApiServer,
    client: Client,
    directory: tempfile::TempDir,
    kubeconfig: PathBuf,
    kubernetes: PathBuf,
    ours: PathBuf,
}

impl Environment {
    async fn start(nodes: usize, ours: &Path, kubernetes: &Path) -> anyhow::Result<Self> {
        note(&format!("a real API server with {nodes} nodes"));
        let server = ApiServer::start(Lane::Local).await?;
        let client = server.client().await?;
        let definition = api::crd::node_resource_topology();
        let applier = Applier::new(client.clone());
        applier.apply(&serde_json::to_value(&definition)?).await?;
        let limit = Duration::from_mins(1);
        wait::definition(&client, &definition.name_any(), limit).await?;
        let spec = LightSpec {
            topology: Some(Arc::new(topology)),
            renew_every: None,
            ..LightSpec::new(nodes)
        };
        // once registered, they are only objects and take no processor time from the measured scheduler
        drop(LightNodes::start(client.clone(), spec).await?);
        let directory = tempfile::tempdir()?;
        let kubeconfig = directory.path().join("kubeconfig");
        api_server::write(&server.admin_kubeconfig()?, &kubeconfig)?;
        Ok(Self {
            _server: server,
            client,
            directory,
            kubeconfig,
            kubernetes: kubernetes.to_owned(),
            ours: ours.to_owned(),
        })
    }

    async fn measure(&self, runs: usize) -> anyhow::Result<Results> {
        let mut results = Results::default();
        for number in 1..=runs {
            for scheduler in [Scheduler::Kubernetes, Scheduler::Ours] {
                let run = self.run(scheduler).await;
                let run = run.with_context(|| format!("run {number} of {}", scheduler.name()))?;
                note(&format!(
                    "run {number}: {} bound {PODS} pods in {:.2} s with {:.2} s of processor time and {:.1} MB",
                    scheduler.name(),
                    run.time.as_secs_f64(),
                    run.cpu.as_secs_f64(),
                    run.memory,
                ));
                results.push(scheduler, run);
            }
        }
        Ok(results)
    }

    async fn run(&self, scheduler: Scheduler) -> anyhow::Result<Run> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        create_pods(&pods, scheduler).await?;
        let bound = watcher::Config::default().fields("spec.nodeName!=");
        let names: Api<PartialObjectMeta<Pod>> = Api::namespaced(self.client.clone(), NAMESPACE);
        let mut events = pin!(watcher(names, bound));
        loop {
            match events.next().await.context("the watch ended")?? {
                Event::InitDone => break,
                Event::Init => {}
                other => anyhow::bail!("a pod is bound before the start: {other:?}"),
            }
        }
        let mut process = self.start_scheduler(scheduler)?;
        let mut names = HashSet::new();
        let mut first = None;
        let time = loop {
            let next = tokio::time::timeout(PROGRESS_TIMEOUT, events.next()).await;
            process.check()?;
            let next = next.with_context(|| format!("{} of {PODS} are bound", names.len()))?;
            if let Event::Apply(pod) = next.context("the watch ended")?? {
                let first = *first.get_or_insert_with(Instant::now);
                if names.insert(pod.name_any()) && names.len() == PODS {
                    break first.elapsed();
                }
            }
        };
        let run = Run {
            time,
            cpu: cpu_time_until_idle(&process).await?,
            memory: process.peak_memory()?,
        };
        drop(process);
        delete_pods(&pods).await?;
        Ok(run)
    }

    fn start_scheduler(&self, scheduler: Scheduler) -> anyhow::Result<Measured> {
        let config = self.directory.path().join("config.yaml");
        // JSON is also YAML
        std::fs::write(&config, scheduler.config(&self.kubeconfig).to_string())?;
        let program = match scheduler {
            Scheduler::Kubernetes => &self.kubernetes,
            Scheduler::Ours => &self.ours,
        };
        let mut command = Command::new(program);
        command
            .arg(format!("--config={}", config.display()))
            .args(["-v=2", "--secure-port=0"]);
        let log = self
            .directory
            .path()
            .join(format!("{}.log", scheduler.name()));
        Measured::start(&mut command, &log)
    }
}

/// Creates the pods, all Guaranteed.
async fn create_pods(pods: &Api<Pod>, scheduler: Scheduler) -> anyhow::Result<()> {
    stream::iter(0..PODS)
        .map(anyhow::Ok)
        .try_for_each_concurrent(CONCURRENCY, |number| async move {
            let pod = serde_json::from_value(json!({
                "metadata": {"name": format!("pod-{number}"), "labels": {"app": "program"}},
                "spec": {
                    "schedulerName": scheduler.name(),
                    "containers": [{
                        "name": "main",
                        "image": "registry.example.com/team/program:1.2.3",
                        "resources": {"limits": {"cpu": "2", "memory": "4Gi"}},
                    }],
                },
            }))?;
            pods.create(&PostParams::default(), &pod).await?;
            Ok(())
        })
        .await
        .context("making the pods")
}

/// Deletes the pods and waits until they are gone.
async fn delete_pods(pods: &Api<Pod>) -> anyhow::Result<()> {
    let at_once = DeleteParams::default().grace_period(0);
    pods.delete_collection(&at_once, &ListParams::default())
        .await?;
    let one = ListParams::default().limit(1);
    let deadline = Instant::now() + PROGRESS_TIMEOUT;
    while !pods.list_metadata(&one).await?.items.is_empty() {
        ensure!(
            Instant::now() < deadline,
            "the pods were not deleted in time"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Waits until the process is idle. Returns the processor time that it used until then.
async fn cpu_time_until_idle(process: &Measured) -> anyhow::Result<Duration> {
    let mut used = process.cpu_time()?;
    let deadline = Instant::now() + PROGRESS_TIMEOUT;
    loop {
        tokio::time::sleep(IDLE_AFTER).await;
        let now = process.cpu_time()?;
        // the kernel counts in hundredths of a second, and an idle process takes about one
        if now.saturating_sub(used) <= Duration::from_millis(10) {
            return Ok(now);
        }
        ensure!(Instant::now() < deadline, "it does not come to rest");
        used = now;
    }
}

/// Builds the NRT of an empty node, as an exporter publishes it.
pub(super) fn topology(node: &str) -> NodeResourceTopology {
    let attribute = |name: &str, value: &str| json!({"name": name, "value": value});
    let fingerprint = nrt::fingerprint::compute([]).to_string();
    let resource = |name: &str, total: &str| json!({"name": name, "capacity": total, "allocatable": total, "available": total});
    let zone = |id: usize| {
        let cost = |to: usize| json!({"name": format!("node-{to}"), "value": if to == id { 10 } else { 21 }});
        json!({
            "name": format!("node-{id}"),
            "type": "Node",
            "costs": [cost(0), cost(1)],
            "resources": [resource("cpu", "16"), resource("memory", "64Gi")],
        })
    };
    serde_json::from_value(json!({
        "metadata": {"name": node},
        "attributes": [
            attribute(attributes::TOPOLOGY_MANAGER_POLICY, "single-numa-node"),
            attribute(attributes::TOPOLOGY_MANAGER_SCOPE, "container"),
            attribute(attributes::POD_FINGERPRINT, &fingerprint),
            attribute(attributes::POD_FINGERPRINT_METHOD, attributes::FINGERPRINT_EXCLUSIVE),
        ],
        "zones": [zone(0), zone(1)],
    }))
    .expect("this is a NodeResourceTopology")
}
