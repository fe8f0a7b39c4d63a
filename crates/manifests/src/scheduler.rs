//! The secondary scheduler: configuration, Deployment and permissions (operator.md 6.4, 6.5, 6.6).

use std::collections::BTreeMap;

use api::operator::LogLevel;
use api::{annotations, labels, names};
use k8s_openapi::api::apps::v1::{
    Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment,
};
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, HTTPGetAction, PodSpec, PodTemplateSpec, Probe, ResourceRequirements,
    ServiceAccount, TopologySpreadConstraint,
};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;

use crate::control_plane::{management_workload, prefers_control_plane, tolerates_control_plane};
use crate::platform::{Platform, TlsSettings};
use crate::{confinement, hash, meta, network, rbac, to_value};

pub mod config;
pub mod rules;

/// TCP port of health and metrics, the default of kube-scheduler.
const SECURE_PORT: i32 = 10259;

/// Inputs for the scheduler's objects.
#[derive(Clone, Debug)]
pub struct Options {
    /// Namespace of every namespaced object.
    pub namespace: String,
    /// Kind of cluster.
    pub platform: Platform,
    /// Image of the scheduler.
    pub image: String,
    /// Number of pods.
    pub replicas: i32,
    /// Verbosity.
    pub log_level: LogLevel,
    /// TLS settings of the scheduler's endpoint.
    pub tls: TlsSettings,
    /// Whether the topology cache dumps its state into a directory of the pod.
    pub dump_cache: bool,
    /// Whether requests equal limits, for the Guaranteed QoS class.
    pub guaranteed: bool,
    /// TCP ports of the API server.
    pub api_server_ports: Vec<u16>,
    /// Settings in the scheduler's configuration file.
    pub config: config::Settings,
}

impl Options {
    /// Returns the options of one pod without settings of its own, as `-render` prints it (operator.md 2.4).
    pub fn new(namespace: &str, platform: Platform, image: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            platform,
            image: image.to_owned(),
            replicas: 1,
            log_level: LogLevel::Normal,
            tls: TlsSettings::default(),
            dump_cache: true,
            guaranteed: false,
            api_server_ports: vec![6443],
            config: config::Settings::new(namespace),
        }
    }
}

/// Names of the scheduler's objects. The default is what the operator calls them (operator.md 6.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// ServiceAccount, Deployment and container.
    pub scheduler: String,
    /// ConfigMap with the configuration.
    pub config_map: String,
    /// Key of the configuration, which is the name of its file in the pods, too.
    pub config_key: String,
    /// ClusterRole and ClusterRoleBinding.
    pub cluster_role: String,
    /// Role and RoleBinding of the leader election.
    pub leader_role: String,
    /// Lease of the leader election.
    pub lease: String,
    /// What the names of the network policies begin with.
    pub network_policies: String,
    /// Key and value of the label that selects the pods.
    pub pod_label: (String, String),
}

impl Default for Names {
    fn default() -> Self {
        Self {
            scheduler: names::SCHEDULER.into(),
            config_map: names::SCHEDULER_CONFIG_MAP.into(),
            config_key: names::CONFIG_KEY.into(),
            cluster_role: names::SCHEDULER_CLUSTER_ROLE.into(),
            leader_role: names::SCHEDULER_LEADER_ROLE.into(),
            lease: names::SCHEDULER_LEASE.into(),
            network_policies: "scheduler".into(),
            pod_label: (labels::APP.into(), names::SCHEDULER.into()),
        }
    }
}

impl Names {
    /// Returns the labels of every scheduler pod.
    pub fn pod_labels(&self) -> BTreeMap<String, String> {
        let (key, value) = &self.pod_label;
        meta::labels([(key.as_str(), value.as_str())])
    }
}

/// All objects of the scheduler.
#[derive(Clone, Debug)]
pub struct Set {
    /// Identity of the pods.
    pub service_account: ServiceAccount,
    /// The `KubeSchedulerConfiguration`.
    pub config_map: ConfigMap,
    /// Permissions for everything that a scheduler reads and writes.
    pub cluster_role: ClusterRole,
    /// Binds [`Self::cluster_role`].
    pub cluster_role_binding: ClusterRoleBinding,
    /// Permissions for leader election.
    pub role: Role,
    /// Binds [`Self::role`].
    pub role_binding: RoleBinding,
    /// The pods.
    pub deployment: Deployment,
    /// The connections that the pods may open; incoming connections are denied.
    pub network_policies: Vec<NetworkPolicy>,
}

impl Set {
    /// Builds the objects of the operator. Fails only if the built-in configuration lacks the profile to edit.
    pub fn new(options: &Options) -> Result<Self, config::Error> {
        let config = config::render(&options.config)?;
        Ok(Self::with_config(options, &Names::default(), config))
    }

    /// Builds the objects with these names and this text of the configuration; `config` of the options has no effect.
    pub fn with_config(options: &Options, names: &Names, config: String) -> Self {
        let namespace = options.namespace.as_str();
        let config_map = ConfigMap {
            metadata: meta::namespaced(&names.config_map, namespace),
            data: Some([(names.config_key.clone(), config)].into()),
            ..ConfigMap::default()
        };
        let deployment = deployment(options, names, &hash::config_map(&config_map));
        let pods = names.pod_labels();
        let policy = |name: &str| format!("{}-{name}", names.network_policies);
        Self {
            service_account: rbac::service_account(&names.scheduler, namespace),
            config_map,
            cluster_role: rbac::cluster_role(
                &names.cluster_role,
                rules::cluster_role(&names.lease),
            ),
            cluster_role_binding: rbac::cluster_role_binding(
                &names.cluster_role,
                &names.scheduler,
                namespace,
            ),
            role: rbac::role(
                &names.leader_role,
                namespace,
                rules::leader_role(&names.lease),
            ),
            role_binding: rbac::role_binding(&names.leader_role, &names.scheduler, namespace),
            deployment,
            network_policies: vec![
                network::deny_all(&policy("default-deny-all"), namespace, &pods),
                network::egress(
                    &policy("egress-to-api-server"),
                    namespace,
                    &pods,
                    &options.api_server_ports,
                ),
            ],
        }
    }

    /// Returns the objects in the order in which they are applied (operator.md 5.3).
    pub fn objects(&self) -> Vec<Value> {
        let mut objects = vec![
            to_value(&self.service_account),
            to_value(&self.config_map),
            to_value(&self.cluster_role),
            to_value(&self.cluster_role_binding),
            to_value(&self.role),
            to_value(&self.role_binding),
            to_value(&self.deployment),
        ];
        objects.extend(self.network_policies.iter().map(to_value));
        objects
    }
}

fn deployment(options: &Options, names: &Names, config_hash: &str) -> Deployment {
    let pods = names.pod_labels();
    let template_annotations = meta::labels([
        management_workload(),
        (annotations::CONFIG_MAP_HASH, config_hash),
    ]);
    let spread = TopologySpreadConstraint {
        max_skew: 1,
        topology_key: labels::HOSTNAME.into(),
        when_unsatisfiable: "DoNotSchedule".into(),
        label_selector: Some(meta::selecting(&pods)),
        match_label_keys: Some(vec!["pod-template-hash".into()]),
        ..TopologySpreadConstraint::default()
    };
    let spec = PodSpec {
        affinity: Some(prefers_control_plane()),
        containers: vec![container(options, names)],
        priority_class_name: Some("system-node-critical".into()),
        security_context: Some(confinement::of_unprivileged_pod(options.platform)),
        service_account_name: Some(names.scheduler.clone()),
        tolerations: Some(tolerates_control_plane()),
        topology_spread_constraints: Some(vec![spread]),
        volumes: Some(vec![
            meta::config_map("etckubernetes", &names.config_map, false),
            meta::memory_dir("runpfpstatus", "64Mi"),
        ]),
        ..PodSpec::default()
    };
    let mut metadata = meta::namespaced(&names.scheduler, &options.namespace);
    metadata.labels = Some(pods.clone());
    let template_metadata = ObjectMeta {
        labels: Some(pods.clone()),
        annotations: Some(template_annotations),
        ..ObjectMeta::default()
    };
    Deployment {
        metadata,
        spec: Some(DeploymentSpec {
            replicas: Some(options.replicas),
            selector: meta::selecting(&pods),
            strategy: Some(stop_old_before_new()),
            template: PodTemplateSpec {
                metadata: Some(template_metadata),
                spec: Some(spec),
            },
            ..DeploymentSpec::default()
        }),
        status: None,
    }
}

/// Returns a strategy that stops the old pods before it starts new ones. Without a lease two schedulers do not know of each other and would
/// place pods into the same zones. `Recreate` has the same effect, but the API server refuses it for an object that already has limits of a
/// rolling update.
fn stop_old_before_new() -> DeploymentStrategy {
    DeploymentStrategy {
        type_: Some("RollingUpdate".into()),
        rolling_update: Some(RollingUpdateDeployment {
            max_surge: Some(IntOrString::Int(0)),
            max_unavailable: Some(IntOrString::String("100%".into())),
        }),
    }
}

/// Returns a probe of the scheduler's health, as upstream's sample manifest has it (scheduler.md 1.4).
fn health() -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some("/healthz".into()),
            port: IntOrString::Int(SECURE_PORT),
            scheme: Some("HTTPS".into()),
            ..HTTPGetAction::default()
        }),
        ..Probe::default()
    }
}

fn container(options: &Options, names: &Names) -> Container {
    let requests = if options.guaranteed {
        meta::quantities([("cpu", "600m"), ("memory", "1200Mi")])
    } else {
        meta::quantities([("cpu", "150m"), ("memory", "500Mi")])
    };
    let limits = options.guaranteed.then(|| requests.clone());
    let mut env = vec![meta::env_of_field(names::ENV_POD_UID, "metadata.uid")];
    if options.dump_cache {
        env.push(meta::env(names::ENV_PFP_STATUS_DUMP, names::PFP_STATUS_DIR));
    }
    let args = vec![
        format!("--config=/etc/kubernetes/{}", names.config_key),
        format!("-v={}", options.log_level.verbosity()),
        format!("--tls-min-version={}", options.tls.min_version),
        format!("--tls-cipher-suites={}", options.tls.cipher_suites),
    ];
    Container {
        name: names.scheduler.clone(),
        image: Some(options.image.clone()),
        command: Some(vec![names::SCHEDULER_BINARY.into()]),
        args: Some(args),
        liveness_probe: Some(Probe {
            initial_delay_seconds: Some(15),
            period_seconds: Some(10),
            timeout_seconds: Some(5),
            failure_threshold: Some(3),
            ..health()
        }),
        readiness_probe: Some(Probe {
            // whoever waits for the scheduler waits for this
            period_seconds: Some(1),
            timeout_seconds: Some(5),
            ..health()
        }),
        env: Some(env),
        resources: Some(ResourceRequirements {
            requests: Some(requests),
            limits,
            claims: None,
        }),
        security_context: Some(confinement::of_container()),
        volume_mounts: Some(vec![
            meta::mount_read_only("etckubernetes", "/etc/kubernetes"),
            meta::mount("runpfpstatus", names::PFP_STATUS_DIR),
        ]),
        ..Container::default()
    }
}
