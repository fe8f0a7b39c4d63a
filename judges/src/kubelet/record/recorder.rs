//! Records on one node.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use cluster_spec::kubelet::KubeletSettings;
use k8s_openapi::api::core::v1::{Node, Pod, PodStatus};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client};
use kubelet_model::device::DeviceEntry;
use kubelet_model::node::Refusal;
use local_cluster::{NodeHandle, node_handle};
use podresources::client::PodResources;
use podresources::socket::Socket;
use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;

use super::super::recipe::NAMESPACE;
use super::{Error, OPERATION_TIMEOUT, Outcome, Plan, api_error, check_deadline};
use crate::kubelet::configurations::NamedSettings;
use crate::kubelet::corpus::{
    self, Configuration, ContainerView, Files, Observation, Operation, Sequence, Step,
};
use crate::kubelet::random;
use crate::kubelet::recipe::{ContainerRecipe, PodRecipe};
use crate::kubelet::replay::{Difference, Replay};

/// Pause between two polls.
const POLL_PAUSE: Duration = Duration::from_millis(20);
/// State files of the managers, relative to the kubelet's root.
const CPU: &str = "cpu_manager_state";
const MEMORY: &str = "memory_manager_state";
const DEVICES: &str = "device-plugins/kubelet_internal_checkpoint";
/// One of this many sequences keeps its state files.
const WITH_FILES: u64 = 4;

/// What was recorded for one configuration.
pub(super) struct File {
    pub(super) configuration: Configuration,
    pub(super) sequences: Vec<Sequence>,
}

/// The recorder of one node.
pub(super) struct Recorder {
    node: NodeHandle,
    pods: Api<Pod>,
    nodes: Api<Node>,
    deadline: Instant,
    done: UnboundedSender<File>,
    /// Name → UID of every pod since the kubelet runs with this configuration.
    uids: BTreeMap<String, String>,
    /// Pods of the current sequence that have not been deleted, and those among them that have failed.
    alive: Vec<String>,
    failed: BTreeSet<String>,
}

impl Recorder {
    pub(super) fn new(
        node: NodeHandle,
        client: Client,
        deadline: Instant,
        done: UnboundedSender<File>,
    ) -> Self {
        Self {
            node,
            pods: Api::namespaced(client.clone(), NAMESPACE),
            nodes: Api::all(client),
            deadline,
            done,
            uids: BTreeMap::new(),
            alive: Vec::new(),
            failed: BTreeSet::new(),
        }
    }

    fn is_past_deadline(&self) -> bool {
        Instant::now() > self.deadline
    }

    pub(super) async fn run(mut self, list: NamedSettings, plan: Plan) -> Result<Outcome, Error> {
        let mut outcome = Outcome::default();
        // The cluster was brought up with the first settings.
        let mut running = list.first().map(|(_, settings)| settings.clone());
        for (name, settings) in list {
            let path = plan
                .out
                .as_ref()
                .map(|out| out.join(format!("{name}-s{}.{}", plan.seed, corpus::EXTENSION)));
            if path
                .as_ref()
                .is_some_and(|path| is_complete(path, plan.sequences))
            {
                outcome.kept += 1;
                continue;
            }
            let first = plan.seed + offset(&name);
            let seeds = first..first + plan.sequences;
            for attempt in [1, 2] {
                if self.is_past_deadline() {
                    return Ok(outcome);
                }
                let is_current = running.as_ref() == Some(&settings);
                running = Some(settings.clone());
                let outcome = &mut outcome;
                let recorded = self
                    .file(
                        &name,
                        &settings,
                        is_current,
                        seeds.clone(),
                        path.as_deref(),
                        outcome,
                    )
                    .await;
                let Err(error) = recorded else {
                    break;
                };
                tracing::warn!(configuration = %name, %error, "Recording failed");
                running = None;
                self.remove_all().await?;
                if attempt == 2 {
                    let why = anyhow::Error::new(error);
                    outcome.failures.push((name.clone(), format!("{why:#}")));
                }
            }
        }
        Ok(outcome)
    }

    /// Records one configuration. `is_current` means that the kubelet already runs with it.
    async fn file(
        &mut self,
        name: &str,
        settings: &KubeletSettings,
        is_current: bool,
        seeds: std::ops::Range<u64>,
        path: Option<&Path>,
        outcome: &mut Outcome,
    ) -> Result<(), Error> {
        if !is_current {
            self.node.restart_kubelet(settings).await?;
        }
        self.uids.clear();
        // A restarted kubelet reads the devices of earlier pods from its checkpoint and keeps them until it knows which pods exist now.
        // That may happen only after it has admitted the first pod.
        self.wait_until_settled("settle").await?;
        self.uids.clear();
        let configuration = self.configuration(name.to_owned(), settings).await?;
        let note = |difference: Difference| (name.to_owned(), difference);
        let (mut replay, found) = Replay::new(&configuration)?;
        outcome.differences.extend(found.into_iter().map(note));
        let mut sequences = Vec::new();
        let first_seed = seeds.start;
        for seed in seeds {
            if self.is_past_deadline() {
                break;
            }
            let with_files = (seed - first_seed).is_multiple_of(WITH_FILES);
            let sequence = self.sequence(seed, settings, with_files).await?;
            let found = replay.sequence(&sequence)?;
            outcome.differences.extend(found.into_iter().map(note));
            sequences.push(sequence);
            if let Some(path) = path {
                corpus::write(path, &configuration, &sequences)?;
            }
        }
        // The receiver is closed only when the recording as a whole has failed.
        drop(self.done.send(File {
            configuration,
            sequences,
        }));
        Ok(())
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

    async fn sequence(
        &mut self,
        seed: u64,
        settings: &KubeletSettings,
        with_files: bool,
    ) -> Result<Sequence, Error> {
        let client = self.client()?;
        let prefix = format!("{}-{seed}", self.node.name());
        let mut steps = Vec::new();
        let mut files = None;
        self.alive.clear();
        self.failed.clear();
        for operation in random::operations(seed, self.node.machine(), settings, &prefix) {
            let mut observed = Observation::default();
            match &operation {
                Operation::Create { name, pod } => {
                    observed.refusal = self.create(name, pod).await?;
                    self.alive.push(name.clone());
                    if observed.refusal.is_some() {
                        self.failed.insert(name.clone());
                    } else if pod.critical {
                        observed.failed = self.newly_failed(&client).await?;
                    }
                }
                Operation::Delete { name } => {
                    self.delete(std::slice::from_ref(name), &client).await?;
                    self.alive.retain(|other| other != name);
                }
                // The kubelet would not start again: the CPU manager refuses a state without shared CPUs.
                Operation::Restart { .. } if !self.has_shared_cpus()? => continue,
                Operation::Restart { probe } => {
                    self.node.stop_kubelet().await?;
                    self.node.start_kubelet().await?;
                    self.wait_until_settled(probe).await?;
                    observed.failed = self.newly_failed(&client).await?;
                }
                Operation::Drain => {
                    if with_files {
                        files = Some(self.files()?);
                    }
                    self.delete(&self.alive, &client).await?;
                }
            }
            self.observe(&operation, &client, &mut observed).await?;
            steps.push(Step {
                operation,
                observed,
            });
        }
        Ok(Sequence { seed, steps, files })
    }

    /// Waits until a restarted kubelet has admitted again the pods that it found, and knows that it has seen all of them. It may process
    /// the first new pod together with those; the second comes after them.
    async fn wait_until_settled(&mut self, prefix: &str) -> Result<(), Error> {
        let client = self.client()?;
        let probe = PodRecipe {
            containers: vec![ContainerRecipe::default()],
            ..PodRecipe::default()
        };
        for part in ["first", "second"] {
            let name = format!("{}-{prefix}-{part}", self.node.name());
            self.create(&name, &probe).await?;
            self.delete(&[name], &client).await?;
        }
        client.list().await?;
        Ok(())
    }

    /// Creates a pod and waits for its admission, or for its containers if they are started; returns why it was refused.
    async fn create(&mut self, name: &str, recipe: &PodRecipe) -> Result<Option<Refusal>, Error> {
        let pod = recipe.pod(NAMESPACE, name, self.node.name());
        let made = self.pods.create(&PostParams::default(), &pod).await;
        let made = made.map_err(|source| api_error(name, source))?;
        self.uids
            .insert(name.to_owned(), made.metadata.uid.unwrap_or_default());
        let deadline = Instant::now() + OPERATION_TIMEOUT;
        loop {
            tokio::time::sleep(POLL_PAUSE).await;
            let status = self.status(name).await?;
            match status.phase.as_deref() {
                Some("Failed") => return Ok(Some(refusal(&status))),
                Some("Running") => return Ok(None),
                // A refused pod also has a start time for a moment before its phase is `Failed`, but it never has container statuses.
                _ if !recipe.runs && status.container_statuses.is_some() => return Ok(None),
                _ => {}
            }
            check_deadline(deadline, name, || format!("admission ({status:?})"))?;
        }
    }

    async fn status(&self, name: &str) -> Result<PodStatus, Error> {
        let pod = self.pods.get(name).await;
        let status = pod.map_err(|source| api_error(name, source))?.status;
        Ok(status.unwrap_or_default())
    }

    /// Returns the pods that the kubelet has ended or refused since the last call, after the API shows the end of all of them.
    async fn newly_failed(
        &mut self,
        client: &PodResources,
    ) -> Result<BTreeMap<String, Refusal>, Error> {
        let active: BTreeSet<String> = client
            .list()
            .await?
            .pod_resources
            .into_iter()
            .map(|pod| pod.name)
            .collect();
        let gone: Vec<String> = self
            .alive
            .iter()
            .filter(|name| !active.contains(*name) && !self.failed.contains(*name))
            .cloned()
            .collect();
        let mut failed = BTreeMap::new();
        let deadline = Instant::now() + OPERATION_TIMEOUT;
        for name in gone {
            let mut status = self.status(&name).await?;
            while !matches!(status.phase.as_deref(), Some("Failed" | "Succeeded")) {
                check_deadline(deadline, &name, || format!("end ({status:?})"))?;
                tokio::time::sleep(POLL_PAUSE).await;
                status = self.status(&name).await?;
            }
            self.failed.insert(name.clone());
            failed.insert(name, refusal(&status));
        }
        Ok(failed)
    }

    /// Deletes pods by force and waits until the kubelet no longer lists them.
    async fn delete(&self, names: &[String], client: &PodResources) -> Result<(), Error> {
        let now = DeleteParams::default().grace_period(0);
        for name in names {
            let deleted = self.pods.delete(name, &now).await;
            deleted.map_err(|source| api_error(name, source))?;
        }
        let deadline = Instant::now() + OPERATION_TIMEOUT;
        loop {
            let active = client.list().await?.pod_resources;
            let Some(left) = active.iter().find(|pod| names.contains(&pod.name)) else {
                return Ok(());
            };
            check_deadline(deadline, &left.name, || "deletion".to_owned())?;
            tokio::time::sleep(POLL_PAUSE * 3).await;
        }
    }

    /// Deletes every pod of the node by force, after a failure.
    async fn remove_all(&self) -> Result<(), Error> {
        let here = ListParams::default().fields(&format!("spec.nodeName={}", self.node.name()));
        let now = DeleteParams::default().grace_period(0);
        let deleted = self.pods.delete_collection(&now, &here).await;
        deleted.map_err(|source| api_error(self.node.name(), source))?;
        Ok(())
    }

    async fn observe(
        &self,
        operation: &Operation,
        client: &PodResources,
        observed: &mut Observation,
    ) -> Result<(), Error> {
        // `List` comes first: it makes the device manager forget pods that are not active any more.
        observed.list = client
            .list()
            .await?
            .pod_resources
            .iter()
            .map(|pod| (pod.name.clone(), ContainerView::of_pod(pod)))
            .collect();
        if let Operation::Create { name, .. } = operation {
            observed.get = match client.get(NAMESPACE, name).await {
                Ok(answer) => answer.pod_resources.as_ref().map(ContainerView::of_pod),
                // The kubelet answers this for a pod that it refused.
                Err(podresources::client::Error::Answer { source, .. })
                    if source.message().ends_with("not found") =>
                {
                    None
                }
                Err(error) => return Err(error.into()),
            };
        }
        observed.cpu = self.state(CPU)?;
        observed.memory = self.state(MEMORY)?;
        observed.devices = self.devices()?;
        Ok(())
    }

    /// Returns the text of a state file; empty if the file does not exist.
    fn text(&self, file: &str) -> Result<String, Error> {
        match self.node.state_file(file) {
            Ok(text) => Ok(text),
            Err(node_handle::Error::File { source, .. })
                if source.kind() == std::io::ErrorKind::NotFound =>
            {
                Ok(String::new())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn files(&self) -> Result<Files, Error> {
        Ok(Files {
            cpu: self.text(CPU)?,
            memory: self.text(MEMORY)?,
            devices: self.text(DEVICES)?,
        })
    }

    /// Returns a state file with pod names in place of UIDs and without its checksum; null if the file does not exist.
    fn state(&self, file: &str) -> Result<Value, Error> {
        let mut text = self.text(file)?;
        if text.is_empty() {
            return Ok(Value::Null);
        }
        for (name, uid) in &self.uids {
            text = text.replace(uid, name);
        }
        let mut value: Value = serde_json::from_str(&text)?;
        if let Some(fields) = value.as_object_mut() {
            fields.remove("checksum");
        }
        Ok(value)
    }

    fn has_shared_cpus(&self) -> Result<bool, Error> {
        let state = self.state(CPU)?;
        Ok(state["policyName"] != "static" || state["defaultCpuSet"] != "")
    }

    /// Returns the entries of the device manager's checkpoint for the pods of this configuration.
    fn devices(&self) -> Result<Vec<DeviceEntry>, Error> {
        let state = self.state(DEVICES)?;
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

/// Returns the offset of a configuration's seeds. It depends on the name only, so it stays the same whatever else is recorded.
fn offset(name: &str) -> u64 {
    let sum = name.bytes().fold(7_u64, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u64::from(byte))
    });
    sum % 900 * 1_000_000
}

fn is_complete(path: &Path, sequences: u64) -> bool {
    corpus::read(path).is_ok_and(|(_, recorded)| recorded.len() as u64 >= sequences)
}

fn refusal(status: &PodStatus) -> Refusal {
    Refusal {
        reason: status.reason.clone().unwrap_or_default(),
        message: status.message.clone().unwrap_or_default(),
    }
}
