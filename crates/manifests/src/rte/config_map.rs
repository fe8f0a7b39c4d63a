//! The configuration file of a pool's exporters: the settings of the pool's kubelets, and the pods to leave out (operator.md 7).

use std::collections::BTreeMap;

use api::operator::NamespacedName;
use api::{labels, names};
use k8s_openapi::api::core::v1::ConfigMap;
use serde::{Deserialize, Serialize};

use crate::meta;

/// Settings of a pool's kubelets, with their names in a `KubeletConfiguration`. The original's exporter ignores the settings of the CPU
/// manager and the memory manager; ours publishes them, so that the scheduler can decide like these managers.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KubeletSettings {
    /// Policy of the CPU manager; empty when unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cpu_manager_policy: String,
    /// Options of the CPU manager.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cpu_manager_policy_options: BTreeMap<String, String>,
    /// Policy of the memory manager; empty when unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub memory_manager_policy: String,
    /// Policy of the topology manager; empty when unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub topology_manager_policy: String,
    /// Scope of the topology manager; empty when unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub topology_manager_scope: String,
}

/// Content of the file. The keys are sorted because every writer of this file sorts them.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File<'a> {
    kubelet: &'a KubeletSettings,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pod_exclude: Vec<Exclude<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Exclude<'a> {
    name_pattern: &'a str,
    namespace_pattern: &'a str,
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
    let text = serde_yaml::to_string(&File {
        kubelet,
        pod_exclude,
    })
    .expect("strings and lists are valid YAML");
    let mut metadata = meta::namespaced(&names::rte_daemon_set(cr, pool), namespace);
    metadata.labels = Some(meta::labels([
        (labels::OPERATOR_NAME, cr),
        (labels::POOL, pool),
    ]));
    ConfigMap {
        metadata,
        data: Some([(names::CONFIG_KEY.to_owned(), text)].into()),
        ..ConfigMap::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let text = &map.data.unwrap()["config.yaml"];
        assert_eq!(
            text,
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
}
