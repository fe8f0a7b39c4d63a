//! The scheduler (deployer.md 7): the objects of `manifests::scheduler` with the names and flags of the original's deployer, and what a scheduler that
//! knows pod groups needs, where an image for their controller is named.

use api::labels;
use api::operator::LogLevel;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{
    Affinity, HTTPGetAction, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm,
    PodSpec, Probe,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use manifests::platform::Platform;
use manifests::pod_groups;
use manifests::scheduler::{self, Names};
use manifests::to_value;
use serde_json::Value;

use super::{Component, DEFINITION, Set, Target, by_kind, marked};
use crate::options::Options;
use crate::scheduler_config;

/// Deployment, account and roles of the scheduler.
pub const SCHEDULER: &str = "topology-aware-scheduler";
/// Role for its lease, and what binds it.
pub const LEADER_ROLE: &str = "topology-aware-scheduler-leader-elect";
/// ConfigMap with its configuration.
pub const CONFIG_MAP: &str = "scheduler-config";
/// Key of the configuration.
pub const CONFIG_KEY: &str = "scheduler-config.yaml";
/// TCP port of its endpoints.
const PORT: i32 = 10259;

/// Order of creation.
const CREATION: [&str; 8] = [
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "NetworkPolicy",
    "Role",
    "RoleBinding",
    "ConfigMap",
    "Deployment",
];
/// Order of printing.
const PRINTING: [&str; 8] = [
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "NetworkPolicy",
    "ConfigMap",
    "Role",
    "RoleBinding",
    "Deployment",
];
/// Order of deletion, after the namespace, which takes most of them along.
const DELETION: [&str; 8] = [
    "Deployment",
    "ClusterRoleBinding",
    "ClusterRole",
    "NetworkPolicy",
    "RoleBinding",
    "Role",
    "ConfigMap",
    "ServiceAccount",
];

/// Returns the namespace of the scheduler.
pub fn namespace_on(platform: Platform) -> &'static str {
    if platform.is_openshift() {
        "openshift-topology-aware-scheduler"
    } else {
        "tas-scheduler"
    }
}

pub(super) fn set(options: &Options, target: &Target) -> Result<Set, scheduler_config::Error> {
    let objects = Objects::new(options, target)?;
    let mut most = options.clone();
    // whether or not there was a controller
    most.images.controller = Some(options.images.controller.clone().unwrap_or_default());
    let mut everything = Objects::new(&most, target)?;
    everything.elect_in(&target.elections_there);
    Ok(Set {
        component: Component::Scheduler,
        create: objects.ordered(&CREATION),
        render: objects.ordered(&PRINTING),
        delete: everything.deletion(),
    })
}

struct Objects {
    definitions: Vec<Value>,
    namespace: Value,
    scheduler: Vec<Value>,
    controller: Vec<Value>,
}

impl Objects {
    fn new(options: &Options, target: &Target) -> Result<Self, scheduler_config::Error> {
        let namespace = namespace_on(target.platform);
        let controller = options.images.controller.as_ref();
        let controller = controller.map(|image| pod_groups::Options {
            namespace: namespace.to_owned(),
            image: image.clone(),
            pull_policy: options.pull_policy.to_owned(),
            replicas: target.replicas,
            api_server_ports: target.api_server_ports.clone(),
        });
        Ok(Self {
            definitions: controller
                .iter()
                .map(|_| marked(pod_groups::definition()))
                .collect(),
            namespace: super::namespace(namespace, false),
            scheduler: scheduler(options, target, namespace)?,
            controller: controller
                .iter()
                .flat_map(pod_groups::objects)
                .map(|object| placed(object, options, target.platform))
                .collect(),
        })
    }

    /// Adds the right to a lease in namespaces that earlier flags named.
    fn elect_in(&mut self, namespaces: &[String]) {
        let is_right = |object: &&Value| object["metadata"]["name"] == LEADER_ROLE;
        let rights: Vec<Value> = self.scheduler.iter().filter(is_right).cloned().collect();
        for right in rights {
            let others = namespaces
                .iter()
                .filter(|name| right["metadata"]["namespace"] != **name);
            self.scheduler.extend(others.map(|name| {
                let mut other = right.clone();
                other["metadata"]["namespace"] = name.as_str().into();
                other
            }));
        }
    }

    fn ordered(&self, order: &[&str]) -> Vec<Value> {
        let mut all = self.definitions.clone();
        all.push(self.namespace.clone());
        all.extend(by_kind(self.scheduler.clone(), order));
        all.extend(by_kind(self.controller.clone(), order));
        all
    }

    fn deletion(&self) -> Vec<Value> {
        let (namespace, mut rest): (Vec<Value>, Vec<Value>) = self
            .ordered(&DELETION)
            .into_iter()
            .partition(|object| object["kind"] == "Namespace");
        // data of users goes last
        rest.sort_by_key(|object| object["kind"] == DEFINITION);
        namespace.into_iter().chain(rest).collect()
    }
}

fn names(options: &Options) -> Names {
    Names {
        scheduler: SCHEDULER.to_owned(),
        config_map: CONFIG_MAP.to_owned(),
        config_key: CONFIG_KEY.to_owned(),
        cluster_role: SCHEDULER.to_owned(),
        leader_role: LEADER_ROLE.to_owned(),
        lease: options.scheduler.params.lease.name.clone(),
        network_policies: SCHEDULER.to_owned(),
        pod_label: ("component".to_owned(), "scheduler".to_owned()),
    }
}

fn scheduler(
    options: &Options,
    target: &Target,
    namespace: &str,
) -> Result<Vec<Value>, scheduler_config::Error> {
    let params = &options.scheduler.params;
    let config = scheduler_config::render(params, namespace, target.replicas)?;
    let given = scheduler::Options {
        replicas: target.replicas,
        log_level: LogLevel::Debug,
        api_server_ports: target.api_server_ports.clone(),
        ..scheduler::Options::new(namespace, target.platform, &options.images.scheduler)
    };
    let mut set = scheduler::Set::with_config(&given, &names(options), config);
    // the lease, and so the right to it, may be elsewhere
    if let Some(elsewhere) = &params.lease.namespace {
        set.role.metadata.namespace = Some(elsewhere.clone());
        set.role_binding.metadata.namespace = Some(elsewhere.clone());
    }
    let rules = set.cluster_role.rules.get_or_insert_default();
    rules.push(scheduler::rules::volume_binding());
    if options.images.controller.is_some() {
        rules.push(pod_groups::rule());
    }
    set.deployment = adapted(set.deployment, options, target.platform);
    Ok(set.objects())
}

/// Gives the Deployment the flags of the options, probes, and its place (deployer.md 7.1).
fn adapted(mut deployment: Deployment, options: &Options, platform: Platform) -> Deployment {
    let pods = deployment
        .spec
        .as_mut()
        .and_then(|spec| spec.template.spec.as_mut());
    let Some(pods) = pods else {
        return deployment;
    };
    place(pods, options.scheduler.on_control_plane, platform);
    for container in &mut pods.containers {
        container.image_pull_policy = Some(options.pull_policy.to_owned());
        for arg in container.args.iter_mut().flatten() {
            if arg.starts_with("-v=") {
                *arg = format!("-v={}", options.scheduler.verbosity);
            }
        }
        container.liveness_probe = Some(probe(Some(15)));
        container.readiness_probe = Some(probe(None));
    }
    deployment
}

/// Gives the pods of a Deployment of the controller their place. Other objects stay as they are.
fn placed(object: Value, options: &Options, platform: Platform) -> Value {
    if object["kind"] != "Deployment" {
        return object;
    }
    let Ok(mut deployment) = serde_json::from_value::<Deployment>(object.clone()) else {
        return object;
    };
    let spec = deployment.spec.as_mut();
    if let Some(pods) = spec.and_then(|spec| spec.template.spec.as_mut()) {
        place(pods, options.scheduler.on_control_plane, platform);
    }
    to_value(&deployment)
}

/// Requires a node of the control plane, or takes any. In a hosted cluster no node is one.
fn place(pods: &mut PodSpec, on_control_plane: bool, platform: Platform) {
    if !on_control_plane {
        pods.affinity = None;
        pods.tolerations = None;
        return;
    }
    if platform == Platform::HyperShift {
        return;
    }
    let term = NodeSelectorTerm {
        match_expressions: Some(vec![NodeSelectorRequirement {
            key: labels::CONTROL_PLANE.to_owned(),
            operator: "Exists".to_owned(),
            values: None,
        }]),
        match_fields: None,
    };
    pods.affinity = Some(Affinity {
        node_affinity: Some(NodeAffinity {
            required_during_scheduling_ignored_during_execution: Some(NodeSelector {
                node_selector_terms: vec![term],
            }),
            ..NodeAffinity::default()
        }),
        ..Affinity::default()
    });
}

fn probe(delay_seconds: Option<i32>) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some("/healthz".to_owned()),
            port: IntOrString::Int(PORT),
            scheme: Some("HTTPS".to_owned()),
            ..HTTPGetAction::default()
        }),
        initial_delay_seconds: delay_seconds,
        ..Probe::default()
    }
}
