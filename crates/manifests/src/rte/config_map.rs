//! The configuration files of a pool's exporters: the settings of the pool's kubelets, and the pods to leave out (operator.md 7).
//!
//! The first file has what the original's has and nothing else, because programs that read it strictly refuse it otherwise
//! (scenarios-serial.md 9.6). What only our exporter reads is a file of its own.

use std::collections::BTreeMap;

use api::operator::NamespacedName;
use api::{labels, names};
use k8s_openapi::api::core::v1::ConfigMap;
use serde::{Deserialize, Deserializer, Serialize};

use crate::meta;

/// Settings of a pool's kubelets, with their names in a `KubeletConfiguration`. The original's exporter knows policy and scope of the topology
/// manager only; ours publishes the others too, so that the scheduler can decide like these managers.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KubeletSettings {
    /// Policy of the CPU manager; empty when unknown.
    #[serde(default)]
    pub cpu_manager_policy: String,
    /// Options of the CPU manager.
    #[serde(default)]
    pub cpu_manager_policy_options: BTreeMap<String, String>,
    /// Policy of the memory manager; empty when unknown.
    #[serde(default)]
    pub memory_manager_policy: String,
    /// Policy of the topology manager; empty when unknown.
    #[serde(default)]
    pub topology_manager_policy: String,
    /// The option of the topology manager that the exporter publishes, `max-allowable-numa-nodes`, if it is set. Kubelets that differ in others are alike
    /// to a scheduler.
    #[serde(default, deserialize_with = "published_options")]
    pub topology_manager_policy_options: BTreeMap<String, String>,
    /// Scope of the topology manager; empty when unknown.
    #[serde(default)]
    pub topology_manager_scope: String,
}

/// Option of the topology manager: machines with more NUMA zones than it says are not aligned (kubelet-node.md 5.1).
const MAX_NUMA_NODES: &str = "max-allowable-numa-nodes";

fn published_options<'de, D: Deserializer<'de>>(
    options: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    let mut options = Option::<BTreeMap<String, String>>::deserialize(options)?.unwrap_or_default();
    options.retain(|name, _| name == MAX_NUMA_NODES);
    Ok(options)
}

/// Content of the first file. The keys are sorted because every writer of this file sorts them.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File<'a> {
    kubelet: TopologyManager<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pod_exclude: Vec<Exclude<'a>>,
}

#[derive(Serialize)]
struct TopologyManager<'a> {
    #[serde(
        rename = "topologyManagerPolicy",
        skip_serializing_if = "str::is_empty"
    )]
    policy: &'a str,
    #[serde(rename = "topologyManagerScope", skip_serializing_if = "str::is_empty")]
    scope: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Exclude<'a> {
    name_pattern: &'a str,
    namespace_pattern: &'a str,
}

/// Content of the second file. Its section is called as in the first one.
#[derive(Serialize)]
struct DetailsFile<'a> {
    kubelet: Details<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Details<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    cpu_manager_policy: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    cpu_manager_policy_options: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "str::is_empty")]
    memory_manager_policy: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    topology_manager_policy_options: &'a BTreeMap<String, String>,
}

/// Returns the ConfigMap of a pool.
///
/// # Panics
/// Never: the file contains only strings, lists and maps.
pub fn config_map(
    cr: &str,
    pool: &str,
    namespace: &str,
    kubelet: &KubeletSettings,
    excludes: &[NamespacedName],
) -> ConfigMap {
    let pod_exclude = excludes
        .iter()
        .map(|exclude| Exclude {
            name_pattern: &exclude.name,
            namespace_pattern: &exclude.namespace,
        })
        .collect();
    let topology_manager = TopologyManager {
        policy: &kubelet.topology_manager_policy,
        scope: &kubelet.topology_manager_scope,
    };
    let mut data = BTreeMap::from([(
        names::CONFIG_KEY.to_owned(),
        yaml(&File {
            kubelet: topology_manager,
            pod_exclude,
        }),
    )]);
    if let Some(details) = details(kubelet) {
        let text = yaml(&DetailsFile { kubelet: details });
        data.insert(names::KUBELET_DETAILS_KEY.to_owned(), text);
    }
    let mut metadata = meta::namespaced(&names::rte_daemon_set(cr, pool), namespace);
    metadata.labels = Some(meta::labels([
        (labels::OPERATOR_NAME, cr),
        (labels::POOL, pool),
    ]));
    ConfigMap {
        metadata,
        data: Some(data),
        ..ConfigMap::default()
    }
}

/// Returns what is not in the first file; `None` when nothing of it is known.
fn details(kubelet: &KubeletSettings) -> Option<Details<'_>> {
    let are_unknown = kubelet.cpu_manager_policy.is_empty()
        && kubelet.cpu_manager_policy_options.is_empty()
        && kubelet.memory_manager_policy.is_empty()
        && kubelet.topology_manager_policy_options.is_empty();
    (!are_unknown).then_some(Details {
        cpu_manager_policy: &kubelet.cpu_manager_policy,
        cpu_manager_policy_options: &kubelet.cpu_manager_policy_options,
        memory_manager_policy: &kubelet.memory_manager_policy,
        topology_manager_policy_options: &kubelet.topology_manager_policy_options,
    })
}

fn yaml(content: &impl Serialize) -> String {
    serde_yaml::to_string(content).expect("strings, lists and maps are valid YAML")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_number_of_zones_is_carried_and_no_other_option() {
        let kubelet = serde_json::json!({
            "topologyManagerPolicy": "restricted",
            "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "12", "prefer-closest-numa-nodes": "true"},
        });
        let kubelet: KubeletSettings = serde_json::from_value(kubelet).unwrap();
        let data = config_map("a", "b", "ns", &kubelet, &[]).data.unwrap();
        assert_eq!(
            data["config.yaml"],
            "kubelet:\n  topologyManagerPolicy: restricted\n"
        );
        assert_eq!(
            data["kubelet-details.yaml"],
            "kubelet:\n  topologyManagerPolicyOptions:\n    max-allowable-numa-nodes: '12'\n"
        );
        let without = serde_json::json!({"topologyManagerPolicyOptions": null});
        let without: KubeletSettings = serde_json::from_value(without).unwrap();
        assert_eq!(without, KubeletSettings::default());
    }

    #[test]
    fn file_has_sorted_keys_and_leaves_out_what_is_empty() {
        let kubelet = KubeletSettings {
            topology_manager_policy: "single-numa-node".into(),
            topology_manager_scope: "pod".into(),
            ..KubeletSettings::default()
        };
        let excludes = [NamespacedName {
            namespace: "my-namespace".into(),
            name: "pruner-*".into(),
        }];
        let map = config_map("numaresourcesoperator", "worker", "ns", &kubelet, &excludes);
        let data = map.data.unwrap();
        assert_eq!(data.len(), 1, "{data:?}");
        assert_eq!(
            data["config.yaml"],
            "kubelet:\n  topologyManagerPolicy: single-numa-node\n  topologyManagerScope: pod\n\
             podExclude:\n- namePattern: pruner-*\n  namespacePattern: my-namespace\n"
        );
        assert_eq!(
            map.metadata.name.as_deref(),
            Some("numaresourcesoperator-worker")
        );
        assert_eq!(map.metadata.labels.unwrap()[labels::POOL], "worker");
        let bare = config_map("a", "b", "ns", &KubeletSettings::default(), &[]);
        assert_eq!(bare.data.unwrap()["config.yaml"], "kubelet: {}\n");
    }
    /// What the original's first file may have; a strict reader of it knows no other key.
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    struct Strict {
        kubelet: StrictKubelet,
        #[serde(default, rename = "podExclude")]
        _pod_exclude: Vec<serde_yaml::Value>,
        #[serde(default, rename = "resourceExclude")]
        _resource_exclude: BTreeMap<String, Vec<String>>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    struct StrictKubelet {
        topology_manager_policy: String,
        topology_manager_scope: String,
    }

    #[test]
    fn settings_that_only_our_exporter_reads_are_in_a_file_of_their_own() {
        let kubelet = KubeletSettings {
            cpu_manager_policy: "static".into(),
            cpu_manager_policy_options: [("full-pcpus-only".into(), "true".into())].into(),
            memory_manager_policy: "Static".into(),
            topology_manager_policy_options: BTreeMap::new(),
            topology_manager_policy: "restricted".into(),
            topology_manager_scope: "container".into(),
        };
        let data = config_map("a", "b", "ns", &kubelet, &[]).data.unwrap();
        let first: Strict = serde_yaml::from_str(&data["config.yaml"]).unwrap();
        let expected = StrictKubelet {
            topology_manager_policy: "restricted".into(),
            topology_manager_scope: "container".into(),
        };
        assert_eq!(first.kubelet, expected);
        assert_eq!(
            data["kubelet-details.yaml"],
            "kubelet:\n  cpuManagerPolicy: static\n  cpuManagerPolicyOptions:\n    full-pcpus-only: 'true'\n  memoryManagerPolicy: Static\n"
        );
    }
}
