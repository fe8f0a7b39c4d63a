//! Drives the real kubelets of a local cluster through random pod sequences and writes down what they do.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use podresources::client::PodResources;
use podresources::socket::Socket;
use serde_json::Value;

use super::corpus::{self, Configuration, ContainerView, DeviceEntry, Operation, Refusal, Seen};
use super::corpus::{Sequence, Step};
use super::random;
use crate::local::cluster::up;
use crate::local::progress::Report;
use crate::local::{ClusterSpec, KubeletSettings, LocalCluster, NodeHandle, NodePlan};
use crate::local::{assets::Assets, node_handle};

/// Namespace of the pods.
pub const NAMESPACE: &str = "default";
/// Longest that a kubelet may take for a pod.
const LIMIT: Duration = Duration::from_mins(1);
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// What to record.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Directory of clusters.
    pub state_root: PathBuf,
    /// The Kubernetes programs.
    pub assets: Assets,
    /// Directory with `numaresources-testbed`.
    pub bin_dir: PathBuf,
    /// Directory of the corpus.
    pub out: PathBuf,
    /// Sequences for each configuration.
    pub sequences: u64,
    /// Seed of the first sequence.
    pub seed: u64,
    /// No sequence begins after this time.
    pub limit: Duration,
    /// Only configurations whose name contains this.
    pub only: Option<String>,
}

/// Why recording failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A built-in machine is wrong.
    #[error(transparent)]
    Machine(#[from] fixtures::machines::profile::Error),
    /// The cluster did not come up.
    #[error(transparent)]
    Up(#[from] up::Error),
    /// A node failed.
    #[error(transparent)]
    Node(#[from] node_handle::Error),
    /// The API server refused.
    #[error("the API server refused something about {name}")]
    Api {
        /// Pod or node.
        name: String,
        /// What went wrong.
        #[source]
        source: Box<kube::Error>,
    },
    /// The kubelet's socket.
    #[error("the podresources socket of {0} has no usable name")]
    Socket(String),
    /// The kubelet's answer.
    #[error(transparent)]
    PodResources(#[from] podresources::client::Error),
    /// A file of the kubelet is not what it should be.
    #[error("cannot read a state file of the kubelet")]
    State(#[from] serde_json::Error),
    /// The corpus.
    #[error(transparent)]
    Corpus(#[from] corpus::Error),
    /// It took too long.
    #[error("{name}: {what} took more than {} s", LIMIT.as_secs())]
    Late {
        /// Pod.
        name: String,
        /// What was waited for.
        what: &'static str,
    },
    /// A task of ours died.
    #[error("a recording task ended")]
    Task(#[from] tokio::task::JoinError),
}

/// Records; the number of sequences written. One node for each machine, all at once.
pub async fn record(plan: Plan, report: Report<'_>) -> Result<usize, Error> {
    let wanted = |name: &str| plan.only.as_deref().is_none_or(|only| name.contains(only));
    let mut configurations = random::configurations()?;
    for (_, list) in &mut configurations {
        list.retain(|(name, _)| wanted(name));
    }
    configurations.retain(|(_, list)| !list.is_empty());
    let nodes = configurations
        .iter()
        .map(|(machine, list)| NodePlan {
            name: machine.name().to_owned(),
            machine: machine.clone(),
            kubelet: list[0].1.clone(),
            labels: Vec::new(),
            taints: Vec::new(),
        })
        .collect();
    let spec = ClusterSpec {
        name: "record-kubelet".to_owned(),
        state_root: plan.state_root.clone(),
        assets: plan.assets.clone(),
        bin_dir: plan.bin_dir.clone(),
        nodes,
        hide_allocations: false,
    };
    let cluster = LocalCluster::up(spec, report).await?;
    let deadline = Instant::now() + plan.limit;
    let mut tasks = tokio::task::JoinSet::new();
    for (node, (_, list)) in cluster.nodes().iter().zip(configurations) {
        let recorder = Recorder {
            node: node.clone(),
            pods: Api::namespaced(cluster.client(), NAMESPACE),
            nodes: Api::all(cluster.client()),
            uids: BTreeMap::new(),
        };
        tasks.spawn(recorder.run(list, plan.clone(), deadline));
    }
    let mut count = 0;
    let mut failure = None;
    while let Some(outcome) = tasks.join_next().await {
        match outcome? {
            Ok(recorded) => count += recorded,
            Err(error) => failure = Some(error),
        }
    }
    drop(cluster);
    failure.map_or(Ok(count), Err)
}

/// One node.
struct Recorder {
    node: NodeHandle,
    pods: Api<Pod>,
    nodes: Api<Node>,
    /// Name → UID of every pod that this kubelet configuration saw.
    uids: BTreeMap<String, String>,
}

impl Recorder {
    async fn run(
        mut self,
        list: Vec<(String, KubeletSettings)>,
        plan: Plan,
        deadline: Instant,
    ) -> Result<usize, Error> {
        let mut count = 0;
        for (index, (name, settings)) in list.into_iter().enumerate() {
            if Instant::now() > deadline {
                break;
            }
            if index > 0 {
                self.node.restart_kubelet(&settings).await?;
            }
            self.uids.clear();
            let path = plan
                .out
                .join(format!("{name}-s{}.{}", plan.seed, corpus::EXTENSION));
            let configuration = self.configuration(name.clone(), &settings).await?;
            let mut sequences = Vec::new();
            for number in 0..plan.sequences {
                if Instant::now() > deadline {
                    break;
                }
                let seed = plan.seed + number + 1_000_000 * index as u64;
                sequences.push(self.sequence(seed, &settings).await?);
                corpus::write(&path, &configuration, &sequences)?;
            }
            tracing::info!(configuration = %name, sequences = sequences.len(), "Recorded");
            count += sequences.len();
        }
        Ok(count)
    }

    fn client(&self) -> Result<PodResources, Error> {
        let socket = self
            .node
            .host_path(&Path::new(node_handle::POD_RESOURCES).join("kubelet.sock"));
        let socket = Socket::new(socket).map_err(|error| Error::Socket(error.to_string()))?;
        Ok(PodResources::new(&socket, Duration::from_secs(10)))
    }

    async fn configuration(
        &self,
        name: String,
        settings: &KubeletSettings,
    ) -> Result<Configuration, Error> {
        // Devices of pods of the configuration before are forgotten at a List, not at the first admission after a restart.
        self.client()?.list().await?;
        let node = self.nodes.get(self.node.name()).await;
        let status = node
            .map_err(|source| api_error(self.node.name(), source))?
            .status
            .unwrap_or_default();
        let texts = |list: Option<BTreeMap<String, _>>| {
            list.unwrap_or_default()
                .into_iter()
                .filter(|(name, _)| name != "ephemeral-storage")
                .map(
                    |(name, quantity): (
                        String,
                        k8s_openapi::apimachinery::pkg::api::resource::Quantity,
                    )| (name, quantity.0),
                )
                .collect()
        };
        Ok(Configuration {
            name,
            machine: self.node.machine().clone(),
            settings: settings.clone(),
            capacity: texts(status.capacity),
            allocatable: texts(status.allocatable),
            resources: ContainerView::of_allocatable(&self.client()?.allocatable().await?),
        })
    }

    async fn sequence(&mut self, seed: u64, settings: &KubeletSettings) -> Result<Sequence, Error> {
        let client = self.client()?;
        let prefix = format!("{}-{seed}", self.node.name());
        let mut steps = Vec::new();
        let mut alive: Vec<String> = Vec::new();
        for operation in random::operations(seed, self.node.machine(), settings, &prefix) {
            let mut seen = Seen::default();
            match &operation {
                Operation::Create { name, pod } => {
                    let object = pod.pod(NAMESPACE, name, self.node.name());
                    seen.refusal = self.create(name, &object, pod.runs).await?;
                    alive.push(name.clone());
                }
                Operation::Delete { name } => {
                    self.delete(std::slice::from_ref(name), &client).await?;
                    alive.retain(|other| other != name);
                }
                Operation::Drain => self.delete(&alive, &client).await?,
            }
            self.look(&operation, &client, &mut seen).await?;
            steps.push(Step { operation, seen });
        }
        Ok(Sequence { seed, steps })
    }

    /// Creates a pod and waits for its admission, or for its containers; why it was refused.
    async fn create(
        &mut self,
        name: &str,
        pod: &Pod,
        runs: bool,
    ) -> Result<Option<Refusal>, Error> {
        let made = self.pods.create(&PostParams::default(), pod).await;
        let made = made.map_err(|source| api_error(name, source))?;
        self.uids
            .insert(name.to_owned(), made.metadata.uid.unwrap_or_default());
        let deadline = Instant::now() + LIMIT;
        loop {
            tokio::time::sleep(LOOK).await;
            let pod = self.pods.get(name).await;
            let status = pod
                .map_err(|source| api_error(name, source))?
                .status
                .unwrap_or_default();
            match status.phase.as_deref() {
                Some("Failed") => {
                    return Ok(Some(Refusal {
                        reason: status.reason.unwrap_or_default(),
                        message: status.message.unwrap_or_default(),
                    }));
                }
                Some("Running") => return Ok(None),
                // A refused pod has a start time too, for a moment before it is seen to have failed, but never containers.
                _ if !runs && status.container_statuses.is_some() => return Ok(None),
                _ => {}
            }
            late_after(deadline, name, "admission")?;
        }
    }

    /// Deletes pods by force and waits until the kubelet has nothing left of them.
    async fn delete(&self, names: &[String], client: &PodResources) -> Result<(), Error> {
        for name in names {
            let deleted = self
                .pods
                .delete(name, &DeleteParams::default().grace_period(0))
                .await;
            deleted.map_err(|source| api_error(name, source))?;
        }
        let deadline = Instant::now() + LIMIT;
        loop {
            let active = client.list().await?.pod_resources;
            let Some(left) = active.iter().find(|pod| names.contains(&pod.name)) else {
                return Ok(());
            };
            late_after(deadline, &left.name, "deletion")?;
            tokio::time::sleep(LOOK * 3).await;
        }
    }

    async fn look(
        &self,
        operation: &Operation,
        client: &PodResources,
        seen: &mut Seen,
    ) -> Result<(), Error> {
        // List first: it makes the device manager forget pods that are gone.
        seen.list = client
            .list()
            .await?
            .pod_resources
            .iter()
            .map(|pod| (pod.name.clone(), ContainerView::of_pod(pod)))
            .collect();
        if let Operation::Create { name, .. } = operation {
            seen.get = match client.get(NAMESPACE, name).await {
                Ok(answer) => answer.pod_resources.as_ref().map(ContainerView::of_pod),
                // What the kubelet answers about a pod that it refused.
                Err(podresources::client::Error::Answer { source, .. })
                    if source.message().ends_with("not found") =>
                {
                    None
                }
                Err(error) => return Err(error.into()),
            };
        }
        seen.cpu = self.state("cpu_manager_state")?;
        seen.memory = self.state("memory_manager_state")?;
        seen.devices = self.devices()?;
        Ok(())
    }

    /// A state file with pod names for UIDs and without its checksum; null when there is none.
    fn state(&self, file: &str) -> Result<Value, Error> {
        let mut text = match self.node.state_file(file) {
            Ok(text) => text,
            Err(node_handle::Error::File { source, .. })
                if source.kind() == std::io::ErrorKind::NotFound =>
            {
                return Ok(Value::Null);
            }
            Err(error) => return Err(error.into()),
        };
        for (name, uid) in &self.uids {
            text = text.replace(uid, name);
        }
        let mut value: Value = serde_json::from_str(&text)?;
        if let Some(fields) = value.as_object_mut() {
            fields.remove("checksum");
        }
        Ok(value)
    }

    /// Entries of the device manager's checkpoint of pods of this configuration.
    fn devices(&self) -> Result<Vec<DeviceEntry>, Error> {
        let state = self.state("device-plugins/kubelet_internal_checkpoint")?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut entries = Vec::new();
        for entry in state["Data"]["PodDeviceEntries"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let mut ids: BTreeMap<i64, Vec<String>> =
                serde_json::from_value(entry["DeviceIDs"].clone())?;
            for list in ids.values_mut() {
                list.sort();
            }
            let pod = text(&entry["PodUID"]);
            if self.uids.contains_key(&pod) {
                entries.push(DeviceEntry {
                    pod,
                    container: text(&entry["ContainerName"]),
                    resource: text(&entry["ResourceName"]),
                    ids,
                });
            }
        }
        entries.sort();
        Ok(entries)
    }
}

fn api_error(name: &str, source: kube::Error) -> Error {
    Error::Api {
        name: name.to_owned(),
        source: Box::new(source),
    }
}

fn late_after(deadline: Instant, name: &str, what: &'static str) -> Result<(), Error> {
    if Instant::now() > deadline {
        return Err(Error::Late {
            name: name.to_owned(),
            what,
        });
    }
    Ok(())
}
