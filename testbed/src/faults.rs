//! Faults on demand and by seed, of the API server and of nodes, through one interface.
//!
//! A [`Disturbance`] is one thing that goes wrong for a while and then is put right again. [`Faults::inflict`] makes it happen; a
//! [`Schedule`] is a series of them, written down or drawn from a seed, that [`Faults::play`] makes happen in time.
//! What a cluster cannot do (a real API server knows no rules, a real kubelet lets nobody into the place of its socket) is an error of its
//! own; [`Faults::reaches`] tells before, so that a scenario can be skipped for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use apiserver::faults::Faults as ApiFaults;
pub use apiserver::faults::{Fault, Rule, Selector, WatchEnd};
use futures::FutureExt as _;
use futures::future::join_all;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::OwnedMutexGuard;

use crate::node::control::{Signal, Target};

pub mod nodes;
pub mod process;
pub mod schedule;
pub mod socket;

pub use nodes::NodeFaults;
use process::ApiServerProcess;
pub use schedule::{Schedule, Step, Targets};
use socket::{SocketFault, SocketProxy};

/// Who holds a lease that was taken away.
pub const THIEF: &str = "numaresources-testbed-fault";

/// A process of a pod, by its container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Process {
    /// The node that it runs on.
    pub node: String,
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Name of the container.
    pub container: String,
}

impl Process {
    fn target(&self) -> Target {
        Target::new(&self.namespace, &self.pod, &self.container)
    }
}

/// Something that goes wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "kind",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Disturbance {
    /// A rule of the API server, removed afterwards.
    Api {
        /// The rule.
        rule: Rule,
    },
    /// Open watches end.
    EndWatches {
        /// Which.
        select: Selector,
        /// How.
        how: WatchEnd,
    },
    /// The API server forgets its history: who watches from an earlier version has to list again.
    Compact,
    /// The API server is down.
    Outage,
    /// Somebody else takes the lease of a leader, once.
    LoseLease {
        /// Namespace of the lease.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A process is killed.
    Kill {
        /// Which.
        process: Process,
    },
    /// A process stands still.
    Stop {
        /// Which.
        process: Process,
    },
    /// A node goes silent: its kubelet stops, its containers live on.
    Silence {
        /// Which.
        node: String,
    },
    /// A kubelet ends and starts again at once.
    RestartKubelet {
        /// The node.
        node: String,
    },
    /// The podresources socket of a node is bad.
    PodResources {
        /// The node.
        node: String,
        /// How bad.
        fault: SocketFault,
    },
}

impl Disturbance {
    /// Whether it is over as soon as it has happened.
    pub fn is_momentary(&self) -> bool {
        matches!(
            self,
            Self::EndWatches { .. }
                | Self::Compact
                | Self::LoseLease { .. }
                | Self::Kill { .. }
                | Self::RestartKubelet { .. }
        )
    }
}

/// Why something did not go wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cluster has nothing to do it with.
    #[error("this cluster cannot {0}")]
    Unsupported(&'static str),
    /// No node of that name.
    #[error("no node {0}")]
    NoNode(String),
    /// A node could not do it.
    #[error("node {node} did not {what}")]
    Node {
        /// The node.
        node: String,
        /// What it was to do.
        what: &'static str,
        /// Why not.
        #[source]
        source: Failed,
    },
    /// The process of the API server did not end, or did not start again.
    #[error("cannot restart the API server")]
    Process(#[source] Failed),
    /// The lease could not be written.
    #[error("cannot take lease {name}")]
    Lease {
        /// Its name.
        name: String,
        /// Why not.
        #[source]
        source: Box<kube::Error>,
    },
    /// Nobody could take the place of a socket's server.
    #[error("cannot listen in the place of a socket's server")]
    Socket(#[from] socket::Error),
}

/// Why a node handle could not do something.
pub type Failed = Box<dyn std::error::Error + Send + Sync>;

/// A part of a cluster that can be disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// What its API server answers.
    ApiServer,
    /// Processes and kubelets of its nodes.
    Nodes,
    /// The podresources sockets of its nodes.
    PodResources,
}

impl Part {
    /// What is done to it, after "can".
    pub const fn verb(self) -> &'static str {
        match self {
            Self::ApiServer => "disturb its API server",
            Self::Nodes => "disturb its nodes",
            Self::PodResources => "disturb the podresources sockets of its nodes",
        }
    }
}

/// The faults of a cluster.
#[derive(Clone)]
pub struct Faults {
    client: Client,
    api: Option<ApiFaults>,
    /// The API server where it is a process and not ours.
    process: Option<ApiServerProcess>,
    nodes: Option<Arc<dyn NodeFaults>>,
    /// Kubelets that something is done to; nothing else is done to them meanwhile.
    busy: Arc<Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>>,
}

impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Faults")
            .field("api", &self.api.is_some())
            .field("nodes", &self.nodes.is_some())
            .finish_non_exhaustive()
    }
}

/// Removes a rule when its time is over, or nobody waits for that any more.
struct RuleInForce<'a>(&'a ApiFaults, apiserver::faults::RuleId);

impl Drop for RuleInForce<'_> {
    fn drop(&mut self) {
        self.0.remove(self.1);
    }
}

impl Faults {
    /// The faults of a cluster: `client` with the rights to write leases, the rest as far as the cluster has it.
    pub fn new(client: Client, api: Option<ApiFaults>, nodes: Option<Arc<dyn NodeFaults>>) -> Self {
        Self {
            client,
            api,
            process: None,
            nodes,
            busy: Arc::default(),
        }
    }

    /// With an API server that can be ended and started.
    #[must_use]
    pub fn with_process(mut self, process: ApiServerProcess) -> Self {
        self.process = Some(process);
        self
    }

    /// Whether a part of the cluster can be disturbed at all.
    pub fn reaches(&self, part: Part) -> bool {
        match part {
            Part::ApiServer => self.api.is_some(),
            Part::Nodes => self.nodes.is_some(),
            Part::PodResources => self
                .nodes
                .as_ref()
                .is_some_and(|nodes| nodes.lends_podresources()),
        }
    }

    /// The rules of the API server, where it is ours.
    pub fn api(&self) -> Result<&ApiFaults, Error> {
        let unsupported = Error::Unsupported(Part::ApiServer.verb());
        self.api.as_ref().ok_or(unsupported)
    }

    fn nodes(&self, node: &str) -> Result<&dyn NodeFaults, Error> {
        let nodes = self.nodes.as_deref();
        let nodes = nodes.ok_or(Error::Unsupported(Part::Nodes.verb()))?;
        if nodes.knows(node) {
            Ok(nodes)
        } else {
            Err(Error::NoNode(node.to_owned()))
        }
    }

    /// Makes something go wrong for a time, and puts it right again; what is momentary ignores the time. The answer is how many requests,
    /// watches or connections it struck, where that can be counted.
    ///
    /// When this is dropped before its end, rules of the API server are taken back; nodes stay as they are then.
    pub async fn inflict(&self, what: &Disturbance, lasting: Duration) -> Result<u64, Error> {
        self.inflict_until(what, tokio::time::sleep(lasting)).await
    }

    /// The same until something is over.
    pub async fn inflict_until(
        &self,
        what: &Disturbance,
        over: impl Future<Output = ()>,
    ) -> Result<u64, Error> {
        match what {
            Disturbance::Api { rule } => {
                let api = self.api()?;
                let rule = RuleInForce(api, api.add(rule.clone()));
                over.await;
                Ok(api.hits(rule.1))
            }
            Disturbance::EndWatches { select, how } => {
                Ok(self.api()?.end_watches(select, *how) as u64)
            }
            Disturbance::Compact => {
                self.api()?.compact();
                Ok(0)
            }
            Disturbance::Outage => self.outage(over).await,
            Disturbance::LoseLease { namespace, name } => self.take_lease(namespace, name).await,
            Disturbance::Kill { process } => self.signal(process, Signal::Kill, "kill").await,
            Disturbance::Stop { process } => {
                self.signal(process, Signal::Stop, "stop").await?;
                over.await;
                self.signal(process, Signal::Cont, "continue").await
            }
            Disturbance::Silence { node } => self.silence(node, over).await,
            Disturbance::RestartKubelet { node } => {
                self.silence(node, std::future::ready(())).await
            }
            Disturbance::PodResources { node, fault } => self.spoil(node, *fault, over).await,
        }
    }

    async fn outage(&self, over: impl Future<Output = ()>) -> Result<u64, Error> {
        if let Some(process) = &self.process {
            process.stop().await.map_err(Error::Process)?;
            over.await;
            process.start().await.map_err(Error::Process)?;
        } else {
            let api = self.api()?;
            api.down().await;
            over.await;
            api.up().await;
        }
        Ok(0)
    }

    /// Another disturbance of the same kubelet waits until this is dropped.
    async fn alone(&self, node: &str) -> OwnedMutexGuard<()> {
        let one = {
            let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(busy.entry(node.to_owned()).or_default())
        };
        one.lock_owned().await
    }

    async fn spoil(
        &self,
        node: &str,
        fault: SocketFault,
        over: impl Future<Output = ()>,
    ) -> Result<u64, Error> {
        let nodes = self.nodes(node)?;
        if !nodes.lends_podresources() {
            return Err(Error::Unsupported(Part::PodResources.verb()));
        }
        let _alone = self.alone(node).await;
        let socket = nodes.stop_podresources(node).await;
        let socket = socket.map_err(failed(node, "end its podresources service"))?;
        let bad = SocketProxy::instead(&socket, fault);
        if bad.is_ok() {
            over.await;
        }
        let struck = bad.map(|bad| bad.struck());
        let started = nodes.start_podresources(node).await;
        started.map_err(failed(node, "serve podresources again"))?;
        Ok(struck?)
    }

    async fn signal(
        &self,
        process: &Process,
        signal: Signal,
        what: &'static str,
    ) -> Result<u64, Error> {
        let (node, target) = (&process.node, process.target());
        let sent = self.nodes(node)?.signal(node, &target, signal).await;
        sent.map(|()| 1).map_err(failed(node, what))
    }

    async fn silence(&self, node: &str, over: impl Future<Output = ()>) -> Result<u64, Error> {
        let nodes = self.nodes(node)?;
        let _alone = self.alone(node).await;
        let stopped = nodes.stop_kubelet(node).await;
        stopped.map_err(failed(node, "stop its kubelet"))?;
        over.await;
        let started = nodes.start_kubelet(node).await;
        started
            .map(|()| 1)
            .map_err(failed(node, "start its kubelet"))
    }

    /// Writes over a lease, as another candidate does that believes it expired.
    async fn take_lease(&self, namespace: &str, name: &str) -> Result<u64, Error> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), namespace);
        let taken = async {
            let held = leases.get(name).await?;
            let transitions = held.spec.and_then(|spec| spec.lease_transitions);
            let now = MicroTime(Timestamp::now());
            let taken = json!({"spec": {
                "holderIdentity": THIEF, "acquireTime": now, "renewTime": now,
                "leaseTransitions": transitions.unwrap_or(0) + 1,
            }});
            leases
                .patch(name, &PatchParams::default(), &Patch::Merge(taken))
                .await
        };
        taken.await.map(|_| 1).map_err(|source| Error::Lease {
            name: name.to_owned(),
            source: Box::new(source),
        })
    }

    /// Plays a schedule, each step at its time, also while earlier ones last. The answers are those of the steps, in their order.
    pub async fn play(&self, schedule: &Schedule) -> Vec<Result<u64, Error>> {
        let answers = self.play_until(schedule, std::future::pending()).await;
        // without an end every step has its turn
        answers.into_iter().flatten().collect()
    }

    /// The same until something is over: then what is wrong is put right at once, and steps that have not begun have no answer.
    pub async fn play_until(
        &self,
        schedule: &Schedule,
        over: impl Future<Output = ()>,
    ) -> Vec<Option<Result<u64, Error>>> {
        let start = tokio::time::Instant::now();
        let over = over.shared();
        let steps = schedule.steps.iter().map(async |step| {
            let turn = tokio::time::sleep_until(start + step.after());
            tokio::select! {
                () = turn => {}
                () = over.clone() => return None,
            }
            let over = async {
                tokio::select! {
                    () = tokio::time::sleep(step.lasting()) => {}
                    () = over.clone() => {}
                }
            };
            Some(self.inflict_until(&step.what, over).await)
        });
        join_all(steps).await
    }
}

fn failed(node: &str, what: &'static str) -> impl FnOnce(Failed) -> Error {
    let node = node.to_owned();
    move |source| Error::Node { node, what, source }
}
