use std::collections::BTreeMap;

use super::*;
use api::nrt::{AttributeInfo, CostInfo};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use rstest::rstest;

fn mk_resource(name: &str, capacity: &str, allocatable: &str, available: &str) -> ResourceInfo {
    let quantity = |text: &str| Quantity(text.to_owned());
    ResourceInfo {
        name: name.to_owned(),
        capacity: quantity(capacity),
        allocatable: quantity(allocatable),
        available: quantity(available),
    }
}

fn mk_zone(name: &str, resources: Vec<ResourceInfo>) -> WireZone {
    WireZone {
        name: name.to_owned(),
        zone_type: "Node".to_owned(),
        resources,
        ..WireZone::default()
    }
}

fn mk_nrt(policies: &[&str], attributes: &[(&str, &str)]) -> NodeResourceTopology {
    NodeResourceTopology {
        topology_policies: policies.iter().map(|word| (*word).to_owned()).collect(),
        attributes: attributes
            .iter()
            .map(|(name, value)| AttributeInfo {
                name: (*name).to_owned(),
                value: (*value).to_owned(),
            })
            .collect(),
        ..NodeResourceTopology::new("worker-0")
    }
}

#[rstest]
#[case::nothing(&[], &[], "policy=none scope=container maxNUMANodes=8")]
#[case::deprecated(&["SingleNUMANodePodLevel"], &[], "policy=single-numa-node scope=pod maxNUMANodes=8")]
#[case::only_first(
    &["RestrictedContainerLevel", "SingleNUMANodePodLevel"], &[], "policy=restricted scope=container maxNUMANodes=8"
)]
#[case::no_level(&["Restricted"], &[], "policy=none scope=container maxNUMANodes=8")]
#[case::attributes_override(
    &["SingleNUMANodePodLevel"],
    &[("topologyManagerScope", "container"), ("topologyManagerPolicy", "best-effort")],
    "policy=best-effort scope=container maxNUMANodes=8"
)]
#[case::last_valid_wins(
    &[],
    &[("topologyManagerPolicy", "restricted"), ("topologyManagerPolicy", "single-numa-node"), ("topologyManagerPolicy", "?")],
    "policy=single-numa-node scope=container maxNUMANodes=8"
)]
#[case::maximum(&[], &[("topologyManagerMaxNUMANodes", "12")], "policy=none scope=container maxNUMANodes=12")]
#[case::maximum_clamped(&[], &[("topologyManagerMaxNUMANodes", "5000")], "policy=none scope=container maxNUMANodes=1024")]
#[case::maximum_too_small(&[], &[("topologyManagerMaxNUMANodes", "1")], "policy=none scope=container maxNUMANodes=8")]
fn settings_come_from_word_and_attributes(
    #[case] policies: &[&str],
    #[case] attributes: &[(&str, &str)],
    #[case] expected: &str,
) {
    let (topology, problems) = decode(&mk_nrt(policies, attributes));
    assert_eq!(topology.config.to_string(), expected);
    assert_eq!(problems, []);
}

#[rstest]
#[case("node-0", Some(0))]
#[case("node-63", Some(63))]
#[case("node-64", None)]
#[case("node-75", None)]
#[case("node--1", None)]
#[case("node-+1", None)]
#[case("node-", None)]
#[case("zone-1", None)]
fn zone_names_carry_a_number(#[case] name: &str, #[case] expected: Option<u8>) {
    assert_eq!(zone_id(name).map(ZoneId::get), expected);
}

#[test]
fn zones_keep_their_order_and_odd_parts_are_reported() {
    let mut nrt = mk_nrt(&[], &[]);
    let mut second = mk_zone(
        "node-1",
        vec![
            mk_resource("cpu", "4", "3", "1500m"),
            mk_resource("memory", "8Gi", "7Gi", "x"),
        ],
    );
    second.costs = vec![
        CostInfo {
            name: "node-1".to_owned(),
            value: 10,
        },
        CostInfo {
            name: "elsewhere".to_owned(),
            value: 20,
        },
    ];
    let socket = WireZone {
        zone_type: "Socket".to_owned(),
        ..mk_zone("socket-0", vec![])
    };
    nrt.zones = vec![
        second,
        socket,
        mk_zone("node-75", vec![]),
        mk_zone("node-0", vec![]),
        mk_zone("node-0", vec![]),
    ];
    let (topology, problems) = decode(&nrt);
    let ids: Vec<u8> = topology.zones.iter().map(|zone| zone.id.get()).collect();
    assert_eq!(ids, [1, 0]);
    let cpu = Amounts {
        capacity: 4000,
        allocatable: 3000,
        available: 1500,
    };
    assert_eq!(
        topology.zones[0].resources,
        BTreeMap::from([("cpu".into(), cpu)])
    );
    assert_eq!(
        topology.zones[0].distances,
        BTreeMap::from([(topology.zones[0].id, 10)])
    );
    let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            r#"zone "node-1" has a cost to "elsewhere""#,
            r#"zone "node-1" has no valid amount of "memory""#,
            r#"zone "node-75" is not named node-<0 to 63>"#,
            r#"zone "node-0" appears twice"#,
        ]
    );
}

#[rstest]
#[case::none(&[], None, None)]
#[case::attribute(&[("nodeTopologyPodsFingerprint", "a")], Some("b"), Some(("a", Method::All)))]
#[case::exclusive(
    &[("nodeTopologyPodsFingerprint", "a"), ("nodeTopologyPodsFingerprintMethod", "with-exclusive-resources")],
    None,
    Some(("a", Method::WithExclusiveResources))
)]
#[case::all(
    &[("nodeTopologyPodsFingerprint", "a"), ("nodeTopologyPodsFingerprintMethod", "all")], None, Some(("a", Method::All))
)]
#[case::annotation(&[("nodeTopologyPodsFingerprintMethod", "with-exclusive-resources")], Some("b"), Some(("b", Method::All)))]
fn the_attribute_comes_before_the_annotation(
    #[case] attributes: &[(&str, &str)],
    #[case] annotation: Option<&str>,
    #[case] expected: Option<(&str, Method)>,
) {
    let mut nrt = mk_nrt(&[], attributes);
    nrt.metadata.annotations = annotation.map(|text| {
        BTreeMap::from([(
            "topology.node.k8s.io/fingerprint".to_owned(),
            text.to_owned(),
        )])
    });
    let (topology, _) = decode(&nrt);
    let expected = expected.map(|(text, method)| Published {
        text: text.to_owned(),
        method,
    });
    assert_eq!(topology.fingerprint, expected);
}

#[rstest]
#[case::not_told(&[], None)]
#[case::half_told(&[("cpuManagerPolicy", "static")], None)]
#[case::shared(
    &[("cpuManagerPolicy", "none"), ("memoryManagerPolicy", "None")],
    Some(Managers { cpus: CpuManager::Shared, packed_cores: None, memory: false })
)]
#[case::single(
    &[("cpuManagerPolicy", "static"), ("memoryManagerPolicy", "Static")],
    Some(Managers { cpus: CpuManager::Single, packed_cores: None, memory: true })
)]
#[case::whole_cores(
    &[("cpuManagerPolicy", "static"), ("memoryManagerPolicy", "None"), ("cpuManagerFullPCPUsOnly", "2")],
    Some(Managers { cpus: CpuManager::WholeCores(2), packed_cores: None, memory: false })
)]
#[case::nonsense(
    &[("cpuManagerPolicy", "static"), ("memoryManagerPolicy", "None"), ("cpuManagerFullPCPUsOnly", "0"), ("cpuManagerPackedCores", "-1")],
    Some(Managers { cpus: CpuManager::Single, packed_cores: None, memory: false })
)]
#[case::packed(
    &[("cpuManagerPolicy", "static"), ("memoryManagerPolicy", "None"), ("cpuManagerPackedCores", "2")],
    Some(Managers { cpus: CpuManager::Single, packed_cores: Some(2), memory: false })
)]
fn managers_are_known_when_both_are_told(
    #[case] attributes: &[(&str, &str)],
    #[case] expected: Option<Managers>,
) {
    let (topology, problems) = decode(&mk_nrt(&[], attributes));
    assert_eq!((topology.config.managers, problems.len()), (expected, 0));
}

#[rstest]
#[case::told("topologyManagerPolicy", "single-numa-node", true)]
#[case::another_policy("topologyManagerPolicy", "restricted", false)]
#[case::deprecated_word_only("other", "single-numa-node", false)]
fn placement_is_read_where_each_container_has_one_zone(
    #[case] name: &str,
    #[case] policy: &str,
    #[case] expected: bool,
) {
    let metadata = "npv0v001::ve=leb89::cc=2::nn=2::bn=0";
    let mut nrt = mk_nrt(
        &["SingleNUMANodePodLevel"],
        &[
            (name, policy),
            ("topology.node.k8s.io/numaplacement-metadata", metadata),
        ],
    );
    let mut zone = mk_zone("node-1", Vec::new());
    zone.attributes.push(AttributeInfo {
        name: "topology.node.k8s.io/numaplacement-vector".to_owned(),
        value: "#".to_owned(),
    });
    nrt.zones = vec![mk_zone("node-0", Vec::new()), zone];
    let placement = decode(&nrt).0.placement;
    let encoded = Encoded {
        metadata: metadata.to_owned(),
        vectors: BTreeMap::from([(1, "#".to_owned())]),
    };
    assert_eq!(placement, expected.then_some(encoded));
}

mod fuzz {
    use k8s_openapi::serde_json::json;

    use super::*;

    #[test]
    fn no_object_stops_the_reader() {
        let zone = json!({
            "name": "node-0", "type": "Node", "costs": [{"name": "node-0", "value": 10}],
            "attributes": [{"name": "topology.node.k8s.io/numa-placement-vector", "value": "!"}],
            "resources": [{"name": "cpu", "capacity": "8", "allocatable": "8", "available": "6"}],
        });
        let seed = json!({
            "metadata": {"name": "a"}, "topologyPolicies": ["SingleNUMANode"], "zones": [zone, zone],
            "attributes": [
                {"name": "topologyManagerPolicy", "value": "restricted"}, {"name": "topologyManagerScope", "value": "pod"},
                {"name": "nodeTopologyPodsFingerprint", "value": "pfp0v0010123456789abcdef"},
            ],
        });
        ::fuzz::run(file!(), |input| {
            if let Some(read) = ::fuzz::object::<NodeResourceTopology>(&seed, input)? {
                let (topology, problems) = decode(&read);
                assert!(topology.zones.len() <= read.zones.len(), "{problems:?}");
            }
            Ok(())
        });
    }
}
