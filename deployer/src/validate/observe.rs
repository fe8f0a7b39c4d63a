//! What is read of a cluster to be looked at.

use std::collections::BTreeMap;

use api::nrt::v1alpha2::NodeResourceTopology;
use apply::Cause;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::Client;
use kube::api::{Api, ListParams};
use serde_json::Value;

use super::Error;
use crate::cluster::{self, Cluster, is_worker};
use crate::kubelets::{self, NoAnswer};
use crate::log::Log;

/// A kubelet, by its node.
#[derive(Debug)]
pub struct Kubelet {
    /// Name of the node.
    pub node: String,
    /// Its `KubeletConfiguration`.
    pub config: Result<Value, NoAnswer>,
}

/// A scheduler's Deployment and the configurations that its pods mount.
#[derive(Clone, Debug, Default)]
pub struct Configured {
    /// The Deployment.
    pub deployment: Deployment,
    /// The configurations.
    pub configs: Vec<Value>,
}

/// The state of a cluster. What the user may not see is empty.
#[derive(Debug, Default)]
pub struct Observed {
    /// All nodes, by name.
    pub nodes: Vec<Node>,
    /// The kubelets of the workers.
    pub kubelets: Vec<Kubelet>,
    /// All topologies; `None` if the cluster does not know the kind, or the user may not see them.
    pub topologies: Option<Vec<NodeResourceTopology>>,
    /// All DaemonSets.
    pub daemon_sets: Vec<DaemonSet>,
    /// All pods.
    pub pods: Vec<Pod>,
    /// The schedulers beside the default one.
    pub schedulers: Vec<Configured>,
}

impl Observed {
    /// Reads everything.
    pub(super) async fn read(cluster: &Cluster, log: &Log) -> Result<Self, Error> {
        log.doing("reading nodes");
        let nodes = cluster.nodes().await?;
        let workers: Vec<String> = nodes
            .iter()
            .filter(|node| is_worker(node))
            .filter_map(|node| node.metadata.name.clone())
            .collect();
        log.doing("asking kubelets");
        let mut kubelets = Vec::new();
        for (node, config) in kubelets::ask_all(&cluster.client, &workers).await {
            if let Err(error) = &config {
                let pairs = [
                    ("node", node.as_str().into()),
                    ("error", daemon::log::chain(error).into()),
                ];
                log.line(0, "kubelet not asked", &pairs);
            }
            kubelets.push(Kubelet { node, config });
        }
        let all_forbidden = kubelets
            .iter()
            .all(|kubelet| matches!(&kubelet.config, Err(error) if error.is_forbidden()));
        if all_forbidden
            && let Some(Kubelet {
                config: Err(error), ..
            }) = kubelets.pop()
        {
            return Err(Error::Forbidden(error));
        }
        log.doing("reading the stack");
        let client = &cluster.client;
        let topologies = cluster.topologies().await;
        Ok(Self {
            nodes,
            kubelets,
            topologies: or_default("NodeResourceTopologies", topologies, log),
            daemon_sets: all(client, "DaemonSets", log).await,
            pods: all(client, "pods", log).await,
            schedulers: schedulers(client, log).await,
        })
    }

    /// Returns the node of that name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        let mut nodes = self.nodes.iter();
        nodes.find(|node| node.metadata.name.as_deref() == Some(name))
    }
}

/// Tells what could not be read, and so is not looked at.
fn or_default<T: Default>(what: &str, answer: Result<T, Cause>, log: &Log) -> T {
    answer.unwrap_or_else(|error| {
        let pairs = [
            ("what", what.into()),
            ("error", daemon::log::chain(&error).into()),
        ];
        log.line(0, "not looked at", &pairs);
        T::default()
    })
}

async fn all<K>(client: &Client, what: &str, log: &Log) -> Vec<K>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let api: Api<K> = Api::all(client.clone());
    let answer = cluster::everything(&api, ListParams::default()).await;
    or_default(what, answer.map_err(Cause::from), log)
}

/// Returns the Deployments whose programs are given a configuration of a scheduler.
async fn schedulers(client: &Client, log: &Log) -> Vec<Configured> {
    let deployments: Vec<Deployment> = all(client, "Deployments", log).await;
    let mut found = Vec::new();
    for deployment in deployments {
        let mut configs = Vec::new();
        for (namespace, name) in config_maps(&deployment) {
            let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
            let map = maps.get_opt(&name).await.map_err(Cause::from);
            let data = or_default("ConfigMap", map, log).and_then(|map| map.data);
            configs.extend(scheduler_configs(&data.unwrap_or_default()));
        }
        if !configs.is_empty() {
            found.push(Configured {
                deployment,
                configs,
            });
        }
    }
    found
}

/// Returns namespace and name of the ConfigMaps that the pods of a Deployment mount, if one of its programs is given a configuration file.
fn config_maps(deployment: &Deployment) -> Vec<(String, String)> {
    let namespace = deployment.metadata.namespace.clone().unwrap_or_default();
    let spec = deployment.spec.as_ref();
    let Some(pods) = spec.and_then(|spec| spec.template.spec.as_ref()) else {
        return Vec::new();
    };
    let words = |container: &k8s_openapi::api::core::v1::Container| -> Vec<String> {
        [&container.command, &container.args]
            .into_iter()
            .flat_map(|words| words.clone().unwrap_or_default())
            .collect()
    };
    let has_config = pods
        .containers
        .iter()
        .flat_map(words)
        .any(|word| word.trim_start_matches('-').starts_with("config"));
    let volumes = pods.volumes.as_deref().unwrap_or_default();
    volumes
        .iter()
        .filter(|_| has_config)
        .filter_map(|volume| Some((namespace.clone(), volume.config_map.as_ref()?.name.clone())))
        .collect()
}

fn scheduler_configs(data: &BTreeMap<String, String>) -> Vec<Value> {
    data.values()
        .filter_map(|text| serde_yaml::from_str::<Value>(text).ok())
        .filter(|config| config["kind"] == "KubeSchedulerConfiguration")
        .collect()
}
