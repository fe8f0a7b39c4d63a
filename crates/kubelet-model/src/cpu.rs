//! The CPU manager (kubelet-node.md 6).

pub mod select;
pub mod topology;

use std::collections::{BTreeMap, BTreeSet};

use ::topology::hint::{Hint, ProviderHints, masks};
use ::topology::mask::{NumaMask, ZoneId};
use fixtures::machines::format_cpu_list;
use serde_json::{Map, Value, json};

use self::select::Shortage;
use self::topology::{Cpus, Level, Topology};
use super::workload::{ContainerKind, ContainerRequest, Workload};

/// Policy options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the kubelet's options are independent switches"
)]
pub struct Options {
    /// `full-pcpus-only`.
    pub full_cores: bool,
    /// `strict-cpu-reservation`.
    pub strict: bool,
    /// `distribute-cpus-across-numa`.
    pub across_zones: bool,
    /// `prefer-align-cpus-by-uncorecache`.
    pub by_cache: bool,
    /// `align-by-socket`.
    pub by_socket: bool,
    /// `distribute-cpus-across-cores`.
    pub across_cores: bool,
}

/// Why a container gets no CPUs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The request is not a whole number of cores.
    #[error(
        "SMT Alignment Error: requested {requested} cpus not multiple cpus per core = {per_core}"
    )]
    PartOfCore {
        /// Requested number of CPUs.
        requested: usize,
        /// CPUs per core.
        per_core: usize,
    },
    /// There are not enough whole cores.
    #[error(
        "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {available}, requested CPUs = {requested}, CPUs per core = {per_core}"
    )]
    Cores {
        /// CPUs of free cores.
        available: usize,
        /// Requested number of CPUs.
        requested: usize,
        /// CPUs per core.
        per_core: usize,
    },
    /// There are not enough CPUs.
    #[error(transparent)]
    Shortage(#[from] Shortage),
}

/// Why a kubelet does not start with the CPU state that it finds, in the kubelet's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateMismatch {
    /// It was written under another policy.
    #[error(
        "could not restore state from checkpoint: configured policy \"{configured}\" differs from state checkpoint policy \"{found}\", please drain this node and delete the CPU manager checkpoint file \"/var/lib/kubelet/cpu_manager_state\" before restarting Kubelet"
    )]
    Policy {
        /// Policy of the settings.
        configured: &'static str,
        /// Policy in the file.
        found: &'static str,
    },
    /// The shared set is empty, because every CPU is exclusive.
    #[error("default cpuset cannot be empty")]
    NoShared,
    /// Strictly reserved CPUs are in the shared set.
    #[error("some of strictly reserved cpus: \"{0}\" are present in defaultCpuSet: \"{1}\"")]
    StrictlyReserved(String, String),
    /// Reserved CPUs are missing in the shared set.
    #[error("not all reserved cpus: \"{0}\" are present in defaultCpuSet: \"{1}\"")]
    Reserved(String, String),
    /// It describes other CPUs.
    #[error("current set of available CPUs \"{0}\" doesn't match with CPUs in state \"{1}\"")]
    Available(String, String),
}

fn policy(is_static: bool) -> &'static str {
    if is_static { "static" } else { "none" }
}

fn list(cpus: &Cpus) -> String {
    let list: Vec<u32> = cpus.iter().copied().collect();
    format_cpu_list(&list)
}

/// The CPU manager with its state.
#[derive(Clone, Debug)]
pub struct Manager {
    topology: Topology,
    zones: Vec<ZoneId>,
    /// Whether the policy is `static`; otherwise it is `none`.
    is_static: bool,
    options: Options,
    reserved: Cpus,
    /// All CPUs of the cores that have a reserved CPU.
    reserved_cores: Cpus,
    default: Cpus,
    entries: BTreeMap<String, BTreeMap<String, Cpus>>,
    /// The UID of one pod and the CPUs of its finished init containers.
    reuse: Option<(String, Cpus)>,
}

impl Manager {
    /// Creates the manager of an empty node.
    pub fn new(topology: Topology, is_static: bool, options: Options, reserved: Cpus) -> Self {
        let reserved_cores: Cpus = reserved
            .iter()
            .filter_map(|cpu| topology.group(*cpu, Level::Core))
            .flat_map(|core| topology.cpus(Level::Core, core))
            .collect();
        let mut default = Cpus::new();
        if is_static {
            default = topology.all();
            if options.strict {
                default.retain(|cpu| !reserved.contains(cpu));
            }
        }
        let zones = topology
            .groups(Level::Zone)
            .into_iter()
            .filter_map(|zone| ZoneId::new(u64::from(zone)))
            .collect();
        Self {
            topology,
            zones,
            is_static,
            options,
            reserved,
            reserved_cores,
            default,
            entries: BTreeMap::new(),
            reuse: None,
        }
    }

    /// Returns whether the policy is `static`.
    pub fn is_static(&self) -> bool {
        self.is_static
    }

    /// Returns all CPUs that containers can have exclusively.
    pub fn allocatable(&self) -> Cpus {
        if self.is_static {
            difference(&self.topology.all(), &self.reserved)
        } else {
            Cpus::new()
        }
    }

    /// Returns the exclusive CPUs of a container.
    pub fn exclusive(&self, pod: &str, container: &str) -> Option<&Cpus> {
        self.entries.get(pod)?.get(container)
    }

    /// Returns whether any container has exclusive CPUs.
    pub fn is_in_use(&self) -> bool {
        !self.entries.is_empty()
    }

    /// Returns the shared CPUs.
    pub fn shared(&self) -> &Cpus {
        &self.default
    }

    fn available(&self) -> Cpus {
        difference(&self.default, &self.reserved)
    }

    fn reusable(&self, pod: &str) -> Cpus {
        match &self.reuse {
            Some((owner, cpus)) if owner == pod => cpus.clone(),
            _ => Cpus::new(),
        }
    }

    /// Returns the hints for one container.
    pub fn hints(&self, pod: &Workload, container: &ContainerRequest) -> ProviderHints {
        let count = container.exclusive_cpus(pod);
        if !self.is_static || count == 0 {
            return ProviderHints::new();
        }
        let hints = match self.exclusive(&pod.uid, &container.name) {
            Some(held) if held.len() == count => self.generate(held, &Cpus::new(), count),
            Some(_) => Vec::new(),
            None => self.generate(&self.available(), &self.reusable(&pod.uid), count),
        };
        [("cpu".to_owned(), Some(hints))].into()
    }

    /// Returns the hints for a whole pod.
    pub fn pod_hints(&self, pod: &Workload) -> ProviderHints {
        let count = pod.exclusive_cpus();
        if !self.is_static || count == 0 {
            return ProviderHints::new();
        }
        let mut held = Cpus::new();
        for container in &pod.containers {
            let wanted = container.exclusive_cpus(pod);
            let Some(cpus) = self.exclusive(&pod.uid, &container.name) else {
                continue;
            };
            if wanted != 0 && cpus.len() != wanted {
                return [("cpu".to_owned(), Some(Vec::new()))].into();
            }
            held.extend(cpus);
        }
        let hints = if held.len() == count {
            self.generate(&held, &Cpus::new(), count)
        } else {
            let mut reusable = self.reusable(&pod.uid);
            reusable.extend(held);
            self.generate(&self.available(), &reusable, count)
        };
        [("cpu".to_owned(), Some(hints))].into()
    }

    fn generate(&self, available: &Cpus, reusable: &Cpus, count: usize) -> Vec<Hint> {
        let inside = |set: &Cpus, mask: NumaMask| {
            set.iter()
                .filter(|cpu| self.zone_of(**cpu).is_some_and(|zone| mask.contains(zone)))
                .count()
        };
        let all = self.topology.all();
        let mut fewest = self.zones.len() as u32;
        let mut found = Vec::new();
        for mask in masks(&self.zones) {
            if inside(&all, mask) >= count {
                fewest = fewest.min(mask.len());
            }
            let reused = inside(reusable, mask);
            if reused < reusable.len() {
                continue;
            }
            if reused + inside(available, mask) >= count {
                found.push(mask);
            }
        }
        found
            .into_iter()
            .map(|mask| {
                let aligned = self.options.by_socket && self.is_socket_aligned(mask, fewest);
                Hint::of(mask, mask.len() == fewest || aligned)
            })
            .collect()
    }

    fn zone_of(&self, cpu: u32) -> Option<ZoneId> {
        ZoneId::new(u64::from(self.topology.group(cpu, Level::Zone)?))
    }

    fn sockets_of(&self, mask: NumaMask) -> BTreeSet<u32> {
        mask.iter()
            .flat_map(|zone| self.topology.cpus(Level::Zone, u32::from(zone.get())))
            .filter_map(|cpu| self.topology.group(cpu, Level::Socket))
            .collect()
    }

    fn is_socket_aligned(&self, mask: NumaMask, fewest: u32) -> bool {
        let sockets = self.topology.groups(Level::Socket).len().max(1);
        let zones_per_socket = (self.zones.len() / sockets).max(1) as u32;
        self.sockets_of(mask).len() as u32 == fewest.div_ceil(zones_per_socket)
    }

    /// Allocates the CPUs of a container.
    pub fn allocate(
        &mut self,
        pod: &Workload,
        container: &ContainerRequest,
        affinity: Option<NumaMask>,
    ) -> Result<(), Error> {
        let count = container.exclusive_cpus(pod);
        if !self.is_static || count == 0 {
            return Ok(());
        }
        if self.options.full_cores {
            self.check_cores(count)?;
        }
        if let Some(held) = self.exclusive(&pod.uid, &container.name).cloned() {
            self.update_reuse(&pod.uid, container, &held);
            return Ok(());
        }
        let mut pool = self.available();
        pool.extend(self.reusable(&pod.uid));
        let mut taken = Cpus::new();
        if let Some(mask) = affinity {
            let aligned = self.aligned(&pool, mask);
            let amount = count.min(aligned.len());
            taken = select::take(&self.topology, &self.options, &aligned, amount)?;
        }
        let rest = difference(&pool, &taken);
        let more = select::take(&self.topology, &self.options, &rest, count - taken.len())?;
        taken.extend(more);
        self.default.retain(|cpu| !taken.contains(cpu));
        self.update_reuse(&pod.uid, container, &taken);
        self.entries
            .entry(pod.uid.clone())
            .or_default()
            .insert(container.name.clone(), taken);
        Ok(())
    }

    fn check_cores(&self, requested: usize) -> Result<(), Error> {
        let per_core = self.topology.average(Level::Core);
        if !requested.is_multiple_of(per_core) {
            return Err(Error::PartOfCore {
                requested,
                per_core,
            });
        }
        let available = difference(&self.default, &self.reserved_cores).len();
        if requested > available {
            return Err(Error::Cores {
                available,
                requested,
                per_core,
            });
        }
        Ok(())
    }

    fn aligned(&self, pool: &Cpus, mask: NumaMask) -> Cpus {
        let sockets = self.sockets_of(mask);
        pool.iter()
            .copied()
            .filter(|cpu| {
                if self.options.by_socket {
                    let socket = self.topology.group(*cpu, Level::Socket);
                    socket.is_some_and(|socket| sockets.contains(&socket))
                } else {
                    self.zone_of(*cpu).is_some_and(|zone| mask.contains(zone))
                }
            })
            .collect()
    }

    fn update_reuse(&mut self, pod: &str, container: &ContainerRequest, cpus: &Cpus) {
        let mut reuse = self.reusable(pod);
        if container.kind == ContainerKind::Init {
            reuse.extend(cpus);
        } else {
            reuse.retain(|cpu| !cpus.contains(cpu));
        }
        self.reuse = Some((pod.to_owned(), reuse));
    }

    /// Restarts the kubelet: only what is in the state file survives.
    pub fn restart(&mut self) {
        self.reuse = None;
    }

    /// Takes over the state file of a kubelet with other settings, or returns why the kubelet ends instead (kubelet-node.md 11).
    pub fn restore(&mut self, before: &Self) -> Result<(), StateMismatch> {
        if self.is_static != before.is_static {
            return Err(StateMismatch::Policy {
                configured: policy(self.is_static),
                found: policy(before.is_static),
            });
        }
        if !self.is_static {
            return Ok(());
        }
        let found = &before.default;
        let mut all = self.topology.all();
        if self.options.strict {
            all.retain(|cpu| !self.reserved.contains(cpu));
        }
        if found.is_empty() {
            return if before.is_in_use() {
                Err(StateMismatch::NoShared)
            } else {
                Ok(())
            };
        }
        let kept: Cpus = self.reserved.intersection(found).copied().collect();
        if self.options.strict && !kept.is_empty() {
            return Err(StateMismatch::StrictlyReserved(list(&kept), list(found)));
        }
        if !self.options.strict && kept != self.reserved {
            return Err(StateMismatch::Reserved(list(&self.reserved), list(found)));
        }
        let exclusive = before.entries.values().flat_map(BTreeMap::values);
        let known: Cpus = exclusive.flatten().chain(found).copied().collect();
        if known != all {
            return Err(StateMismatch::Available(list(&all), list(&known)));
        }
        self.default.clone_from(found);
        self.entries.clone_from(&before.entries);
        Ok(())
    }

    /// Drops the entries of pods that are not active.
    pub fn remove_stale(&mut self, active: &BTreeSet<String>) {
        let gone: Vec<String> = self
            .entries
            .keys()
            .filter(|pod| !active.contains(*pod))
            .cloned()
            .collect();
        for pod in gone {
            for cpus in self.entries.remove(&pod).unwrap_or_default().into_values() {
                self.default.extend(cpus);
            }
        }
    }

    /// Returns `cpu_manager_state` without its checksum ([`checkpoint`](super::checkpoint) makes the file).
    pub fn state(&self) -> Value {
        let text = |cpus: &Cpus| Value::String(list(cpus));
        let mut state = json!({
            "policyName": policy(self.is_static),
            "defaultCpuSet": text(&self.default),
        });
        if let Some(fields) = state.as_object_mut()
            && !self.entries.is_empty()
        {
            let entries: Map<String, Value> = self
                .entries
                .iter()
                .map(|(pod, containers)| {
                    let containers = containers
                        .iter()
                        .map(|(name, cpus)| (name.clone(), text(cpus)))
                        .collect();
                    (pod.clone(), Value::Object(containers))
                })
                .collect();
            fields.insert("entries".to_owned(), Value::Object(entries));
        }
        state
    }
}

fn difference(from: &Cpus, without: &Cpus) -> Cpus {
    from.difference(without).copied().collect()
}
