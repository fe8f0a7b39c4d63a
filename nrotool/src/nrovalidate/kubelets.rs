//! The settings of the kubelets, from where the platform has them (scenarios-other.md 10.2).

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use api::openshift::machine_config::KubeletConfig;
use api::{labels, names};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use kube::{Client, ResourceExt as _};
use manifests::platform::Platform;
use serde_json::Value;

use super::nodes::{self, Members};
use crate::cluster;

/// Longest time for the answer of a kubelet.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A `KubeletConfiguration` for each node that has one.
pub(super) type Configurations = BTreeMap<String, Value>;

/// Reads the settings of the kubelets of these nodes.
pub(super) async fn read(client: &Client, members: &Members) -> anyhow::Result<Configurations> {
    match members.platform {
        Platform::Kubernetes => ask(client, members).await,
        Platform::OpenShift => of_pools(client, members).await,
        Platform::HyperShift => of_config_maps(client, members).await,
    }
}

/// Asks each kubelet. One that does not answer is an error: its settings are not wrong, they are unknown.
async fn ask(client: &Client, members: &Members) -> anyhow::Result<Configurations> {
    let mut found = Configurations::new();
    for node in members.nodes.keys() {
        let answer = tokio::time::timeout(TIMEOUT, cluster::configz(client, node)).await;
        let answer = answer.with_context(|| {
            format!(
                "the kubelet of {node} did not answer within {} s",
                TIMEOUT.as_secs()
            )
        })?;
        let mut answer =
            answer.with_context(|| format!("cannot read the kubelet's settings of {node}"))?;
        if let Value::Object(_) = &answer["kubeletconfig"] {
            found.insert(node.clone(), answer["kubeletconfig"].take());
        }
    }
    Ok(found)
}

/// Returns the configurations of the pools that the nodes are in.
async fn of_pools(client: &Client, members: &Members) -> anyhow::Result<Configurations> {
    let pools = nodes::machine_config_pools(client).await?;
    let configs: Vec<KubeletConfig> = cluster::list(&Api::all(client.clone()), "").await?;
    let mut found = Configurations::new();
    for (node, present) in &members.nodes {
        let of_node = configs.iter().filter(|config| {
            let selector = config.spec.machine_config_pool_selector.as_ref();
            selector.is_some_and(|selector| {
                pools.iter().any(|pool| {
                    nodes::has(pool, present) && nodes::matches(selector, pool.labels())
                })
            })
        });
        let of_node: Vec<&KubeletConfig> = of_node.collect();
        anyhow::ensure!(
            of_node.len() < 2,
            "node {node} has several KubeletConfigs: {}",
            of_node
                .iter()
                .map(|config| config.name_any())
                .collect::<Vec<_>>()
                .join(", ")
        );
        let settings = of_node
            .first()
            .and_then(|config| config.spec.kubelet_config.clone());
        found.extend(settings.map(|settings| (node.clone(), settings)));
    }
    Ok(found)
}

/// Returns the configurations of the node pools of a hosted cluster.
async fn of_config_maps(client: &Client, members: &Members) -> anyhow::Result<Configurations> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), names::HYPERSHIFT_CONFIG_NAMESPACE);
    let maps = cluster::list(&api, labels::HYPERSHIFT_KUBELET_CONFIG).await?;
    let mut found = Configurations::new();
    for (node, present) in &members.nodes {
        let Some(pool) = present.get(labels::HYPERSHIFT_NODE_POOL) else {
            continue;
        };
        let of_node = maps
            .iter()
            .filter(|map| map.labels().get(labels::HYPERSHIFT_NODE_POOL) == Some(pool));
        let of_node: Vec<&ConfigMap> = of_node.collect();
        anyhow::ensure!(
            of_node.len() < 2,
            "node pool {pool} has several ConfigMaps with kubelet settings"
        );
        let text = of_node
            .first()
            .and_then(|map| map.data.as_ref()?.get(names::CONFIG_KEY_OF_HOSTED));
        let Some(text) = text else { continue };
        let mut object: Value = serde_yaml::from_str(text).with_context(|| {
            format!("the kubelet settings of node pool {pool} cannot be parsed")
        })?;
        found.insert(node.clone(), object["spec"]["kubeletConfig"].take());
    }
    Ok(found)
}
