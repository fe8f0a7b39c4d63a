//! Cells of nodes.

use serde_json::{Value, json};

use crate::values::fields::members;
use crate::values::words::{items, none_if_empty, or, text};

/// Returns the cells of a node.
pub(super) fn cells(node: &Value, created: &str) -> Vec<Value> {
    let status = &node["status"];
    let ready = items(&status["conditions"])
        .iter()
        .find(|condition| condition["type"] == "Ready");
    let mut words = vec![match ready {
        Some(ready) if ready["status"] == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }];
    if node["spec"]["unschedulable"] == true {
        words.push("SchedulingDisabled");
    }
    let node_labels = members(&node["metadata"]["labels"]);
    let mut roles: Vec<String> = node_labels
        .filter_map(|(key, value)| {
            if key == "kubernetes.io/role" {
                return Some(text(value));
            }
            key.strip_prefix("node-role.kubernetes.io/")
                .map(str::to_owned)
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort();
    roles.dedup();
    let address = |kind: &str| {
        let found = items(&status["addresses"])
            .iter()
            .find(|address| address["type"] == kind);
        found.map_or_else(|| "<none>".to_owned(), |found| text(&found["address"]))
    };
    let info = &status["nodeInfo"];
    vec![
        node["metadata"]["name"].clone(),
        json!(words.join(",")),
        json!(none_if_empty(roles.join(","))),
        json!(created),
        json!(text(&info["kubeletVersion"])),
        json!(address("InternalIP")),
        json!(address("ExternalIP")),
        json!(or(&info["osImage"], "<unknown>")),
        json!(or(&info["kernelVersion"], "<unknown>")),
        json!(or(&info["containerRuntimeVersion"], "<unknown>")),
    ]
}
