//! The serialized form of the types, and the versions of the definitions.

use api::nrt::{AttributeInfo, Zone, v1alpha1, v1alpha2};
use api::operator::v1::{NodeGroup, NodeGroupConfig, NumaResourcesOperator};
use api::operator::{InfoRefreshMode, InfoRefreshPause, LogLevel, PodsFingerprinting};
use api::scheduler::v1::NumaResourcesScheduler;
use serde_json::{Value, json};

#[test]
fn topologies_are_written_with_their_type_and_required_lists() {
    let old = v1alpha1::NodeResourceTopology::new("n");
    assert_eq!(
        serde_json::to_value(&old).unwrap(),
        json!({
            "apiVersion": "topology.node.k8s.io/v1alpha1", "kind": "NodeResourceTopology", "metadata": {"name": "n"},
            "topologyPolicies": [], "zones": [],
        })
    );
    let mut new = v1alpha2::NodeResourceTopology::new("n");
    assert_eq!(
        serde_json::to_value(&new).unwrap(),
        json!({"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "metadata": {"name": "n"}, "zones": []})
    );
    new.attributes.push(AttributeInfo {
        name: "a".into(),
        value: "v".into(),
    });
    new.zones.push(Zone {
        name: "node-0".into(),
        zone_type: "Node".into(),
        ..Zone::default()
    });
    let written = serde_json::to_value(&new).unwrap();
    assert_eq!(
        written["zones"],
        json!([{"name": "node-0", "type": "Node"}])
    );
    let read: v1alpha2::NodeResourceTopology = serde_json::from_value(written).unwrap();
    assert_eq!(read, new);
}

#[test]
fn quantities_are_read_as_text_or_number() {
    let text = json!({"name": "cpu", "capacity": 4, "allocatable": "3", "available": "1500m"});
    let read: api::nrt::ResourceInfo = serde_json::from_value(text).unwrap();
    assert_eq!(
        (read.capacity.0.as_str(), read.available.0.as_str()),
        ("4", "1500m")
    );
}

#[test]
fn first_attribute_of_a_name_counts() {
    let attribute = |value: &str| AttributeInfo {
        name: "a".into(),
        value: value.into(),
    };
    let list = [attribute("1"), attribute("2")];
    assert_eq!(api::nrt::attribute(&list, "a"), Some("1"));
    assert_eq!(api::nrt::attribute(&list, "b"), None);
}

#[test]
fn resources_without_a_spec_are_read() {
    let operator: NumaResourcesOperator =
        serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap();
    assert_eq!(operator.spec.log_level, LogLevel::Normal);
    let scheduler: NumaResourcesScheduler =
        serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap();
    assert_eq!(scheduler.spec.scheduler_image, "");
}

#[test]
fn node_group_settings_override_the_defaults_one_by_one() {
    assert_eq!(
        NodeGroup::default().normalized_config(),
        NodeGroupConfig::defaults()
    );
    let config = NodeGroupConfig {
        info_refresh_mode: Some(InfoRefreshMode::Events),
        ..NodeGroupConfig::default()
    };
    let group = NodeGroup {
        config: Some(config),
        ..NodeGroup::default()
    };
    let effective = group.normalized_config();
    assert_eq!(effective.info_refresh_mode, Some(InfoRefreshMode::Events));
    assert_eq!(
        effective.pods_fingerprinting,
        Some(PodsFingerprinting::EnabledExclusiveResources)
    );
    assert_eq!(effective.info_refresh_period.as_deref(), Some("10s"));
    assert_eq!(
        effective.info_refresh_pause,
        Some(InfoRefreshPause::Disabled)
    );
}

#[test]
fn definitions_serve_both_versions_and_store_the_newer() {
    let mut versions = Vec::new();
    for definition in api::crd::all() {
        assert!(definition.spec.conversion.is_none());
        for version in &definition.spec.versions {
            assert!(version.served);
            versions.push(format!(
                "{}/{}{}{}",
                definition.spec.names.plural,
                version.name,
                if version.storage { " stored" } else { "" },
                if version.deprecated == Some(true) {
                    " deprecated"
                } else {
                    ""
                },
            ));
        }
    }
    assert_eq!(
        versions,
        [
            "noderesourcetopologies/v1alpha1",
            "noderesourcetopologies/v1alpha2 stored",
            "numaresourcesoperators/v1 stored",
            "numaresourcesoperators/v1alpha1 deprecated",
            "numaresourcesschedulers/v1 stored",
            "numaresourcesschedulers/v1alpha1 deprecated",
        ]
    );
}

/// These APIs accept `null` only for the times of the conditions of pools, and their only default is the log level (operator.md 1.1).
#[test]
fn schemas_have_the_nulls_and_the_default_of_the_original() {
    fn walk(path: &str, value: &Value, defaults: &mut Vec<String>) {
        const NULLABLE: &str = "/openAPIV3Schema/properties/status/properties/machineconfigpools/items/properties/conditions/items/properties/lastTransitionTime";
        match value {
            Value::Object(map) => {
                let nullable = map.get("nullable");
                let expected = (path == NULLABLE).then_some(&json!(true));
                assert_eq!(
                    nullable.filter(|one| one.is_boolean() || one.is_string()),
                    expected,
                    "{path}"
                );
                if map.contains_key("default") {
                    defaults.push(path.to_owned());
                }
                for (key, value) in map {
                    walk(&format!("{path}/{key}"), value, defaults);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| walk(path, item, defaults)),
            _ => {}
        }
    }
    for definition in api::crd::all() {
        for version in &definition.spec.versions {
            let mut defaults = Vec::new();
            walk(
                "",
                &serde_json::to_value(&version.schema).unwrap(),
                &mut defaults,
            );
            let expected: &[&str] = if definition.spec.group == api::nrt::GROUP {
                &[]
            } else {
                &["/openAPIV3Schema/properties/spec/properties/logLevel"]
            };
            assert_eq!(
                defaults, expected,
                "{:?} {}",
                definition.metadata.name, version.name
            );
        }
    }
}
