//! Whether the zones of an NRT add up to what its node has.

use fixtures::machines::SAMPLE_DEVICES;
use k8s_openapi::api::core::v1::Node;

use crate::context::padding::NUMACELL;
use crate::facts::allocatable;
use crate::observed::{NodeTopology, Zone};
use crate::resources::Resources;

/// What a kubelet hands out by zone, so that the zones of its NRT have all of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Managed {
    /// CPUs: its CPU manager is static.
    pub(super) cpus: bool,
    /// Huge pages: its memory manager is static.
    pub(super) huge_pages: bool,
}

/// Returns a resource of which the zones of an NRT have more or less in sum than pods may use by the status of the node. Looked at are what the
/// kubelet hands out by zone, and devices whose plugins tell the zone of each. Of a CPU that is reserved in part pods can use nothing alone.
pub(super) fn differing_sum(
    topology: &NodeTopology,
    node: &Node,
    managed: Managed,
) -> Option<String> {
    let there = allocatable(node);
    let expected = |name: &str, milli: i64| match name {
        "cpu" => managed.cpus.then_some(milli - milli % 1_000),
        pages if pages.starts_with("hugepages-") => managed.huge_pages.then_some(milli),
        device => {
            let tells = device.starts_with(NUMACELL) || SAMPLE_DEVICES.contains(&device);
            tells.then_some(milli)
        }
    };
    let zones: Vec<Resources> = topology.zones.iter().map(Zone::allocatable).collect();
    let sum = Resources::sum(&zones);
    there.iter().find_map(|(name, milli)| {
        let (expected, found) = (expected(name, milli)?, sum.milli(name));
        let one = |milli| Resources::from_iter([(name.to_owned(), milli)]);
        (found != expected).then(|| {
            format!(
                "the zones in the NRT of {} add up to {} allocatable, and by its status the node has {}",
                topology.node,
                one(found),
                one(expected)
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::api::core::v1::NodeStatus;

    use super::*;
    use crate::observed::tests::node as topology;

    /// Returns what differs, with `d1` for a sample device and `d2` for the device of a zone.
    fn found(zones: [&str; 2], status: &str, managed: Managed) -> Option<String> {
        fn real<V>(amounts: BTreeMap<String, V>) -> BTreeMap<String, V> {
            let name = |name: String| match name.as_str() {
                "d1" => SAMPLE_DEVICES[0].to_owned(),
                "d2" => format!("{NUMACELL}0"),
                _ => name,
            };
            let amounts = amounts.into_iter();
            amounts.map(|(each, amount)| (name(each), amount)).collect()
        }
        let mut topology = topology("n", &zones);
        for zone in &mut topology.zones {
            zone.resources = real(std::mem::take(&mut zone.resources));
        }
        let node = Node {
            status: Some(NodeStatus {
                allocatable: Some(real(Resources::literal(status).to_quantities())),
                ..NodeStatus::default()
            }),
            ..Node::default()
        };
        differing_sum(&topology, &node, managed)
    }

    #[test]
    fn zones_add_up_to_what_the_node_has() {
        let all = Managed {
            cpus: true,
            huge_pages: true,
        };
        let none = Managed {
            cpus: false,
            huge_pages: false,
        };
        let zones = ["2c 1Gi h2=32 d1=3", "2c 1Gi h2=32"];
        assert_eq!(found(zones, "4500m 4Gi h2=64 d1=3 d3=9", all), None);
        assert_eq!(found(["3c", "3c"], "4c h2=64", none), None);
        for (zones, status, sum, expected) in [
            (["3c", "2c"], "4c", "cpu=5", "cpu=4"),
            (
                ["2c h2=32", "2c"],
                "4c h2=64",
                "hugepages-2Mi=32Mi",
                "hugepages-2Mi=64Mi",
            ),
            (
                ["2c", "2c"],
                "4c d1=3",
                "example.com/deviceA=0",
                "example.com/deviceA=3",
            ),
            (
                ["d2=1", ""],
                "d2=64",
                "kni.node/numacell0=1",
                "kni.node/numacell0=64",
            ),
        ] {
            let text = format!(
                "the zones in the NRT of n add up to {sum} allocatable, and by its status the node has {expected}"
            );
            assert_eq!(found(zones, status, all), Some(text));
        }
    }
}
