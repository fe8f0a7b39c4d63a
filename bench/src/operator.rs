//! The operator against its goals: memory with many pools and nodes, processor time when idle, and how soon it reports that everything is
//! ready.
//!
//! The API server is the embedded one. The nodes are objects as large as real ones, with a kubelet that reports its configuration. Nothing
//! creates pods; instead this program reports a DaemonSet ready as soon as it exists.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use api::names;
use api::operator::v1::NumaResourcesOperator;
use apply::{Applier, wait};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use manifests::operator::{Options, Set};
use manifests::to_value;
use programs::console::note;
use serde_json::{Value, json};
use sim::light::{LightNodes, LightSpec};
use testbed::api_server::{self, ApiServer};
use testbed::configz::ConfigzKubelet;
use testbed::lane::Lane;
use tokio::time::{sleep, timeout};

use super::process::Measured;
use super::{Figure, conclude, shipped};

/// Concurrent requests while the cluster is filled.
const CONCURRENCY: usize = 16;
/// Longest that an installation may take.
const INSTALL_TIMEOUT: Duration = Duration::from_mins(2);
/// Time after an installation by which all remaining work is done.
const SETTLED_AFTER: Duration = Duration::from_secs(10);
/// Images in the status of each node: the most that a kubelet reports.
const IMAGES: usize = 50;

/// Options of the measurement.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Fails when a goal is missed.
    #[arg(long)]
    check: bool,
    /// Runs, each with a cluster of its own; the median counts.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Nodes, in all pools together.
    #[arg(long, default_value_t = 500)]
    nodes: usize,
    /// Pools.
    #[arg(long, default_value_t = 10)]
    pools: usize,
    /// Seconds over which an operator is watched that has nothing to do.
    #[arg(long, default_value_t = 60)]
    idle: u64,
    /// A program to measure instead of ours as the image has it.
    #[arg(long)]
    operator: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    // which is the operator under any name that is not one of the tools
    let program = shipped::program(args.operator.as_deref(), "numaresources-stack")?;
    let runtime = tokio::runtime::Runtime::new()?;
    let mut memory = Figure::new("peak resident memory", "MB", 20.0);
    let mut cpu = Figure::new("processor time when idle, of one CPU", "%", 0.5);
    let mut available = Figure::new("last pod ready to Available", "s", 5.0);
    for number in 1..=args.runs {
        let run = runtime.block_on(async {
            Environment::start(args)
                .await?
                .measure(args, &program)
                .await
        });
        let run = run.with_context(|| format!("run {number}"))?;
        note(&format!(
            "run {number}: all DaemonSets {:.2} s after the resource, Available {:.3} s after the last was ready, {:.1} MB, {:.2} % of a CPU",
            run.made.as_secs_f64(),
            run.available.as_secs_f64(),
            run.memory,
            run.idle_share * 100.0,
        ));
        memory.runs.push(run.memory);
        cpu.runs.push(run.idle_share * 100.0);
        available.runs.push(run.available.as_secs_f64());
    }
    conclude(&[memory, cpu, available], args.check)
}

/// The result of one run.
struct Run {
    /// From the creation of the resource to its last DaemonSet.
    made: Duration,
    /// From the last DaemonSet that became ready to the condition.
    available: Duration,
    /// Peak memory in MB.
    memory: f64,
    /// Fraction of one CPU when idle.
    idle_share: f64,
}

/// A cluster without an operator.
struct Environment {
    /// Ends with this value.
    _server: ApiServer,
    _kubelet: ConfigzKubelet,
    client: Client,
    directory: tempfile::TempDir,
    kubeconfig: PathBuf,
}

fn pool(number: usize) -> String {
    format!("pool-{number}")
}

impl Environment {
    async fn start(args: &Args) -> anyhow::Result<Self> {
        note(&format!("{} nodes in {} pools", args.nodes, args.pools));
        let server = ApiServer::start(Lane::Embedded).await?;
        let client = server.client().await?;
        let applier = Applier::new(client.clone());
        for definition in api::crd::all() {
            applier.apply(&to_value(&definition)).await?;
            wait::definition(&client, &definition.name_any(), INSTALL_TIMEOUT).await?;
        }
        // all objects but the operator itself
        let objects = Set::new(&Options::default()).objects();
        applier.apply_all(&objects[..objects.len() - 1]).await?;
        let settings = json!({"topologyManagerPolicy": "single-numa-node", "topologyManagerScope": "container"});
        let kubelet = ConfigzKubelet::start(settings).await?;
        for number in 0..args.pools {
            let role = format!("node-role.kubernetes.io/{}", pool(number));
            let count = args.nodes / args.pools + usize::from(number < args.nodes % args.pools);
            let spec = LightSpec {
                prefix: pool(number),
                labels: BTreeMap::from([(role, String::new())]),
                renew_every: None,
                ..LightSpec::new(count)
            };
            let nodes = LightNodes::start(client.clone(), spec).await?;
            report(&client, &nodes, &kubelet).await?;
        }
        let directory = tempfile::tempdir()?;
        let kubeconfig = directory.path().join("kubeconfig");
        let account = server.account_kubeconfig(names::NAMESPACE, names::OPERATOR_SERVICE_ACCOUNT);
        api_server::write(&account.await?, &kubeconfig)?;
        Ok(Self {
            _server: server,
            _kubelet: kubelet,
            client,
            directory,
            kubeconfig,
        })
    }

    async fn measure(&self, args: &Args, program: &Path) -> anyhow::Result<Run> {
        let mut command = Command::new(program);
        command
            .args(["-v=4", "-metrics-bind-address=127.0.0.1:0"])
            .arg("-health-probe-bind-address=127.0.0.1:0")
            .env("KUBECONFIG", &self.kubeconfig)
            .env("NAMESPACE", names::NAMESPACE);
        let mut process = Measured::start(&mut command, &self.directory.path().join("log"))?;
        let groups: Vec<Value> = (0..args.pools)
            .map(|number| json!({"poolName": pool(number)}))
            .collect();
        let resource =
            json!({"metadata": {"name": names::OPERATOR_CR}, "spec": {"nodeGroups": groups}});
        let resources: Api<NumaResourcesOperator> = Api::all(self.client.clone());
        let created = Instant::now();
        resources
            .create(&PostParams::default(), &serde_json::from_value(resource)?)
            .await?;
        let rollout =
            async { tokio::try_join!(self.make_ready(args.pools), self.wait_until_available()) };
        let rollout = timeout(INSTALL_TIMEOUT, rollout).await;
        process.check()?;
        let (ready, available) = rollout.context("it does not become Available")??;
        sleep(SETTLED_AFTER).await;
        let before = process.cpu_time()?;
        let idle = Duration::from_secs(args.idle);
        sleep(idle).await;
        let used = process.cpu_time()?.saturating_sub(before);
        process.check()?;
        Ok(Run {
            made: ready.duration_since(created),
            available: available.saturating_duration_since(ready),
            memory: process.peak_memory()?,
            idle_share: used.as_secs_f64() / idle.as_secs_f64(),
        })
    }

    /// Reports each DaemonSet ready as soon as it exists. Returns when the last one was.
    async fn make_ready(&self, count: usize) -> anyhow::Result<Instant> {
        let sets: Api<DaemonSet> = Api::namespaced(self.client.clone(), names::NAMESPACE);
        let mut seen = pin!(
            watcher(sets.clone(), watcher::Config::default())
                .default_backoff()
                .applied_objects()
        );
        let mut ready = HashSet::new();
        while let Some(set) = seen.next().await {
            let set = set?;
            if ready.insert(set.name_any()) {
                let status = json!({"status": {
                    "observedGeneration": set.metadata.generation, "desiredNumberScheduled": 1, "currentNumberScheduled": 1,
                    "numberMisscheduled": 0, "numberReady": 1, "updatedNumberScheduled": 1,
                }});
                let last = Instant::now();
                sets.patch_status(
                    &set.name_any(),
                    &PatchParams::default(),
                    &Patch::Merge(status),
                )
                .await?;
                if ready.len() == count {
                    return Ok(last);
                }
            }
        }
        anyhow::bail!("the watch of DaemonSets ended")
    }

    /// Returns when the resource was Available.
    async fn wait_until_available(&self) -> anyhow::Result<Instant> {
        let resources: Api<NumaResourcesOperator> = Api::all(self.client.clone());
        let mut seen = pin!(
            watcher(resources, watcher::Config::default())
                .default_backoff()
                .applied_objects()
        );
        while let Some(resource) = seen.next().await {
            let conditions = resource?.status.unwrap_or_default().conditions;
            let is = |kind: &str| {
                conditions
                    .iter()
                    .any(|condition| condition.type_ == kind && condition.status == "True")
            };
            ensure!(!is("Degraded"), "it is Degraded: {conditions:?}");
            if is("Available") {
                return Ok(Instant::now());
            }
        }
        anyhow::bail!("the watch of the resource ended")
    }
}

/// Makes the node objects as large as real ones, and gives them a kubelet.
async fn report(
    client: &Client,
    nodes: &LightNodes,
    kubelet: &ConfigzKubelet,
) -> anyhow::Result<()> {
    let images: Vec<Value> = (0..IMAGES)
        .map(|number| {
            let name = format!("registry.example.com/team/program-{number}");
            let digest = format!("{name}@sha256:{number:064x}");
            json!({"names": [digest, format!("{name}:1.2.3")], "sizeBytes": 123_456_789})
        })
        .collect();
    let mut status = kubelet.node_status();
    status["images"] = json!(images);
    let patch = Patch::Merge(json!({"status": status}));
    let api: Api<Node> = Api::all(client.clone());
    stream::iter(nodes.names().map(anyhow::Ok))
        .try_for_each_concurrent(CONCURRENCY, |name| {
            let (api, patch) = (&api, &patch);
            async move {
                api.patch_status(&name, &PatchParams::default(), patch)
                    .await?;
                Ok(())
            }
        })
        .await
        .context("making the nodes large")
}
