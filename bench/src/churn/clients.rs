//! The clients, which run one pod after another, and what they learn about their pods.

use std::pin::pin;
use std::time::Duration;

use anyhow::{Context as _, bail};
use api::names;
use futures::TryStreamExt as _;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watcher};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::cluster::Cluster;
use super::demand::{CLIENTS, Job, Jobs};
use super::outcome::{Outcome, Ran, idle_room};

/// Label with the number of a pod's client.
pub(super) const CLIENT: &str = "client";
/// How long a pod that has its node may take to run after the end of the time.
const END_GRACE: Duration = Duration::from_secs(30);

/// One demand, placed by one scheduler.
pub(super) struct Run<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) pods: Api<Pod>,
    pub(super) scheduler: &'a str,
    pub(super) start: Instant,
    pub(super) time: Duration,
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
    /// Runs the demand of a seed.
    pub(super) async fn outcome(&self, seed: u64) -> anyhow::Result<Outcome> {
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
}

/// Builds a pod with exclusive CPUs, and a GiB for each, that ends after a time in the notation of `sleep`.
pub(super) fn pod(
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
