//! Nodes as a scenario changes them, and their NRTs.

use api::nrt::v1alpha2::NodeResourceTopology;
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::{Context, chain};
use crate::ledger::{ObjectRef, Undo};
use crate::observed::NodeTopology;
use crate::recorder::Recorder;
use crate::step::StepError;

impl Context {
    /// Sets a label of a node; the old state is restored at the end.
    pub async fn label_node(&self, node: &str, key: &str, value: &str) -> Result<(), StepError> {
        label_node(&self.recorder, &self.client(), node, key, value).await
    }

    /// Removes a label from a node that [`Context::label_node`] set.
    pub async fn unlabel_node(&self, node: &str, key: &str) -> Result<(), StepError> {
        self.patch_node(node, &json!({"metadata": {"labels": {key: null}}}))
            .await
    }

    /// Cordons a node; it is uncordoned at the end.
    pub async fn cordon_node(&self, node: &str) -> Result<(), StepError> {
        self.recorder.plan(
            &format!("cordon Node {node}"),
            Undo::Patch {
                object: ObjectRef::node(node),
                patch: unschedulable(None),
            },
        )?;
        self.patch_node(node, &unschedulable(Some(true))).await
    }

    /// Uncordons a node before the end.
    pub async fn uncordon_node(&self, node: &str) -> Result<(), StepError> {
        self.patch_node(node, &unschedulable(None)).await
    }

    async fn patch_node(&self, node: &str, patch: &Value) -> Result<(), StepError> {
        Api::<Node>::all(self.client())
            .patch(node, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        Ok(())
    }

    /// Puts a taint on a node; it is removed at the end.
    pub async fn taint_node(&self, node: &str, key: &str, effect: &str) -> Result<(), StepError> {
        self.taint_node_with(node, key, None, effect).await
    }

    /// Puts a taint with a value on a node and replaces one of the same key and effect; it is removed at the end.
    pub async fn taint_node_with(
        &self,
        node: &str,
        key: &str,
        value: Option<&str>,
        effect: &str,
    ) -> Result<(), StepError> {
        let nodes: Api<Node> = Api::all(self.client());
        self.recorder.plan(
            &format!("taint Node {node} {key}:{effect}"),
            Undo::RemoveTaint {
                node: node.to_owned(),
                key: key.to_owned(),
                effect: effect.to_owned(),
            },
        )?;
        loop {
            let object = nodes.get(node).await?;
            let mut taints = object
                .spec
                .clone()
                .unwrap_or_default()
                .taints
                .unwrap_or_default();
            taints.retain(|taint| taint.key != key || taint.effect != effect);
            taints.push(Taint {
                key: key.to_owned(),
                value: value.map(str::to_owned),
                effect: effect.to_owned(),
                ..Taint::default()
            });
            // with the resource version, so that a concurrent change is not lost
            let patch = json!({"metadata": {"resourceVersion": object.resource_version()}, "spec": {"taints": taints}});
            match nodes
                .patch(node, &PatchParams::default(), &Patch::Merge(&patch))
                .await
            {
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                other => {
                    other?;
                    return Ok(());
                }
            }
        }
    }

    /// Returns all NRTs, in the order of the API server.
    pub async fn topologies(&self) -> Result<Vec<NodeTopology>, StepError> {
        topologies(&self.client()).await
    }

    /// Returns the NRT of a node.
    pub async fn topology(&self, node: &str) -> Result<NodeTopology, StepError> {
        let object = Api::<NodeResourceTopology>::all(self.client())
            .get(node)
            .await?;
        NodeTopology::read(&object).map_err(|error| StepError::fail(chain(&error)))
    }

    /// Writes the content of an NRT in place of its exporter, which must not publish meanwhile. The content from before is restored at the
    /// end, or by the undo that is returned.
    pub async fn replace_topology(
        &self,
        before: &NodeResourceTopology,
        now: &NodeResourceTopology,
    ) -> Result<Undo, StepError> {
        let object = ObjectRef::of(before);
        let what = format!("replace the content of {object}");
        let undo = Undo::Patch {
            object,
            patch: topology_content(before),
        };
        self.recorder.plan(&what, undo.clone())?;
        Api::<NodeResourceTopology>::all(self.client())
            .replace(&before.name_any(), &PostParams::default(), now)
            .await?;
        Ok(undo)
    }
}

/// Returns the merge patch that makes an NRT say what this one says.
fn topology_content(topology: &NodeResourceTopology) -> Value {
    let policies = &topology.topology_policies;
    json!({
        "metadata": {"annotations": topology.annotations()},
        "topologyPolicies": (!policies.is_empty()).then_some(policies),
        "attributes": topology.attributes,
        "zones": topology.zones,
    })
}

fn unschedulable(value: Option<bool>) -> Value {
    json!({"spec": {"unschedulable": value}})
}

/// Sets a label of a node; the old state is restored at the end of the recorder's unit.
pub async fn label_node(
    recorder: &Recorder,
    client: &Client,
    node: &str,
    key: &str,
    value: &str,
) -> Result<(), StepError> {
    let nodes: Api<Node> = Api::all(client.clone());
    let old = nodes.get(node).await?.labels().get(key).cloned();
    if old.as_deref() == Some(value) {
        return Ok(());
    }
    recorder.plan(
        &format!("label Node {node} {key}={value}"),
        Undo::Patch {
            object: ObjectRef::node(node),
            patch: json!({"metadata": {"labels": {key: old}}}),
        },
    )?;
    let patch = json!({"metadata": {"labels": {key: value}}});
    nodes
        .patch(node, &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    Ok(())
}

/// Returns all NRTs, in the order of the API server.
pub async fn topologies(client: &Client) -> Result<Vec<NodeTopology>, StepError> {
    let list = Api::<NodeResourceTopology>::all(client.clone())
        .list(&ListParams::default())
        .await?;
    list.items
        .iter()
        .map(NodeTopology::read)
        .collect::<Result<_, _>>()
        .map_err(|error| StepError::fail(chain(&error)))
}
