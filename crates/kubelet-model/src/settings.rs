//! What a kubelet derives from its settings at start, and which settings it refuses (kubelet-node.md 2.3, 5.1, 6.1, 7.1).

use std::collections::{BTreeMap, BTreeSet};

use api::quantity::Amount;
use cluster_spec::kubelet::{
    CpuPolicy, KubeletSettings, MemoryPolicy, TopologyPolicy, TopologyScope,
};
use fixtures::machines::{GIB, MIB, Machine};
use serde_json::Value;
use topology::mask::ZoneId;
use topology::merge::Merger;
use topology::policy::{Policy, Scope};

use super::cpu::select::{self, Shortage};
use super::cpu::topology::{Cpus, Topology};
use super::cpu::{self, Options};
use super::memory;

/// Default maximum number of pods.
const MAX_PODS: i64 = 110;
/// Default maximum number of zones that the topology manager aligns over.
const MAX_ZONES: usize = 8;
/// Feature gate of the CPU manager's alpha options.
const ALPHA_GATE: &str = "CPUManagerPolicyAlphaOptions";
/// Feature gate of the CPU manager's beta options.
const BETA_GATE: &str = "CPUManagerPolicyBetaOptions";

/// Why a kubelet does not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Options were given for a policy that has none.
    #[error("{0} policy: no options are allowed")]
    OptionsNotAllowed(&'static str),
    /// An option does not exist.
    #[error("unknown option {0:?}")]
    Unknown(String),
    /// A value could not be parsed.
    #[error("bad value for option {name:?}: {value:?}")]
    Value {
        /// Option.
        name: String,
        /// Its value.
        value: String,
    },
    /// The feature gate of an option is off.
    #[error("CPU Manager Policy {stage}-level Options not enabled, but option {option:?} provided")]
    Gate {
        /// `Alpha` or `Beta`.
        stage: &'static str,
        /// Option.
        option: String,
    },
    /// Two options exclude each other.
    #[error("static policy options {0} and {1} can not be used at the same time")]
    Incompatible(&'static str, &'static str),
    /// Alignment by socket does not apply to this policy or machine.
    #[error("option align-by-socket does not go with the topology manager or the machine")]
    BySocket,
    /// The limit of zones is lower than the default.
    #[error("the minimum value of \"max-allowable-numa-nodes\" should not be less than 8")]
    ZoneLimitTooLow,
    /// The machine has more zones than the topology manager aligns.
    #[error("unsupported on machines with more than {0} NUMA Nodes")]
    TooManyZones(usize),
    /// A static CPU manager needs reserved CPUs.
    #[error(
        "[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero"
    )]
    NoReservedCpus,
    /// The reserved CPUs do not exist or cannot be chosen.
    #[error("[cpumanager] unable to reserve the required amount of CPUs")]
    ReservedCpus(#[from] Shortage),
    /// A static memory manager needs reserved memory.
    #[error("[memorymanager] you should specify the system reserved memory")]
    NoReservedMemory,
}

/// The initial state of a kubelet.
#[derive(Clone, Debug)]
pub struct InitialState {
    /// CPU manager.
    pub cpu: cpu::Manager,
    /// Memory manager.
    pub memory: memory::Manager,
    /// Zones.
    pub zones: Vec<ZoneId>,
    /// Policy of the topology manager.
    pub policy: Policy,
    /// Scope of the topology manager.
    pub scope: Scope,
    /// Merger of hints by the rules of the topology manager.
    pub merger: Merger,
    /// Node capacity without devices: CPU in millicores, everything else in units.
    pub capacity: BTreeMap<String, i64>,
    /// Node allocatable without devices, in the same units.
    pub allocatable: BTreeMap<String, i64>,
}

/// Derives the initial state from settings and a machine.
pub fn initial_state(machine: &Machine, settings: &KubeletSettings) -> Result<InitialState, Error> {
    let zones: Vec<ZoneId> = (0..machine.zones().len() as u64)
        .filter_map(ZoneId::new)
        .collect();
    let policy = match settings.topology_manager_policy {
        TopologyPolicy::None => Policy::None,
        TopologyPolicy::BestEffort => Policy::BestEffort,
        TopologyPolicy::Restricted => Policy::Restricted,
        TopologyPolicy::SingleNumaNode => Policy::SingleNumaNode,
    };
    let scope = match settings.topology_manager_scope {
        TopologyScope::Container => Scope::Container,
        TopologyScope::Pod => Scope::Pod,
    };
    let merger = merger(machine, settings, policy, &zones)?;
    let topology = Topology::new(machine);
    let options = options(machine, settings, policy)?;
    let (reserved, reserved_milli) = reserved(machine, settings, &topology, &options)?;
    let is_static = settings.cpu_manager_policy == CpuPolicy::Static;
    if is_static && reserved.is_empty() {
        return Err(Error::NoReservedCpus);
    }
    let memory_static = settings.memory_manager_policy == MemoryPolicy::Static;
    if memory_static && settings.reserved_memory_per_zone == 0 {
        return Err(Error::NoReservedMemory);
    }
    let (capacity, allocatable) = node_amounts(machine, settings, reserved_milli);
    Ok(InitialState {
        cpu: cpu::Manager::new(topology, is_static, options, reserved),
        memory: memory::Manager::new(memory_static, memory_tables(machine, settings)),
        zones,
        policy,
        scope,
        merger,
        capacity,
        allocatable,
    })
}

fn merger(
    machine: &Machine,
    settings: &KubeletSettings,
    policy: Policy,
    zones: &[ZoneId],
) -> Result<Merger, Error> {
    let mut merger = Merger::new(policy, zones);
    let mut limit = MAX_ZONES;
    for (name, value) in &settings.topology_manager_policy_options {
        let wrong = || Error::Value {
            name: name.clone(),
            value: value.clone(),
        };
        match name.as_str() {
            "prefer-closest-numa-nodes" => {
                if value.parse().map_err(|_| wrong())? {
                    merger = merger.with_distances(machine.distances().to_vec());
                }
            }
            "max-allowable-numa-nodes" => {
                limit = value.parse().map_err(|_| wrong())?;
                if limit < MAX_ZONES {
                    return Err(Error::ZoneLimitTooLow);
                }
            }
            _ => return Err(Error::Unknown(name.clone())),
        }
    }
    if policy != Policy::None && zones.len() > limit {
        return Err(Error::TooManyZones(limit));
    }
    Ok(merger)
}

fn gate(settings: &KubeletSettings, name: &str, default: bool) -> bool {
    settings
        .extra
        .get("featureGates")
        .and_then(|gates| gates.get(name))
        .and_then(Value::as_bool)
        .unwrap_or(default)
}

fn options(
    machine: &Machine,
    settings: &KubeletSettings,
    policy: Policy,
) -> Result<Options, Error> {
    let mut options = Options::default();
    let given = &settings.cpu_manager_policy_options;
    if settings.cpu_manager_policy == CpuPolicy::None {
        return if given.is_empty() {
            Ok(options)
        } else {
            Err(Error::OptionsNotAllowed("none"))
        };
    }
    for (name, value) in given {
        let value = value.parse().map_err(|_| Error::Value {
            name: name.clone(),
            value: value.clone(),
        })?;
        let (field, stage) = match name.as_str() {
            "full-pcpus-only" => (&mut options.full_cores, None),
            "strict-cpu-reservation" => (&mut options.strict, None),
            "distribute-cpus-across-numa" => (&mut options.across_zones, Some("Beta")),
            "prefer-align-cpus-by-uncorecache" => (&mut options.by_cache, Some("Beta")),
            "align-by-socket" => (&mut options.by_socket, Some("Alpha")),
            "distribute-cpus-across-cores" => (&mut options.across_cores, Some("Alpha")),
            _ => return Err(Error::Unknown(name.clone())),
        };
        *field = value;
        let open = match stage {
            None => true,
            Some("Alpha") => gate(settings, ALPHA_GATE, false),
            Some(_) => gate(settings, BETA_GATE, true),
        };
        if let Some(stage) = stage.filter(|_| !open) {
            return Err(Error::Gate {
                stage,
                option: name.clone(),
            });
        }
    }
    check_pairs(&options)?;
    let sockets = machine.zones().len() / machine.zones_per_socket();
    if options.by_socket && (policy == Policy::SingleNumaNode || sockets > machine.zones().len()) {
        return Err(Error::BySocket);
    }
    Ok(options)
}

fn check_pairs(options: &Options) -> Result<(), Error> {
    const CORES: &str = "distribute-cpus-across-cores";
    const ZONES: &str = "distribute-cpus-across-numa";
    const CACHE: &str = "prefer-align-cpus-by-uncorecache";
    let pairs = [
        (
            options.across_cores && options.full_cores,
            "full-pcpus-only",
            CORES,
        ),
        (options.across_cores && options.across_zones, ZONES, CORES),
        (options.across_cores && options.by_cache, CACHE, CORES),
        (options.by_cache && options.across_zones, CACHE, ZONES),
    ];
    match pairs.into_iter().find(|(both, _, _)| *both) {
        Some((_, first, second)) => Err(Error::Incompatible(first, second)),
        None => Ok(()),
    }
}

/// Returns the CPUs that `reservedSystemCPUs` names, or as many as the configuration's other reservation fields ask for. Also returns the
/// millicores that the node's allocatable loses.
fn reserved(
    machine: &Machine,
    settings: &KubeletSettings,
    topology: &Topology,
    options: &Options,
) -> Result<(Cpus, i64), Error> {
    if settings.extra.get("reservedSystemCPUs") != Some(&Value::String(String::new())) {
        let cpus: BTreeSet<u32> = settings.reserved_cpus_of(machine).into_iter().collect();
        let all = topology.all();
        if !cpus.is_subset(&all) {
            return Err(Shortage::Short {
                requested: cpus.len(),
                available: cpus.intersection(&all).count(),
            }
            .into());
        }
        let milli = cpus.len() as i64 * 1000;
        return Ok((cpus, milli));
    }
    let mut milli = 0;
    for field in ["systemReserved", "kubeReserved"] {
        let text = settings
            .extra
            .get(field)
            .and_then(|list| list.get("cpu"))
            .and_then(Value::as_str);
        if let Some(text) = text {
            let amount: Amount = text.parse().map_err(|_| Error::Value {
                name: field.to_owned(),
                value: text.to_owned(),
            })?;
            milli += amount.milli();
        }
    }
    let count = usize::try_from(milli).unwrap_or_default().div_ceil(1000);
    let cpus = select::take(topology, options, &topology.all(), count)?;
    Ok((cpus, milli))
}

fn memory_tables(
    machine: &Machine,
    settings: &KubeletSettings,
) -> BTreeMap<ZoneId, BTreeMap<String, (u64, u64, u64)>> {
    let system = settings.reserved_memory_per_zone;
    machine
        .zones()
        .iter()
        .enumerate()
        .filter_map(|(index, zone)| {
            let id = ZoneId::new(index as u64)?;
            let small = zone.hugepages_2mi * 2 * MIB;
            let large = zone.hugepages_1gi * GIB;
            let memory = zone.memory.saturating_sub(system + small + large);
            let tables = BTreeMap::from([
                ("memory".to_owned(), (zone.memory, system, memory)),
                ("hugepages-2Mi".to_owned(), (small, 0, small)),
                ("hugepages-1Gi".to_owned(), (large, 0, large)),
            ]);
            Some((id, tables))
        })
        .collect()
}

fn node_amounts(
    machine: &Machine,
    settings: &KubeletSettings,
    reserved_milli: i64,
) -> (BTreeMap<String, i64>, BTreeMap<String, i64>) {
    let sum = |count: fn(&fixtures::machines::Zone) -> u64| -> u64 {
        machine.zones().iter().map(count).sum()
    };
    let small = sum(|zone| zone.hugepages_2mi * 2 * MIB);
    let large = sum(|zone| zone.hugepages_1gi * GIB);
    let memory = machine.total_memory();
    let system = settings.reserved_memory_per_zone * machine.zones().len() as u64;
    let pods = settings.extra.get("maxPods").and_then(Value::as_i64);
    let list = |milli: i64, memory: u64| {
        BTreeMap::from([
            ("cpu".to_owned(), milli),
            ("memory".to_owned(), memory as i64),
            ("hugepages-2Mi".to_owned(), small as i64),
            ("hugepages-1Gi".to_owned(), large as i64),
            ("pods".to_owned(), pods.unwrap_or(MAX_PODS)),
        ])
    };
    let milli = i64::from(machine.total_cpus()) * 1000;
    let left = memory.saturating_sub(system).saturating_sub(small + large);
    (
        list(milli, memory),
        list((milli - reserved_milli).max(0), left),
    )
}
