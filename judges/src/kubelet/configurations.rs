//! The machines and kubelet settings that pod sequences are recorded with.

use cluster_spec::kubelet::{
    CpuPolicy, KubeletSettings, MemoryPolicy, TopologyPolicy, TopologyScope,
};
use fixtures::machines::{MIB, Machine, profile};
use serde_json::json;

use super::random::Random;

/// Eviction threshold of the local lane's kubelets in MiB: part of the memory reservation.
const EVICTION_MIB: u64 = 100;

/// The machines: one, two and four zones, with and without SMT, with two zones per socket, with caches smaller than a zone.
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

/// CPU manager options that are set together.
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

/// Alpha options, which need a feature gate.
const ALPHA: [&str; 2] = ["align-by-socket", "distribute-cpus-across-cores"];

/// Kubelet settings by name.
pub type NamedSettings = Vec<(String, KubeletSettings)>;

/// Unusual machines: zones of different sizes, four threads per core.
const UNUSUAL_MACHINES: [&str; 2] = [
    "
name: uneven
threadsPerCore: 2
zones:
- {cores: 6, memory: 24Gi}
- {cores: 2, memory: 4Gi, hugepages2Mi: 128}
- {cores: 4, memory: 12Gi, hugepages2Mi: 256, hugepages1Gi: 2}
distances: [[10, 21, 16], [21, 10, 16], [16, 16, 10]]
devices: {example.com/deviceA: [1, 3, 2]}
",
    "
name: four-threads
threadsPerCore: 4
zones:
- {cores: 3, memory: 16Gi, hugepages1Gi: 1}
- {cores: 3, memory: 12Gi, hugepages2Mi: 256}
devices: {example.com/deviceA: [2, 1]}
",
];

/// Returns every machine with the kubelet settings that it is recorded with, by name. Each has eight to ten of them, so that together they
/// cover all policies and scopes, and all options that each policy allows.
pub fn all() -> Result<Vec<(Machine, NamedSettings)>, profile::Error> {
    let mut all = usual()?;
    for text in UNUSUAL_MACHINES {
        let machine = profile::from_yaml(text)?;
        let list = unusual(&machine);
        all.push((machine, list));
    }
    Ok(all)
}

/// Returns some machines, each with some of its kubelet settings, chosen by seed.
pub fn sample(
    seed: u64,
    machines: usize,
    each: usize,
) -> Result<Vec<(Machine, NamedSettings)>, profile::Error> {
    let mut random = Random::new(seed);
    let mut shuffle = |left: usize| random.between(0, left as u64 - 1) as usize;
    let mut all = all()?;
    while all.len() > machines.max(1) {
        all.remove(shuffle(all.len()));
    }
    for (_, list) in &mut all {
        while list.len() > each.max(1) {
            list.remove(shuffle(list.len()));
        }
    }
    Ok(all)
}

/// Policy, scope, CPU manager options, topology manager options, name.
type Variant = (
    TopologyPolicy,
    TopologyScope,
    &'static [&'static str],
    &'static [(&'static str, &'static str)],
    &'static str,
);

fn unusual(machine: &Machine) -> NamedSettings {
    use TopologyPolicy::{BestEffort, None as NoPolicy, Restricted, SingleNumaNode};
    use TopologyScope::{Container, Pod};
    let closest = &[("prefer-closest-numa-nodes", "true")];
    let limited = &[
        ("max-allowable-numa-nodes", "9"),
        ("prefer-closest-numa-nodes", "true"),
    ];
    let variants: [Variant; 8] = [
        (
            SingleNumaNode,
            Container,
            &["full-pcpus-only", "strict-cpu-reservation"],
            limited,
            "single-container",
        ),
        (
            BestEffort,
            Pod,
            &["distribute-cpus-across-numa"],
            closest,
            "besteffort-pod",
        ),
        (
            Restricted,
            Container,
            &["align-by-socket"],
            limited,
            "restricted-container",
        ),
        (
            Restricted,
            Pod,
            &["distribute-cpus-across-cores"],
            closest,
            "restricted-pod",
        ),
        (
            SingleNumaNode,
            Pod,
            &["strict-cpu-reservation"],
            closest,
            "few-pods-single-pod",
        ),
        (
            NoPolicy,
            Container,
            &["full-pcpus-only", "distribute-cpus-across-numa"],
            limited,
            "few-pods-none",
        ),
        (
            BestEffort,
            Container,
            &["full-pcpus-only", "prefer-align-cpus-by-uncorecache"],
            closest,
            "besteffort-container",
        ),
        (
            Restricted,
            Container,
            &[],
            &[],
            "counted-restricted-container",
        ),
    ];
    let mut list = NamedSettings::new();
    for (number, (policy, scope, options, rules, policy_name)) in variants.into_iter().enumerate() {
        let mut settings = settings(machine, number, options);
        settings.topology_manager_policy = policy;
        settings.topology_manager_scope = scope;
        settings.topology_manager_policy_options = rules
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        if policy_name.starts_with("few-pods") {
            settings
                .extra
                .insert("maxPods".to_owned(), json!(number + 1));
        }
        if policy_name.starts_with("counted") {
            // The kubelet chooses the reserved CPUs itself, because only amounts are reserved.
            let zones = machine.zones().len() as u64;
            let memory = settings.reserved_memory_per_zone * zones / MIB - EVICTION_MIB;
            let system = json!({ "cpu": "1500m", "memory": format!("{memory}Mi") });
            settings.extra.insert("systemReserved".to_owned(), system);
            settings
                .extra
                .insert("kubeReserved".to_owned(), json!({ "cpu": "700m" }));
            settings
                .extra
                .insert("reservedSystemCPUs".to_owned(), json!(""));
        }
        let name = format!("{}-{number}-{policy_name}", machine.name());
        list.push((name, settings));
    }
    list
}

fn usual() -> Result<Vec<(Machine, NamedSettings)>, profile::Error> {
    let mut all = Vec::new();
    for (index, text) in MACHINES.iter().enumerate() {
        let machine = profile::from_yaml(text)?;
        let mut list = NamedSettings::new();
        for number in 0..10 {
            let (policy, scope, policy_name) = POLICIES[number % POLICIES.len()];
            let mut options = OPTIONS[(number + index * 2) % OPTIONS.len()];
            if options.contains(&"align-by-socket") && policy == TopologyPolicy::SingleNumaNode {
                options = &["full-pcpus-only"];
            }
            let mut settings = settings(&machine, number, options);
            settings.topology_manager_policy = policy;
            settings.topology_manager_scope = scope;
            if matches!(
                policy,
                TopologyPolicy::BestEffort | TopologyPolicy::Restricted
            ) && number % 3 == 1
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
                "{}-{number}-{policy_name}-{}",
                machine.name(),
                shown.join("+")
            );
            list.push((name.trim_end_matches('-').to_owned(), settings));
        }
        all.push((machine, list));
    }
    Ok(all)
}

fn settings(machine: &Machine, number: usize, options: &[&str]) -> KubeletSettings {
    let mut settings = KubeletSettings {
        reserved_memory_per_zone: 512 * MIB,
        ..KubeletSettings::default()
    };
    match number {
        8 => settings.memory_manager_policy = MemoryPolicy::None,
        9 => settings.cpu_manager_policy = CpuPolicy::None,
        _ => {}
    }
    settings.reserved_cpus = match number % 4 {
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
    // Nothing may change by the passing of time while a sequence is recorded. Events are of no interest.
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
