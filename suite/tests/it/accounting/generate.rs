//! Random pods, sized for the default machine: each of its two zones has 22 CPUs, 58 GiB, 1 GiB of small and 4 large hugepages for pods. On
//! smaller machines more of the pods are refused.

use std::collections::BTreeMap;

use api::names::STACK_IMAGE;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::ObjectMeta;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use super::machine::NodeFacts;

/// Most pods of a set on one node.
const MOST_PODS: usize = 4;
/// Whole CPUs of one container. Small numbers are frequent, so that several pods fit on a node.
const CPUS: [&str; 10] = ["1", "1", "2", "2", "3", "4", "6", "8", "12", "16"];
/// CPUs that no zone has, but the node has.
const TOO_MANY_CPUS: [&str; 3] = ["23", "27", "30"];
/// Fractions of CPUs: never exclusive.
const FRACTIONS: [&str; 4] = ["250m", "500m", "1500m", "2500m"];
const MEMORY: [&str; 8] = ["64Mi", "256Mi", "1Gi", "2Gi", "5Gi", "11Gi", "20Gi", "35Gi"];
const SMALL_HUGEPAGES: [&str; 3] = ["2Mi", "64Mi", "256Mi"];
const LARGE_HUGEPAGES: [&str; 2] = ["1Gi", "2Gi"];
/// Device resources, each with the largest number of devices of one container.
const DEVICES: [(&str, u32); 6] = [
    (fixtures::machines::DEVICE_A, 3),
    (fixtures::machines::DEVICE_B, 2),
    (fixtures::machines::DEVICE_C, 3),
    ("kni.node/numacell00", 1),
    ("kni.node/numacell01", 1),
    ("kni.node/numacell03", 1),
];

/// The facts about a node that matter for its pods.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Name of the node.
    pub(crate) name: String,
    /// CPUs for pods in one zone.
    pub(crate) zone_cpus: i64,
    /// Memory for pods in one zone, in bytes; `None` where memory is not pinned.
    pub(crate) zone_memory: Option<i64>,
    /// Whether one container may hold resources of several zones.
    pub(crate) spans_zones: bool,
}

impl Target {
    /// Reads them from a node whose zones are alike.
    pub(crate) fn new(facts: &NodeFacts) -> Self {
        let of_a_zone = |resource: &str| {
            let zone = facts.zones.first()?;
            Some(zone.resources.get(resource)?.allocatable)
        };
        Self {
            name: facts.name.clone(),
            zone_cpus: of_a_zone("cpu").unwrap_or(0),
            zone_memory: of_a_zone("memory"),
            spans_zones: facts.spans_zones(),
        }
    }
}

/// Quality of service that a pod should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quality {
    Guaranteed,
    Burstable,
    BestEffort,
}

/// Kind of container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    App,
    Sidecar,
    Init,
}

/// One set: the pods to create and to delete.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PodSet {
    /// The pods that are created at once.
    pub(crate) pods: Vec<Pod>,
    /// Names of pods that are deleted half-way, while the others continue.
    pub(crate) delete_first: Vec<String>,
    /// Pods that are created after that.
    pub(crate) later: Vec<Pod>,
}

/// Builds the pods of one set. The result is the same for the same seed, number and nodes. The pods of each node, one set after another,
/// are its sequence.
pub(crate) fn pod_set(seed: u64, number: u32, nodes: &[Target]) -> PodSet {
    // one generator for each set, so that a set does not depend on the sets before it
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed.wrapping_add(u64::from(number) << 32));
    // finished init containers must occur with every seed, so one pod of each set has one that needs more than its app container
    let narrow: Vec<usize> = (0..nodes.len())
        .filter(|&index| !nodes[index].spans_zones)
        .collect();
    let special = narrow.choose(&mut random).copied();
    let mut pods = Vec::new();
    let named = |node: &Target, place: usize| format!("set{number:02}-{}-{place}", node.name);
    for (index, node) in nodes.iter().enumerate() {
        let mut count = random.random_range(1..=MOST_PODS);
        let spans = node.spans_zones && (number == 1 || random.random_bool(0.5));
        // in the first set this pod is alone, so that it has all the room that it needs
        if spans && number == 1 {
            count = 1;
        }
        for place in 0..count {
            let spec = match (place, node.zone_memory) {
                (0, Some(memory)) if spans => spanning(node.zone_cpus, memory),
                (0, _) if Some(index) == special => larger_init(),
                _ => spec(&mut random, node),
            };
            pods.push(placed(&mut random, &named(node, place), &node.name, spec));
        }
    }
    let delete_first = if random.random_bool(0.3) {
        let name = |pod: &Pod| pod.metadata.name.clone().unwrap_or_default();
        pods.iter()
            .filter(|_| random.random_bool(0.5))
            .map(name)
            .collect()
    } else {
        Vec::new()
    };
    let mut later = Vec::new();
    if !delete_first.is_empty() {
        for node in nodes {
            if random.random_bool(0.5) {
                continue;
            }
            let spec = spec(&mut random, node);
            let name = named(node, MOST_PODS);
            later.push(placed(&mut random, &name, &node.name, spec));
        }
    }
    PodSet {
        pods,
        delete_first,
        later,
    }
}

/// Builds a container with more CPUs and memory than a zone has.
fn spanning(zone_cpus: i64, zone_memory: i64) -> PodSpec {
    // reserved resources count when the kubelet checks whether one zone could be enough
    let (cpus, memory) = (zone_cpus + 4, zone_memory / 4 * 5);
    let limits = amounts(&[("cpu", &cpus.to_string()), ("memory", &memory.to_string())]);
    PodSpec {
        containers: vec![container(
            "app-0",
            Role::App,
            false,
            requirements(&limits, true),
        )],
        ..PodSpec::default()
    }
}

/// Binds most pods by name, so that only the kubelet decides about them. The default scheduler places the others.
fn placed(random: &mut Xoshiro256PlusPlus, name: &str, node: &str, mut spec: PodSpec) -> Pod {
    if random.random_bool(0.75) {
        spec.node_name = Some(node.to_owned());
    } else {
        spec.node_selector = Some(BTreeMap::from([(
            api::labels::HOSTNAME.to_owned(),
            node.to_owned(),
        )]));
    }
    spec.termination_grace_period_seconds = Some(0);
    spec.automount_service_account_token = Some(false);
    Pod {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    }
}

/// Builds an init container with more CPUs, memory and devices than the app container.
fn larger_init() -> PodSpec {
    let limits = |list: &[(&str, &str)]| requirements(&amounts(list), true);
    PodSpec {
        init_containers: Some(vec![container(
            "init-0",
            Role::Init,
            false,
            limits(&[
                ("cpu", "3"),
                ("memory", "512Mi"),
                (fixtures::machines::DEVICE_A, "1"),
            ]),
        )]),
        containers: vec![container(
            "app-0",
            Role::App,
            false,
            limits(&[("cpu", "1"), ("memory", "256Mi")]),
        )],
        ..PodSpec::default()
    }
}

fn spec(random: &mut Xoshiro256PlusPlus, node: &Target) -> PodSpec {
    let quality = *[
        Quality::Guaranteed,
        Quality::Guaranteed,
        Quality::Guaranteed,
        Quality::Burstable,
        Quality::BestEffort,
    ]
    .choose(random)
    .expect("not empty");
    let ends = random.random_bool(0.12);
    let too_large = quality == Quality::Guaranteed && random.random_bool(0.08);
    let mut before = Vec::new();
    // the kubelet takes a second to notice the end of a container, so no pod has many that end
    if !ends && random.random_bool(0.4) {
        let count = if random.random_bool(0.2) { 2 } else { 1 };
        before.extend(std::iter::repeat_n(Role::Init, count));
    }
    if !ends && random.random_bool(0.2) {
        before.insert(random.random_range(0..=before.len()), Role::Sidecar);
    }
    let init: Vec<_> = before
        .iter()
        .enumerate()
        .map(|(index, role)| {
            let name = match role {
                Role::Sidecar => format!("sidecar-{index}"),
                _ => format!("init-{index}"),
            };
            container(&name, *role, false, resources(random, quality))
        })
        .collect();
    let apps = *[1, 1, 1, 2, 2, 3].choose(random).expect("not empty");
    let mut containers: Vec<_> = (0..apps)
        .map(|index| {
            container(
                &format!("app-{index}"),
                Role::App,
                ends,
                resources(random, quality),
            )
        })
        .collect();
    if too_large {
        let cpus = *TOO_MANY_CPUS.choose(random).expect("not empty");
        containers[0].resources = Some(requirements(
            &amounts(&[("cpu", cpus), ("memory", "64Mi")]),
            true,
        ));
    }
    // Where memory is not pinned, the fingerprint covers a Guaranteed pod only if it has whole CPUs. Without such a pod, fingerprints would
    // not show when the node is settled.
    if node.zone_memory.is_none()
        && quality == Quality::Guaranteed
        && let Some(limits) = containers[0]
            .resources
            .as_mut()
            .and_then(|resources| resources.limits.as_mut())
        && !too_large
    {
        limits.insert("cpu".to_owned(), Quantity("1".to_owned()));
    }
    PodSpec {
        containers,
        init_containers: (!init.is_empty()).then_some(init),
        restart_policy: ends.then(|| "Never".to_owned()),
        ..PodSpec::default()
    }
}

fn container(name: &str, role: Role, ends: bool, resources: ResourceRequirements) -> Container {
    let command: &[&str] = match (role, ends) {
        (Role::Init, _) => &["/bin/sleep", "0"],
        (Role::App, true) => &["/bin/sleep", "0.2"],
        (Role::App, false) | (Role::Sidecar, _) => &["/pause"],
    };
    Container {
        name: name.to_owned(),
        image: Some(STACK_IMAGE.to_owned()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        command: Some(command.iter().map(|&word| word.to_owned()).collect()),
        resources: Some(resources),
        restart_policy: (role == Role::Sidecar).then(|| "Always".to_owned()),
        ..Container::default()
    }
}

fn resources(random: &mut Xoshiro256PlusPlus, quality: Quality) -> ResourceRequirements {
    let mut pick = |from: &[&str]| (*from.choose(random).expect("not empty")).to_owned();
    let (fraction, memory) = (pick(&FRACTIONS), pick(&MEMORY));
    let (cpus, small, large) = (pick(&CPUS), pick(&SMALL_HUGEPAGES), pick(&LARGE_HUGEPAGES));
    let mut devices = BTreeMap::new();
    if random.random_bool(0.2) {
        let (resource, most) = *DEVICES.choose(random).expect("not empty");
        let count = random.random_range(1..=most);
        devices.insert(resource.to_owned(), Quantity(count.to_string()));
    }
    let mut list = BTreeMap::new();
    match quality {
        Quality::BestEffort => {}
        Quality::Guaranteed => {
            let cpu = if random.random_bool(0.7) {
                cpus
            } else {
                fraction
            };
            list.insert("cpu".to_owned(), Quantity(cpu));
            list.insert("memory".to_owned(), Quantity(memory));
        }
        Quality::Burstable => {
            let cpu = if random.random_bool(0.5) {
                cpus
            } else {
                fraction
            };
            list.insert("cpu".to_owned(), Quantity(cpu));
            if random.random_bool(0.5) {
                list.insert("memory".to_owned(), Quantity(memory));
            }
        }
    }
    // hugepages need limits as devices do, and CPU or memory beside them
    let mut limited = devices;
    if quality != Quality::BestEffort {
        if random.random_bool(0.15) {
            limited.insert("hugepages-2Mi".to_owned(), Quantity(small));
        }
        if random.random_bool(0.1) {
            limited.insert("hugepages-1Gi".to_owned(), Quantity(large));
        }
    }
    let mut requirements = requirements(&list, quality == Quality::Guaranteed);
    if !limited.is_empty() {
        requirements.limits.get_or_insert_default().extend(limited);
    }
    requirements
}

/// Returns the list as limits, which the API server copies to the requests, or as requests alone.
fn requirements(list: &BTreeMap<String, Quantity>, limited: bool) -> ResourceRequirements {
    let list = (!list.is_empty()).then(|| list.clone());
    let (limits, requests) = if limited { (list, None) } else { (None, list) };
    ResourceRequirements {
        limits,
        requests,
        ..ResourceRequirements::default()
    }
}

fn amounts(list: &[(&str, &str)]) -> BTreeMap<String, Quantity> {
    list.iter()
        .map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned())))
        .collect()
}

#[cfg(test)]
mod tests;
