//! Pods of the recorded sequences: what they ask for, in as little text as possible, and the Kubernetes objects that are built from it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, ContainerPort, HostPathVolumeSource, Pod, PodSpec, ResourceRequirements, Volume,
    VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

/// Namespace of the pods.
pub const NAMESPACE: &str = "default";
/// A directory that no node has: a pod that mounts it is admitted but never started.
const MISSING_DIRECTORY: &str = "/var/lib/never-there";
/// The priority class of critical pods that every cluster has, and its priority.
const CRITICAL: (&str, i32) = ("system-node-critical", 2_000_001_000);
/// A label that no node has.
const MISSING_LABEL: &str = "testbed/nowhere";

/// When a container runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// After the init containers.
    #[default]
    App,
    /// Runs to its end before the next one starts.
    Init,
    /// Starts as an init container and keeps running.
    Sidecar,
}

/// A container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct ContainerRecipe {
    /// When it runs.
    pub kind: Kind,
    /// Limits.
    pub limits: BTreeMap<String, String>,
    /// Requests, where they differ from the limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<BTreeMap<String, String>>,
}

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct PodRecipe {
    /// Init containers and sidecars first.
    pub containers: Vec<ContainerRecipe>,
    /// Whether its containers are started. A pod whose containers are not keeps everything that it got at its admission.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub runs: bool,
    /// Whether its node selector matches no node.
    #[serde(
        rename = "nowhere",
        default,
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub unmatched_selector: bool,
    /// Whether the kubelet preempts other pods to make room for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub critical: bool,
    /// Host port of the first app container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_port: Option<i32>,
    /// Limits, and at the same time requests, of the pod as a whole.
    #[serde(rename = "level", default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pod_resources: BTreeMap<String, String>,
}

impl PodRecipe {
    /// Builds the pod object; containers are called `c0`, `c1` and so on.
    pub fn pod(&self, namespace: &str, name: &str, node: &str) -> Pod {
        let containers = |app: bool| {
            self.containers
                .iter()
                .enumerate()
                .filter(move |(_, recipe)| (recipe.kind == Kind::App) == app)
                .map(|(index, recipe)| self.container(index, recipe))
                .collect::<Vec<_>>()
        };
        let missing_directory = Volume {
            name: "never".to_owned(),
            host_path: Some(HostPathVolumeSource {
                path: MISSING_DIRECTORY.to_owned(),
                type_: Some("Directory".to_owned()),
            }),
            ..Volume::default()
        };
        Pod {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            spec: Some(PodSpec {
                node_name: Some(node.to_owned()),
                automount_service_account_token: Some(false),
                enable_service_links: Some(false),
                termination_grace_period_seconds: Some(1),
                init_containers: Some(containers(false)).filter(|list| !list.is_empty()),
                containers: self.with_port(containers(true)),
                priority_class_name: self.critical.then(|| CRITICAL.0.to_owned()),
                priority: self.critical.then_some(CRITICAL.1),
                resources: amounts(&self.pod_resources).map(|list| ResourceRequirements {
                    limits: Some(list.clone()),
                    requests: Some(list),
                    ..ResourceRequirements::default()
                }),
                volumes: (!self.runs).then(|| vec![missing_directory]),
                node_selector: self
                    .unmatched_selector
                    .then(|| [(MISSING_LABEL.to_owned(), String::new())].into()),
                ..PodSpec::default()
            }),
            status: None,
        }
    }

    fn with_port(&self, mut containers: Vec<Container>) -> Vec<Container> {
        if let (Some(container), Some(port)) = (containers.first_mut(), self.host_port) {
            container.ports = Some(vec![ContainerPort {
                container_port: port,
                host_port: Some(port),
                ..ContainerPort::default()
            }]);
        }
        containers
    }

    fn container(&self, index: usize, recipe: &ContainerRecipe) -> Container {
        let command = match recipe.kind {
            Kind::Init => Some(vec!["/bin/sleep".to_owned(), "0".to_owned()]),
            Kind::App | Kind::Sidecar => None,
        };
        Container {
            name: format!("c{index}"),
            image: Some(api::names::STACK_IMAGE.to_owned()),
            image_pull_policy: Some("IfNotPresent".to_owned()),
            command,
            restart_policy: (recipe.kind == Kind::Sidecar).then(|| "Always".to_owned()),
            resources: Some(ResourceRequirements {
                limits: amounts(&recipe.limits),
                requests: amounts(recipe.requests.as_ref().unwrap_or(&recipe.limits)),
                ..ResourceRequirements::default()
            }),
            volume_mounts: (!self.runs).then(|| {
                vec![VolumeMount {
                    name: "never".to_owned(),
                    mount_path: "/never".to_owned(),
                    ..VolumeMount::default()
                }]
            }),
            ..Container::default()
        }
    }
}

/// Converts to quantities; returns none for an empty list.
fn amounts(list: &BTreeMap<String, String>) -> Option<BTreeMap<String, Quantity>> {
    let list: BTreeMap<String, Quantity> = list
        .iter()
        .map(|(name, amount)| (name.clone(), Quantity(amount.clone())))
        .collect();
    Some(list).filter(|list| !list.is_empty())
}
