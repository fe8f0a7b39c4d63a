//! The purpose of the whole stack: how much of four real kubelets is used when more pods are to run than fit.
//!
//! Clients run one Guaranteed pod after another. A pod that its kubelet refuses is created again with the same size and life, as a
//! ReplicaSet does. The same seeds are run by the kube-scheduler of the cluster, by our stack at its default settings, and by a simulation
//! without delays. The simulation runs once more with the mean times that these kubelets took to start and end the pods of our stack: no
//! scheduler can do better.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context as _, bail};
use api::names;
use cluster::Cluster;
use demand::{CLIENTS, Job, Jobs};
use futures::TryStreamExt as _;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watcher};
use outcome::{COLUMNS, Outcome, Ran, idle_room, mean, percentile};
use programs::cargo::build;
use programs::console::note;
use serde_json::{Value, json};
use simulation::Kubelet;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};

use super::{Figure, conclude};

mod cluster;
mod demand;
mod outcome;
mod simulation;

/// Namespace of the pods.
const NAMESPACE: &str = "default";
/// Label with the number of a pod's client.
const CLIENT: &str = "client";
/// Label of the pods that show whether the cluster is idle.
const PROBE: &str = "settled";
/// Longest time from creation to end of such a pod on an idle cluster. A kubelet looks every second whether a container runs or has ended.
const AT_REST: Duration = Duration::from_secs(4);
/// How long a pod that has its node may take to run after the end of the time.
const END_GRACE: Duration = Duration::from_secs(30);

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
    let packages = ["-p", "operator", "-p", "scheduler", "-p", "testbed"];
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

/// The outcomes of one seed.
struct Results {
    seed: u64,
    kubernetes: Outcome,
    ours: Outcome,
    simulation: Outcome,
    /// The simulation again, with the delays that the kubelets added to the pods of our stack.
    bounded: Outcome,
}

impl Results {
    /// Returns what was served, in percent of the simulation.
    fn share(&self, outcome: &Outcome) -> f64 {
        100.0 * outcome.served / self.simulation.served
    }
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

/// Appends the pods of a run to a file.
fn save(file: &Path, seed: u64, scheduler: &str, outcome: &Outcome) -> anyhow::Result<()> {
    let mut text = format!("# seed {seed}, {scheduler}\n{COLUMNS}\tidle room\n");
    for (pod, idle) in outcome.pods.iter().zip(&outcome.idle_room) {
        writeln!(text, "{}\t{idle:.3}", pod.row())?;
    }
    let mut to = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)
        .with_context(|| format!("cannot write {}", file.display()))?;
    Ok(to.write_all(text.as_bytes())?)
}

/// Formats all results of every seed.
fn table(all: &[Results]) -> String {
    let mut text = String::from(
        "| seed | placed by | ran | refused | CPU-seconds served | of the simulation | create to running p50 / p99 | room unused p50 / p99 | of that in the kubelet |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for results in all {
        for (name, outcome) in [
            ("kube-scheduler", &results.kubernetes),
            ("ours", &results.ours),
            ("simulation", &results.simulation),
            ("simulation with these kubelets", &results.bounded),
        ] {
            writeln!(
                text,
                "| {} | {name} | {} | {} | {:.0} | {:.1} % | {:.1} / {:.1} s | {:.2} / {:.2} s | {:.2} / {:.2} s |",
                results.seed,
                outcome.ran,
                outcome.refused,
                outcome.served,
                results.share(outcome),
                percentile(&outcome.to_running, 50),
                percentile(&outcome.to_running, 99),
                percentile(&outcome.idle_room, 50),
                percentile(&outcome.idle_room, 99),
                percentile(&outcome.starts, 50),
                percentile(&outcome.starts, 99),
            )
            .expect("writing to a string cannot fail");
        }
    }
    text
}

/// Returns our figures with the goals.
fn figures(all: &[Results]) -> Vec<Figure> {
    let ours = || all.iter().map(|results| &results.ours);
    let refused: usize = ours().map(|outcome| outcome.refused).sum();
    let idle = ours().map(|outcome| percentile(&outcome.idle_room, 99));
    let lost = all
        .iter()
        .map(|results| 100.0 - results.share(&results.ours));
    vec![
        Figure {
            runs: vec![refused as f64],
            ..Figure::new("refused by a kubelet, all seeds", "pods", 0.0)
        },
        Figure {
            runs: lost.collect(),
            ..Figure::new("less served than by the simulation", "%", 5.0)
        },
        Figure {
            runs: idle.collect(),
            ..Figure::new("not running although a zone had room, p99", "s", 1.0)
        },
    ]
}

/// One demand, placed by one scheduler.
struct Run<'a> {
    cluster: &'a Cluster,
    pods: Api<Pod>,
    scheduler: &'a str,
    start: Instant,
    time: Duration,
}

/// What a client learns about its pods.
struct Seen {
    name: String,
    uid: String,
    node: Option<String>,
    phase: String,
    reason: String,
    at: Duration,
}

/// The result of one client.
#[derive(Default)]
struct ClientResult {
    ran: Vec<(Job, Ran)>,
    refused: usize,
}

impl Run<'_> {
    async fn outcome(&self, seed: u64) -> anyhow::Result<Outcome> {
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..CLIENTS).map(|_| mpsc::unbounded_channel()).unzip();
        let clients = Jobs::of_all(seed).into_iter().zip(receivers).enumerate();
        let clients = clients.map(|(number, (jobs, seen))| self.client(number, jobs, seen));
        let results = tokio::select! {
            results = try_join_all(clients) => results?,
            error = self.watch(&senders) => bail!("the watch of the pods ended: {error:?}"),
        };
        let mut outcome = Outcome::default();
        let mut all = Vec::new();
        for result in results {
            outcome.refused += result.refused;
            for (job, ran) in result.ran {
                all.push(ran);
                if ran.running < self.time {
                    outcome.ran += 1;
                    outcome.served += job.cpu_seconds();
                    let waited = ran.running.saturating_sub(ran.created);
                    outcome.to_running.push(waited.as_secs_f64());
                    let started = ran.running.saturating_sub(ran.bound);
                    outcome.starts.push(started.as_secs_f64());
                    let held = ran.ended.map(|ended| ended.saturating_sub(ran.bound));
                    let beyond = held.map(|held| held.as_secs_f64() - ran.lifetime.as_secs_f64());
                    outcome.holds.extend(beyond);
                }
            }
        }
        outcome.idle_room = idle_room(&all, &self.cluster.zones);
        outcome.pods = all;
        Ok(outcome)
    }

    /// Passes the states of its pods to every client. Ends only with an error.
    async fn watch(&self, clients: &[mpsc::UnboundedSender<Seen>]) -> anyhow::Result<()> {
        let pods = watcher(self.pods.clone(), watcher::Config::default().labels(CLIENT));
        let mut pods = pin!(pods.applied_objects());
        while let Some(pod) = pods.try_next().await? {
            let client = pod.labels().get(CLIENT).and_then(|text| text.parse().ok());
            let client: usize = client.context("a pod has no client")?;
            let status = pod.status.clone().unwrap_or_default();
            let seen = Seen {
                name: pod.name_any(),
                uid: pod.uid().unwrap_or_default(),
                node: pod.spec.and_then(|spec| spec.node_name),
                phase: status.phase.unwrap_or_default(),
                reason: status.reason.unwrap_or_default(),
                at: self.start.elapsed(),
            };
            // a client that is done no longer receives
            drop(clients[client].send(seen));
        }
        Ok(())
    }

    /// Runs one pod after another until the time is over.
    async fn client(
        &self,
        number: usize,
        jobs: Jobs,
        mut events: mpsc::UnboundedReceiver<Seen>,
    ) -> anyhow::Result<ClientResult> {
        let mut result = ClientResult::default();
        let mut made = 0;
        for job in jobs {
            let created = self.start.elapsed();
            loop {
                if self.start.elapsed() >= self.time {
                    return Ok(result);
                }
                made += 1;
                let name = format!("churn-{number}-{made}");
                self.create(number, &name, job).await?;
                match self.follow_pod(&name, job, created, &mut events).await? {
                    PodOutcome::Ran(ran) => {
                        result.ran.push((job, ran));
                        break;
                    }
                    PodOutcome::Refused => result.refused += 1,
                    PodOutcome::Pending => return Ok(result),
                }
            }
        }
        Ok(result)
    }

    /// Follows a pod to its end, or to the end of the time.
    async fn follow_pod(
        &self,
        name: &str,
        job: Job,
        created: Duration,
        events: &mut mpsc::UnboundedReceiver<Seen>,
    ) -> anyhow::Result<PodOutcome> {
        let mut bound = None;
        let mut ran: Option<Ran> = None;
        let mut zone = None;
        loop {
            // a pod with a node holds CPUs that other pods lack, so its zone must be known
            let grace = if bound.is_some() && ran.is_none() {
                END_GRACE
            } else {
                Duration::ZERO
            };
            let deadline = self.start + self.time + grace;
            let Ok(seen) = timeout_at(deadline, events.recv()).await else {
                return match (bound, ran) {
                    (Some(_), None) => bail!("pod {name} has a node and does not run"),
                    (_, Some(ran)) => Ok(PodOutcome::Ran(ran)),
                    (None, None) => Ok(PodOutcome::Pending),
                };
            };
            let seen = seen.context("the watch of the pods has ended")?;
            let Some(node) = seen.node.filter(|_| seen.name == name) else {
                continue;
            };
            let bound = *bound.get_or_insert(seen.at);
            // the kubelet assigns a zone at admission and forgets it when the pod has ended
            if zone.is_none() {
                zone = self.cluster.zone_of(&node, &seen.uid).ok();
            }
            let runs = |running: Duration, ended: Option<Duration>| -> anyhow::Result<Ran> {
                Ok(Ran {
                    cpus: job.cpus,
                    lifetime: job.lifetime,
                    zone: zone.with_context(|| format!("no state file has pod {name}"))?,
                    created,
                    bound,
                    running,
                    ended,
                })
            };
            match (seen.phase.as_str(), &mut ran) {
                ("Running", None) => ran = Some(runs(seen.at, None)?),
                ("Failed", None) if seen.reason == "TopologyAffinityError" => {
                    return Ok(PodOutcome::Refused);
                }
                ("Failed", None) => bail!("pod {name} failed: {}", seen.reason),
                // the kubelet did not report it running: it started by then at the latest
                ("Succeeded", None) => {
                    let latest = seen.at.saturating_sub(job.lifetime);
                    return Ok(PodOutcome::Ran(runs(latest, Some(seen.at))?));
                }
                ("Succeeded" | "Failed", Some(ran)) => {
                    ran.ended = Some(seen.at);
                    return Ok(PodOutcome::Ran(*ran));
                }
                _ => {}
            }
        }
    }

    async fn create(&self, client: usize, name: &str, job: Job) -> anyhow::Result<()> {
        let labels = json!({CLIENT: client.to_string()});
        let lifetime = format!("{}s", job.lifetime.as_secs_f64());
        let pod = pod(name, &labels, self.scheduler, job.cpus, &lifetime)?;
        let created = self.pods.create(&PostParams::default(), &pod).await;
        created.with_context(|| format!("cannot create pod {name}"))?;
        Ok(())
    }

    /// Deletes all pods and waits until the kubelets have all of their zones free.
    async fn clear(&self) -> anyhow::Result<()> {
        let ours = ListParams::default().labels(CLIENT);
        let at_once = DeleteParams::default();
        self.pods.delete_collection(&at_once, &ours).await?;
        let deadline = Instant::now() + END_GRACE;
        while !self.pods.list_metadata(&ours).await?.items.is_empty() {
            if Instant::now() > deadline {
                bail!("the pods were not deleted in time");
            }
            sleep(Duration::from_millis(200)).await;
        }
        self.cluster.wait_until_free().await?;
        self.wait_until_settled().await
    }

    /// Waits until the effects of earlier pods are over: on every worker a pod of our scheduler starts and ends within [`AT_REST`].
    /// Kubelets that refused a thousand pods must forget them, and our scheduler waits for the NRTs of nodes on which other schedulers
    /// placed pods.
    async fn wait_until_settled(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + END_GRACE;
        for round in 0.. {
            let begun = Instant::now();
            for node in self.cluster.worker_names() {
                let name = format!("settled-{round}-{node}");
                let scheduler = names::SCHEDULER_PROFILE;
                let mut pod = pod(&name, &json!({PROBE: ""}), scheduler, 1, "0")?;
                pod.spec.get_or_insert_default().node_selector =
                    Some([(api::labels::HOSTNAME.to_owned(), node)].into());
                self.pods.create(&PostParams::default(), &pod).await?;
            }
            let probes = ListParams::default().labels(PROBE);
            loop {
                let pods = self.pods.list(&probes).await?.items;
                let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
                if pods
                    .iter()
                    .all(|pod| phase(pod).as_deref() == Some("Succeeded"))
                {
                    break;
                }
                if Instant::now() > deadline {
                    bail!("workers are still busy with earlier pods");
                }
                sleep(Duration::from_millis(100)).await;
            }
            let took = begun.elapsed();
            self.pods
                .delete_collection(&DeleteParams::default(), &probes)
                .await?;
            self.cluster.wait_until_free().await?;
            if took < AT_REST {
                break;
            }
        }
        Ok(())
    }
}

/// Builds a pod with exclusive CPUs, and a GiB for each, that ends after a time in the notation of `sleep`.
fn pod(
    name: &str,
    labels: &Value,
    scheduler: &str,
    cpus: u32,
    lifetime: &str,
) -> Result<Pod, serde_json::Error> {
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "schedulerName": scheduler,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "main",
                "image": names::STACK_IMAGE,
                "imagePullPolicy": "IfNotPresent",
                "command": ["/bin/sleep", lifetime],
                "resources": {"limits": {"cpu": cpus.to_string(), "memory": format!("{cpus}Gi")}},
            }],
        },
    }))
}

/// How a pod ended.
enum PodOutcome {
    /// It ran.
    Ran(Ran),
    /// Its kubelet refused it.
    Refused,
    /// The time was over before it had a node.
    Pending,
}
