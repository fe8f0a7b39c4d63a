//! The exporter against its goals: memory, processor time, and how soon an admission is published.
//!
//! The cluster has one worker of 48 CPUs in two zones; its kubelet, API server and etcd are real. The exporter is a separate process that
//! uses the node's socket and a copy of its fake sysfs. A server of ours replaces the kubelet where a kubelet of that size could not hold
//! the pods or would not answer often enough.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use admission::Admissions;
use anyhow::Context as _;
use cluster_spec::plan::ClusterSpec;
use fake::FakeKubelet;
use fixtures::machines::Machine;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, PostParams};
use local_cluster::{LocalCluster, NodeHandle};
use programs::cargo::build;
use programs::console::note;
use programs::kubernetes::{self, SearchPath};
use tokio::time::sleep;

use super::process::Measured;
use super::{Figure, conclude, shipped};

mod admission;
mod fake;

/// Exclusive pods of the first figures.
const PODS: usize = 13;
/// Time between two scans when their cost is measured.
const PERIOD: Duration = Duration::from_millis(100);
/// Scans whose cost is measured in one run.
const SCANS: u32 = 200;
/// Scans over which memory must be flat, and scans before them during which it may grow.
const MANY_SCANS: usize = 10_000;
const WARM_UP: usize = 1_000;
/// Pods of the large node, each with two containers.
const MANY_PODS: usize = 500;

/// Options of the measurement.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Fails when a goal is missed.
    #[arg(long)]
    check: bool,
    /// Runs of each measurement; the median counts.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// An exporter to measure instead of ours as the image has it.
    #[arg(long)]
    exporter: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let bin_dir = program.parent().context("this program has no directory")?;
    build(&["-p", "testbed"])?;
    let exporter = shipped::program(args.exporter.as_deref(), "resource-topology-exporter")?;
    let runtime = tokio::runtime::Runtime::new()?;
    let figures = runtime.block_on(measure(args, bin_dir, &exporter))?;
    conclude(&figures, args.check)
}

async fn measure(args: &Args, bin_dir: &Path, program: &Path) -> anyhow::Result<Vec<Figure>> {
    let directory = tempfile::tempdir()?;
    let machine = Machine::default_profile();
    let kubernetes = kubernetes::locate(&SearchPath::from_environment(None), &|_| {})?;
    let spec =
        ClusterSpec::with_workers("bench", directory.path(), kubernetes, bin_dir, 1, &machine);
    note("starting a cluster");
    let cluster = LocalCluster::up(spec, &|_| {}).await?;
    let worker = cluster
        .node("worker-0")
        .context("the cluster has no worker-0")?;
    define(cluster.client()).await?;
    let bench = Bench {
        directory: directory.path(),
        program,
        kubeconfig: cluster.kubeconfig(),
    };
    let figures = bench.figures(args.runs, &cluster, worker).await?;
    cluster.down()?;
    Ok(figures)
}

/// Creates the custom resource definitions.
async fn define(client: kube::Client) -> anyhow::Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client);
    for definition in api::crd::all() {
        definitions
            .create(&PostParams::default(), &definition)
            .await?;
    }
    Ok(())
}

struct Bench<'a> {
    directory: &'a Path,
    program: &'a Path,
    kubeconfig: PathBuf,
}

impl Bench<'_> {
    async fn figures(
        &self,
        runs: usize,
        cluster: &LocalCluster,
        worker: &NodeHandle,
    ) -> anyhow::Result<Vec<Figure>> {
        let mut memory = Figure::new("peak resident memory, 13 exclusive pods", "MB", 9.0);
        let mut cpu = Figure::new("processor time a scan, 13 exclusive pods", "ms", 0.8);
        let mut delay = Figure::new("admission to NRT update, worst of five", "ms", 100.0);
        let mut large = Figure::new(
            "peak resident memory, 1,000 containers in 500 pods",
            "MB",
            16.0,
        );
        let mut growth = Figure::new("growth of memory over 10,000 scans", "MB", 0.25);

        let socket = worker.host_path(Path::new(local_cluster::node_handle::POD_RESOURCES));
        let socket = socket.join("kubelet.sock");
        let sysfs = self.sysfs("worker-0", worker.machine())?;
        let mut admissions = Admissions::new(cluster.client(), worker.clone());
        for index in 0..PODS {
            admissions
                .create_running_pod(&format!("pod-{index}"))
                .await?;
        }
        for run in 1..=runs {
            note(&format!("run {run}: scans of a real kubelet"));
            let exporter = self.start("worker-0", &socket, &sysfs, &[&interval(PERIOD)])?;
            admissions.wait_until_published(PODS).await?;
            let before = exporter.cpu_time()?;
            sleep(PERIOD * SCANS).await;
            let used = exporter.cpu_time()?.saturating_sub(before);
            cpu.runs
                .push(used.as_secs_f64() * 1000.0 / f64::from(SCANS));
            memory.runs.push(exporter.peak_memory()?);
            drop(exporter);

            note(&format!("run {run}: admissions"));
            let exporter = self.start("worker-0", &socket, &sysfs, &["--sleep-interval=1h"])?;
            admissions.wait_until_published(PODS).await?;
            let mut worst = Duration::ZERO;
            for _ in 0..5 {
                worst = worst.max(admissions.measure().await?);
            }
            delay.runs.push(worst.as_secs_f64() * 1000.0);
            drop(exporter);

            note(&format!("run {run}: a large node"));
            large.runs.push(self.memory_with_many_pods().await?);
        }
        note("10,000 scans");
        growth.runs.push(self.memory_growth().await?);
        Ok(vec![memory, cpu, large, delay, growth])
    }

    /// Returns the peak memory with many pods, in MB.
    async fn memory_with_many_pods(&self) -> anyhow::Result<f64> {
        let machine = fake::large_machine()?;
        let sysfs = self.sysfs("large", &machine)?;
        let kubelet = FakeKubelet::new(&machine, MANY_PODS, 2);
        let socket = self.directory.join("large.sock");
        let serving = kubelet.serve(&socket).await?;
        let exporter = self.start("large", &socket, &sysfs, &[&interval(PERIOD)])?;
        kubelet.wait_for_scans(100).await?;
        let peak = exporter.peak_memory();
        serving.abort();
        peak
    }

    /// Returns how much memory grows over many scans, in MB.
    async fn memory_growth(&self) -> anyhow::Result<f64> {
        let machine = Machine::default_profile();
        let sysfs = self.sysfs("busy", &machine)?;
        let kubelet = FakeKubelet::new(&machine, PODS, 1);
        let socket = self.directory.join("busy.sock");
        let serving = kubelet.serve(&socket).await?;
        let period = interval(Duration::from_millis(1));
        let exporter = self.start("busy", &socket, &sysfs, &[&period])?;
        kubelet.wait_for_scans(WARM_UP).await?;
        let before = exporter.peak_memory()?;
        kubelet.wait_for_scans(MANY_SCANS + WARM_UP).await?;
        let after = exporter.peak_memory()?;
        serving.abort();
        Ok(after - before)
    }

    fn start(
        &self,
        node: &str,
        socket: &Path,
        sysfs: &Path,
        flags: &[&str],
    ) -> anyhow::Result<Measured> {
        let mut command = Command::new(self.program);
        command
            .arg0("resource-topology-exporter")
            .env("NODE_NAME", node)
            .args([
                "--podreadiness=false",
                "--topology-manager-policy=single-numa-node",
                "--topology-manager-scope=container",
            ])
            .arg(format!("--kubeconfig={}", self.kubeconfig.display()))
            .arg(format!("--podresources-socket=unix://{}", socket.display()))
            .arg(format!("--sysfs={}", sysfs.display()))
            .args(flags);
        let log = self.directory.join(format!("exporter-{node}.log"));
        Measured::start(&mut command, &log)
    }

    /// Creates a root for `--sysfs` that shows the machine, once.
    fn sysfs(&self, name: &str, machine: &Machine) -> anyhow::Result<PathBuf> {
        let root = self.directory.join(format!("sys-{name}"));
        let system = root.join("devices/system");
        if !system.exists() {
            std::fs::create_dir_all(&system)?;
            cluster_spec::hardware::write_tree(machine, &root.join("tree"))?;
            std::os::unix::fs::symlink(root.join("tree/node"), system.join("node"))?;
        }
        Ok(root)
    }
}

fn interval(period: Duration) -> String {
    format!("--sleep-interval={}ms", period.as_millis())
}
