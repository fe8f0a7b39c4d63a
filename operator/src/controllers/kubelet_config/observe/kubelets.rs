//! Plain Kubernetes: asks the kubelets of a pool for their settings.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use apply::Cause;
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use manifests::rte::config_map::KubeletSettings;
use serde::Deserialize;

use crate::context::Context;
use crate::node_groups::{self, Pool};

/// Number of kubelets that are asked concurrently.
const CONCURRENT_REQUESTS: usize = 16;
/// Page size when nodes are listed. It limits memory: the metadata of a node is large, mostly because of managed fields.
const NODE_PAGE_SIZE: u32 = 20;
/// Time limit for a kubelet's answer. After it the last known settings count.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Name and labels of a node.
#[derive(Debug)]
pub(crate) struct Member {
    name: String,
    labels: BTreeMap<String, String>,
}

/// Lists all nodes without their status, which is large.
pub(super) async fn list_nodes(context: &Context) -> Result<Vec<Member>, Cause> {
    let nodes: Api<Node> = Api::all(context.client.clone());
    let mut params = ListParams::default().limit(NODE_PAGE_SIZE);
    let mut all = Vec::new();
    loop {
        let page = nodes.list_metadata(&params).await?;
        all.extend(page.items.into_iter().map(|node| Member {
            name: node.name_any(),
            labels: node.metadata.labels.unwrap_or_default(),
        }));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => break,
        }
    }
    let names: BTreeSet<&str> = all.iter().map(|node| node.name.as_str()).collect();
    context.retain_kubelets(|node| names.contains(node));
    Ok(all)
}

/// Asks the pool's kubelets. Returns the settings of those that ever answered, sorted by the names of the nodes.
pub(super) async fn ask_all(
    context: &Context,
    pool: &Pool,
    nodes: &[Member],
) -> Vec<(String, KubeletSettings)> {
    let mut members: Vec<String> = nodes
        .iter()
        .filter(|node| node_groups::selects(&pool.nodes, &node.labels))
        .map(|node| node.name.clone())
        .collect();
    members.sort();
    stream::iter(members)
        .map(|node| async move {
            let answer = ask(&context.client, &node).await;
            let settings = context.kubelet(&node, answer)?;
            Some((node, settings))
        })
        .buffered(CONCURRENT_REQUESTS)
        .filter_map(|answer| async move { answer })
        .collect()
        .await
}

/// The used part of a kubelet's answer.
#[derive(Deserialize)]
struct Configz {
    kubeletconfig: KubeletSettings,
}

async fn ask(client: &Client, node: &str) -> Option<KubeletSettings> {
    let request = http_get(&format!("/api/v1/nodes/{node}/proxy/configz"))?;
    match tokio::time::timeout(ANSWER_TIMEOUT, client.request::<Configz>(request)).await {
        Ok(Ok(answer)) => Some(answer.kubeletconfig),
        Ok(Err(error)) => {
            tracing::warn!(%node, error = %daemon::log::chain(&Cause::from(error)), "Kubelet settings not read");
            None
        }
        Err(_) => {
            tracing::warn!(%node, "Kubelet settings not read in time");
            None
        }
    }
}

fn http_get(path: &str) -> Option<http::Request<Vec<u8>>> {
    http::Request::get(path).body(Vec::new()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_exporters_need_are_read_and_no_others() {
        let text = r#"{"kubeletconfig": {"cpuManagerPolicy": "static", "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
            "memoryManagerPolicy": "Static", "topologyManagerPolicy": "restricted", "topologyManagerScope": "pod",
            "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "9"}, "maxPods": 110}}"#;
        let answer: Configz = serde_json::from_str(text).unwrap();
        assert_eq!(
            answer.kubeletconfig,
            KubeletSettings {
                cpu_manager_policy: "static".into(),
                cpu_manager_policy_options: [("full-pcpus-only".into(), "true".into())].into(),
                memory_manager_policy: "Static".into(),
                topology_manager_policy: "restricted".into(),
                topology_manager_policy_options: [("max-allowable-numa-nodes".into(), "9".into())]
                    .into(),
                topology_manager_scope: "pod".into()
            }
        );
    }
}
