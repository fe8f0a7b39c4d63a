//! OpenShift: reads the objects that configure the kubelets.

use api::labels;
use api::names::{CONFIG_KEY_OF_HOSTED, HYPERSHIFT_CONFIG_NAMESPACE};
use api::openshift::machine_config::{KubeletConfig, MachineConfigPool};
use apply::Cause;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams};
use kube::{Client, Resource as _, ResourceExt as _};
use manifests::rte::config_map::KubeletSettings;

use crate::node_groups::selectors;

/// Lists all kubelet configurations, newest first, because the newest wins when several match one pool.
pub(super) async fn kubelet_configs(client: &Client) -> Result<Vec<KubeletConfig>, Cause> {
    let api: Api<KubeletConfig> = Api::all(client.clone());
    let mut all = api.list(&ListParams::default()).await?.items;
    all.sort_by_key(|config| std::cmp::Reverse((config.creation_timestamp(), config.name_any())));
    Ok(all)
}

/// Returns the configuration of a machine config pool, and its settings. Configurations without usable settings are skipped.
pub(super) fn for_machine_config_pool<'a>(
    mcp: &MachineConfigPool,
    newest_first: &'a [KubeletConfig],
) -> Option<(&'a KubeletConfig, KubeletSettings)> {
    newest_first
        .iter()
        .filter(|config| {
            let selector = config.spec.machine_config_pool_selector.as_ref();
            config.meta().deletion_timestamp.is_none()
                && selector.is_some_and(|selector| selectors::matches(selector, mcp.labels()))
        })
        .find_map(|config| Some((config, settings(config)?)))
}

/// Lists all ConfigMaps with kubelet configurations of hosted clusters, newest first.
pub(super) async fn config_maps(client: &Client) -> Result<Vec<ConfigMap>, Cause> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), HYPERSHIFT_CONFIG_NAMESPACE);
    let params = ListParams::default().labels(labels::HYPERSHIFT_KUBELET_CONFIG);
    let mut all = api.list(&params).await?.items;
    all.sort_by_key(|map| std::cmp::Reverse((map.creation_timestamp(), map.name_any())));
    Ok(all)
}

/// Returns the settings of a hosted cluster's pool.
pub(super) fn for_hosted_pool(pool: &str, newest_first: &[ConfigMap]) -> Option<KubeletSettings> {
    let mine = newest_first.iter().filter(|map| {
        let label = map.labels().get(labels::HYPERSHIFT_NODE_POOL);
        label.is_some_and(|label| label == pool)
    });
    mine.filter_map(decode).find_map(|config| settings(&config))
}

/// Parses the configuration in a ConfigMap of a hosted cluster.
fn decode(map: &ConfigMap) -> Option<KubeletConfig> {
    let text = map.data.as_ref()?.get(CONFIG_KEY_OF_HOSTED)?;
    match serde_yaml::from_str(text) {
        Ok(config) => Some(config),
        Err(error) => {
            tracing::warn!(configmap = %map.name_any(), error = %daemon::log::chain(&error), "failed to reconcile configmap");
            None
        }
    }
}

fn settings(config: &KubeletConfig) -> Option<KubeletSettings> {
    let name = config.name_any();
    let Some(payload) = &config.spec.kubelet_config else {
        tracing::info!(kubeletconfig = %name, "ignored kubelet config");
        return None;
    };
    match serde_json::from_value(payload.clone()) {
        Ok(settings) => Some(settings),
        Err(error) => {
            tracing::warn!(kubeletconfig = %name, error = %daemon::log::chain(&error), "failed to reconcile configmap");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pool(label: &str) -> MachineConfigPool {
        serde_json::from_value(json!({"metadata": {"name": "p", "labels": {label: ""}}})).unwrap()
    }

    fn config(name: &str, label: &str, payload: &Value) -> KubeletConfig {
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"machineConfigPoolSelector": {"matchLabels": {label: ""}}, "kubeletConfig": payload},
        }))
        .unwrap()
    }

    fn policy(policy: &str) -> Value {
        json!({"topologyManagerPolicy": policy, "maxPods": 7})
    }

    #[test]
    fn newest_configuration_that_says_something_is_the_pools() {
        let all = [
            config("empty", "a", &Value::Null),
            config(
                "garbled",
                "a",
                &json!({"topologyManagerPolicy": ["restricted"]}),
            ),
            config("other", "b", &policy("none")),
            config("newer", "a", &policy("restricted")),
            config("older", "a", &policy("best-effort")),
        ];
        let (found, settings) = for_machine_config_pool(&pool("a"), &all).unwrap();
        assert_eq!(found.name_any(), "newer");
        assert_eq!(settings.topology_manager_policy, "restricted");
        assert!(for_machine_config_pool(&pool("c"), &all).is_none());
    }

    #[test]
    fn configuration_without_a_selector_is_for_no_pool() {
        let all: KubeletConfig = serde_json::from_value(
            json!({"metadata": {"name": "k"}, "spec": {"kubeletConfig": policy("restricted")}}),
        )
        .unwrap();
        assert!(for_machine_config_pool(&pool("a"), &[all]).is_none());
    }

    #[test]
    fn hosted_pool_has_the_configuration_with_its_label() {
        let map = |pool: &str, text: &str| -> ConfigMap {
            serde_json::from_value(json!({
                "metadata": {"name": pool, "labels": {labels::HYPERSHIFT_NODE_POOL: pool}},
                "data": {"config": text},
            }))
            .unwrap()
        };
        let text = "apiVersion: machineconfiguration.openshift.io/v1\nkind: KubeletConfig\nmetadata: {name: k}\n\
                    spec: {kubeletConfig: {topologyManagerPolicy: restricted, topologyManagerScope: pod}}\n";
        let all = [map("a", "{"), map("a", text), map("b", "spec: {}")];
        let found = for_hosted_pool("a", &all).unwrap();
        assert_eq!(found.topology_manager_scope, "pod");
        assert_eq!(for_hosted_pool("b", &all), None);
        assert_eq!(for_hosted_pool("c", &all), None);
    }

    mod fuzz {
        use super::*;

        #[test]
        fn no_configuration_of_kubelets_stops_the_reader() {
            let config = json!({
                "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "KubeletConfig", "metadata": {"name": "k", "creationTimestamp": "2026-01-01T00:00:00Z"},
                "spec": {
                    "machineConfigPoolSelector": {"matchLabels": {"a": ""}, "matchExpressions": [{"key": "b", "operator": "NotIn", "values": ["c"]}]},
                    "kubeletConfig": {
                        "topologyManagerPolicy": "restricted", "topologyManagerScope": "pod", "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "8"},
                        "cpuManagerPolicy": "static", "cpuManagerPolicyOptions": {"full-pcpus-only": "true"}, "memoryManagerPolicy": "Static",
                        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}], "reservedSystemCPUs": "0,4", "maxPods": 7,
                    },
                },
            });
            let pool = json!({"metadata": {"name": "p", "labels": {"a": ""}}, "spec": {"nodeSelector": {"matchLabels": {"w": ""}}}});
            ::fuzz::run(file!(), |input| {
                let mut changed = config.clone();
                ::fuzz::mutate::document(&mut changed, input)?;
                let text = ::fuzz::mutate::text(&changed.to_string(), input)?;
                let map = json!({"metadata": {"labels": {labels::HYPERSHIFT_NODE_POOL: "p"}}, "data": {CONFIG_KEY_OF_HOSTED: text}});
                let map = serde_json::from_value(map).unwrap();
                drop(for_hosted_pool("p", &[map]));
                let pool = ::fuzz::object::<MachineConfigPool>(&pool, input)?;
                if let (Some(pool), Ok(config)) = (pool, serde_json::from_value(changed)) {
                    drop(for_machine_config_pool(&pool, &[config]));
                }
                Ok(())
            });
        }
    }
}
