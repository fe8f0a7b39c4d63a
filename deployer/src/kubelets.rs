//! The settings of the cluster's kubelets, read from each through the API server.

use std::collections::BTreeMap;
use std::time::Duration;

use apply::Cause;
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use manifests::rte::config_map::{KubeletSettings, config_map};
use serde::Deserialize;
use serde_json::Value;

use crate::cluster::{self, Cluster, takes_pods};

/// Number of kubelets that are asked at the same time.
const AT_ONCE: usize = 16;
/// Longest time for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// A kubelet's settings could not be read.
#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    /// The request failed.
    #[error("failed to read the settings of the kubelet")]
    Request(#[from] Cause),
    /// There was no answer in time.
    #[error("no answer from the kubelet within {0:?}")]
    Late(Duration),
}

impl NoAnswer {
    /// Returns whether the user may not ask kubelets.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Request(cause) if cause.is_forbidden())
    }
}

#[derive(Deserialize)]
struct Configz {
    kubeletconfig: Value,
}

/// Returns the `KubeletConfiguration` of each node, in the order of the nodes.
pub async fn ask_all(client: &Client, nodes: &[String]) -> Vec<(String, Result<Value, NoAnswer>)> {
    stream::iter(nodes)
        .map(|node| async move { (node.clone(), ask(client, node).await) })
        .buffered(AT_ONCE)
        .collect()
        .await
}

async fn ask(client: &Client, node: &str) -> Result<Value, NoAnswer> {
    let path = format!("/api/v1/nodes/{node}/proxy/configz");
    let request = http::Request::get(path)
        .body(Vec::new())
        .map_err(|error| NoAnswer::Request(kube::Error::HttpError(error).into()))?;
    let answer = tokio::time::timeout(ANSWER_TIMEOUT, client.request::<Configz>(request)).await;
    let answer = answer.map_err(|_| NoAnswer::Late(ANSWER_TIMEOUT))?;
    let answer = answer.map_err(|error| NoAnswer::Request(error.into()))?;
    Ok(answer.kubeletconfig)
}

/// The exporters' configuration cannot be made from the kubelets' settings.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The nodes cannot be listed.
    #[error(transparent)]
    Nodes(#[from] cluster::Error),
    /// A kubelet did not tell its settings.
    #[error(
        "the exporters need the settings of the kubelet of {node}: make it answer, or give them with --rte-config-file"
    )]
    NoAnswer {
        /// The node.
        node: String,
        /// The cause.
        #[source]
        source: NoAnswer,
    },
    /// No node takes pods.
    #[error("no node takes the pods of exporters: each one has a taint")]
    NoNodes,
    /// Kubelets have different settings.
    #[error(
        "one configuration cannot describe the kubelets of all nodes, because they differ: {0}. Align them, give a configuration with --rte-config-file, or use the operator, which has one for each pool"
    )]
    Differ(String),
    /// A kubelet's answer has another form.
    #[error("the settings of the kubelet of {node} cannot be read")]
    Form {
        /// The node.
        node: String,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
}

/// Returns the files of the exporters' configuration where these cannot read the kubelet's own file, as on OpenShift: the settings in which the kubelets
/// of all nodes that take pods agree.
pub async fn exporter_config(cluster: &Cluster) -> Result<BTreeMap<String, String>, Error> {
    let nodes: Vec<String> = cluster
        .nodes()
        .await?
        .iter()
        .filter(|node| takes_pods(node))
        .filter_map(|node: &Node| node.metadata.name.clone())
        .collect();
    let mut settings = Vec::new();
    for (node, answer) in ask_all(&cluster.client, &nodes).await {
        let answer = answer.map_err(|source| Error::NoAnswer {
            node: node.clone(),
            source,
        })?;
        let parsed = serde_json::from_value(answer).map_err(|source| Error::Form {
            node: node.clone(),
            source,
        })?;
        settings.push((node, parsed));
    }
    Ok(files(&agreed(settings)?))
}

/// Returns the settings that all nodes have.
fn agreed(all: Vec<(String, KubeletSettings)>) -> Result<KubeletSettings, Error> {
    let mut groups: BTreeMap<KubeletSettings, Vec<String>> = BTreeMap::new();
    for (node, settings) in all {
        groups.entry(settings).or_default().push(node);
    }
    if groups.len() > 1 {
        let parts: Vec<String> = groups
            .iter()
            .map(|(settings, nodes)| format!("{} has {}", nodes.join(", "), described(settings)))
            .collect();
        return Err(Error::Differ(parts.join("; ")));
    }
    groups.into_keys().next().ok_or(Error::NoNodes)
}

fn described(settings: &KubeletSettings) -> String {
    format!(
        "policy {:?}, scope {:?}, CPU manager {:?} {:?}, memory manager {:?}, options {:?}",
        settings.topology_manager_policy,
        settings.topology_manager_scope,
        settings.cpu_manager_policy,
        settings.cpu_manager_policy_options,
        settings.memory_manager_policy,
        settings.topology_manager_policy_options
    )
}

fn files(settings: &KubeletSettings) -> BTreeMap<String, String> {
    // only the content counts: the ConfigMap has a name of its own
    config_map("", "", "", settings, &[])
        .data
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(scope: &str) -> KubeletSettings {
        KubeletSettings {
            topology_manager_policy: "single-numa-node".into(),
            topology_manager_scope: scope.into(),
            ..KubeletSettings::default()
        }
    }

    fn of(nodes: &[(&str, &str)]) -> Result<KubeletSettings, Error> {
        let all = nodes
            .iter()
            .map(|(node, scope)| ((*node).to_owned(), settings(scope)));
        agreed(all.collect())
    }

    #[test]
    fn kubelets_that_agree_give_one_configuration() {
        let files = files(&of(&[("a", "pod"), ("b", "pod")]).unwrap());
        assert_eq!(
            files["config.yaml"],
            "kubelet:\n  topologyManagerPolicy: single-numa-node\n  topologyManagerScope: pod\n"
        );
    }

    #[test]
    fn kubelets_that_differ_are_named() {
        let error = of(&[("a", "pod"), ("b", "container"), ("c", "pod")]).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("a, c has policy \"single-numa-node\", scope \"pod\""),
            "{text}"
        );
        assert!(text.contains("b has policy"), "{text}");
        assert!(matches!(of(&[]), Err(Error::NoNodes)));
    }
}
