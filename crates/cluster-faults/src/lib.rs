//! Fault injection for the API server and the nodes of a cluster, on demand or from a seed.
//!
//! A [`Disturbance`] is one fault that lasts for a while and is then undone. [`Faults::inject`] injects it. A [`Schedule`] is a series of
//! disturbances, written down or drawn from a seed, and [`Faults::play`] injects each at its time. Some clusters do not support every
//! disturbance: a real API server has no fault rules, and a real kubelet does not let anybody replace its socket. Such a disturbance fails
//! with [`Error::Unsupported`]. [`Faults::supports`] tells beforehand, so that a scenario can be skipped.

use std::collections::BTreeMap;
use std::sync::Arc;
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
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::OwnedMutexGuard;

use cri_runtime::control::{Signal, Target};

mod node_loss;
pub mod nodes;
pub mod process;
pub mod schedule;
pub mod socket;

pub use nodes::NodeFaults;
pub use process::ServerProcess;
pub use schedule::{Schedule, SeededRandom, Step, Targets};
use socket::{SocketFault, SocketProxy};

/// Holder identity of a lease that was taken away.
pub const FAULT_HOLDER: &str = "numaresources-testbed-fault";

/// A process of a pod, identified by its container.
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

/// A fault to inject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "kind",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Disturbance {
    /// A rule of the API server, which is removed afterwards.
    Api {
        /// The rule.
        rule: Rule,
    },
    /// Open watches end.
    EndWatches {
        /// The watches to end.
        select: Selector,
        /// How they end.
        how: WatchEnd,
    },
    /// The API server compacts its history: watches from an earlier resource version have to list again.
    Compact,
    /// The API server is down.
    Outage,
    /// Another holder takes a leader's lease, once.
    LoseLease {
        /// Namespace of the lease.
        namespace: String,
        /// Name of the lease.
        name: String,
    },
    /// A process is killed.
    Kill {
        /// The process.
        process: Process,
    },
    /// A process is frozen (`SIGSTOP`) and continued afterwards.
    Stop {
        /// The process.
        process: Process,
    },
    /// A node goes silent: its kubelet stops, its containers live on.
    Silence {
        /// The node.
        node: String,
    },
    /// A kubelet stops and starts again at once.
    RestartKubelet {
        /// The node.
        node: String,
    },
    /// A node is deleted while its kubelet is down, and comes back as another object; its containers live on.
    LoseNode {
        /// The node.
        node: String,
    },
    /// The podresources socket of a node misbehaves.
    PodResources {
        /// The node.
        node: String,
        /// The kind of misbehaviour.
        fault: SocketFault,
    },
}

impl Disturbance {
    /// Returns whether the disturbance is over as soon as it has happened.
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

/// Why a disturbance failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cluster does not support it.
    #[error("this cluster cannot {0}")]
    Unsupported(&'static str),
    /// No node has this name.
    #[error("no node {0}")]
    NoNode(String),
    /// An operation on a node failed.
    #[error("node {node} did not {what}")]
    Node {
        /// The node.
        node: String,
        /// The operation.
        what: &'static str,
        /// The cause.
        #[source]
        source: BoxError,
    },
    /// The API server process did not stop or did not start again.
    #[error("cannot restart the API server")]
    Process(#[source] BoxError),
    /// The lease could not be written.
    #[error("cannot take lease {name}")]
    Lease {
        /// Name of the lease.
        name: String,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
    /// The replacement of a socket's server could not listen.
    #[error("cannot replace the server of a socket")]
    Socket(#[from] socket::Error),
}

/// Error of an operation on a node or on the process of an API server.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A part of a cluster that can be disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The responses of the API server.
    ApiServer,
    /// The processes and kubelets of the nodes.
    Nodes,
    /// The podresources sockets of the nodes.
    PodResources,
}

impl Part {
    /// Returns what is done to the part, as the words that follow "can".
    pub const fn verb(self) -> &'static str {
        match self {
            Self::ApiServer => "disturb its API server",
            Self::Nodes => "disturb its nodes",
            Self::PodResources => "disturb the podresources sockets of its nodes",
        }
    }
}

/// The faults of a cluster. Clones know of each other's disturbances, others do not: a cluster makes one and hands out clones.
#[derive(Clone)]
pub struct Faults {
    client: Client,
    api: Option<ApiFaults>,
    /// The API server, if it is a process of real Kubernetes.
    process: Option<Arc<dyn ServerProcess>>,
    nodes: Option<Arc<dyn NodeFaults>>,
    /// One lock per kubelet, so that only one disturbance of a kubelet runs at a time.
    kubelet_locks: Arc<Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>>,
    /// Held while the API server is down, so that only one outage runs at a time.
    server_lock: Arc<tokio::sync::Mutex<()>>,
}

impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Faults")
            .field("api", &self.api.is_some())
            .field("nodes", &self.nodes.is_some())
            .finish_non_exhaustive()
    }
}

/// Removes a rule when it is dropped: when its time is over, or when the caller stops waiting.
struct ActiveRule<'a>(&'a ApiFaults, apiserver::faults::RuleId);

impl Drop for ActiveRule<'_> {
    fn drop(&mut self) {
        self.0.remove(self.1);
    }
}

/// Lets the embedded server come back when it is dropped, as [`ActiveRule`].
struct ActiveOutage<'a>(&'a ApiFaults);

impl Drop for ActiveOutage<'_> {
    fn drop(&mut self) {
        self.0.let_up();
    }
}

impl Faults {
    /// Returns the faults of a cluster. `client` needs the right to write leases and nodes; the rest is what the cluster supports.
    pub fn new(client: Client, api: Option<ApiFaults>, nodes: Option<Arc<dyn NodeFaults>>) -> Self {
        Self {
            client,
            api,
            process: None,
            nodes,
            kubelet_locks: Arc::default(),
            server_lock: Arc::default(),
        }
    }

    /// Adds an API server that can be stopped and started.
    #[must_use]
    pub fn with_process(mut self, process: Arc<dyn ServerProcess>) -> Self {
        self.process = Some(process);
        self
    }

    /// Returns whether a part of the cluster can be disturbed at all.
    pub fn supports(&self, part: Part) -> bool {
        match part {
            Part::ApiServer => self.api.is_some(),
            Part::Nodes => self.nodes.is_some(),
            Part::PodResources => self
                .nodes
                .as_ref()
                .is_some_and(|nodes| nodes.can_replace_podresources()),
        }
    }

    /// Returns the fault rules of the API server, if it is the embedded one.
    pub fn api(&self) -> Result<&ApiFaults, Error> {
        let unsupported = Error::Unsupported(Part::ApiServer.verb());
        self.api.as_ref().ok_or(unsupported)
    }

    fn nodes(&self, node: &str) -> Result<&dyn NodeFaults, Error> {
        let nodes = self.nodes.as_deref();
        let nodes = nodes.ok_or(Error::Unsupported(Part::Nodes.verb()))?;
        if nodes.has_node(node) {
            Ok(nodes)
        } else {
            Err(Error::NoNode(node.to_owned()))
        }
    }

    /// Injects a disturbance for a time and undoes it; a momentary one ignores the time. Returns how many requests, watches or connections
    /// it affected, where that can be counted.
    ///
    /// A disturbance of a kubelet or of the whole API server waits until an earlier one of the same has ended, and then lasts its whole time.
    ///
    /// When the returned future is dropped before its end, rules of the embedded API server are removed and its outage ends, but nodes and
    /// processes stay as they are.
    pub async fn inject(&self, what: &Disturbance, lasting: Duration) -> Result<u64, Error> {
        // the time starts when somebody first waits for its end
        self.inject_until(what, async { tokio::time::sleep(lasting).await })
            .await
    }

    /// Injects a disturbance like [`Self::inject`], until `over` is ready.
    pub async fn inject_until(
        &self,
        what: &Disturbance,
        over: impl Future<Output = ()>,
    ) -> Result<u64, Error> {
        // or the future would have room for one in each arm
        let over = Box::pin(over);
        match what {
            Disturbance::Api { rule } => {
                let api = self.api()?;
                let rule = ActiveRule(api, api.add(rule.clone()));
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
            Disturbance::LoseNode { node } => {
                let nodes = self.nodes(node)?;
                let _lock = self.lock_kubelet(node).await;
                node_loss::lose(&self.client, nodes, node, over).await
            }
            Disturbance::PodResources { node, fault } => {
                self.replace_podresources(node, *fault, over).await
            }
        }
    }

    async fn outage(&self, over: impl Future<Output = ()>) -> Result<u64, Error> {
        let _lock = self.server_lock.lock().await;
        if let Some(process) = &self.process {
            process.stop().await.map_err(Error::Process)?;
            over.await;
            process.start().await.map_err(Error::Process)?;
        } else {
            let api = self.api()?;
            let active = ActiveOutage(api);
            api.down().await;
            over.await;
            drop(active);
            api.up().await;
        }
        Ok(0)
    }

    /// Returns a guard; another disturbance of the same kubelet waits until it is dropped.
    async fn lock_kubelet(&self, node: &str) -> OwnedMutexGuard<()> {
        let one = {
            let mut locks = self.kubelet_locks.lock();
            Arc::clone(locks.entry(node.to_owned()).or_default())
        };
        one.lock_owned().await
    }

    async fn replace_podresources(
        &self,
        node: &str,
        fault: SocketFault,
        over: impl Future<Output = ()>,
    ) -> Result<u64, Error> {
        let nodes = self.nodes(node)?;
        if !nodes.can_replace_podresources() {
            return Err(Error::Unsupported(Part::PodResources.verb()));
        }
        let _lock = self.lock_kubelet(node).await;
        let socket = nodes.stop_podresources(node).await;
        let socket = socket.map_err(failed(node, "end its podresources service"))?;
        let bad = SocketProxy::replace(&socket, fault);
        if bad.is_ok() {
            over.await;
        }
        let affected = bad.map(|bad| bad.affected());
        let started = nodes.start_podresources(node).await;
        started.map_err(failed(node, "serve podresources again"))?;
        Ok(affected?)
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
        let _lock = self.lock_kubelet(node).await;
        let stopped = nodes.stop_kubelet(node).await;
        stopped.map_err(failed(node, "stop its kubelet"))?;
        over.await;
        let started = nodes.start_kubelet(node).await;
        started
            .map(|()| 1)
            .map_err(failed(node, "start its kubelet"))
    }

    /// Overwrites a lease, like another candidate that believes it expired.
    async fn take_lease(&self, namespace: &str, name: &str) -> Result<u64, Error> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), namespace);
        let taken = async {
            let held = leases.get(name).await?;
            let transitions = held.spec.and_then(|spec| spec.lease_transitions);
            let now = MicroTime(Timestamp::now());
            let taken = json!({"spec": {
                "holderIdentity": FAULT_HOLDER, "acquireTime": now, "renewTime": now,
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

    /// Plays a schedule. Each step starts at its time, even while earlier ones last. Returns the results in the order of the steps.
    pub async fn play(&self, schedule: &Schedule) -> Vec<Result<u64, Error>> {
        let answers = self.play_until(schedule, std::future::pending()).await;
        // Without an end every step takes place.
        answers.into_iter().flatten().collect()
    }

    /// Like [`Self::play`], until `over` is ready. Active disturbances are undone at once then, and steps that have not begun return
    /// `None`.
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
            Some(self.inject_until(&step.what, over).await)
        });
        join_all(steps).await
    }
}

fn failed(node: &str, what: &'static str) -> impl FnOnce(BoxError) -> Error {
    let node = node.to_owned();
    move |source| Error::Node { node, what, source }
}
