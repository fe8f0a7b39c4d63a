//! Seeded random pod sequences, on which the model is compared with real kubelets.

use std::collections::BTreeMap;

use cluster_spec::kubelet::KubeletSettings;
use fixtures::machines::{MIB, Machine};

use super::corpus::Operation;
use super::recipe::{ContainerRecipe, Kind, PodRecipe};

/// `SplitMix64`. It yields the same numbers for a seed forever, which no crate guarantees.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator with this seed.
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

    /// Returns a number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high.max(low) - low + 1)
    }

    /// Returns true in this percentage of cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }
}

/// Returns the operations of one sequence: 8 to 12 pods, in about every third sequence deletions between them, in some a restart of the
/// kubelet, and at the end the deletion of all pods.
pub fn operations(
    seed: u64,
    machine: &Machine,
    settings: &KubeletSettings,
    prefix: &str,
) -> Vec<Operation> {
    let mut random = Random::new(seed);
    let pods = random.between(8, 12);
    let churn = random.chance(35);
    let restart = random.chance(8).then(|| random.between(3, pods - 1));
    let mut alive: Vec<String> = Vec::new();
    let mut operations = Vec::new();
    for index in 0..pods {
        let name = format!("{prefix}-{index}");
        let mut pod = pod(&mut random, machine, settings);
        if restart.is_some() {
            pod = restart_safe(pod);
        }
        alive.push(name.clone());
        operations.push(Operation::Create { name, pod });
        if churn && random.chance(45) && alive.len() > 1 {
            let victim = random.between(0, alive.len() as u64 - 1) as usize;
            let name = alive.swap_remove(victim);
            operations.push(Operation::Delete { name });
        }
        if restart == Some(index) {
            let probe = format!("{prefix}-probe");
            operations.push(Operation::Restart { probe });
        }
    }
    operations.push(Operation::Drain);
    operations
}

/// Removes from a pod what is left to chance after a restart of the kubelet: whether a plugin has registered before its devices are
/// requested, and how far init containers have run.
fn restart_safe(mut pod: PodRecipe) -> PodRecipe {
    pod.runs = false;
    pod.containers
        .retain(|container| container.kind != Kind::Init);
    for container in &mut pod.containers {
        container.limits.retain(|name, _| !name.contains('/'));
        if let Some(requests) = &mut container.requests {
            requests.retain(|name, _| !name.contains('/'));
        }
    }
    pod
}

/// Quality of service and similar classes that a pod is generated for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Guaranteed,
    Burstable,
    BestEffort,
    /// Burstable and critical, so the kubelet preempts others for it.
    Critical,
    /// With resources of the pod as a whole.
    PodLevel,
}

fn pod(random: &mut Random, machine: &Machine, settings: &KubeletSettings) -> PodRecipe {
    let class = match random.between(0, 99) {
        0..77 => Class::Guaranteed,
        77..86 => Class::Burstable,
        86..90 => Class::Critical,
        90..94 => Class::PodLevel,
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
    let runs = inits > 0 && random.chance(25);
    let mut pod_resources = BTreeMap::new();
    if class == Class::PodLevel {
        pod_resources.insert("cpu".to_owned(), random.between(1, 6).to_string());
        pod_resources.insert("memory".to_owned(), memory(random, machine, Kind::Sidecar));
    }
    PodRecipe {
        runs,
        unmatched_selector: random.chance(2),
        critical: class == Class::Critical,
        host_port: (!runs && random.chance(6)).then(|| 8080 + random.between(0, 1) as i32),
        pod_resources,
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
        Class::Critical => {
            let cpu = random.between(1, u64::from(machine.total_cpus()) / 3);
            let memory = machine.total_memory() / MIB / 3;
            requests = Some(BTreeMap::from([
                ("cpu".to_owned(), cpu.to_string()),
                (
                    "memory".to_owned(),
                    format!("{}Mi", random.between(1, memory)),
                ),
            ]));
        }
        Class::BestEffort | Class::PodLevel => {}
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
