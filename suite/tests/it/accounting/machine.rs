//! What a node has for pods, from its machine profile and its kubelet's settings (rte.md 4.4).

use std::collections::{BTreeMap, BTreeSet};

use cluster_spec::kubelet::{CpuPolicy, KubeletSettings, MemoryPolicy};
use fixtures::machines::{GIB, MIB, Machine};

/// Devices of each cell that the suite's numacell plugin announces.
const NUMACELL_DEVICES: i64 = 15;

/// One node.
#[derive(Clone, Debug)]
pub(crate) struct NodeFacts {
    /// Name of the node.
    pub(crate) name: String,
    /// Zones, by id.
    pub(crate) zones: Vec<ZoneFacts>,
    /// Topology manager policy, as the kubelet's configuration spells it.
    pub(crate) policy: String,
    /// Topology manager scope, as the kubelet's configuration spells it.
    pub(crate) scope: String,
    /// Whether memory is pinned and listed.
    pub(crate) manages_memory: bool,
}

/// One NUMA zone.
#[derive(Clone, Debug, Default)]
pub(crate) struct ZoneFacts {
    /// All its CPUs.
    pub(crate) cpus: BTreeSet<u32>,
    /// The CPUs that no pod gets.
    pub(crate) reserved_cpus: BTreeSet<u32>,
    /// Amounts by resource, in units or bytes.
    pub(crate) resources: BTreeMap<String, Amount>,
    /// Distance to each zone, by id.
    pub(crate) distances: Vec<i64>,
}

/// How much of a resource a zone has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Amount {
    /// In the machine.
    pub(crate) capacity: i64,
    /// For pods.
    pub(crate) allocatable: i64,
}

impl NodeFacts {
    /// Derives the facts. It is an error if the kubelet does not pin CPUs.
    pub(crate) fn new(
        name: &str,
        machine: &Machine,
        settings: &KubeletSettings,
    ) -> Result<Self, String> {
        if settings.cpu_manager_policy != CpuPolicy::Static {
            return Err(format!(
                "the kubelet of {name} has another CPU policy than this test is about: {settings:?}"
            ));
        }
        let word = |value: serde_json::Result<serde_json::Value>| {
            let value = value.map_err(|error| error.to_string())?;
            value
                .as_str()
                .map(str::to_owned)
                .ok_or_else(|| format!("{value} is no word"))
        };
        let reserved: BTreeSet<u32> = settings.reserved_cpus_of(machine).into_iter().collect();
        Ok(Self {
            name: name.to_owned(),
            zones: (0..machine.zones().len())
                .map(|zone| zone_facts(machine, settings, &reserved, zone))
                .collect(),
            policy: word(serde_json::to_value(settings.topology_manager_policy))?,
            scope: word(serde_json::to_value(settings.topology_manager_scope))?,
            manages_memory: settings.memory_manager_policy == MemoryPolicy::Static,
        })
    }

    /// Returns whether one container may hold resources of several zones.
    pub(crate) fn spans_zones(&self) -> bool {
        self.policy != "single-numa-node"
    }

    /// Returns the zone that has a CPU.
    pub(crate) fn zone_of_cpu(&self, cpu: u32) -> Option<usize> {
        self.zones.iter().position(|zone| zone.cpus.contains(&cpu))
    }
}

fn zone_facts(
    machine: &Machine,
    settings: &KubeletSettings,
    reserved: &BTreeSet<u32>,
    index: usize,
) -> ZoneFacts {
    let zone = &machine.zones()[index];
    let cpus: BTreeSet<u32> = machine.zone_cpus(index).into_iter().collect();
    let reserved_cpus: BTreeSet<u32> = cpus.intersection(reserved).copied().collect();
    let mut resources = BTreeMap::new();
    let mut add = |name: &str, capacity: u64, allocatable: u64| {
        // resources with an amount of zero are not listed
        if allocatable > 0 {
            let amount = Amount {
                capacity: capacity.cast_signed(),
                allocatable: allocatable.cast_signed(),
            };
            resources.insert(name.to_owned(), amount);
        }
    };
    let (all, taken) = (cpus.len() as u64, reserved_cpus.len() as u64);
    add("cpu", all, all - taken);
    if settings.memory_manager_policy == MemoryPolicy::Static {
        let small = zone.hugepages_2mi * 2 * MIB;
        let large = zone.hugepages_1gi * GIB;
        let reserved = settings.reserved_memory_per_zone + small + large;
        add("memory", zone.memory, zone.memory - reserved);
        add("hugepages-2Mi", small, small);
        add("hugepages-1Gi", large, large);
    }
    for (resource, devices) in machine.devices() {
        let count = devices.iter().filter(|device| device.zone == index).count() as u64;
        add(resource, count, count);
    }
    let cells = NUMACELL_DEVICES.cast_unsigned();
    add(&format!("kni.node/numacell{index:02}"), cells, cells);
    ZoneFacts {
        cpus,
        reserved_cpus,
        resources,
        distances: machine.distances()[index]
            .iter()
            .map(|&distance| i64::from(distance))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster_spec::kubelet::TopologyScope;

    #[test]
    fn the_default_worker_has_what_its_profile_and_reservations_leave() {
        let facts = NodeFacts::new(
            "n",
            &Machine::default_profile(),
            &KubeletSettings::with_scope(TopologyScope::Pod),
        )
        .expect("managed");
        assert_eq!(
            (facts.policy.as_str(), facts.scope.as_str()),
            ("single-numa-node", "pod")
        );
        assert_eq!(facts.zones.len(), 2);
        let zone = &facts.zones[1];
        assert_eq!(zone.reserved_cpus, BTreeSet::from([12, 36]));
        assert_eq!(zone.distances, [21, 10]);
        let expected: [(&str, i64, i64); 8] = [
            ("cpu", 24, 22),
            // 64 GiB, without 1 GiB reserved and 1 + 4 GiB of hugepages
            ("memory", 68_719_476_736, 62_277_025_792),
            ("hugepages-2Mi", 1_073_741_824, 1_073_741_824),
            ("hugepages-1Gi", 4_294_967_296, 4_294_967_296),
            ("example.com/deviceA", 5, 5),
            ("example.com/deviceB", 4, 4),
            ("example.com/deviceC", 2, 2),
            ("kni.node/numacell01", 15, 15),
        ];
        let expected: BTreeMap<String, Amount> = expected
            .into_iter()
            .map(|(name, capacity, allocatable)| {
                (
                    name.to_owned(),
                    Amount {
                        capacity,
                        allocatable,
                    },
                )
            })
            .collect();
        assert_eq!(zone.resources, expected);
        assert_eq!(facts.zone_of_cpu(35), Some(0));
        assert_eq!(facts.zone_of_cpu(36), Some(1));
        assert_eq!(facts.zone_of_cpu(48), None);
    }

    #[test]
    fn without_the_memory_manager_only_cpus_and_devices_are_listed() {
        let settings = KubeletSettings {
            memory_manager_policy: MemoryPolicy::None,
            ..KubeletSettings::default()
        };
        let facts = NodeFacts::new("n", &Machine::default_profile(), &settings).expect("managed");
        let listed: Vec<&str> = facts.zones[0]
            .resources
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(
            listed,
            [
                "cpu",
                "example.com/deviceA",
                "example.com/deviceB",
                "example.com/deviceC",
                "kni.node/numacell00"
            ]
        );
    }

    #[test]
    fn a_kubelet_that_manages_nothing_is_refused() {
        let facts = NodeFacts::new(
            "n",
            &Machine::default_profile(),
            &KubeletSettings::unmanaged(),
        );
        assert!(facts.is_err());
    }
}
