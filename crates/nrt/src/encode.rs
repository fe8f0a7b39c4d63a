//! The parts of an object that an exporter computes: zones and attributes (rte.md 4.4, 5), in a stable order, so equal contents give equal
//! objects. [`crate::decode`] reads them.

use std::collections::BTreeMap;
use std::fmt::Display;

use api::attributes as names;
use api::nrt::{AttributeInfo, CostInfo, ResourceInfo, ZONE_TYPE_NODE, Zone as WireZone};
use api::quantity::{Amount, Format};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use topology::resource::ResourceName;
use topology::zone::Amounts;

use crate::decode::ZONE_PREFIX;
use crate::fingerprint::Method;
use crate::placement::Encoded;

/// A NUMA zone as an exporter sees it. Unlike a [`topology::zone::Zone`], it may have any number that the kernel gives: what the scheduler
/// cannot use is still shown to people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedZone {
    /// Number of the NUMA node.
    pub id: u32,
    /// Distance to each NUMA node, itself included.
    pub distances: BTreeMap<u32, i64>,
    /// What it holds.
    pub resources: BTreeMap<ResourceName, Amounts>,
}

/// Encodes zones sorted by id, each with costs sorted by id, resources sorted by name, and its vector of the placement, if it has one.
pub fn zones(zones: &[ObservedZone], placement: Option<&Encoded>) -> Vec<WireZone> {
    let mut sorted: Vec<&ObservedZone> = zones.iter().collect();
    sorted.sort_by_key(|zone| zone.id);
    let vector = |zone: &ObservedZone| placement?.vectors.get(&usize::try_from(zone.id).ok()?);
    sorted
        .into_iter()
        .map(|zone| wire(zone, vector(zone)))
        .collect()
}

fn wire(zone: &ObservedZone, vector: Option<&String>) -> WireZone {
    let costs = zone.distances.iter().map(|(to, value)| CostInfo {
        name: zone_name(*to),
        value: *value,
    });
    let resources = zone.resources.iter().map(|(name, amounts)| ResourceInfo {
        name: name.to_string(),
        capacity: quantity(name, amounts.capacity),
        allocatable: quantity(name, amounts.allocatable),
        available: quantity(name, amounts.available),
    });
    let vector = vector.map(|vector| attribute(names::NUMA_PLACEMENT_VECTOR, vector));
    WireZone {
        name: zone_name(zone.id),
        zone_type: ZONE_TYPE_NODE.to_owned(),
        parent: None,
        costs: costs.collect(),
        attributes: vector.into_iter().collect(),
        resources: resources.collect(),
    }
}

/// Formats an amount as decimal, as other exporters do: `33554432k` for 32,000 MiB (rte.md 4.4).
fn quantity(name: &ResourceName, amount: i64) -> Quantity {
    Amount::of(name.as_str(), amount, Format::DecimalSi).to_quantity()
}

fn zone_name(id: u32) -> String {
    format!("{ZONE_PREFIX}{id}")
}

/// Returns an attribute of an object or of a zone.
pub fn attribute(name: &str, value: impl Display) -> AttributeInfo {
    AttributeInfo {
        name: name.to_owned(),
        value: value.to_string(),
    }
}

/// Returns the attributes of the object that publish a fingerprint ([`crate::fingerprint::published`] reads them).
pub fn fingerprint(text: &str, method: Method) -> [AttributeInfo; 2] {
    [
        attribute(names::POD_FINGERPRINT, text),
        attribute(names::POD_FINGERPRINT_METHOD, method.as_str()),
    ]
}

/// Returns the attribute of the object that explains the vectors of its [`zones`].
pub fn placement(encoded: &Encoded) -> AttributeInfo {
    attribute(names::NUMA_PLACEMENT_METADATA, &encoded.metadata)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::decode;
    use api::nrt::v1alpha2::NodeResourceTopology;
    use proptest::prelude::*;
    use rstest::rstest;
    use topology::mask::ZoneId;
    use topology::zone::Zone;

    #[rstest]
    #[case("cpu", 4000, "4")]
    #[case("cpu", 1500, "1500m")]
    #[case("cpu", 1_000_000, "1k")]
    #[case("vendor/nic", 1000, "1k")]
    #[case("vendor/nic", 0, "0")]
    #[case("vendor/nic", 999, "999")]
    #[case("vendor/nic", 5_000_000, "5M")]
    #[case("memory", 33_554_432_000, "33554432k")]
    #[case("memory", 68_719_476_736, "68719476736")]
    #[case("memory", 0, "0")]
    #[case("hugepages-2Mi", 33_554_432_000, "33554432k")]
    #[case("hugepages-1Gi", 68_719_476_736, "68719476736")]
    #[case("hugepages-1Gi", 9_000_000_000_000_000_000, "9E")]
    fn amounts_are_decimal(#[case] name: &str, #[case] amount: i64, #[case] expected: &str) {
        assert_eq!(quantity(&name.into(), amount).0, expected);
    }

    #[test]
    fn zones_are_published_as_the_reference_shows() {
        let zone = |id: u32, distances: [i64; 2], available| ObservedZone {
            id,
            distances: (0..).zip(distances).collect(),
            resources: BTreeMap::from([(
                "cpu".into(),
                Amounts {
                    capacity: 4000,
                    allocatable: 3000,
                    available,
                },
            )]),
        };
        let observed = [zone(1, [21, 10], 3000), zone(0, [10, 21], 1000)];
        let placement = Encoded {
            vectors: BTreeMap::from([(1, "#".to_owned())]),
            ..Encoded::default()
        };
        let wire = zones(&observed, Some(&placement));
        assert_eq!(wire[0].name, "node-0");
        assert_eq!(wire[0].attributes, []);
        assert_eq!(wire[0].resources[0].available.0, "1");
        assert_eq!(wire[1].zone_type, "Node");
        assert_eq!(
            wire[1].attributes[0].name,
            "topology.node.k8s.io/numaplacement-vector"
        );
        assert_eq!(wire[1].attributes[0].value, "#");
        assert_eq!(
            (wire[1].costs[0].name.as_str(), wire[1].costs[0].value),
            ("node-0", 21)
        );
    }

    /// The kernel may number NUMA nodes higher than a scheduler can count, such as the memory of accelerators.
    #[test]
    fn zones_with_high_numbers_are_published_too() {
        let zone = ObservedZone {
            id: 255,
            distances: BTreeMap::from([(255, 10)]),
            ..ObservedZone::default()
        };
        let placement = Encoded {
            vectors: BTreeMap::from([(255, "#".to_owned())]),
            ..Encoded::default()
        };
        let wire = zones(&[zone], Some(&placement));
        assert_eq!(wire[0].name, "node-255");
        assert_eq!(wire[0].costs[0].name, "node-255");
        assert_eq!(wire[0].attributes[0].value, "#");
    }

    prop_compose! {
        fn any_zone()(
            id in 0_u64..64,
            amounts in proptest::collection::btree_map("[a-z]{1,6}(/[a-z]{1,3})?", (0_i64..1 << 50, 0_i64..1 << 50, 0_i64..1 << 50), 0..5),
            distances in proptest::collection::btree_map(0_u64..64, 10_i64..255, 0..5),
        ) -> Zone {
            Zone {
                id: ZoneId::new(id).expect("small"),
                resources: amounts
                    .into_iter()
                    .map(|(name, (capacity, allocatable, available))| (name.into(), Amounts { capacity, allocatable, available }))
                    .collect(),
                distances: distances.into_iter().filter_map(|(to, value)| Some((ZoneId::new(to)?, value))).collect(),
            }
        }
    }

    fn observed(zone: &Zone) -> ObservedZone {
        let distances = zone.distances.iter();
        ObservedZone {
            id: zone.id.get().into(),
            distances: distances
                .map(|(to, value)| (to.get().into(), *value))
                .collect(),
            resources: zone.resources.clone(),
        }
    }

    proptest! {
        #[test]
        fn decoding_gives_back_what_was_encoded(zones in proptest::collection::vec(any_zone(), 0..8)) {
            let mut zones = zones;
            zones.sort_by_key(|zone| zone.id);
            zones.dedup_by_key(|zone| zone.id);
            let mut nrt = NodeResourceTopology::new("worker-0");
            let observed: Vec<ObservedZone> = zones.iter().map(observed).collect();
            nrt.zones = super::zones(&observed, None);
            let (topology, problems) = decode(&nrt);
            prop_assert_eq!(problems, []);
            prop_assert_eq!(topology.zones, zones);
        }
    }
}
