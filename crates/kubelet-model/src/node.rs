//! A whole kubelet's resource managers: admission, release, and the answers about them (kubelet-node.md 4, 5.4, 9, 10).

use std::collections::{BTreeMap, BTreeSet};

use cluster_spec::kubelet::KubeletSettings;
use fixtures::machines::Machine;
use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use topology::hint::{Hint, lists};
use topology::mask::ZoneId;
use topology::policy::{Policy, Scope};

use super::device::{self, Device, DeviceEntry};
use super::predicates::{self, NodeProperties, Obstacle};
use super::settings::{self, InitialState};
use super::workload::{self, Amounts, ContainerRequest, Workload};
use super::{cpu, memory, preemption};

mod answers;
mod resize;

pub use self::resize::Resize;

/// Reason of a refusal because of alignment.
const TOPOLOGY_AFFINITY_ERROR: &str = "TopologyAffinityError";
/// Reason of a refusal because of any other error of a manager.
const UNEXPECTED_ADMISSION_ERROR: &str = "UnexpectedAdmissionError";
/// Reason of a refusal because the pod would get parts of cores.
const SMT_ALIGNMENT_ERROR: &str = "SMTAlignmentError";

/// A kubelet without time: every operation takes effect at once.
#[derive(Clone, Debug)]
pub struct Node {
    state: InitialState,
    devices: device::Manager,
    /// Pods that were admitted and whose containers have not all stopped, by UID.
    active: BTreeMap<String, Workload>,
    /// Their UIDs in the order of their admission.
    order: Vec<String>,
    /// Containers of active pods that have been started, by UID and name.
    running: BTreeSet<(String, String)>,
    /// Active pods that wait for room, with the resources that they ask for.
    deferred: Vec<Workload>,
    /// Pods that ended for critical ones and that [`Node::take_preempted`] has not returned yet.
    preempted: Vec<String>,
    /// Pods that end first where the kubelet's choice is unspecified.
    preferred_victims: BTreeSet<String>,
    /// The node's name, labels, taints and features.
    properties: NodeProperties,
    /// False while a restarted kubelet admits the pods that it finds: nothing is released during that time.
    is_settled: bool,
}

/// Status of a pod that the kubelet refused or ended; both fields are empty if the pod succeeded.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Refusal {
    /// Reason of the status.
    pub reason: String,
    /// Message of the status.
    pub message: String,
}

/// No active pod has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("pod {name} in namespace {namespace} not found")]
pub struct NotFound {
    namespace: String,
    name: String,
}

/// A restarted kubelet ends at once, because its CPU manager refuses a state without shared CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("start cpu manager error: default cpuset cannot be empty")]
pub struct NoSharedCpus;

/// Which state files a kubelet finds when it starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateFiles {
    /// `cpu_manager_state`.
    pub cpu: bool,
    /// `memory_manager_state`.
    pub memory: bool,
}

/// Why a kubelet ends at start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The settings are invalid.
    #[error(transparent)]
    Settings(#[from] settings::Error),
    /// The CPU manager's state does not fit the settings.
    #[error("start cpu manager error")]
    Cpu(#[from] cpu::StateMismatch),
    /// The memory manager's state does not fit the settings.
    #[error("start memory manager error")]
    Memory(#[from] memory::StateMismatch),
}

/// An error of a manager, as the reason and text of a refusal.
struct Failure {
    reason: &'static str,
    text: String,
}

impl Failure {
    fn unexpected(error: &impl std::fmt::Display) -> Self {
        Self {
            reason: UNEXPECTED_ADMISSION_ERROR,
            text: format!("Allocate failed due to {error}, which is unexpected"),
        }
    }
}

impl From<cpu::Error> for Failure {
    fn from(error: cpu::Error) -> Self {
        match error {
            cpu::Error::PartOfCore { .. } | cpu::Error::Cores { .. } => Self {
                reason: SMT_ALIGNMENT_ERROR,
                text: error.to_string(),
            },
            cpu::Error::Shortage(_) => Self::unexpected(&error),
        }
    }
}

impl Node {
    /// Creates an empty node without any registered device plugin.
    pub fn without_devices(
        machine: &Machine,
        settings: &KubeletSettings,
    ) -> Result<Self, settings::Error> {
        let state = settings::initial_state(machine, settings)?;
        Ok(Self {
            devices: device::Manager::new(state.zones.clone()),
            state,
            active: BTreeMap::new(),
            order: Vec::new(),
            running: BTreeSet::new(),
            deferred: Vec::new(),
            preempted: Vec::new(),
            preferred_victims: BTreeSet::new(),
            properties: NodeProperties::default(),
            is_settled: true,
        })
    }

    /// Creates an empty node whose plugins have registered the machine's devices.
    pub fn new(machine: &Machine, settings: &KubeletSettings) -> Result<Self, settings::Error> {
        let mut node = Self::without_devices(machine, settings)?;
        node.register_devices(machine);
        Ok(node)
    }

    /// Lets the device plugins of a machine register its devices.
    pub fn register_devices(&mut self, machine: &Machine) {
        for (resource, list) in machine.devices() {
            let list = list
                .iter()
                .map(|device| {
                    let zone = ZoneId::new(device.zone as u64);
                    let device_zones = zone.map(|zone| vec![zone]);
                    let known = Device {
                        zones: device_zones,
                        healthy: true,
                    };
                    (device.id.clone(), known)
                })
                .collect();
            self.devices.set_devices(resource, list);
        }
    }

    /// Returns the node with labels that pods can select.
    #[must_use]
    pub fn with_labels(mut self, labels: BTreeMap<String, String>) -> Self {
        self.properties.labels = labels;
        self
    }

    /// Changes the node's name, labels, taints and features.
    pub fn set_properties(&mut self, properties: NodeProperties) {
        self.properties = properties;
    }

    /// Returns the device manager, for plugins that register, change or disappear.
    pub fn devices(&mut self) -> &mut device::Manager {
        &mut self.devices
    }

    /// Returns the node's capacity: CPU in millicores, everything else in units.
    pub fn capacity(&self) -> Amounts {
        self.with_devices(&self.state.capacity, |_| true)
    }

    /// Returns the node's allocatable, in the units of [`Node::capacity`].
    pub fn allocatable(&self) -> Amounts {
        self.with_devices(&self.state.allocatable, |device| device.healthy)
    }

    fn with_devices(&self, amounts: &Amounts, counts: fn(&Device) -> bool) -> Amounts {
        let mut amounts = amounts.clone();
        for (resource, devices) in self.devices.plugins() {
            let count = devices.values().filter(|device| counts(device)).count();
            amounts.insert(resource.clone(), count as i64);
        }
        amounts
    }

    /// Admits a pod and allocates the resources of its containers, or returns the reason and message of its refusal. A refused pod may have
    /// been given resources; they are free again before the next hints. Making room for a critical pod may end others: see
    /// [`Node::take_preempted`].
    pub fn admit(&mut self, pod: &Pod) -> Result<Result<(), Refusal>, workload::Error> {
        Ok(self.admit_workload(Workload::new(pod)?))
    }

    fn admit_workload(&mut self, pod: Workload) -> Result<(), Refusal> {
        let outcome = match self.managers(&pod) {
            Ok(()) => self.predicates(&pod),
            Err(failure) => Err((failure.reason.to_owned(), failure.text)),
        };
        let refuse = |(reason, text)| Refusal {
            reason,
            message: format!("Pod was rejected: {text}"),
        };
        outcome.map_err(refuse)?;
        self.order.retain(|uid| *uid != pod.uid);
        self.order.push(pod.uid.clone());
        self.active.insert(pod.uid.clone(), pod);
        Ok(())
    }

    fn predicates(&mut self, pod: &Workload) -> Result<(), (String, String)> {
        if let Some((reason, text)) = predicates::unsupported(pod, &self.properties) {
            return Err((reason.to_owned(), text.to_owned()));
        }
        let mut allocatable = self.allocatable();
        if self.devices.holds(&pod.uid) {
            // Allocated devices exist, whatever the node's status says.
            for (resource, count) in self.devices.used() {
                let all = allocatable.entry(resource).or_default();
                *all = (*all).max(count as i64);
            }
        }
        let obstacles =
            predicates::obstacles(pod, &allocatable, self.active.values(), &self.properties);
        let others = |obstacle: &&Obstacle| matches!(obstacle, Obstacle::Failed { .. });
        let first = if pod.is_critical() {
            obstacles.iter().find(others)
        } else {
            obstacles.first()
        };
        if let Some(obstacle) = first {
            return Err(obstacle.refusal());
        }
        if obstacles.is_empty() {
            return Ok(());
        }
        let victims = preemption::victims(
            pod,
            self.active.values(),
            &obstacles,
            &self.preferred_victims,
        );
        let victims = victims.map_err(|error| {
            let text = format!(
                "Unexpected error while attempting to recover from admission failure: {error}"
            );
            (UNEXPECTED_ADMISSION_ERROR.to_owned(), text)
        })?;
        for uid in victims {
            self.stopped(&uid);
            self.preempted.push(uid);
        }
        Ok(())
    }

    /// Returns the UIDs of the pods that ended for critical ones since the last call; their status is described in [`preemption`].
    pub fn take_preempted(&mut self) -> Vec<String> {
        std::mem::take(&mut self.preempted)
    }

    /// Chooses which of several equal pods end first for a critical one: the kubelet iterates over a hash table there.
    pub fn prefer_victims(&mut self, uids: impl IntoIterator<Item = String>) {
        self.preferred_victims = uids.into_iter().collect();
    }

    /// Chooses the order in which the memory manager forgets pods that are not active any more: [`memory::Manager::set_release_order`].
    pub fn set_release_order(&mut self, nth: usize) {
        self.state.memory.set_release_order(nth);
    }

    /// Returns whether a release followed the chosen order: [`memory::Manager::used_release_order`].
    pub fn used_release_order(&self) -> bool {
        self.state.memory.used_release_order()
    }

    /// Restarts the kubelet with the same settings and its state files. It admits the pods that it finds again, in the order of their
    /// creation, and may refuse some, which are returned. The plugins have to register their devices again.
    ///
    /// It follows from the kubelet's rules that it does not start at all while pods hold every CPU exclusively.
    pub fn restart(&mut self) -> Result<BTreeMap<String, Refusal>, NoSharedCpus> {
        if self.state.cpu.shared().is_empty() && self.state.cpu.is_in_use() {
            return Err(NoSharedCpus);
        }
        self.state.cpu.restart();
        self.state.memory.restart();
        self.devices.restart();
        Ok(self.readmit())
    }

    /// Restarts the kubelet with other settings. Only the state files in `kept` are used. If the kubelet does not start with them, nothing
    /// changes. Otherwise it does the same as [`Self::restart`].
    pub fn reconfigure(
        &mut self,
        machine: &Machine,
        settings: &KubeletSettings,
        kept: StateFiles,
    ) -> Result<BTreeMap<String, Refusal>, StartError> {
        let mut state = settings::initial_state(machine, settings)?;
        if kept.cpu {
            state.cpu.restore(&self.state.cpu)?;
        }
        if kept.memory {
            state.memory.restore(&self.state.memory)?;
        }
        self.state = state;
        self.devices.restart();
        Ok(self.readmit())
    }

    /// Admits the active pods again, in the order of their admission; returns those that are refused now.
    fn readmit(&mut self) -> BTreeMap<String, Refusal> {
        let mut found = std::mem::take(&mut self.active);
        let order = std::mem::take(&mut self.order);
        let mut refused = BTreeMap::new();
        self.is_settled = false;
        for uid in order {
            let Some(pod) = found.remove(&uid) else {
                continue;
            };
            if let Err(refusal) = self.admit_workload(pod) {
                refused.insert(uid, refusal);
            }
        }
        self.is_settled = true;
        refused
    }

    /// Returns the UIDs of the active pods and of the pod under admission.
    fn active_uids(&self, pod: &Workload) -> BTreeSet<String> {
        let uids = self.active.keys().chain([&pod.uid]);
        uids.cloned().collect()
    }

    fn managers(&mut self, pod: &Workload) -> Result<(), Failure> {
        let active_uids = self.active_uids(pod);
        let merger = self.state.merger.clone();
        let refused = || Failure {
            reason: TOPOLOGY_AFFINITY_ERROR,
            text: "Resources cannot be allocated with Topology locality".to_owned(),
        };
        if self.state.policy == Policy::None {
            for container in &pod.containers {
                self.allocate(pod, container, Hint::anywhere(false), &active_uids)?;
            }
            return Ok(());
        }
        if self.state.scope == Scope::Pod {
            self.remove_stale(&active_uids);
            let best = merger.merge(&lists(&[
                self.devices.pod_hints(pod),
                self.state.cpu.pod_hints(pod),
                self.state.memory.pod_hints(pod),
            ]));
            if !merger.admits(best) {
                return Err(refused());
            }
            for container in &pod.containers {
                self.allocate(pod, container, best, &active_uids)?;
            }
            return Ok(());
        }
        for container in &pod.containers {
            self.remove_stale(&active_uids);
            let best = merger.merge(&lists(&[
                self.devices.hints(pod, container),
                self.state.cpu.hints(pod, container),
                self.state.memory.hints(pod, container),
            ]));
            if !merger.admits(best) {
                return Err(refused());
            }
            self.allocate(pod, container, best, &active_uids)?;
        }
        Ok(())
    }

    fn remove_stale(&mut self, active_uids: &BTreeSet<String>) {
        if !self.is_settled {
            return;
        }
        self.devices.remove_stale(active_uids);
        self.state.cpu.remove_stale(active_uids);
        self.state.memory.remove_stale(active_uids);
    }

    fn allocate(
        &mut self,
        pod: &Workload,
        container: &ContainerRequest,
        best: Hint,
        active_uids: &BTreeSet<String>,
    ) -> Result<(), Failure> {
        let active_uids = Some(active_uids).filter(|_| self.is_settled);
        let key = (pod.uid.clone(), container.name.clone());
        let is_running = self.running.contains(&key);
        let starting = device::KubeletPhase::Starting { is_running };
        let phase = active_uids.map_or(starting, |active| device::KubeletPhase::Running { active });
        self.devices
            .allocate(pod, container, best.affinity, phase)
            .map_err(|error| Failure::unexpected(&error))?;
        if let Some(active_uids) = active_uids {
            self.state.cpu.remove_stale(active_uids);
        }
        self.state.cpu.allocate(pod, container, best.affinity)?;
        if let Some(active_uids) = active_uids {
            self.state.memory.remove_stale(active_uids);
        }
        self.state
            .memory
            .allocate(pod, container, best)
            .map_err(|error| Failure::unexpected(&error))
    }

    /// Records that a container of an active pod has started.
    pub fn started(&mut self, uid: &str, container: &str) {
        if let Some(pod) = self.active.get(uid) {
            self.running.insert((uid.to_owned(), container.to_owned()));
            self.state.memory.started(pod, container);
        }
    }

    /// Records that all containers of an active pod have started, in their order.
    pub fn all_started(&mut self, uid: &str) {
        let names: Vec<String> = self
            .active
            .get(uid)
            .into_iter()
            .flat_map(|pod| {
                pod.containers
                    .iter()
                    .map(|container| container.name.clone())
            })
            .collect();
        for name in names {
            self.started(uid, &name);
        }
    }

    /// Records that all containers of a pod have stopped: the pod is not active any more.
    pub fn stopped(&mut self, uid: &str) {
        self.running.retain(|(pod, _)| pod != uid);
        self.active.remove(uid);
        self.order.retain(|other| other != uid);
        self.deferred.retain(|wanted| wanted.uid != uid);
    }

    /// Lets the managers forget pods that are not active, as they do at the next admission or, for CPUs, periodically.
    pub fn release(&mut self) {
        let active_uids: BTreeSet<String> = self.active.keys().cloned().collect();
        self.remove_stale(&active_uids);
    }

    /// Returns the UIDs of the active pods.
    pub fn active(&self) -> impl Iterator<Item = &str> {
        self.active.keys().map(String::as_str)
    }

    /// Returns `cpu_manager_state` without checksum.
    pub fn cpu_state(&self) -> Value {
        self.state.cpu.state()
    }

    /// Returns `memory_manager_state` without checksum.
    pub fn memory_state(&self) -> Value {
        self.state.memory.state()
    }

    /// Returns the entries of the device manager's checkpoint.
    pub fn device_entries(&self) -> &[DeviceEntry] {
        self.devices.written()
    }
}
