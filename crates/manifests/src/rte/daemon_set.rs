//! The DaemonSet of one pool.

use api::operator::v1::NodeGroupConfig;
use api::operator::{InfoRefreshMode, InfoRefreshPause, PodsFingerprinting};
use api::{annotations, attributes, conditions, labels, metrics, names};
use goflags::{Flags, GoDuration};
use k8s_openapi::api::apps::v1::{
    DaemonSet, DaemonSetSpec, DaemonSetUpdateStrategy, RollingUpdateDaemonSet,
};
use k8s_openapi::api::core::v1::{
    Affinity, Container, ContainerPort, HTTPGetAction, NodeAffinity, NodeSelector,
    NodeSelectorRequirement, NodeSelectorTerm, PodAffinityTerm, PodAntiAffinity, PodReadinessGate,
    PodSpec, PodTemplateSpec, Probe, SELinuxOptions, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelectorRequirement, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::security::{self, SELINUX_LEVEL, selinux_type};
use super::{NodeSelection, Options, Pool, pod_labels};
use crate::platform::Platform;
use crate::{confinement, meta};

const READ_LOGS_ON_ERROR: &str = "FallbackToLogsOnError";
/// Where the exporter finds the kubelet's file, as in the original's pods.
const KUBELET_CONFIG: &str = "/host-var-lib-kubelet/config.yaml";

pub(super) fn daemon_set(options: &Options, pool: &Pool) -> DaemonSet {
    let (node_selector, node_affinity) = match &pool.nodes {
        NodeSelection::Labels(labels) => (Some(labels.clone()), None),
        NodeSelection::Selector(selector) => (
            selector.match_labels.clone(),
            selector.match_expressions.as_deref().and_then(required),
        ),
        NodeSelection::NotControlPlane => (None, Some(not_control_plane())),
    };
    let volumes = Volumes::of(options, pool);
    let tolerations =
        (!pool.config.tolerations.is_empty()).then(|| pool.config.tolerations.clone());
    let spec = PodSpec {
        affinity: Some(Affinity {
            node_affinity,
            pod_affinity: None,
            pod_anti_affinity: Some(one_per_node()),
        }),
        containers: vec![exporter(options, pool, volumes.mounts), helper(options)],
        node_selector,
        priority_class_name: Some("system-node-critical".into()),
        readiness_gates: Some(
            [
                conditions::POD_RESOURCES_FETCHED,
                conditions::NODE_TOPOLOGY_UPDATED,
            ]
            .map(|condition| PodReadinessGate {
                condition_type: condition.into(),
            })
            .into(),
        ),
        security_context: Some(confinement::of_pod()),
        service_account_name: Some(names::RTE.into()),
        tolerations,
        volumes: Some(volumes.volumes),
        ..PodSpec::default()
    };
    let mut template_annotations =
        meta::labels([(annotations::CONFIG_MAP_HASH, pool.config_hash.as_str())]);
    if options.platform.is_openshift() {
        template_annotations.insert(
            "openshift.io/required-scc".into(),
            if pool.custom_selinux_policy {
                names::RTE_SCC.into()
            } else {
                names::RTE_SCC_V2.into()
            },
        );
    }
    let template_metadata = ObjectMeta {
        labels: Some(pod_labels()),
        annotations: Some(template_annotations),
        ..ObjectMeta::default()
    };
    let rolling_update = RollingUpdateDaemonSet {
        max_unavailable: Some(IntOrString::String("25%".into())),
        max_surge: None,
    };
    DaemonSet {
        metadata: meta::namespaced(&pool.name, &options.namespace),
        spec: Some(DaemonSetSpec {
            selector: meta::selecting(&pod_labels()),
            template: PodTemplateSpec {
                metadata: Some(template_metadata),
                spec: Some(spec),
            },
            update_strategy: Some(DaemonSetUpdateStrategy {
                type_: Some("RollingUpdate".into()),
                rolling_update: Some(rolling_update),
            }),
            ..DaemonSetSpec::default()
        }),
        status: None,
    }
}

fn exporter(options: &Options, pool: &Pool, mounts: Vec<VolumeMount>) -> Container {
    let mut env = vec![
        meta::env_of_field(names::ENV_NODE_NAME, "spec.nodeName"),
        meta::env_of_field("REFERENCE_NAMESPACE", "metadata.namespace"),
        meta::env_of_field("REFERENCE_POD_NAME", "metadata.name"),
        meta::env("REFERENCE_CONTAINER_NAME", names::RTE_HELPER_CONTAINER),
        meta::env("METRICS_PORT", &metrics::RTE_PORT.to_string()),
    ];
    if fingerprints(&pool.config) {
        env.push(meta::env(names::ENV_PFP_STATUS_DUMP, names::PFP_STATUS_DIR));
    }
    let port = ContainerPort {
        name: Some(names::METRICS_PORT_NAME.into()),
        container_port: i32::from(metrics::RTE_PORT),
        ..ContainerPort::default()
    };
    let se_linux_options = options.platform.is_openshift().then(|| SELinuxOptions {
        type_: Some(selinux_type(pool.custom_selinux_policy).into()),
        level: Some(SELINUX_LEVEL.into()),
        ..SELinuxOptions::default()
    });
    Container {
        name: names::RTE_CONTAINER.into(),
        image: Some(options.image.reference.clone()),
        image_pull_policy: options.image.pull_policy.clone(),
        command: Some(vec![names::RTE_BINARY.into()]),
        args: Some(args(options, pool).to_args()),
        env: Some(env),
        ports: Some(vec![port]),
        // that of the original has no such endpoint
        liveness_probe: options.image.is_stack.then(liveness),
        resources: Some(security::memory()),
        security_context: Some(security::of_exporter(
            options.image.is_own,
            se_linux_options,
        )),
        termination_message_policy: Some(READ_LOGS_ON_ERROR.into()),
        volume_mounts: Some(mounts),
        ..Container::default()
    }
}

/// Returns the probe that restarts an exporter which hangs. It is slow to do so: the exporter itself notices a hanging cycle after minutes, and a
/// restart costs more than some silence.
fn liveness() -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some("/livez".into()),
            port: IntOrString::String(names::METRICS_PORT_NAME.into()),
            scheme: Some("HTTPS".into()),
            ..HTTPGetAction::default()
        }),
        initial_delay_seconds: Some(15),
        period_seconds: Some(20),
        timeout_seconds: Some(10),
        failure_threshold: Some(3),
        ..Probe::default()
    }
}

/// Returns a container without work. It runs on the shared CPUs, which the exporter therefore does not count as exclusive. Its program exists
/// in our image and in that of the original, which runs a shell instead: our image has none.
fn helper(options: &Options) -> Container {
    Container {
        name: names::RTE_HELPER_CONTAINER.into(),
        image: Some(options.image.reference.clone()),
        image_pull_policy: options.image.pull_policy.clone(),
        command: Some(vec!["/bin/sleep".into()]),
        args: Some(vec!["infinity".into()]),
        security_context: Some(security::of_helper(options.image.is_own)),
        termination_message_policy: Some(READ_LOGS_ON_ERROR.into()),
        ..Container::default()
    }
}

fn fingerprints(config: &NodeGroupConfig) -> bool {
    config.pods_fingerprinting != Some(PodsFingerprinting::Disabled)
}

/// Returns whether the exporters scan when their notification file is touched.
fn scans_on_notification(config: &NodeGroupConfig) -> bool {
    !matches!(
        config.info_refresh_mode,
        None | Some(InfoRefreshMode::Periodic)
    )
}

/// Returns whether the exporters read the settings of their kubelet from its file: on plain Kubernetes, as long as no ConfigMap has them.
/// The pods of the original have the file always, and with it everything else that the kubelet keeps in its directory.
fn reads_kubelets_file(options: &Options, pool: &Pool) -> bool {
    let lacks_settings = pool.config_hash.is_empty() || pool.config_is_partial;
    options.platform == Platform::Kubernetes && lacks_settings
}

/// Returns the exporter's command line: the flags of all pools, then the edits of operator.md 6.2 in order.
fn args(options: &Options, pool: &Pool) -> Flags {
    let config = &pool.config;
    let mut flags = Flags::parse([
        "--sleep-interval=10s",
        "--sysfs=/host-sys",
        "--podresources-socket=unix:///host-podresources/kubelet.sock",
        "-v=2",
        "--notify-file=/host-run-rte/notify",
        "--pods-fingerprint=false",
    ]);
    if reads_kubelets_file(options, pool) {
        flags.set("--kubelet-config-file", KUBELET_CONFIG);
    }
    flags.set("-v", &options.log_level.verbosity().to_string());
    flags.set("--metrics-mode", "httptls");
    // that of the original ends at a flag that it does not know
    if options.image.is_stack {
        flags.switch_on("--metrics-auth");
    }
    for (name, value) in [
        ("--metrics-tls-min-version", &options.tls.min_version),
        ("--metrics-tls-cipher-suites", &options.tls.cipher_suites),
    ] {
        if value.is_empty() {
            flags.remove(name);
        } else {
            flags.set(name, value);
        }
    }
    if config.info_refresh_pause == Some(InfoRefreshPause::Enabled) {
        flags.switch_on("--no-publish");
    } else {
        flags.remove("--no-publish");
    }
    flags.switch_on("--refresh-node-resources");
    if scans_on_notification(config) {
        flags.set("--notify-file", "/run/rte/notify");
    } else {
        flags.remove("--notify-file");
    }
    // with `Events` the base interval stays as a fallback; it costs nothing while nothing changes
    if config.info_refresh_mode != Some(InfoRefreshMode::Events) {
        flags.set("--sleep-interval", &refresh_period(config));
    }
    match config.pods_fingerprinting {
        Some(PodsFingerprinting::Disabled) => {}
        Some(PodsFingerprinting::Enabled) => {
            flags.switch_on("--pods-fingerprint");
            flags.set("--pods-fingerprint-method", attributes::FINGERPRINT_ALL);
        }
        None | Some(PodsFingerprinting::EnabledExclusiveResources) => {
            flags.switch_on("--pods-fingerprint");
            flags.set(
                "--pods-fingerprint-method",
                attributes::FINGERPRINT_EXCLUSIVE,
            );
        }
    }
    flags.set("--add-nrt-owner", "false");
    flags
}

/// Returns the period in Go's canonical form. An invalid duration is passed to the exporter, which reports the error.
fn refresh_period(config: &NodeGroupConfig) -> String {
    let given = config
        .info_refresh_period
        .as_deref()
        .unwrap_or(api::operator::v1::DEFAULT_REFRESH_PERIOD);
    given
        .parse::<GoDuration>()
        .map_or_else(|_| given.to_owned(), |period| period.to_string())
}

struct Volumes {
    volumes: Vec<Volume>,
    mounts: Vec<VolumeMount>,
}

impl Volumes {
    fn of(options: &Options, pool: &Pool) -> Self {
        let mut all = Self {
            volumes: Vec::new(),
            mounts: Vec::new(),
        };
        let kubernetes = options.platform == Platform::Kubernetes;
        all.add(
            meta::host_path("host-sys", "/sys", "Directory"),
            meta::mount_all_read_only("host-sys", "/host-sys"),
        );
        all.add(
            meta::host_path(
                "host-podresources",
                "/var/lib/kubelet/pod-resources",
                "Directory",
            ),
            // a read-only mount lets the exporter connect to the socket, and not replace it
            meta::mount_read_only("host-podresources", "/host-podresources"),
        );
        all.add(
            meta::host_path("host-run-rte", "/run/rte", "DirectoryOrCreate"),
            meta::mount("host-run-rte", "/host-run-rte"),
        );
        if scans_on_notification(&pool.config) {
            // mounted again at the path in the flag; otherwise no process of the host could touch the file
            all.mounts.push(meta::mount("host-run-rte", "/run/rte"));
        }
        if reads_kubelets_file(options, pool) {
            all.add(
                meta::host_path(
                    "host-kubelet-config",
                    "/var/lib/kubelet/config.yaml",
                    "File",
                ),
                meta::mount_read_only("host-kubelet-config", KUBELET_CONFIG),
            );
        }
        if fingerprints(&pool.config) {
            all.add(
                meta::memory_dir("run-pfpstatus", "8Mi"),
                meta::mount("run-pfpstatus", names::PFP_STATUS_DIR),
            );
        }
        // optional on plain Kubernetes, where nothing creates this secret; without it the exporter generates a self-signed certificate
        all.add(
            meta::secret(
                names::RTE_METRICS_SECRET,
                names::RTE_METRICS_SECRET,
                kubernetes,
            ),
            meta::mount_read_only(names::RTE_METRICS_SECRET, "/etc/secrets/rte/"),
        );
        all.add(
            meta::config_map("rte-config-volume", &pool.name, true),
            meta::mount_read_only("rte-config-volume", "/etc/resource-topology-exporter/"),
        );
        all
    }

    fn add(&mut self, volume: Volume, mount: VolumeMount) {
        self.volumes.push(volume);
        self.mounts.push(mount);
    }
}

fn not_control_plane() -> NodeAffinity {
    required_on(vec![NodeSelectorRequirement {
        key: labels::CONTROL_PLANE.into(),
        operator: "DoesNotExist".into(),
        values: None,
    }])
}

/// Requires nodes to match all expressions of a label selector; `None` if there are no expressions.
fn required(expressions: &[LabelSelectorRequirement]) -> Option<NodeAffinity> {
    let requirements = expressions
        .iter()
        .map(|expression| NodeSelectorRequirement {
            key: expression.key.clone(),
            operator: expression.operator.clone(),
            values: expression.values.clone(),
        });
    (!expressions.is_empty()).then(|| required_on(requirements.collect()))
}

fn required_on(requirements: Vec<NodeSelectorRequirement>) -> NodeAffinity {
    let term = NodeSelectorTerm {
        match_expressions: Some(requirements),
        match_fields: None,
    };
    NodeAffinity {
        required_during_scheduling_ignored_during_execution: Some(NodeSelector {
            node_selector_terms: vec![term],
        }),
        preferred_during_scheduling_ignored_during_execution: None,
    }
}

fn one_per_node() -> PodAntiAffinity {
    let term = PodAffinityTerm {
        label_selector: Some(meta::selecting(&pod_labels())),
        topology_key: labels::HOSTNAME.into(),
        ..PodAffinityTerm::default()
    };
    PodAntiAffinity {
        required_during_scheduling_ignored_during_execution: Some(vec![term]),
        preferred_during_scheduling_ignored_during_execution: None,
    }
}
