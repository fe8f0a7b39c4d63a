//! The operator's own installation (operator.md 6.7).

use std::collections::BTreeMap;

use api::{labels, names};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EnvVar, ExecAction, HTTPGetAction, Lifecycle, LifecycleHandler,
    Namespace, PodSpec, PodTemplateSpec, Probe, ResourceRequirements, Service, ServiceAccount,
    ServicePort, ServiceSpec,
};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;

use crate::control_plane::{management_workload, prefers_control_plane, tolerates_control_plane};
use crate::platform::Platform;
use crate::{confinement, meta, network, rbac, to_value};

pub mod monitoring;
pub mod rules;
pub mod users;

/// Name of the operator's ClusterRole and Role.
const ROLE: &str = "numaresources-manager-role";
const LEADER_ROLE: &str = "numaresources-leader-election-role";
/// Names of the bindings of [`ROLE`] and [`LEADER_ROLE`]. They are the original's, so that an installation over it leaves no second binding.
const BINDING: &str = "numaresources-manager-rolebinding";
const LEADER_BINDING: &str = "numaresources-leader-election-rolebinding";
/// Name of the ClusterRole for the settings of kubelets, and of its binding.
const KUBELET_ROLE: &str = "numaresources-kubelet-reader-role";
const KUBELET_BINDING: &str = "numaresources-kubelet-reader-rolebinding";
/// Name of the volume with the certificate of the metrics. A name of our own would be a second volume at the same place when an installation
/// of the original is updated.
const CERTIFICATE: &str = "metrics-tls";
const METRICS_SECRET: &str = "metrics-service-cert";
const METRICS_SERVICE: &str = "numaresources-controller-manager-metrics-service";
/// TCP port of the metrics.
const METRICS_PORT: u16 = 8080;

/// Inputs for the operator's objects.
#[derive(Clone, Debug)]
pub struct Options {
    /// Namespace of the operator and of its operands.
    pub namespace: String,
    /// Kind of cluster.
    pub platform: Platform,
    /// Image of the operator, and of the exporters that it installs.
    pub image: String,
    /// Additional environment variables, such as `SCHEDULER_IMAGE_DIGESTS`.
    pub env: BTreeMap<String, String>,
    /// Additional arguments.
    pub args: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            namespace: names::NAMESPACE.into(),
            platform: Platform::Kubernetes,
            image: names::STACK_IMAGE.into(),
            env: BTreeMap::new(),
            args: Vec::new(),
        }
    }
}

/// All objects of the installation, without the definitions of the custom resources (`api::crd`).
#[derive(Clone, Debug)]
pub struct Set {
    /// Namespace of all objects.
    pub namespace: Namespace,
    /// Identity of the operator.
    pub service_account: ServiceAccount,
    /// Cluster-wide permissions.
    pub cluster_role: ClusterRole,
    /// Binds [`Self::cluster_role`].
    pub cluster_role_binding: ClusterRoleBinding,
    /// Permission to ask kubelets for their settings, and its binding; only on plain Kubernetes, where nothing else tells them.
    pub kubelet_reader: Option<(ClusterRole, ClusterRoleBinding)>,
    /// Permissions in the namespace, then permissions for leader election.
    pub roles: [Role; 2],
    /// Bind [`Self::roles`].
    pub role_bindings: [RoleBinding; 2],
    /// Service of the metrics endpoint.
    pub service: Service,
    /// The operator's pods.
    pub deployment: Deployment,
}

impl Set {
    /// Builds the objects.
    pub fn new(options: &Options) -> Self {
        let namespace = options.namespace.as_str();
        let account = names::OPERATOR_SERVICE_ACCOUNT;
        Self {
            namespace: Namespace {
                metadata: namespace_metadata(namespace),
                ..Namespace::default()
            },
            service_account: rbac::service_account(account, namespace),
            cluster_role: rbac::cluster_role(ROLE, rules::cluster_role(options.platform)),
            cluster_role_binding: rbac::named(
                BINDING,
                rbac::cluster_role_binding(ROLE, account, namespace),
            ),
            kubelet_reader: (options.platform == Platform::Kubernetes).then(|| {
                let binding = rbac::cluster_role_binding(KUBELET_ROLE, account, namespace);
                (
                    rbac::cluster_role(KUBELET_ROLE, rules::kubelet_reader()),
                    rbac::named(KUBELET_BINDING, binding),
                )
            }),
            roles: [
                rbac::role(ROLE, namespace, rules::role()),
                rbac::role(LEADER_ROLE, namespace, rules::leader_role()),
            ],
            role_bindings: [
                rbac::named(BINDING, rbac::role_binding(ROLE, account, namespace)),
                rbac::named(
                    LEADER_BINDING,
                    rbac::role_binding(LEADER_ROLE, account, namespace),
                ),
            ],
            service: service(namespace),
            deployment: deployment(options),
        }
    }

    /// Returns the objects in the order in which they are applied.
    pub fn objects(&self) -> Vec<Value> {
        let mut objects = vec![
            to_value(&self.namespace),
            to_value(&self.service_account),
            to_value(&self.cluster_role),
            to_value(&self.cluster_role_binding),
        ];
        if let Some((role, binding)) = &self.kubelet_reader {
            objects.extend([to_value(role), to_value(binding)]);
        }
        objects.extend(self.roles.iter().map(to_value));
        objects.extend(self.role_bindings.iter().map(to_value));
        objects.push(to_value(&self.service));
        objects.push(to_value(&self.deployment));
        objects
    }
}

/// Returns optional network policies for the operator's pod: it may reach only the API server, and only its metrics port may be reached.
pub fn network_policies(namespace: &str, api_server_ports: &[u16]) -> [NetworkPolicy; 3] {
    let pods = pod_labels();
    [
        network::deny_all("operator-default-deny-all", namespace, &pods),
        network::egress(
            "operator-egress-to-api-server",
            namespace,
            &pods,
            api_server_ports,
        ),
        network::ingress(
            "ingress-to-operator-metrics",
            namespace,
            &pods,
            METRICS_PORT,
        ),
    ]
}

fn pod_labels() -> BTreeMap<String, String> {
    meta::labels([
        (labels::APP, "numaresources-operator"),
        ("control-plane", "controller-manager"),
    ])
}

/// Returns the labels by which the Deployment knows its pods. A selector never changes, so it is the original's, which has fewer labels than
/// the pods (operator.md 6.7).
fn selected_labels() -> BTreeMap<String, String> {
    meta::labels([("control-plane", "controller-manager")])
}

fn namespace_metadata(name: &str) -> ObjectMeta {
    ObjectMeta {
        annotations: Some(meta::labels([(
            "workload.openshift.io/allowed",
            "management",
        )])),
        labels: Some(meta::labels([
            ("openshift.io/cluster-monitoring", "true"),
            ("control-plane", "controller-manager"),
            // the exporters have directories of their nodes; where a stricter level is the default, their pods would be refused
            ("pod-security.kubernetes.io/enforce", "privileged"),
        ])),
        ..meta::cluster_wide(name)
    }
}

fn service(namespace: &str) -> Service {
    let metadata = ObjectMeta {
        annotations: Some(meta::labels([(
            "service.beta.openshift.io/serving-cert-secret-name",
            METRICS_SECRET,
        )])),
        labels: Some(meta::labels([("control-plane", "controller-manager")])),
        ..meta::namespaced(METRICS_SERVICE, namespace)
    };
    let port = ServicePort {
        name: Some("https".into()),
        port: i32::from(METRICS_PORT),
        protocol: Some("TCP".into()),
        target_port: Some(IntOrString::String("https".into())),
        ..ServicePort::default()
    };
    let selector = Some(selected_labels());
    Service {
        metadata,
        spec: Some(ServiceSpec {
            ports: Some(vec![port]),
            selector,
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

fn deployment(options: &Options) -> Deployment {
    let pods = pod_labels();
    let spec = PodSpec {
        affinity: Some(prefers_control_plane()),
        containers: vec![manager(options)],
        security_context: Some(confinement::of_unprivileged_pod(options.platform)),
        service_account_name: Some(names::OPERATOR_SERVICE_ACCOUNT.into()),
        termination_grace_period_seconds: Some(10),
        tolerations: Some(tolerates_control_plane()),
        // only OpenShift creates this secret; without it the operator generates a self-signed certificate
        volumes: Some(vec![meta::secret(CERTIFICATE, METRICS_SECRET, true)]),
        ..PodSpec::default()
    };
    let template_metadata = ObjectMeta {
        labels: Some(pods.clone()),
        annotations: Some(meta::labels([management_workload()])),
        ..ObjectMeta::default()
    };
    let mut metadata = meta::namespaced(names::OPERATOR_DEPLOYMENT, &options.namespace);
    metadata.labels = Some(pods.clone());
    Deployment {
        metadata,
        spec: Some(DeploymentSpec {
            replicas: Some(1),
            selector: meta::selecting(&selected_labels()),
            template: PodTemplateSpec {
                metadata: Some(template_metadata),
                spec: Some(spec),
            },
            ..DeploymentSpec::default()
        }),
        status: None,
    }
}

fn manager(options: &Options) -> Container {
    let mut env: Vec<EnvVar> = vec![
        meta::env_of_field("PODNAME", "metadata.name"),
        meta::env_of_field("NAMESPACE", "metadata.namespace"),
    ];
    env.extend(
        options
            .env
            .iter()
            .map(|(name, value)| meta::env(name, value)),
    );
    let mut args = vec!["-v=4".to_owned(), "-metrics-auth".to_owned()];
    args.extend(options.args.iter().cloned());
    let hook = |event: &str| LifecycleHandler {
        exec: Some(ExecAction {
            command: Some(vec![
                names::OPERATOR_BINARY.into(),
                "-handle-lifecycle-event".into(),
                event.into(),
            ]),
        }),
        ..LifecycleHandler::default()
    };
    Container {
        name: "manager".into(),
        image: Some(options.image.clone()),
        command: Some(vec![names::OPERATOR_BINARY.into()]),
        args: Some(args),
        env: Some(env),
        lifecycle: Some(Lifecycle {
            post_start: Some(hook("postStart")),
            pre_stop: Some(hook("preStop")),
            stop_signal: None,
        }),
        liveness_probe: Some(Probe {
            period_seconds: Some(10),
            ..probe("/healthz")
        }),
        readiness_probe: Some(Probe {
            initial_delay_seconds: Some(5),
            period_seconds: Some(10),
            ..probe("/readyz")
        }),
        startup_probe: Some(Probe {
            failure_threshold: Some(3),
            period_seconds: Some(10),
            ..probe("/healthz")
        }),
        ports: Some(vec![ContainerPort {
            name: Some("https".into()),
            container_port: i32::from(METRICS_PORT),
            ..ContainerPort::default()
        }]),
        resources: Some(ResourceRequirements {
            requests: Some(meta::quantities([("cpu", "100m"), ("memory", "20Mi")])),
            ..ResourceRequirements::default()
        }),
        security_context: Some(confinement::of_container()),
        termination_message_policy: Some("FallbackToLogsOnError".into()),
        volume_mounts: Some(vec![meta::mount_read_only(CERTIFICATE, "/certs")]),
        ..Container::default()
    }
}

fn probe(path: &str) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.into()),
            port: IntOrString::Int(8081),
            ..HTTPGetAction::default()
        }),
        ..Probe::default()
    }
}
