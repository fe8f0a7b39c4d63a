//! Clients that each run one pod after another, what became of their pods, and the restarts that disturb them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::pin::pin;
use std::time::Duration;

use api::names;
use api::scheduler::v1::NumaResourcesScheduler;
use cluster_faults::{Disturbance, FAULT_HOLDER, Process};
use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use suite::context::checks::node_of;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::{CLIENTS, TIMEOUT};

const NAMESPACE: &str = "churn";
/// This many ended pods prove that pods were created, placed and run since: each client had at most one pod before.
const ENDED_AFTER_FAULT: usize = 2 * CLIENTS as usize;
/// How long before a refusal an ended pod may have caused it.
const RELEVANT_BEFORE_REFUSAL: Duration = Duration::from_secs(3);
/// Time between two attempts to create a pod.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// What is known about a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Seen {
    cpus: String,
    pub(super) phase: String,
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

/// A cluster on which clients run one pod after another.
pub(super) struct Churn {
    start: Instant,
    client: Client,
    api: Api<Pod>,
    /// Every pod that ever existed, by name.
    pub(super) pods: watch::Sender<BTreeMap<String, Seen>>,
}

impl Churn {
    pub(super) async fn new(client: Client) -> Self {
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
    pub(super) async fn follow(&self) {
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
    pub(super) async fn client(&self, number: u64, over: watch::Receiver<bool>) {
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
    pub(super) async fn wait_for_progress(&self, after: &str) -> Result<(), String> {
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
    pub(super) async fn kill(
        &self,
        container: &str,
        selects: impl Fn(&Pod) -> bool,
    ) -> Vec<Disturbance> {
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
    pub(super) async fn replace_scheduler(&self) -> Result<(), String> {
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
    pub(super) async fn elect(&self) -> Result<(), String> {
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
        testbed::eventually(TIMEOUT, async || {
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
    pub(super) async fn wait_for_leader(&self) -> Result<(), String> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), names::NAMESPACE);
        testbed::eventually(TIMEOUT, async || {
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
