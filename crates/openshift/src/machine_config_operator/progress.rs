//! Brings a node to a configuration; how far it is stands in its annotations.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher as _};

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use super::Operator;
use super::render::Rendered;
use crate::payload;

/// Annotations of nodes: the current and the desired configuration, and the state of the change.
const CURRENT: &str = "machineconfiguration.openshift.io/currentConfig";
const DESIRED: &str = "machineconfiguration.openshift.io/desiredConfig";
const STATE: &str = "machineconfiguration.openshift.io/state";
const REASON: &str = "machineconfiguration.openshift.io/reason";
const DONE: &str = "Done";
const WORKING: &str = "Working";
const STATE_DEGRADED: &str = "Degraded";

impl Operator {
    /// Applies the configuration to one node.
    pub(super) async fn update(&self, node: &Node, rendered: &Rendered) -> kube::Result<()> {
        let name = node.name_any();
        self.annotate(
            &name,
            true,
            &[(DESIRED, &rendered.name), (STATE, WORKING), (REASON, "")],
        )
        .await?;
        tracing::info!(node = %name, config = %rendered.name, "Machine is being configured");
        let done = self.change(&name, rendered.payload.as_ref()).await;
        match done {
            Ok(()) => {
                let annotations = [(CURRENT, rendered.name.as_str()), (STATE, DONE)];
                self.annotate(&name, false, &annotations).await
            }
            Err(error) => {
                tracing::warn!(node = %name, %error, "Machine is not configured");
                let reason = error.to_string();
                let annotations = [(STATE, STATE_DEGRADED), (REASON, reason.as_str())];
                self.annotate(&name, true, &annotations).await
            }
        }
    }

    async fn change(
        &self,
        node: &str,
        payload: Option<&Value>,
    ) -> Result<(), cluster_faults::BoxError> {
        let base = self.machines.base(node)?;
        let wanted = match payload {
            Some(payload) => payload::apply(&base, payload)?,
            None => base,
        };
        self.machines.restart_kubelet(node, &wanted).await
    }

    async fn annotate(
        &self,
        node: &str,
        cordoned: bool,
        annotations: &[(&str, &str)],
    ) -> kube::Result<()> {
        let annotations: BTreeMap<&str, &str> = annotations.iter().copied().collect();
        let unschedulable = cordoned.then_some(true);
        let patch = json!({"metadata": {"annotations": annotations}, "spec": {"unschedulable": unschedulable}});
        let api: Api<Node> = Api::all(self.client.clone());
        api.patch(node, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        Ok(())
    }
}

/// Returns the current configuration of a node. A node without the annotation has its initial configuration, which is what a pool without
/// machine configurations is rendered to.
fn current(node: &Node) -> Option<&str> {
    node.annotations().get(CURRENT).map(String::as_str)
}

/// Returns whether a node failed to reach a configuration.
pub(super) fn is_degraded(node: &Node, wanted: &str) -> bool {
    let annotations = node.annotations();
    annotations
        .get(STATE)
        .is_some_and(|state| state == STATE_DEGRADED)
        && annotations
            .get(DESIRED)
            .is_some_and(|desired| desired == wanted)
}

/// Returns whether a node has a configuration and is not being changed.
pub(super) fn has(node: &Node, wanted: &str) -> bool {
    let empty = format!("{:016x}", DefaultHasher::new().finish());
    let state = node.annotations().get(STATE).map_or(DONE, String::as_str);
    match current(node) {
        Some(current) => current == wanted && state == DONE,
        None => wanted.ends_with(&empty) && state == DONE,
    }
}
