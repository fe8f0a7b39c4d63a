//! `schedcache`: whether each scheduler counts the pods that the exporters count.

use api::{labels, names};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::Api;

use super::finding::Finding;
use super::nodes::Members;
use crate::cluster::is_running;
use crate::pfpsyncchk::records;
use crate::{cluster, exec};

/// Reads the last comparison of each scheduler for each node. A scheduler that has compared nothing for a node has nothing to complain of.
pub(super) async fn validate(client: &Client, members: &Members) -> anyhow::Result<Vec<Finding>> {
    let selector = format!("{}={}", labels::APP, names::SCHEDULER);
    let pods: Vec<Pod> = cluster::list(&Api::all(client.clone()), &selector).await?;
    let mut findings = Vec::new();
    for pod in pods.iter().filter(|pod| is_running(pod)) {
        for node in members.nodes.keys() {
            if !is_clean(client, pod, node).await? {
                findings.push(Finding {
                    node: node.clone(),
                    area: "scheduler",
                    component: "scheduler",
                    setting: "cache".to_owned(),
                    expected: "clean".to_owned(),
                    detected: "unsync".to_owned(),
                });
            }
        }
    }
    Ok(findings)
}

/// Returns whether the last record of a scheduler for a node has no difference. Programs write one record to `<node>.json`, or a list to a file
/// with the node's name, or both (scenarios-other.md 12).
async fn is_clean(client: &Client, pod: &Pod, node: &str) -> anyhow::Result<bool> {
    let file = format!("{}/{}", names::PFP_STATUS_DIR, node.replace('.', "_"));
    for name in [file.clone(), format!("{file}.json")] {
        let read = exec::run(client, pod, names::SCHEDULER, &["cat", &name]).await;
        match read {
            Ok(text) => {
                let records = records::parse(&text)?;
                let last = records.last();
                return Ok(
                    last.is_none_or(|last| last.fingerprint_expected == last.fingerprint_computed)
                );
            }
            // cat could not read it: there is no such file
            Err(exec::Error::Failed { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}
