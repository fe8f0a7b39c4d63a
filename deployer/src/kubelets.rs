//! The settings of the cluster's kubelets, read from each through the API server.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use apply::Cause;
use futures::{StreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::Client;
use manifests::rte::config_map::{KubeletSettings, config_map};
use serde::Deserialize;
use serde_json::Value;

use crate::cluster::{self, Cluster, NodePool, node_pool, takes_pods};
use crate::objects::ExporterConfig;

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
    /// Kubelets of one pool have different settings.
    #[error(
        "one configuration cannot describe the kubelets of {pool}, because they differ: {settings}. Align them, give a configuration with --rte-config-file, or put the nodes into pools of their own"
    )]
    Differ {
        /// The pool, in words.
        pool: String,
        /// Which nodes have which settings.
        settings: String,
    },
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

/// A node, its pool, and the settings of its kubelet.
type Member = (String, Option<NodePool>, KubeletSettings);

/// Returns the exporters' configurations where these cannot read the kubelet's own file, as on OpenShift: one if the kubelets of all nodes that take pods
/// agree, otherwise one for each pool.
pub async fn exporter_configs(cluster: &Cluster) -> Result<Vec<ExporterConfig>, Error> {
    let nodes = cluster.nodes().await?;
    let nodes: BTreeMap<String, Option<NodePool>> = nodes
        .iter()
        .filter(|node| takes_pods(node))
        .filter_map(|node| Some((node.metadata.name.clone()?, node_pool(node))))
        .collect();
    let names: Vec<String> = nodes.keys().cloned().collect();
    let mut members = Vec::new();
    for (node, answer) in ask_all(&cluster.client, &names).await {
        let answer = answer.map_err(|source| Error::NoAnswer {
            node: node.clone(),
            source,
        })?;
        let parsed = serde_json::from_value(answer).map_err(|source| Error::Form {
            node: node.clone(),
            source,
        })?;
        let pool = nodes.get(&node).cloned().flatten();
        members.push((node, pool, parsed));
    }
    configs(&members)
}

fn configs(members: &[Member]) -> Result<Vec<ExporterConfig>, Error> {
    let Some((_, _, first)) = members.first() else {
        return Err(Error::NoNodes);
    };
    if members.iter().all(|(_, _, settings)| settings == first) {
        return Ok(vec![ExporterConfig {
            files: files(first),
            ..ExporterConfig::default()
        }]);
    }
    let mut pools: BTreeMap<Option<&NodePool>, Vec<&Member>> = BTreeMap::new();
    for member in members {
        pools.entry(member.1.as_ref()).or_default().push(member);
    }
    let keys: BTreeSet<&str> = pools
        .keys()
        .flatten()
        .map(|pool| pool.key.as_str())
        .collect();
    pools
        .iter()
        .map(|(pool, members)| {
            Ok(ExporterConfig {
                pool: Some(pool.map_or("worker", |pool| &pool.name).to_owned()),
                nodes: selector(*pool, &keys),
                files: files(agreed(*pool, members)?),
            })
        })
        .collect()
}

/// Returns what selects the nodes of a pool: its label, or that no label of a pool is there.
fn selector(pool: Option<&NodePool>, keys: &BTreeSet<&str>) -> LabelSelector {
    match pool {
        Some(pool) => LabelSelector {
            match_labels: Some(BTreeMap::from([(pool.key.clone(), pool.value.clone())])),
            match_expressions: None,
        },
        None => LabelSelector {
            match_labels: None,
            match_expressions: Some(
                keys.iter()
                    .map(|key| LabelSelectorRequirement {
                        key: (*key).to_owned(),
                        operator: "DoesNotExist".to_owned(),
                        values: None,
                    })
                    .collect(),
            ),
        },
    }
}

/// Returns the settings that all nodes of a pool have.
fn agreed<'a>(
    pool: Option<&NodePool>,
    members: &[&'a Member],
) -> Result<&'a KubeletSettings, Error> {
    let mut groups: BTreeMap<&KubeletSettings, Vec<&str>> = BTreeMap::new();
    for (node, _, settings) in members {
        groups.entry(settings).or_default().push(node);
    }
    if groups.len() > 1 {
        let parts: Vec<String> = groups
            .iter()
            .map(|(settings, nodes)| format!("{} has {}", nodes.join(", "), described(settings)))
            .collect();
        let pool = pool.map_or_else(
            || "the workers".to_owned(),
            |pool| format!("pool {}", pool.name),
        );
        return Err(Error::Differ {
            pool,
            settings: parts.join("; "),
        });
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

    /// Nodes with pool and scope; an empty pool is none.
    fn of(nodes: &[(&str, &str, &str)]) -> Result<Vec<ExporterConfig>, Error> {
        let pool = |name: &str| {
            (!name.is_empty()).then(|| NodePool {
                name: name.to_owned(),
                key: format!("role/{name}"),
                value: String::new(),
            })
        };
        let members: Vec<Member> = nodes
            .iter()
            .map(|(node, name, scope)| ((*node).to_owned(), pool(name), settings(scope)))
            .collect();
        configs(&members)
    }

    #[test]
    fn kubelets_that_agree_give_one_configuration() {
        let configs = of(&[("a", "x", "pod"), ("b", "", "pod")]).unwrap();
        assert_eq!(configs.len(), 1);
        assert_eq!(
            (&configs[0].pool, &configs[0].nodes),
            (&None, &LabelSelector::default())
        );
        assert_eq!(
            configs[0].files["config.yaml"],
            "kubelet:\n  topologyManagerPolicy: single-numa-node\n  topologyManagerScope: pod\n"
        );
    }

    #[test]
    fn pools_that_differ_get_a_configuration_each_and_every_node_is_in_one() {
        let configs = of(&[("a", "x", "pod"), ("b", "", "container"), ("c", "x", "pod")]).unwrap();
        let names: Vec<&str> = configs
            .iter()
            .filter_map(|config| config.pool.as_deref())
            .collect();
        assert_eq!(names, ["worker", "x"]);
        let expressions = configs[0].nodes.match_expressions.as_ref().unwrap();
        assert_eq!(
            (
                expressions[0].key.as_str(),
                expressions[0].operator.as_str()
            ),
            ("role/x", "DoesNotExist")
        );
        assert_eq!(
            configs[1].nodes.match_labels.as_ref().unwrap()["role/x"],
            ""
        );
        assert!(configs[0].files["config.yaml"].contains("container"));
    }

    #[test]
    fn kubelets_of_one_pool_that_differ_are_named() {
        let error = of(&[("a", "", "pod"), ("b", "", "container"), ("c", "", "pod")]).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("a, c has policy \"single-numa-node\", scope \"pod\""),
            "{text}"
        );
        assert!(text.contains("b has policy"), "{text}");
        assert!(matches!(of(&[]), Err(Error::NoNodes)));
    }
}
