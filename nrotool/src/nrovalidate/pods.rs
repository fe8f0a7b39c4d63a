//! `podst`: whether the pods on the nodes run. As in the original a pod that succeeded counts as one that does not.

use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use kube::{Client, ResourceExt as _};

use super::finding::{Finding, KUBELET};
use super::nodes::Members;
use crate::cluster;

/// Validates the pods on these nodes.
pub(super) async fn validate(client: &Client, members: &Members) -> anyhow::Result<Vec<Finding>> {
    let pods: Vec<Pod> = cluster::list(&Api::all(client.clone()), "").await?;
    let findings = pods.iter().filter_map(|pod| {
        let node = pod.spec.as_ref()?.node_name.as_deref()?;
        let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
        let phase = phase.unwrap_or("Unknown");
        (members.nodes.contains_key(node) && phase != "Running").then(|| Finding {
            node: node.to_owned(),
            area: KUBELET,
            component: "pod",
            setting: format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any()),
            expected: "Running".to_owned(),
            detected: phase.to_owned(),
        })
    });
    Ok(findings.collect())
}
