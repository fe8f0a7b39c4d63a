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

/// Maximum number of nodes in the message about a mixed pool.
const MAX_NAMED_NODES: usize = 10;

/// Name and labels of a node.
#[derive(Debug)]
pub(super) struct Member {
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

/// Settings that the kubelets of a pool report.
#[derive(Debug, PartialEq)]
pub(super) struct Answers {
    /// Settings of the majority.
    pub(super) settings: KubeletSettings,
    /// Nodes with other settings, and the differences; empty when there are none.
    pub(super) differing: String,
}

/// Asks the pool's kubelets. `None` when none of them ever answered.
pub(super) async fn ask_all(context: &Context, pool: &Pool, nodes: &[Member]) -> Option<Answers> {
    let mut members: Vec<String> = nodes
        .iter()
        .filter(|node| node_groups::selects(&pool.nodes, &node.labels))
        .map(|node| node.name.clone())
        .collect();
    members.sort();
    let answers: Vec<(String, KubeletSettings)> = stream::iter(members)
        .map(|node| async move {
            let answer = ask(&context.client, &node).await;
            let settings = context.kubelet(&node, answer)?;
            Some((node, settings))
        })
        .buffered(CONCURRENT_REQUESTS)
        .filter_map(|answer| async move { answer })
        .collect()
        .await;
    let settings = most_common(&answers)?;
    let differing = differing(&settings, &answers);
    if !differing.is_empty() {
        tracing::warn!(pool = %pool.name, %differing, "Kubelets of a pool have different settings");
    }
    Some(Answers {
        settings,
        differing,
    })
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

/// Returns the most common settings. Among equally common ones the first in sort order wins, so that the choice is stable.
fn most_common(answers: &[(String, KubeletSettings)]) -> Option<KubeletSettings> {
    let mut counts: BTreeMap<&KubeletSettings, usize> = BTreeMap::new();
    for (_, answer) in answers {
        *counts.entry(answer).or_default() += 1;
    }
    let most = counts.values().copied().max()?;
    counts
        .into_iter()
        .find(|(_, count)| *count == most)
        .map(|(settings, _)| settings.clone())
}

/// Lists the nodes whose settings differ from these, each with its differences.
fn differing(settings: &KubeletSettings, answers: &[(String, KubeletSettings)]) -> String {
    let others: Vec<String> = answers
        .iter()
        .filter(|(_, answer)| answer != settings)
        .map(|(node, answer)| format!("{node} ({})", difference(settings, answer)))
        .collect();
    match others.len().checked_sub(MAX_NAMED_NODES) {
        None | Some(0) => others.join(", "),
        Some(more) => format!("{} and {more} more", others[..MAX_NAMED_NODES].join(", ")),
    }
}

/// Describes how the settings of a kubelet differ from those of the others.
fn difference(others: &KubeletSettings, kubelet: &KubeletSettings) -> String {
    let options = |settings: &KubeletSettings| {
        let options = settings.cpu_manager_policy_options.iter();
        let options: Vec<String> = options
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        options.join("+")
    };
    let rows = [
        (
            "cpuManagerPolicy",
            &kubelet.cpu_manager_policy,
            &others.cpu_manager_policy,
        ),
        (
            "cpuManagerPolicyOptions",
            &options(kubelet),
            &options(others),
        ),
        (
            "memoryManagerPolicy",
            &kubelet.memory_manager_policy,
            &others.memory_manager_policy,
        ),
        (
            "topologyManagerPolicy",
            &kubelet.topology_manager_policy,
            &others.topology_manager_policy,
        ),
        (
            "topologyManagerScope",
            &kubelet.topology_manager_scope,
            &others.topology_manager_scope,
        ),
    ];
    let differing = rows.iter().filter(|(_, own, common)| own != common);
    let differing: Vec<String> = differing
        .map(|(name, own, common)| format!("{name} {own:?} instead of {common:?}"))
        .collect();
    differing.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(policy: &str) -> KubeletSettings {
        KubeletSettings {
            topology_manager_policy: policy.into(),
            topology_manager_scope: "container".into(),
            ..KubeletSettings::default()
        }
    }

    #[test]
    fn majority_wins_and_ties_are_stable() {
        assert_eq!(most_common(&[]), None);
        let of = |policies: &[&str]| {
            let answers = policies
                .iter()
                .map(|policy| ("n".to_owned(), settings(policy)));
            most_common(&answers.collect::<Vec<_>>())
        };
        assert_eq!(of(&["a", "b", "b"]), Some(settings("b")));
        assert_eq!(of(&["b", "a"]), Some(settings("a")));
    }

    #[test]
    fn nodes_unlike_the_others_are_named_with_what_is_different() {
        let node = |number: usize, policy: &str| (format!("n{number}"), settings(policy));
        let mut answers = vec![node(0, "a"), node(1, "b"), node(2, "a")];
        answers[2].1.cpu_manager_policy_options = [("x".into(), "true".into())].into();
        assert_eq!(
            differing(&settings("a"), &answers),
            "n1 (topologyManagerPolicy \"b\" instead of \"a\"), n2 (cpuManagerPolicyOptions \"x=true\" instead of \"\")"
        );
        assert_eq!(differing(&settings("a"), &answers[..1]), "");
        let many: Vec<_> = (0..MAX_NAMED_NODES + 2)
            .map(|number| node(number, "b"))
            .collect();
        assert!(differing(&settings("a"), &many).ends_with(" and 2 more"));
    }

    #[test]
    fn settings_that_exporters_need_are_read_and_no_others() {
        let text = r#"{"kubeletconfig": {"cpuManagerPolicy": "static", "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
            "memoryManagerPolicy": "Static", "topologyManagerPolicy": "restricted", "topologyManagerScope": "pod", "maxPods": 110}}"#;
        let answer: Configz = serde_json::from_str(text).unwrap();
        assert_eq!(
            answer.kubeletconfig,
            KubeletSettings {
                cpu_manager_policy: "static".into(),
                cpu_manager_policy_options: [("full-pcpus-only".into(), "true".into())].into(),
                memory_manager_policy: "Static".into(),
                topology_manager_policy: "restricted".into(),
                topology_manager_scope: "pod".into()
            }
        );
    }
}
