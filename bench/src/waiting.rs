//! The scheduler while thousands of pods wait that no node can take: what an attempt for one of them costs, and how long a pod that fits waits
//! beside them.
//!
//! The API server is the embedded one, with light nodes. The pods have many sizes, so that the scheduler cannot know one by another. Pods that
//! fit come and go meanwhile; each that goes wakes those that wait.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use apply::{Applier, wait};
use futures::{TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, PostParams};
use kube::runtime::wait::await_condition;
use programs::console::note;
use serde_json::json;
use sim::light::{LightNodes, LightSpec};
use testbed::api_server::{self, ApiServer};
use testbed::lane::Lane;
use tokio::time::{sleep, timeout};

use super::process::Measured;
use super::scheduler::topology;
use super::{Figure, conclude, shipped};

/// Namespace of the pods.
const NAMESPACE: &str = "default";
/// Name of the profile.
const PROFILE: &str = "numaresources-scheduler";
/// Concurrent requests while the cluster is filled.
const CONCURRENCY: usize = 16;
/// What the scheduler logs when it finds no node for a pod.
const FAILED: &str = "Unable to schedule pod; no fit";
/// Longest that every pod may wait for its first attempt, and one that fits for its node.
const TIMEOUT: Duration = Duration::from_mins(4);
/// Time between two pods that come and go.
const TURNOVER: Duration = Duration::from_secs(3);

/// Options of the measurement.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Fails when a goal is missed.
    #[arg(long)]
    check: bool,
    /// Nodes.
    #[arg(long, default_value_t = 500)]
    nodes: usize,
    /// Pods that no node can take.
    #[arg(long, default_value_t = 5_000)]
    pods: usize,
    /// How many different sizes they have.
    #[arg(long, default_value_t = 100)]
    sizes: usize,
    /// Pods that come and go.
    #[arg(long, default_value_t = 20)]
    turns: usize,
    /// A program to measure instead of ours as the image has it.
    #[arg(long)]
    scheduler: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let program = shipped::program(args.scheduler.as_deref(), "numaresources-scheduler")?;
    let runtime = tokio::runtime::Runtime::new()?;
    let run = runtime.block_on(async {
        let environment = Environment::start(args).await?;
        environment.measure(args, &program).await
    })?;
    note(&format!(
        "{} attempts found no node, in {:.1} s and with {:.1} s of processor time",
        run.attempts,
        run.time.as_secs_f64(),
        run.cpu.as_secs_f64(),
    ));
    let mut cpu = Figure::new("processor time of an attempt that finds no node", "ms", 1.0);
    cpu.runs
        .push(run.cpu.as_secs_f64() * 1e3 / (run.attempts as f64).max(1.0));
    let mut memory = Figure::new("peak resident memory", "MB", 100.0);
    memory.runs.push(run.memory);
    let mut waits = Figure::new("wait of a pod that fits", "s", 10.0);
    waits.runs = run.waits.iter().map(Duration::as_secs_f64).collect();
    let mut longest = Figure::new("longest wait of a pod that fits", "s", 60.0);
    longest
        .runs
        .extend(run.waits.iter().max().map(Duration::as_secs_f64));
    conclude(&[cpu, memory, waits, longest], args.check)
}

/// What was seen while pods came and went.
struct Run {
    /// Attempts that found no node.
    attempts: usize,
    /// How long it took.
    time: Duration,
    /// Processor time of the scheduler.
    cpu: Duration,
    /// Peak resident memory since its start, MB.
    memory: f64,
    /// How long each pod that fits waited for its node.
    waits: Vec<Duration>,
}

/// A cluster of light nodes with pods that wait.
struct Environment {
    /// Ends with this value.
    _server: ApiServer,
    pods: Api<Pod>,
    directory: tempfile::TempDir,
    kubeconfig: PathBuf,
}

impl Environment {
    async fn start(args: &Args) -> anyhow::Result<Self> {
        note(&format!("{} nodes, {} pods", args.nodes, args.pods));
        let server = ApiServer::start(Lane::Embedded).await?;
        let client = server.client().await?;
        let definition = api::crd::node_resource_topology();
        let applier = Applier::new(client.clone());
        applier.apply(&serde_json::to_value(&definition)?).await?;
        wait::definition(&client, &definition.name_any(), Duration::from_mins(1)).await?;
        let spec = LightSpec {
            topology: Some(Arc::new(topology)),
            renew_every: None,
            ..LightSpec::new(args.nodes)
        };
        // once registered, they are only objects
        drop(LightNodes::start(client.clone(), spec).await?);
        let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
        fill(&pods, args).await?;
        let directory = tempfile::tempdir()?;
        let kubeconfig = directory.path().join("kubeconfig");
        api_server::write(&server.admin_kubeconfig()?, &kubeconfig)?;
        Ok(Self {
            _server: server,
            pods,
            directory,
            kubeconfig,
        })
    }

    async fn measure(&self, args: &Args, program: &Path) -> anyhow::Result<Run> {
        let log = self.directory.path().join("log");
        let mut process = self.start_scheduler(program, &log)?;
        let mut attempts = Attempts::of(&log)?;
        let deadline = Instant::now() + TIMEOUT;
        while attempts.count()? < args.pods {
            process.check()?;
            ensure!(Instant::now() < deadline, "not every pod was tried in time");
            sleep(Duration::from_millis(100)).await;
        }
        note("every pod was tried once");
        let (first, before, started) = (attempts.count()?, process.cpu_time()?, Instant::now());
        let mut waits = Vec::new();
        for turn in 0..args.turns {
            waits.push(self.turn(turn).await?);
            process.check()?;
            sleep(TURNOVER).await;
        }
        Ok(Run {
            attempts: attempts.count()? - first,
            time: started.elapsed(),
            cpu: process.cpu_time()?.saturating_sub(before),
            memory: process.peak_memory()?,
            waits,
        })
    }

    /// Lets a pod come that fits, and go as soon as it has a node. Returns how long it waited.
    async fn turn(&self, number: usize) -> anyhow::Result<Duration> {
        let name = format!("fits-{number}");
        let created = Instant::now();
        create(&self.pods, &name, 2).await?;
        let has_node = |pod: Option<&Pod>| {
            let spec = pod.and_then(|pod| pod.spec.as_ref());
            spec.is_some_and(|spec| spec.node_name.is_some())
        };
        let bound = await_condition(self.pods.clone(), &name, has_node);
        let bound = timeout(TIMEOUT, bound).await;
        bound.context("a pod that fits got no node")??;
        let waited = created.elapsed();
        let at_once = DeleteParams::default().grace_period(0);
        self.pods.delete(&name, &at_once).await?;
        Ok(waited)
    }

    fn start_scheduler(&self, program: &Path, log: &Path) -> anyhow::Result<Measured> {
        let config = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": false},
            "clientConnection": {"kubeconfig": self.kubeconfig},
            "profiles": [{
                "schedulerName": PROFILE,
                "plugins": {"multiPoint": {"enabled": [{"name": "NodeResourceTopologyMatch"}]}},
            }],
        });
        let path = self.directory.path().join("config.yaml");
        // JSON is also YAML
        std::fs::write(&path, config.to_string())?;
        let mut command = Command::new(program);
        command
            .arg(format!("--config={}", path.display()))
            .args(["-v=2", "--secure-port=0"]);
        Measured::start(&mut command, log)
    }
}

/// Counts in the log of a scheduler how often it found no node for a pod.
struct Attempts {
    file: std::fs::File,
    /// What is read of a line that is not complete yet.
    rest: String,
    seen: usize,
}

impl Attempts {
    fn of(log: &Path) -> anyhow::Result<Self> {
        let file = std::fs::File::open(log).context("reading the log of the scheduler")?;
        Ok(Self {
            file,
            rest: String::new(),
            seen: 0,
        })
    }

    /// Returns the number of attempts so far.
    fn count(&mut self) -> anyhow::Result<usize> {
        self.file.read_to_string(&mut self.rest)?;
        let complete = self.rest.rfind('\n').map_or(0, |end| end + 1);
        let lines: String = self.rest.drain(..complete).collect();
        self.seen += lines.matches(FAILED).count();
        Ok(self.seen)
    }
}

/// Creates the pods that no node can take.
async fn fill(pods: &Api<Pod>, args: &Args) -> anyhow::Result<()> {
    let sizes = args.sizes.max(1);
    stream::iter((0..args.pods).map(anyhow::Ok))
        .try_for_each_concurrent(CONCURRENCY, |number| async move {
            create(pods, &format!("waits-{number}"), 1_000 + number % sizes).await
        })
        .await
        .context("the pods that wait")
}

/// Creates a Guaranteed pod.
async fn create(pods: &Api<Pod>, name: &str, cpus: usize) -> anyhow::Result<()> {
    let pod = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "schedulerName": PROFILE,
            "containers": [{
                "name": "main",
                "image": "registry.example.com/team/program:1.2.3",
                "resources": {"limits": {"cpu": cpus.to_string(), "memory": "1Gi"}},
            }],
        },
    }))?;
    pods.create(&PostParams::default(), &pod).await?;
    Ok(())
}
