//! A whole kubelet's resource managers: admission, release, and what it tells about them (kubelet-node.md 4, 5.4, 9, 10).

use std::collections::{BTreeMap, BTreeSet};

use fixtures::machines::Machine;
use k8s_openapi::api::core::v1::Pod;
use podresources::v1;
use serde_json::Value;
use topology::hint::{Hint, lists};
use topology::mask::ZoneId;
use topology::policy::{Policy, Scope};

use super::corpus::{DeviceEntry, Refusal};
use super::cpu;
use super::device::{self, Device};
use super::predicates;
use super::settings::{self, Start};
use super::workload::{self, Amounts, ContainerKind, Unit, Workload};
use crate::local::KubeletSettings;

/// Reason of a refusal for lack of alignment.
const TOPOLOGY_AFFINITY_ERROR: &str = "TopologyAffinityError";
/// Reason of a refusal for whatever else goes wrong in a manager.
const UNEXPECTED_ADMISSION_ERROR: &str = "UnexpectedAdmissionError";
/// Reason of a refusal for parts of cores.
const SMT_ALIGNMENT_ERROR: &str = "SMTAlignmentError";

/// A kubelet without time: it does what it is told and is done at once.
#[derive(Clone, Debug)]
pub struct Node {
    start: Start,
    devices: device::Manager,
    /// Pods that were admitted and whose containers have not all stopped, by UID.
    active: BTreeMap<String, Workload>,
    /// Labels of the node.
    labels: BTreeMap<String, String>,
}

/// No active pod has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("pod {name} in namespace {namespace} not found")]
pub struct NotFound {
    namespace: String,
    name: String,
}

/// An error of a manager as the reason and text of a refusal.
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
    /// An empty node whose machine's devices have been announced.
    pub fn new(machine: &Machine, settings: &KubeletSettings) -> Result<Self, settings::Error> {
        let start = settings::start(machine, settings)?;
        let mut devices = device::Manager::new(start.zones.clone());
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
            devices.announce(resource, list);
        }
        Ok(Self {
            start,
            devices,
            active: BTreeMap::new(),
            labels: BTreeMap::new(),
        })
    }

    /// The same node with labels that pods can select it by.
    #[must_use]
    pub fn with_labels(mut self, labels: BTreeMap<String, String>) -> Self {
        self.labels = labels;
        self
    }

    /// The device manager, for plugins that come, change or go.
    pub fn devices(&mut self) -> &mut device::Manager {
        &mut self.devices
    }

    /// Node capacity: CPU in thousandths, all else in units.
    pub fn capacity(&self) -> Amounts {
        self.with_devices(&self.start.capacity, |_| true)
    }

    /// Node allocatable.
    pub fn allocatable(&self) -> Amounts {
        self.with_devices(&self.start.allocatable, |device| device.healthy)
    }

    fn with_devices(&self, amounts: &Amounts, counts: fn(&Device) -> bool) -> Amounts {
        let mut amounts = amounts.clone();
        for (resource, devices) in self.devices.plugins() {
            let count = devices.values().filter(|device| counts(device)).count();
            amounts.insert(resource.clone(), count as i64);
        }
        amounts
    }

    /// Admits a pod and gives its containers their resources, or says what its status will say. A refused pod may have been
    /// given something: it is free again before the next hints.
    pub fn admit(&mut self, pod: &Pod) -> Result<Result<(), Refusal>, workload::Error> {
        let workload = Workload::new(pod)?;
        let outcome = match self.managers(&workload) {
            Ok(()) => predicates::check(
                &workload,
                &self.allocatable(),
                self.active.values(),
                &self.labels,
            ),
            Err(failure) => Err((failure.reason.to_owned(), failure.text)),
        };
        Ok(match outcome {
            Ok(()) => {
                self.active.insert(workload.uid.clone(), workload);
                Ok(())
            }
            Err((reason, text)) => Err(Refusal {
                reason,
                message: format!("Pod was rejected: {text}"),
            }),
        })
    }

    /// Active pods and the one under admission.
    fn living(&self, pod: &Workload) -> BTreeSet<String> {
        let uids = self.active.keys().chain([&pod.uid]);
        uids.cloned().collect()
    }

    fn managers(&mut self, pod: &Workload) -> Result<(), Failure> {
        let living = self.living(pod);
        let merger = self.start.merger.clone();
        let refused = || Failure {
            reason: TOPOLOGY_AFFINITY_ERROR,
            text: "Resources cannot be allocated with Topology locality".to_owned(),
        };
        if self.start.policy == Policy::None {
            for unit in &pod.units {
                self.allocate(pod, unit, Hint::anywhere(false), &living)?;
            }
            return Ok(());
        }
        if self.start.scope == Scope::Pod {
            self.remove_stale(&living);
            let best = merger.merge(&lists(&[
                self.devices.pod_hints(pod),
                self.start.cpu.pod_hints(pod),
                self.start.memory.pod_hints(pod),
            ]));
            if !merger.admits(best) {
                return Err(refused());
            }
            for unit in &pod.units {
                self.allocate(pod, unit, best, &living)?;
            }
            return Ok(());
        }
        for unit in &pod.units {
            self.remove_stale(&living);
            let best = merger.merge(&lists(&[
                self.devices.hints(pod, unit),
                self.start.cpu.hints(pod, unit),
                self.start.memory.hints(pod, unit),
            ]));
            if !merger.admits(best) {
                return Err(refused());
            }
            self.allocate(pod, unit, best, &living)?;
        }
        Ok(())
    }

    fn remove_stale(&mut self, living: &BTreeSet<String>) {
        self.devices.remove_stale(living);
        self.start.cpu.remove_stale(living);
        self.start.memory.remove_stale(living);
    }

    fn allocate(
        &mut self,
        pod: &Workload,
        unit: &Unit,
        best: Hint,
        living: &BTreeSet<String>,
    ) -> Result<(), Failure> {
        self.devices
            .allocate(pod, unit, best.affinity, living)
            .map_err(|error| Failure::unexpected(&error))?;
        self.start.cpu.remove_stale(living);
        self.start.cpu.allocate(pod, unit, best.affinity)?;
        self.start.memory.remove_stale(living);
        self.start
            .memory
            .allocate(pod, unit, best)
            .map_err(|error| Failure::unexpected(&error))
    }

    /// A container of an active pod has been started.
    pub fn started(&mut self, uid: &str, container: &str) {
        if let Some(pod) = self.active.get(uid) {
            self.start.memory.started(pod, container);
        }
    }

    /// All containers of an active pod have been started, in their order.
    pub fn all_started(&mut self, uid: &str) {
        let names: Vec<String> = self
            .active
            .get(uid)
            .into_iter()
            .flat_map(|pod| pod.units.iter().map(|unit| unit.name.clone()))
            .collect();
        for name in names {
            self.started(uid, &name);
        }
    }

    /// All containers of a pod have stopped: the pod is not active any more.
    pub fn stopped(&mut self, uid: &str) {
        self.active.remove(uid);
    }

    /// The managers forget pods that are not active, as they do at the next admission or, for CPUs, with time.
    pub fn release(&mut self) {
        let living: BTreeSet<String> = self.active.keys().cloned().collect();
        self.remove_stale(&living);
    }

    /// UIDs of the active pods.
    pub fn active(&self) -> impl Iterator<Item = &str> {
        self.active.keys().map(String::as_str)
    }

    /// Answer of `List`, pods by UID. The device manager forgets pods that are gone.
    pub fn list(&mut self) -> v1::ListPodResourcesResponse {
        let living: BTreeSet<String> = self.active.keys().cloned().collect();
        self.devices.remove_stale(&living);
        v1::ListPodResourcesResponse {
            pod_resources: self
                .active
                .values()
                .map(|pod| self.resources(pod))
                .collect(),
        }
    }

    /// Answer of `Get`.
    pub fn get(&self, namespace: &str, name: &str) -> Result<v1::PodResources, NotFound> {
        self.active
            .values()
            .find(|pod| pod.namespace == namespace && pod.name == name)
            .map(|pod| self.resources(pod))
            .ok_or_else(|| NotFound {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            })
    }

    fn resources(&self, pod: &Workload) -> v1::PodResources {
        let of_kind = |kind: ContainerKind| pod.units.iter().filter(move |unit| unit.kind == kind);
        let units = of_kind(ContainerKind::Sidecar).chain(of_kind(ContainerKind::App));
        v1::PodResources {
            name: pod.name.clone(),
            namespace: pod.namespace.clone(),
            containers: units.map(|unit| self.container(pod, unit)).collect(),
        }
    }

    fn container(&self, pod: &Workload, unit: &Unit) -> v1::ContainerResources {
        let cpus = self.start.cpu.exclusive(&pod.uid, &unit.name);
        let blocks = self.start.memory.blocks(&pod.uid, &unit.name);
        let mut devices = Vec::new();
        for (resource, ids) in self
            .devices
            .held(&pod.uid, &unit.name)
            .into_iter()
            .flatten()
        {
            let known = self.devices.plugins().get(resource);
            for id in ids {
                let device = known.and_then(|devices| devices.get(id));
                devices.extend(device_entries(resource, id, device));
            }
        }
        v1::ContainerResources {
            name: unit.name.clone(),
            devices,
            cpu_ids: cpus.into_iter().flatten().copied().map(i64::from).collect(),
            memory: blocks
                .iter()
                .map(|block| v1::ContainerMemory {
                    memory_type: block.kind.clone(),
                    size: block.size,
                    topology: Some(nodes(block.affinity.iter())),
                })
                .collect(),
            dynamic_resources: Vec::new(),
        }
    }

    /// Answer of `GetAllocatableResources`.
    pub fn allocatable_resources(&self) -> v1::AllocatableResourcesResponse {
        let devices = self
            .devices
            .plugins()
            .iter()
            .flat_map(|(resource, devices)| {
                devices
                    .iter()
                    .filter(|(_, device)| device.healthy)
                    .flat_map(|(id, device)| device_entries(resource, id, Some(device)))
            })
            .collect();
        let cpus = self.start.cpu.allocatable();
        v1::AllocatableResourcesResponse {
            devices,
            cpu_ids: cpus.into_iter().map(i64::from).collect(),
            memory: self
                .start
                .memory
                .allocatable()
                .into_iter()
                .map(|(kind, size, zone)| v1::ContainerMemory {
                    memory_type: kind,
                    size,
                    topology: Some(nodes(ZoneId::new(u64::from(zone)).into_iter())),
                })
                .collect(),
        }
    }

    /// `cpu_manager_state` without checksum.
    pub fn cpu_state(&self) -> Value {
        self.start.cpu.state()
    }

    /// `memory_manager_state` without checksum.
    pub fn memory_state(&self) -> Value {
        self.start.memory.state()
    }

    /// Entries of the device manager's checkpoint.
    pub fn device_entries(&self) -> &[DeviceEntry] {
        self.devices.written()
    }
}

fn nodes(zones: impl Iterator<Item = ZoneId>) -> v1::TopologyInfo {
    v1::TopologyInfo {
        nodes: zones
            .map(|zone| v1::NumaNode {
                id: i64::from(zone.get()),
            })
            .collect(),
    }
}

/// One entry for each zone of a device; one without topology where it has none; nothing where its list of zones is empty.
fn device_entries(resource: &str, id: &str, device: Option<&Device>) -> Vec<v1::ContainerDevices> {
    let entry = |topology| v1::ContainerDevices {
        resource_name: resource.to_owned(),
        device_ids: vec![id.to_owned()],
        topology,
    };
    match device.and_then(|device| device.zones.as_ref()) {
        None => vec![entry(None)],
        Some(zones) => zones
            .iter()
            .map(|zone| entry(Some(nodes([*zone].into_iter()))))
            .collect(),
    }
}
