//! The configuration files of a pool's exporters: the settings of the pool's kubelets, and the pods to leave out (operator.md 7).
//!
//! The first file has what the original's has and nothing else, because programs that read it strictly refuse it otherwise
//! (scenarios-serial.md 9.6). What only our exporter reads is a file of its own.

use std::collections::BTreeMap;

use api::operator::NamespacedName;
use api::{labels, names};
use k8s_openapi::api::core::v1::ConfigMap;
use serde::{Deserialize, Serialize};

use crate::meta;

/// Settings of a pool's kubelets, with their names in a `KubeletConfiguration`. The original's exporter knows those of the topology manager
/// only; ours publishes the others too, so that the scheduler can decide like these managers.
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
    /// Scope of the topology manager; empty when unknown.
    #[serde(default)]
    pub topology_manager_scope: String,
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
struct OtherFile<'a> {
    kubelet: OtherManagers<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OtherManagers<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    cpu_manager_policy: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    cpu_manager_policy_options: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "str::is_empty")]
    memory_manager_policy: &'a str,
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
    if let Some(others) = other_managers(kubelet) {
        let text = yaml(&OtherFile { kubelet: others });
        data.insert(names::OTHER_MANAGERS_KEY.to_owned(), text);
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

/// Returns the settings of the other managers; `None` when none is known.
fn other_managers(kubelet: &KubeletSettings) -> Option<OtherManagers<'_>> {
    let are_unknown = kubelet.cpu_manager_policy.is_empty()
        && kubelet.cpu_manager_policy_options.is_empty()
        && kubelet.memory_manager_policy.is_empty();
    (!are_unknown).then_some(OtherManagers {
        cpu_manager_policy: &kubelet.cpu_manager_policy,
        cpu_manager_policy_options: &kubelet.cpu_manager_policy_options,
        memory_manager_policy: &kubelet.memory_manager_policy,
    })
}

fn yaml(content: &impl Serialize) -> String {
    serde_yaml::to_string(content).expect("strings, lists and maps are valid YAML")
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
            data["other-managers.yaml"],
            "kubelet:\n  cpuManagerPolicy: static\n  cpuManagerPolicyOptions:\n    full-pcpus-only: 'true'\n  memoryManagerPolicy: Static\n"
        );
    }
}
