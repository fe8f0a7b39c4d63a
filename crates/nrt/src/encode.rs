//! Zones as the exporter publishes them (rte.md 4.4, 5), in a stable order, so equal zones give equal objects.

use std::collections::BTreeMap;

use api::attributes;
use api::nrt::{AttributeInfo, CostInfo, ResourceInfo, ZONE_TYPE_NODE, Zone as WireZone};
use api::quantity::{Amount, Format};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use topology::mask::ZoneId;
use topology::resource::ResourceName;
use topology::zone::Zone;

use crate::decode::ZONE_PREFIX;

/// Returns the name of a zone in an NRT.
pub fn zone_name(id: ZoneId) -> String {
    format!("{ZONE_PREFIX}{id}")
}

/// Encodes zones sorted by id, each with costs sorted by id and resources sorted by name. `vectors` holds the placement vectors by
/// zone id ([`crate::placement::Encoded`]).
pub fn encode(zones: &[Zone], vectors: &BTreeMap<usize, String>) -> Vec<WireZone> {
    let mut sorted: Vec<&Zone> = zones.iter().collect();
    sorted.sort_by_key(|zone| zone.id);
    sorted
        .into_iter()
        .map(|zone| wire(zone, vectors.get(&zone.id.index())))
        .collect()
}

fn wire(zone: &Zone, vector: Option<&String>) -> WireZone {
    let vector = vector.map(|value| AttributeInfo {
        name: attributes::NUMA_PLACEMENT_VECTOR.to_owned(),
        value: value.clone(),
    });
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
    if name.is_cpu() {
        Amount::from_milli(amount, Format::DecimalSi).to_quantity()
    } else {
        Amount::from_units(amount, Format::DecimalSi).to_quantity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::decode;
    use api::nrt::v1alpha2::NodeResourceTopology;
    use proptest::prelude::*;
    use rstest::rstest;
    use topology::zone::Amounts;

    #[rstest]
    #[case("cpu", 4000, "4")]
    #[case("cpu", 1500, "1500m")]
    #[case("vendor/nic", 1000, "1k")]
    #[case("memory", 33_554_432_000, "33554432k")]
    #[case("memory", 68_719_476_736, "68719476736")]
    #[case("memory", 0, "0")]
    fn amounts_are_decimal(#[case] name: &str, #[case] amount: i64, #[case] expected: &str) {
        assert_eq!(quantity(&name.into(), amount).0, expected);
    }

    #[test]
    fn zones_are_published_as_the_reference_shows() {
        let id = |id| ZoneId::new(id).expect("small");
        let zone = |from: u64, distances: [i64; 2], available| Zone {
            distances: distances
                .into_iter()
                .enumerate()
                .map(|(to, value)| (id(to as u64), value))
                .collect(),
            resources: BTreeMap::from([(
                "cpu".into(),
                Amounts {
                    capacity: 4000,
                    allocatable: 3000,
                    available,
                },
            )]),
            ..Zone::new(id(from))
        };
        let zones = [zone(1, [21, 10], 3000), zone(0, [10, 21], 1000)];
        let vectors = BTreeMap::from([(1, "#".to_owned())]);
        let wire = encode(&zones, &vectors);
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

    proptest! {
        #[test]
        fn decoding_gives_back_what_was_encoded(zones in proptest::collection::vec(any_zone(), 0..8)) {
            let mut zones = zones;
            zones.sort_by_key(|zone| zone.id);
            zones.dedup_by_key(|zone| zone.id);
            let mut nrt = NodeResourceTopology::new("worker-0");
            nrt.zones = encode(&zones, &BTreeMap::new());
            let (topology, problems) = decode(&nrt);
            prop_assert_eq!(problems, []);
            prop_assert_eq!(topology.zones, zones);
        }
    }
}
