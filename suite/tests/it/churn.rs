//! No restart loses a pod. Clients run one Guaranteed pod after another, more than fit. Meanwhile the scheduler, the API server, an
//! exporter and a kubelet restart, and the scheduler's leader loses its lease. No kubelet refuses a pod, and no pod is forgotten.
//!
//! On real kubelets the kubelet is not restarted. Until a restarted kubelet knows its pods, it does not release what ended pods held, and
//! it refuses pods that no scheduler could know to be refused (`docs/placement.md`).
#![expect(
    clippy::print_stdout,
    reason = "what clippy allows in test functions, the code that they share may do too"
)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::pin::pin;
use std::time::Duration;

use api::names;
use api::scheduler::v1::NumaResourcesScheduler;
use futures::StreamExt as _;
use futures::future::join_all;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use suite::context::checks::node_of;
use suite::run;
use suite::setup::Options;
use testbed::faults::{Disturbance, FAULT_HOLDER, Faults, Process};
use testbed::lane;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::harness::{report_paths, runtime, start, within};

const NAMESPACE: &str = "churn";
/// Number of clients that each run one pod after another. Together they request more than the cluster has.
const CLIENTS: u64 = 20;
/// How long a fault lasts, if it does not end by itself.
const FAULT_DURATION: Duration = Duration::from_secs(2);
/// Longest time that the clients may take to run [`ENDED_AFTER_FAULT`] pods after a fault, and to end. A lease is free after 15 s, and a pod is retried
/// after 10 s at the latest.
const TIMEOUT: Duration = Duration::from_mins(2);
/// This many ended pods prove that pods were created, placed and run since: each client had at most one pod before.
const ENDED_AFTER_FAULT: usize = 2 * CLIENTS as usize;
/// How long before a refusal an ended pod may have caused it.
const RELEVANT_BEFORE_REFUSAL: Duration = Duration::from_secs(3);
/// How often the only scheduler is replaced.
const REPLACEMENTS: usize = 12;
/// Time between two attempts to create a pod.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

#[test]
fn restarts_have_no_pod_refused_and_none_forgotten() {
    run_on(lane::Lane::Embedded, Schedulers::Two);
}

/// The same test on real kubelets.
mod long {
    use testbed::lane::Lane;

    use super::{Schedulers, run_on};

    #[test]
    #[ignore = "long: two and a half minutes of real kubelets"]
    fn restarts_have_no_pod_refused_and_none_forgotten_by_real_kubelets() {
        run_on(Lane::Local, Schedulers::Two);
    }

    #[test]
    #[ignore = "long: three and a half minutes of real kubelets"]
    fn replacements_of_the_only_scheduler_have_no_pod_refused_and_none_forgotten_by_real_kubelets()
    {
        run_on(Lane::Local, Schedulers::One);
    }
}

/// The number of schedulers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Schedulers {
    /// One, which is replaced again and again.
    One,
    /// Two, of which one leads.
    Two,
}

fn run_on(lane: lane::Lane, schedulers: Schedulers) {
    runtime().block_on(check(lane, schedulers));
}

async fn check(lane: lane::Lane, schedulers: Schedulers) {
    let paths = report_paths(&format!("churn/{}/{schedulers:?}", lane.name()));
    let (stream, _) = run::stream(&paths, Vec::new()).expect("the artefacts directory is writable");
    let options = Options::own(lane, &[]).expect("no flag is wrong");
    let session = start(&options, &stream, &paths).await;
    let cluster = session.own().expect("the cluster is this run's");
    let churn = Churn::new(cluster.client()).await;
    if schedulers == Schedulers::Two {
        churn.elect().await.expect("two schedulers elect a leader");
    }
    let over = watch::Sender::new(false);
    let clients = join_all((0..CLIENTS).map(|number| churn.client(number, over.subscribe())));
    let restarted = async {
        let progress = restart_components(&churn, &cluster.faults(), lane, schedulers).await;
        over.send_replace(true);
        progress
    };
    let progress = tokio::select! {
        () = churn.follow() => Err("the watch of the pods ended".to_owned()),
        (clients, progress) = async {
            tokio::join!(timeout(6 * TIMEOUT, clients), restarted)
        } => progress.and_then(|()| {
            clients.map(drop).map_err(|_| "clients still wait".to_owned())
        }),
    };
    let pods = churn.pods.borrow().clone();
    assert!(session.finish().await, "the tear-down works");
    let of = |wanted: fn(&Seen) -> bool| -> Vec<(String, Seen)> {
        let pods = pods.iter().filter(|(_, seen)| wanted(seen));
        pods.map(|(name, seen)| (name.clone(), seen.clone()))
            .collect()
    };
    let refused = of(|seen| seen.phase == "Failed");
    let forgotten = of(|seen| seen.phase != "Failed" && seen.phase != "Succeeded");
    assert_eq!(
        (refused, forgotten),
        (Vec::new(), Vec::new()),
        "{progress:?}"
    );
    assert_eq!(progress, Ok(()));
}

/// Restarts one program after another, each when the effects of the one before are over. Returns an error if pods no longer run.
async fn restart_components(
    churn: &Churn,
    faults: &Faults,
    lane: lane::Lane,
    schedulers: Schedulers,
) -> Result<(), String> {
    churn.wait_for_progress("at first").await?;
    if schedulers == Schedulers::One {
        for _ in 0..REPLACEMENTS {
            churn.replace_scheduler().await?;
            churn
                .wait_for_progress("another scheduler has taken over")
                .await?;
        }
        return Ok(());
    }
    let exporter = |pod: &Pod| node_of(pod) == Some("worker-0");
    let mut restarts = vec![
        (
            "the schedulers start again",
            churn.kill(names::SCHEDULER, |_| true).await,
        ),
        ("the API server starts again", vec![Disturbance::Outage]),
        (
            "an exporter starts again",
            churn.kill(names::RTE_CONTAINER, exporter).await,
        ),
    ];
    if lane == lane::Lane::Embedded {
        let kubelet = Disturbance::RestartKubelet {
            node: "worker-1".to_owned(),
        };
        restarts.push(("a kubelet starts again", vec![kubelet]));
    }
    for (text, all) in restarts {
        for what in all {
            let injected = faults.inject(&what, FAULT_DURATION).await;
            injected.map_err(|error| format!("{text}: {error}"))?;
        }
        churn.wait_for_progress(text).await?;
    }
    let lost = Disturbance::LoseLease {
        namespace: names::NAMESPACE.to_owned(),
        name: names::SCHEDULER_LEASE.to_owned(),
    };
    let injected = faults.inject(&lost, FAULT_DURATION).await;
    injected.map_err(|error| error.to_string())?;
    churn.wait_for_leader().await?;
    churn.wait_for_progress("the leader lost its lease").await
}

/// What is known about a pod.
#[derive(Clone, Debug, Default, PartialEq)]
struct Seen {
    cpus: String,
    phase: String,
    node: Option<String>,
    message: String,
    /// When it was first seen with its node and in each phase, since the start.
    history: Vec<(Duration, String)>,
}

impl Seen {
    fn has_ended(&self) -> bool {
        self.phase == "Succeeded" || self.phase == "Failed"
    }
}

/// Describes a refused pod and those that were on its node in the seconds before.
fn describe_refusal(name: &str, refused: &Seen, pods: &BTreeMap<String, Seen>) -> String {
    let at = refused.history.last().map_or(Duration::ZERO, |(at, _)| *at);
    let mut text = format!("refused: {name} {refused:?}");
    for (name, seen) in pods {
        let last = seen.history.last();
        let is_recent =
            last.is_some_and(|(last, _)| !seen.has_ended() || *last + RELEVANT_BEFORE_REFUSAL > at);
        if seen.node == refused.node && is_recent {
            write!(
                text,
                "\n  beside {name}: {} CPUs {:?}",
                seen.cpus, seen.history
            )
            .expect("it is a string");
        }
    }
    text
}

struct Churn {
    start: Instant,
    client: Client,
    api: Api<Pod>,
    /// Every pod that ever existed, by name.
    pods: watch::Sender<BTreeMap<String, Seen>>,
}

impl Churn {
    async fn new(client: Client) -> Self {
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}}))
            .expect("it is a namespace");
        namespaces
            .create(&PostParams::default(), &namespace)
            .await
            .expect("the namespace is made");
        Self {
            start: Instant::now(),
            api: Api::namespaced(client.clone(), NAMESPACE),
            client,
            pods: watch::Sender::default(),
        }
    }

    /// Keeps [`Self::pods`] up to date with the API server.
    async fn follow(&self) {
        let events = watcher(self.api.clone(), watcher::Config::default()).default_backoff();
        let mut pods = pin!(events.applied_objects());
        while let Some(pod) = pods.next().await {
            // while the API server does not answer
            let Ok(pod) = pod else { continue };
            let status = pod.status.clone().unwrap_or_default();
            let text = |text: Option<String>| text.unwrap_or_default();
            let mut message = text(status.reason);
            write!(message, " {}", text(status.message)).expect("it is a string");
            let phase = text(status.phase);
            let node = node_of(&pod).map(str::to_owned);
            let limits = pod.spec.iter().flat_map(|spec| &spec.containers);
            let mut limits =
                limits.filter_map(|container| container.resources.as_ref()?.limits.as_ref());
            let cpus = limits.next().and_then(|limits| limits.get("cpu"));
            self.pods.send_modify(|pods| {
                let seen = pods.entry(pod.name_any()).or_default();
                if seen.phase != phase || seen.node != node {
                    let entry = (self.start.elapsed(), phase.clone());
                    seen.history.push(entry);
                }
                seen.cpus = cpus.map(|cpus| cpus.0.clone()).unwrap_or_default();
                (seen.phase, seen.node, seen.message) = (phase, node, message);
            });
            let pods = self.pods.borrow();
            let name = pod.name_any();
            if let Some(refused) = pods.get(&name).filter(|seen| seen.phase == "Failed") {
                println!("{}", describe_refusal(&name, refused, &pods));
            }
        }
    }

    /// Runs one pod after another. Ends once the pod that runs when the test is over has ended.
    async fn client(&self, number: u64, over: watch::Receiver<bool>) {
        let mut seen = self.pods.subscribe();
        for made in 0.. {
            if *over.borrow() {
                return;
            }
            // sizes and lifetimes vary, but are the same in each run
            let mixed = (number * 7 + made * 11) % 9;
            let name = format!("churn-{number}-{made}");
            self.create(&name, 4 + 2 * mixed, 500 + 200 * mixed).await;
            let ended =
                |pods: &BTreeMap<String, Seen>| pods.get(&name).is_some_and(Seen::has_ended);
            seen.wait_for(ended).await.expect("the sender lives");
        }
    }

    /// Creates a pod and retries until it succeeds.
    async fn create(&self, name: &str, cpus: u64, milliseconds: u64) {
        let lifetime = format!("{}s", Duration::from_millis(milliseconds).as_secs_f64());
        let limits = json!({"cpu": cpus.to_string(), "memory": format!("{cpus}Gi")});
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "schedulerName": names::SCHEDULER_PROFILE,
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 0,
                "automountServiceAccountToken": false,
                "containers": [{
                    "name": "main",
                    "image": names::STACK_IMAGE,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["/bin/sleep", lifetime],
                    "resources": {"limits": limits},
                }],
            },
        }))
        .expect("it is a pod");
        self.pods.send_modify(|pods| {
            pods.entry(name.to_owned()).or_default();
        });
        loop {
            match self.api.create(&PostParams::default(), &pod).await {
                Ok(_) => return,
                // the answer to an earlier attempt was lost
                Err(kube::Error::Api(status)) if status.code == 409 => return,
                Err(_) => sleep(RETRY_INTERVAL).await,
            }
        }
    }

    /// Waits until pods have run that were created after this call.
    async fn wait_for_progress(&self, after: &str) -> Result<(), String> {
        let ended =
            |pods: &BTreeMap<String, Seen>| pods.values().filter(|seen| seen.has_ended()).count();
        let before = ended(&self.pods.borrow());
        let enough = |pods: &BTreeMap<String, Seen>| ended(pods) >= before + ENDED_AFTER_FAULT;
        let mut pods = self.pods.subscribe();
        let waited = timeout(TIMEOUT, pods.wait_for(enough)).await;
        if waited.is_ok() {
            let failed = |seen: &&Seen| seen.phase == "Failed";
            let refused = self.pods.borrow().values().filter(failed).count();
            println!("{after}: pods run again, {refused} were refused so far");
            return Ok(());
        }
        let now = ended(&self.pods.borrow());
        Err(format!(
            "{after}: {} of {ENDED_AFTER_FAULT} pods ended",
            now - before
        ))
    }

    /// Returns faults that kill a container in those pods of the stack for which `selects` holds.
    async fn kill(&self, container: &str, selects: impl Fn(&Pod) -> bool) -> Vec<Disturbance> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), names::NAMESPACE);
        let pods = pods.list(&ListParams::default()).await;
        let kills: Vec<Disturbance> = pods
            .expect("the pods are listed")
            .into_iter()
            .filter(&selects)
            .filter_map(|pod| {
                let spec = pod.spec.as_ref()?;
                let has = spec.containers.iter().any(|found| found.name == container);
                let process = Process {
                    node: node_of(&pod)?.to_owned(),
                    namespace: names::NAMESPACE.to_owned(),
                    pod: pod.name_any(),
                    container: container.to_owned(),
                };
                has.then_some(Disturbance::Kill { process })
            })
            .collect();
        assert!(!kills.is_empty(), "no pod has a container {container}");
        kills
    }

    /// Kills the scheduler's pod without notice. Its Deployment creates another one at once, whereas a container would restart after a
    /// growing backoff.
    async fn replace_scheduler(&self) -> Result<(), String> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), names::NAMESPACE);
        let params = ListParams::default().labels(&format!("app={}", names::SCHEDULER));
        let found = pods
            .list(&params)
            .await
            .map_err(|error| error.to_string())?;
        let at_once = DeleteParams::default().grace_period(0);
        for pod in found {
            let deleted = pods.delete(&pod.name_any(), &at_once).await;
            deleted.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Runs two schedulers, so that they elect a leader. The operator requires a node of the control plane for each.
    async fn elect(&self) -> Result<(), String> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let second = json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}});
        let patched = nodes
            .patch("worker-3", &PatchParams::default(), &Patch::Merge(second))
            .await;
        patched.map_err(|error| error.to_string())?;
        let schedulers: Api<NumaResourcesScheduler> = Api::all(self.client.clone());
        let two = Patch::Merge(json!({"spec": {"replicas": 2}}));
        let patched = schedulers
            .patch(names::SCHEDULER_CR, &PatchParams::default(), &two)
            .await;
        patched.map_err(|error| error.to_string())?;
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), names::NAMESPACE);
        within(TIMEOUT, async || {
            let deployment = deployments.get(names::SCHEDULER).await;
            let status = deployment.ok().and_then(|deployment| deployment.status);
            let status = status.unwrap_or_default();
            let counts = [
                status.updated_replicas,
                status.replicas,
                status.available_replicas,
            ];
            // an old one without a lease would place pods beside the leader
            if counts == [Some(2); 3] && status.terminating_replicas.is_none_or(|count| count == 0)
            {
                return Ok(());
            }
            Err(format!("updated, all and available are {counts:?}"))
        })
        .await?;
        self.wait_for_leader().await
    }

    /// Waits until a scheduler holds the lease.
    async fn wait_for_leader(&self) -> Result<(), String> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), names::NAMESPACE);
        within(TIMEOUT, async || {
            let lease = leases.get_opt(names::SCHEDULER_LEASE).await;
            let spec = lease.ok().flatten().and_then(|lease| lease.spec);
            let holder = spec.and_then(|spec| spec.holder_identity);
            let is_free = |holder: &String| holder.is_empty() || holder == FAULT_HOLDER;
            match &holder {
                Some(holder) if !is_free(holder) => Ok(()),
                _ => Err(format!("the scheduler's lease has holder {holder:?}")),
            }
        })
        .await
    }
}
