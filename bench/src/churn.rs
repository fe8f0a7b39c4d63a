//! The purpose of the whole stack: how much of four real kubelets is used when more pods are to run than fit.
//!
//! Clients run one Guaranteed pod after another. A pod that its kubelet refuses is created again with the same size and life, as a
//! ReplicaSet does. The same seeds are run by the kube-scheduler of the cluster, by our stack at its default settings, and by a simulation
//! without delays. The simulation runs once more with the mean times that these kubelets took to start and end the pods of our stack: no
//! scheduler can do better.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use api::names;
use clients::Run;
use cluster::Cluster;
use kube::api::Api;
use outcome::mean;
use programs::cargo::build;
use programs::console::note;
use report::{Results, figures, save, table};
use simulation::Kubelet;
use tokio::time::Instant;

use super::conclude;

mod clients;
mod cluster;
mod demand;
mod idle;
mod outcome;
mod report;
mod simulation;

/// Namespace of the pods.
const NAMESPACE: &str = "default";

/// Options of the measurement.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Fails when a goal is missed.
    #[arg(long)]
    check: bool,
    /// Seeds of the demand.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 3, 4, 5])]
    seeds: Vec<u64>,
    /// Length of each run.
    #[arg(long, default_value_t = 90)]
    seconds: u64,
    /// Writes what became of every pod to this file, as a table.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Profile that the programs are built with: that of the container image.
    #[arg(long, default_value = "image")]
    profile: String,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let packages = [
        "-p",
        "operator",
        "-p",
        "rte",
        "-p",
        "scheduler",
        "-p",
        "testbed",
    ];
    build(&[&["--profile", &args.profile], &packages[..]].concat())?;
    let program = std::env::current_exe().context("cannot find this program")?;
    let target = program.ancestors().nth(2);
    let target = target.context("this program has no target directory")?;
    let directory = match args.profile.as_str() {
        "dev" => "debug",
        other => other,
    };
    let runtime = tokio::runtime::Runtime::new()?;
    let results = runtime.block_on(async {
        let cluster = Cluster::start(&target.join(directory)).await?;
        let results = measure(args, &cluster).await;
        cluster.down()?;
        results
    })?;
    write!(std::io::stdout(), "{}", table(&results))?;
    conclude(&figures(&results), args.check)
}

async fn measure(args: &Args, cluster: &Cluster) -> anyhow::Result<Vec<Results>> {
    let time = Duration::from_secs(args.seconds);
    let mut all = Vec::new();
    for seed in args.seeds.iter().copied() {
        let mut outcomes = Vec::new();
        for scheduler in ["default-scheduler", names::SCHEDULER_PROFILE] {
            note(&format!("seed {seed}: {scheduler}"));
            let run = Run {
                cluster,
                pods: Api::namespaced(cluster.client(), NAMESPACE),
                scheduler,
                start: Instant::now(),
                time,
            };
            let outcome = run.outcome(seed).await?;
            if let Some(file) = &args.save {
                save(file, seed, scheduler, &outcome)?;
            }
            note(&format!(
                "{} ran, {} were refused",
                outcome.ran, outcome.refused
            ));
            outcomes.push(outcome);
            run.clear().await?;
        }
        let ours = outcomes.pop().unwrap_or_default();
        let measured = Kubelet {
            start: Duration::from_secs_f64(mean(&ours.starts)),
            hold: Duration::from_secs_f64(mean(&ours.holds).max(0.0)),
        };
        all.push(Results {
            seed,
            kubernetes: outcomes.pop().unwrap_or_default(),
            ours,
            simulation: simulation::run(seed, time, &cluster.zones, Kubelet::IDEAL),
            bounded: simulation::run(seed, time, &cluster.zones, measured),
        });
    }
    Ok(all)
}
