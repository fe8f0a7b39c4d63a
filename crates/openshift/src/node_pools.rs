//! The node pools of a hosted cluster, as far as the cluster knows of them.
//!
//! The pools are objects of the cluster that has the control plane, and who configures their nodes works there. The hosted cluster gets a copy of
//! each pool's `KubeletConfig`, in a ConfigMap (operator.md 7).

use std::collections::BTreeMap;

use api::openshift::machine_config;
use api::{labels, names};
use cluster_spec::plan::NodePlan;
use serde_json::{Value, json};

/// Returns the ConfigMap of each node pool, with the settings that the kubelet of its first node starts with.
pub(super) fn config_maps(nodes: &[NodePlan]) -> Vec<Value> {
    let mut pools = BTreeMap::new();
    for node in nodes {
        if let Some(pool) = node.labels.get(labels::HYPERSHIFT_NODE_POOL) {
            pools.entry(pool.as_str()).or_insert(node);
        }
    }
    let pools = pools.into_iter();
    pools.map(|(pool, node)| config_map(pool, node)).collect()
}

fn config_map(pool: &str, node: &NodePlan) -> Value {
    let name = format!("kubeletconfig-{pool}");
    let config = json!({
        "apiVersion": format!("{}/v1", machine_config::GROUP),
        "kind": "KubeletConfig",
        "metadata": {"name": name},
        "spec": {"kubeletConfig": node.kubelet.managers(&node.machine)},
    });
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": names::HYPERSHIFT_CONFIG_NAMESPACE,
            "labels": {
                labels::HYPERSHIFT_KUBELET_CONFIG: "true",
                labels::HYPERSHIFT_NODE_POOL: pool,
            },
        },
        // JSON is YAML
        "data": {names::CONFIG_KEY_OF_HOSTED: config.to_string()},
    })
}

#[cfg(test)]
mod tests {
    use fixtures::machines::Machine;

    use super::*;

    #[test]
    fn each_node_pool_has_the_settings_of_its_kubelets() {
        let nodes = NodePlan::all(4, &Machine::default_profile());
        assert_eq!(config_maps(&nodes), Vec::<Value>::new());
        let hosted: Vec<NodePlan> = nodes.into_iter().map(NodePlan::hosted).collect();
        let scopes = config_maps(&hosted).into_iter().map(|map| {
            let text = map["data"]["config"].as_str().unwrap();
            let config: Value = serde_json::from_str(text).unwrap();
            let pool = map["metadata"]["labels"][labels::HYPERSHIFT_NODE_POOL].clone();
            let scope = config["spec"]["kubeletConfig"]["topologyManagerScope"].clone();
            (pool, scope)
        });
        let expected = [("numa-container", "container"), ("numa-pod", "pod")];
        let expected = expected.map(|(pool, scope)| (json!(pool), json!(scope)));
        assert_eq!(scopes.collect::<Vec<_>>(), expected);
    }
}
