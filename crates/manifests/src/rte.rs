//! The exporters: a DaemonSet for each pool, and the objects that all pools share (operator.md 6.2, 6.3).

use std::collections::BTreeMap;

use api::operator::LogLevel;
use api::operator::v1::NodeGroupConfig;
use api::{labels, metrics, names, nrt};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Service, ServiceAccount, ServicePort, ServiceSpec};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;

use crate::platform::{Platform, TlsSettings};
use crate::{meta, network, rbac, to_value};

mod admission;
pub mod config_map;
mod daemon_set;
pub mod machine_config;
mod security;
mod selinux;
pub mod standalone;

/// Inputs that all pools share.
#[derive(Clone, Debug)]
pub struct Options {
    /// Namespace of every namespaced object.
    pub namespace: String,
    /// Kind of cluster.
    pub platform: Platform,
    /// Image of the exporter.
    pub image: Image,
    /// Verbosity.
    pub log_level: LogLevel,
    /// TLS settings of the metrics endpoint.
    pub tls: TlsSettings,
    /// TCP ports of the API server.
    pub api_server_ports: Vec<u16>,
    /// Whether the API server knows admission policies (`admissionregistration.k8s.io/v1`, from Kubernetes 1.30 on).
    pub has_admission_policies: bool,
}

impl Options {
    /// Returns the options for an image with the exporter's and the operator's binary, as `-render` prints it (operator.md 2.4).
    pub fn new(namespace: &str, platform: Platform, image: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            platform,
            image: Image {
                reference: image.to_owned(),
                pull_policy: None,
                is_own: true,
                is_stack: true,
            },
            log_level: LogLevel::Normal,
            tls: TlsSettings::default(),
            api_server_ports: vec![6443],
            has_admission_policies: true,
        }
    }
}

/// Where the exporter's binary comes from (operator.md 2.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Reference of the image.
    pub reference: String,
    /// Pull policy; the cluster's default when absent.
    pub pull_policy: Option<String>,
    /// Whether it is the one that the operator takes by itself. That has a non-root user, so the container must set root explicitly. For an
    /// image that the resource names, the container sets no user.
    pub is_own: bool,
    /// Whether its exporter is known to be ours, which serves `/livez`, and metrics to authorized users only. Another one may be the
    /// original's, so its container has no probe, and no flag that the original's exporter does not know.
    pub is_stack: bool,
}

/// Returns whether a reference names the image of the stack, in whatever registry: `cargo xtask image --push` keeps the last two parts of the
/// repository's name.
pub fn is_stack(reference: &str) -> bool {
    let (_, ours) = names::STACK_REPOSITORY.split_once('/').unwrap_or_default();
    let without_digest = reference.split('@').next().unwrap_or_default();
    let repository = match without_digest.rsplit_once(':') {
        // a port of the registry is no tag
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => without_digest,
    };
    repository
        .strip_suffix(ours)
        .is_some_and(|registry| registry.is_empty() || registry.ends_with('/'))
}

/// One pool of nodes.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Name of the DaemonSet, and of the ConfigMap that its pods read.
    pub name: String,
    /// The nodes that run the DaemonSet.
    pub nodes: NodeSelection,
    /// Effective configuration: every option is set.
    pub config: NodeGroupConfig,
    /// Hash of the ConfigMap, empty when there is none.
    pub config_hash: String,
    /// Whether the ConfigMap may lack the settings of the kubelets, because an administrator wrote it. Then the exporters of plain Kubernetes
    /// read the kubelet's file, too.
    pub config_is_partial: bool,
    /// Whether the pods use the legacy SELinux policy, which a machine configuration installs (OpenShift only).
    pub custom_selinux_policy: bool,
}

/// Selects the nodes of a pool.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeSelection {
    /// Nodes with all of these labels.
    Labels(BTreeMap<String, String>),
    /// Nodes that a machine config pool selects.
    Selector(LabelSelector),
    /// Nodes without the control plane's role.
    NotControlPlane,
}

/// All objects of the exporters.
#[derive(Clone, Debug)]
pub struct Set {
    /// Identity of the pods.
    pub service_account: ServiceAccount,
    /// Permissions on the exporter's own pod, for its readiness conditions.
    pub role: Role,
    /// Binds [`Self::role`].
    pub role_binding: RoleBinding,
    /// Permissions on topologies, nodes and pods.
    pub cluster_role: ClusterRole,
    /// Binds [`Self::cluster_role`].
    pub cluster_role_binding: ClusterRoleBinding,
    /// Lets each exporter write of its own node and pod only; `None` where the API server does not know such policies.
    pub own_node: Option<(ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding)>,
    /// The connections that the pods may open and accept.
    pub network_policies: Vec<NetworkPolicy>,
    /// Permissions of the pods on their nodes: with the legacy SELinux policy, then without it. Empty unless on OpenShift.
    pub security_context_constraints: Vec<Value>,
    /// One for each pool, in the order of the pools.
    pub daemon_sets: Vec<DaemonSet>,
    /// Service of the metrics endpoints.
    pub service: Service,
}

impl Set {
    /// Builds the objects for these pools.
    pub fn new(options: &Options, pools: &[Pool]) -> Self {
        let pods = pod_labels();
        let namespace = options.namespace.as_str();
        Self {
            service_account: rbac::service_account(names::RTE, namespace),
            role: rbac::role(names::RTE, namespace, role_rules()),
            role_binding: rbac::role_binding(names::RTE, names::RTE, namespace),
            cluster_role: rbac::cluster_role(names::RTE, cluster_role_rules()),
            cluster_role_binding: rbac::cluster_role_binding(names::RTE, names::RTE, namespace),
            own_node: options
                .has_admission_policies
                .then(|| (admission::policy(namespace), admission::binding())),
            network_policies: vec![
                network::egress(
                    "rte-egress-to-api-server",
                    namespace,
                    &pods,
                    &options.api_server_ports,
                ),
                network::ingress(
                    "ingress-to-rte-metrics",
                    namespace,
                    &pods,
                    metrics::RTE_PORT,
                ),
                network::deny_all("rte-default-deny-all", namespace, &pods),
            ],
            security_context_constraints: if options.platform.is_openshift() {
                security::constraints(namespace).into()
            } else {
                Vec::new()
            },
            daemon_sets: pools
                .iter()
                .map(|pool| daemon_set::daemon_set(options, pool))
                .collect(),
            service: metrics_service(options),
        }
    }

    /// Returns the objects in the order in which they are applied (operator.md 4.5).
    pub fn objects(&self) -> Vec<Value> {
        let mut objects = vec![
            to_value(&self.service_account),
            to_value(&self.role),
            to_value(&self.role_binding),
            to_value(&self.cluster_role),
            to_value(&self.cluster_role_binding),
        ];
        if let Some((policy, binding)) = &self.own_node {
            objects.extend([to_value(policy), to_value(binding)]);
        }
        objects.extend(self.network_policies.iter().map(to_value));
        objects.extend(self.security_context_constraints.iter().cloned());
        objects.extend(self.daemon_sets.iter().map(to_value));
        objects.push(to_value(&self.service));
        objects
    }
}

/// Returns the labels of every exporter pod, which are the same for all pools.
pub fn pod_labels() -> BTreeMap<String, String> {
    meta::labels([(labels::RTE_POD, labels::RTE_POD_VALUE)])
}

/// Returns the cluster-wide permissions. The original's role lacks `patch`, so the API server refuses all its patches (rte.md 10, point 1), and what is
/// needed to ask who reads the metrics, which the original shows to everybody.
pub fn cluster_role_rules() -> Vec<PolicyRule> {
    let [tokens, access] = rbac::reviews();
    vec![
        rbac::rule(
            &[nrt::GROUP],
            &[nrt::PLURAL],
            &["create", "update", "patch", "get", "list"],
        ),
        rbac::rule(&[""], &["nodes"], &["watch", "list"]),
        // each exporter watches the pods of its own node, to publish changes of their resources at once
        rbac::rule(&[""], &["pods"], &["watch"]),
        tokens,
        access,
    ]
}

/// Returns the permissions in the exporters' namespace.
pub fn role_rules() -> Vec<PolicyRule> {
    vec![
        rbac::rule(&[""], &["pods"], &["get"]),
        rbac::rule(&[""], &["pods/status"], &["update"]),
    ]
}

fn metrics_service(options: &Options) -> Service {
    let mut metadata = meta::namespaced(names::RTE_METRICS_SERVICE, &options.namespace);
    metadata.labels = Some(pod_labels());
    // has no effect in a cluster without a service CA
    metadata.annotations = Some(meta::labels([(
        "service.beta.openshift.io/serving-cert-secret-name",
        names::RTE_METRICS_SECRET,
    )]));
    let port = ServicePort {
        name: Some(names::METRICS_PORT_NAME.into()),
        port: i32::from(metrics::RTE_PORT),
        protocol: Some("TCP".into()),
        target_port: Some(IntOrString::String(names::METRICS_PORT_NAME.into())),
        ..ServicePort::default()
    };
    Service {
        metadata,
        spec: Some(ServiceSpec {
            ports: Some(vec![port]),
            selector: Some(pod_labels()),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}
