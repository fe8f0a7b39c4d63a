//! Seeded random kubelet configurations and pod sequences to compare the model with real kubelets on.

use std::collections::BTreeMap;

use fixtures::machines::{MIB, Machine, profile};
use serde_json::json;

use super::corpus::Operation;
use super::recipe::{ContainerRecipe, Kind, PodRecipe};
use crate::local::KubeletSettings;
use crate::local::kubelet::{CpuPolicy, MemoryPolicy, TopologyPolicy, TopologyScope};

/// SplitMix64: the same numbers for a seed for good, which no crate promises.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Numbers of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number from `low` to `high`, both included.
    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high.max(low) - low + 1)
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }
}

/// The machines: one, two and four zones, with and without SMT, with two zones a socket, with caches smaller than a zone.
const MACHINES: [&str; 6] = [
    "
name: two-zones
threadsPerCore: 2
zones:
- {cores: 6, memory: 16Gi, hugepages2Mi: 512, hugepages1Gi: 2}
- {cores: 6, memory: 16Gi, hugepages2Mi: 512, hugepages1Gi: 2}
distances: [[10, 21], [21, 10]]
devices: {example.com/deviceA: [3, 3], example.com/deviceB: [2, 0]}
",
    "
name: four-zones
threadsPerCore: 2
zones:
- {cores: 4, memory: 16Gi, hugepages2Mi: 256}
- {cores: 4, memory: 16Gi, hugepages2Mi: 256}
- {cores: 4, memory: 16Gi}
- {cores: 4, memory: 8Gi, hugepages1Gi: 2}
distances: [[10, 12, 21, 31], [12, 10, 31, 21], [21, 31, 10, 12], [31, 21, 12, 10]]
devices: {example.com/deviceA: [2, 2, 2, 2], example.com/deviceB: [0, 1, 0, 3]}
",
    "
name: no-smt
zones:
- {cores: 8, memory: 16Gi, hugepages2Mi: 512}
- {cores: 8, memory: 16Gi}
devices: {example.com/deviceA: [2, 4]}
",
    "
name: caches
threadsPerCore: 2
coresPerCache: 4
zones:
- {cores: 8, memory: 16Gi}
- {cores: 8, memory: 16Gi}
devices: {example.com/deviceA: [3, 3]}
",
    "
name: two-sockets
threadsPerCore: 2
zonesPerSocket: 2
zones:
- {cores: 4, memory: 16Gi}
- {cores: 4, memory: 16Gi}
- {cores: 4, memory: 16Gi, hugepages1Gi: 4}
- {cores: 4, memory: 16Gi, hugepages1Gi: 4}
distances: [[10, 12, 21, 21], [12, 10, 21, 21], [21, 21, 10, 12], [21, 21, 12, 10]]
devices: {example.com/deviceA: [1, 2, 3, 0]}
",
    "
name: one-zone
threadsPerCore: 2
zones:
- {cores: 8, memory: 32Gi, hugepages2Mi: 256, hugepages1Gi: 2}
devices: {example.com/deviceA: [4]}
",
];

/// Topology manager policies with their scopes.
const POLICIES: [(TopologyPolicy, TopologyScope, &str); 7] = [
    (
        TopologyPolicy::SingleNumaNode,
        TopologyScope::Container,
        "single-container",
    ),
    (
        TopologyPolicy::BestEffort,
        TopologyScope::Pod,
        "besteffort-pod",
    ),
    (
        TopologyPolicy::Restricted,
        TopologyScope::Container,
        "restricted-container",
    ),
    (
        TopologyPolicy::SingleNumaNode,
        TopologyScope::Pod,
        "single-pod",
    ),
    (
        TopologyPolicy::BestEffort,
        TopologyScope::Container,
        "besteffort-container",
    ),
    (
        TopologyPolicy::Restricted,
        TopologyScope::Pod,
        "restricted-pod",
    ),
    (TopologyPolicy::None, TopologyScope::Container, "none"),
];

/// CPU manager options that go together.
const OPTIONS: [&[&str]; 11] = [
    &[],
    &["full-pcpus-only"],
    &["distribute-cpus-across-numa"],
    &["strict-cpu-reservation"],
    &["full-pcpus-only", "distribute-cpus-across-numa"],
    &["prefer-align-cpus-by-uncorecache"],
    &["align-by-socket"],
    &["distribute-cpus-across-cores"],
    &["full-pcpus-only", "strict-cpu-reservation"],
    &["full-pcpus-only", "prefer-align-cpus-by-uncorecache"],
    &["align-by-socket", "distribute-cpus-across-numa"],
];

/// Alpha options need their gate.
const ALPHA: [&str; 2] = ["align-by-socket", "distribute-cpus-across-cores"];

/// Kubelet settings by name.
pub type Named = Vec<(String, KubeletSettings)>;

/// Every machine with the kubelet settings that it is recorded with, by name. Ten or so a machine: all policies and scopes, all
/// options that the policy allows.
pub fn configurations() -> Result<Vec<(Machine, Named)>, profile::Error> {
    let mut all = Vec::new();
    for (index, text) in MACHINES.iter().enumerate() {
        let machine = profile::from_yaml(text)?;
        let mut list = Named::new();
        for round in 0..10 {
            let (policy, scope, policy_name) = POLICIES[round % POLICIES.len()];
            let mut options = OPTIONS[(round + index * 2) % OPTIONS.len()];
            if options.contains(&"align-by-socket") && policy == TopologyPolicy::SingleNumaNode {
                options = &["full-pcpus-only"];
            }
            let mut settings = settings(&machine, round, options);
            settings.topology_manager_policy = policy;
            settings.topology_manager_scope = scope;
            if matches!(
                policy,
                TopologyPolicy::BestEffort | TopologyPolicy::Restricted
            ) && round % 3 == 1
            {
                settings
                    .topology_manager_policy_options
                    .insert("prefer-closest-numa-nodes".to_owned(), "true".to_owned());
            }
            let shown: Vec<&str> = settings
                .cpu_manager_policy_options
                .keys()
                .map(String::as_str)
                .collect();
            let name = format!(
                "{}-{round}-{policy_name}-{}",
                machine.name(),
                shown.join("+")
            );
            list.push((name.trim_end_matches('-').to_owned(), settings));
        }
        all.push((machine, list));
    }
    Ok(all)
}

fn settings(machine: &Machine, round: usize, options: &[&str]) -> KubeletSettings {
    let mut settings = KubeletSettings {
        reserved_memory_per_zone: 512 * MIB,
        ..KubeletSettings::default()
    };
    match round {
        8 => settings.memory_manager_policy = MemoryPolicy::None,
        9 => settings.cpu_manager_policy = CpuPolicy::None,
        _ => {}
    }
    settings.reserved_cpus = match round % 4 {
        1 => Some(machine.core_cpus(0)),
        2 => Some(vec![0, machine.total_cpus() - 1]),
        3 => Some(vec![1]),
        _ => None,
    };
    if settings.cpu_manager_policy == CpuPolicy::Static {
        settings.cpu_manager_policy_options = options
            .iter()
            .map(|option| ((*option).to_owned(), "true".to_owned()))
            .collect();
    }
    if options.iter().any(|option| ALPHA.contains(option)) {
        settings.extra.insert(
            "featureGates".to_owned(),
            json!({ "CPUManagerPolicyAlphaOptions": true }),
        );
    }
    // What time alone would change must not change while a sequence is recorded; events are of no interest.
    for (field, value) in [
        ("cpuManagerReconcilePeriod", json!("1h")),
        ("eventRecordQPS", json!(1)),
        ("eventBurst", json!(1)),
        ("nodeStatusUpdateFrequency", json!("1s")),
    ] {
        settings.extra.insert(field.to_owned(), value);
    }
    settings
}

/// The operations of one sequence: 8 to 12 pods, in every third sequence deletions between them, and at the end all pods go.
pub fn operations(
    seed: u64,
    machine: &Machine,
    settings: &KubeletSettings,
    prefix: &str,
) -> Vec<Operation> {
    let mut random = Random::new(seed);
    let pods = random.between(8, 12);
    let churn = random.chance(35);
    let mut alive: Vec<String> = Vec::new();
    let mut operations = Vec::new();
    for index in 0..pods {
        let name = format!("{prefix}-{index}");
        let pod = pod(&mut random, machine, settings);
        alive.push(name.clone());
        operations.push(Operation::Create { name, pod });
        if churn && random.chance(45) && alive.len() > 1 {
            let victim = random.between(0, alive.len() as u64 - 1) as usize;
            let name = alive.swap_remove(victim);
            operations.push(Operation::Delete { name });
        }
    }
    operations.push(Operation::Drain);
    operations
}

/// Quality of service that a pod is made for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Guaranteed,
    Burstable,
    BestEffort,
}

fn pod(random: &mut Random, machine: &Machine, settings: &KubeletSettings) -> PodRecipe {
    let class = match random.between(0, 99) {
        0..84 => Class::Guaranteed,
        84..94 => Class::Burstable,
        _ => Class::BestEffort,
    };
    let mut containers = Vec::new();
    if random.chance(30) {
        for _ in 0..random.between(1, 3) {
            let kind = if random.chance(60) {
                Kind::Init
            } else {
                Kind::Sidecar
            };
            containers.push(container(random, machine, settings, class, kind));
        }
    }
    let apps = match random.between(0, 9) {
        0..6 => 1,
        6..9 => 2,
        _ => 3,
    };
    for _ in 0..apps {
        containers.push(container(random, machine, settings, class, Kind::App));
    }
    let inits = containers
        .iter()
        .filter(|container| container.kind != Kind::App)
        .count();
    PodRecipe {
        runs: inits > 0 && random.chance(25),
        nowhere: random.chance(2),
        containers,
    }
}

fn container(
    random: &mut Random,
    machine: &Machine,
    settings: &KubeletSettings,
    class: Class,
    kind: Kind,
) -> ContainerRecipe {
    let mut limits = BTreeMap::new();
    let mut requests = None;
    match class {
        Class::Guaranteed => {
            limits.insert("cpu".to_owned(), cpus(random, machine, settings, kind));
            limits.insert("memory".to_owned(), memory(random, machine, kind));
            hugepages(random, machine, &mut limits);
        }
        Class::Burstable => {
            let cpu = random.between(1, 4);
            limits.insert("cpu".to_owned(), (cpu + 1).to_string());
            requests = Some(BTreeMap::from([
                ("cpu".to_owned(), cpu.to_string()),
                (
                    "memory".to_owned(),
                    format!("{}Mi", 64 * random.between(1, 16)),
                ),
            ]));
        }
        Class::BestEffort => {}
    }
    if random.chance(25) && !machine.devices().is_empty() {
        let index = random.between(0, machine.devices().len() as u64 - 1) as usize;
        if let Some((resource, devices)) = machine.devices().iter().nth(index) {
            let all = devices.len() as u64;
            let most = if random.chance(80) {
                all.div_ceil(3)
            } else {
                all
            };
            let count = random.between(1, most).to_string();
            if let Some(requests) = &mut requests {
                requests.insert(resource.clone(), count.clone());
            }
            limits.insert(resource.clone(), count);
        }
    }
    ContainerRecipe {
        kind,
        limits,
        requests,
    }
}

fn cpus(random: &mut Random, machine: &Machine, settings: &KubeletSettings, kind: Kind) -> String {
    if random.chance(12) {
        return format!("{}m", 100 * random.between(1, 25));
    }
    let zone = machine.zone_cpus(0).len() as u64;
    let most = match (kind, random.between(0, 99)) {
        (Kind::Sidecar, _) => 3,
        (_, 0..60) => zone / 3,
        (_, 60..85) => zone * 2 / 3,
        (_, 85..95) => zone,
        _ => zone * 2,
    };
    let mut count = random.between(1, most);
    let whole_cores = settings
        .cpu_manager_policy_options
        .contains_key("full-pcpus-only");
    if whole_cores && random.chance(85) {
        count = count.next_multiple_of(u64::from(machine.threads_per_core()));
    }
    count.to_string()
}

fn memory(random: &mut Random, machine: &Machine, kind: Kind) -> String {
    let zone = machine.zones()[0].memory / MIB;
    let mebibytes = match (kind, random.between(0, 99)) {
        (Kind::Sidecar, _) | (_, 0..50) => 64 * random.between(1, 16),
        (_, 50..85) => random.between(zone / 16, zone / 3),
        (_, 85..96) => random.between(zone / 3, zone),
        _ => random.between(zone, zone * 2),
    };
    format!("{mebibytes}Mi")
}

fn hugepages(random: &mut Random, machine: &Machine, limits: &mut BTreeMap<String, String>) {
    let small: u64 = machine.zones().iter().map(|zone| zone.hugepages_2mi).sum();
    let large: u64 = machine.zones().iter().map(|zone| zone.hugepages_1gi).sum();
    if small > 0 && random.chance(18) {
        let pages = random.between(1, small / 3);
        limits.insert("hugepages-2Mi".to_owned(), format!("{}Mi", pages * 2));
    }
    if large > 0 && random.chance(10) {
        let pages = random.between(1, large.div_ceil(2));
        limits.insert("hugepages-1Gi".to_owned(), format!("{pages}Gi"));
    }
}
