//! The taints of a node that follow from its conditions and its cordon.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Taint};
use kube::api::{Api, Patch};
use serde_json::{Value, json};

use super::{Controller, condition, params};
use crate::controllers::objects;
use crate::controllers::placement::{NO_EXECUTE, NO_SCHEDULE};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Condition, its state, and the taint that keeps new pods away in that state.
const BY_CONDITION: &[(&str, &str, &str)] = &[
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    (
        "MemoryPressure",
        "True",
        "node.kubernetes.io/memory-pressure",
    ),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    (
        "NetworkUnavailable",
        "True",
        "node.kubernetes.io/network-unavailable",
    ),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];

impl Controller {
    /// Adds the taints that the conditions and the cordon of a node require, and removes those that nothing requires.
    pub(super) async fn taint(&self, node: &Arc<Node>) -> Result<(), kube::Error> {
        let mut wanted: Vec<(&str, &str)> = Vec::new();
        for (kind, state, taint) in BY_CONDITION {
            let is = condition(node, kind).map(|held| held.status.as_str());
            if is == Some(*state) {
                wanted.push((taint, NO_SCHEDULE));
                if *kind == "Ready" {
                    wanted.push((taint, NO_EXECUTE));
                }
            }
        }
        let spec = node.spec.clone().unwrap_or_default();
        if spec.unschedulable == Some(true) {
            wanted.push((UNSCHEDULABLE, NO_SCHEDULE));
        }
        let ours = |taint: &Taint| {
            let known = BY_CONDITION.iter().any(|(_, _, key)| *key == taint.key)
                || taint.key == UNSCHEDULABLE;
            let evicts =
                taint.effect == NO_EXECUTE && (taint.key == NOT_READY || taint.key == UNREACHABLE);
            known && taint.effect == NO_SCHEDULE || evicts
        };
        // A new node without conditions keeps its initial taint.
        let has_ready = condition(node, "Ready").is_some();
        let before = spec.taints.unwrap_or_default();
        let mut after: Vec<Taint> = before
            .iter()
            .filter(|taint| {
                !ours(taint)
                    || wanted.contains(&(taint.key.as_str(), taint.effect.as_str()))
                    || !has_ready && taint.key == NOT_READY
            })
            .cloned()
            .collect();
        for (key, effect) in wanted {
            if !after
                .iter()
                .any(|taint| taint.key == key && taint.effect == effect)
            {
                after.push(Taint {
                    key: key.to_owned(),
                    effect: effect.to_owned(),
                    time_added: Some(objects::now()),
                    value: None,
                });
            }
        }
        if before == after {
            return Ok(());
        }
        let taints = if after.is_empty() {
            Value::Null
        } else {
            json!(after)
        };
        let patch = json!({
            "metadata": {"resourceVersion": node.metadata.resource_version},
            "spec": {"taints": taints},
        });
        let api: Api<Node> = Api::all(self.world.client.clone());
        let written = api
            .patch(objects::name(&**node), &params(), &Patch::Merge(patch))
            .await?;
        self.world.nodes.observe(written);
        Ok(())
    }
}
