//! Taints of new nodes, and the tolerations that pods get for the taints of nodes that are lost.

use serde_json::{Value, json};

/// Adds the not-ready taint to a new node, because a node is not ready until it reports that it is.
pub(super) fn taint(node: &mut Value) {
    const KEY: &str = "node.kubernetes.io/not-ready";
    let taints = &mut node["spec"]["taints"];
    if !taints.is_array() {
        *taints = json!([]);
    }
    if let Some(list) = taints.as_array_mut()
        && !list
            .iter()
            .any(|taint| taint["key"] == KEY && taint["effect"] == "NoSchedule")
    {
        list.push(json!({"key": KEY, "effect": "NoSchedule"}));
    }
}

/// Lets a pod stay for five minutes on a node that is not ready or cannot be reached, unless the pod says something else.
pub(super) fn default_tolerations(pod: &mut Value) {
    let list = pod["spec"]["tolerations"].as_array().cloned();
    let mut list = list.unwrap_or_default();
    for key in [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ] {
        let covered = list.iter().any(|toleration| {
            let of = |field: &str| toleration[field].as_str().unwrap_or_default();
            (of("key") == key || of("key").is_empty())
                && (of("effect") == "NoExecute" || of("effect").is_empty())
        });
        if !covered {
            list.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}));
        }
    }
    if !list.is_empty() {
        pod["spec"]["tolerations"] = Value::Array(list);
    }
}
