//! The exporter's configuration: defaults, files, environment and flags, from weakest to strongest (rte.md 2.5).
//!
//! A dump shows durations in nanoseconds and omits fields that are empty, zero or false, because upstream's test suites expect that.
//!
//! Reading order: this file (all settings with their defaults), `load` (the sources, one after the other), `flags` (which flag sets what) with
//! `go_flags` (a command line by Go's rules), `daemon_file`, `extra_file`, `environment`, `guard` (where files may be), [`glob`] (patterns of
//! pods).

use std::collections::BTreeMap;

use goflags::GoDuration;
use nrt::fingerprint::Method;
use serde::{Serialize, Serializer};

mod daemon_file;
mod environment;
pub(crate) mod extra_file;
mod flags;
pub mod glob;
pub(crate) mod go_flags;
mod guard;
mod load;

pub(crate) use flags::{set_flag, specs};
pub(crate) use load::{Defaults, Error, Sources, load};

/// All settings. The fields are in alphabetical order, so that a dump is sorted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Config {
    /// Settings of the process.
    pub global: Global,
    /// Settings for the published object.
    pub nrt_updater: NrtUpdater,
    /// Settings for reading the node.
    pub resource_monitor: ResourceMonitor,
    /// Settings of the main loop.
    pub topology_exporter: TopologyExporter,
}

/// Settings of the process.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Global {
    /// Log the configuration at each stage.
    #[serde(skip_serializing_if = "is_default")]
    pub debug: bool,
    /// Path of a kubeconfig; empty means the pod's environment.
    #[serde(rename = "kubeConfig", skip_serializing_if = "String::is_empty")]
    pub kubeconfig: String,
    /// Verbosity, as a klog number.
    pub verbose: i32,
}

impl Default for Global {
    fn default() -> Self {
        Self {
            debug: false,
            kubeconfig: String::new(),
            verbose: 2,
        }
    }
}

/// Settings for the published object.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NrtUpdater {
    /// Name of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hostname: String,
    /// Scan, but never write to the API server.
    #[serde(skip_serializing_if = "is_default")]
    pub no_publish: bool,
    /// Publish once and exit.
    #[serde(skip_serializing_if = "is_default")]
    pub one_shot: bool,
    /// Send merge patches instead of whole objects.
    #[serde(skip_serializing_if = "is_default")]
    pub patch_mode: bool,
    /// Read and update the whole object after this many patches; 0 or less: never.
    #[serde(skip_serializing_if = "is_default")]
    pub patch_resync: i64,
}

impl Default for NrtUpdater {
    fn default() -> Self {
        Self {
            hostname: String::new(),
            no_publish: false,
            one_shot: false,
            patch_mode: true,
            patch_resync: 10,
        }
    }
}

/// Settings for reading the node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "one for each switch that users have"
)]
pub struct ResourceMonitor {
    /// Account for every held resource exactly once. Not in the original. See [`Filter::exact`](crate::scan::filter::Filter::exact).
    #[serde(skip_serializing_if = "is_default")]
    pub exact_accounting: bool,
    /// Do not account for pods that have finished.
    #[serde(skip_serializing_if = "is_default")]
    pub exclude_terminal_pods: bool,
    /// Write the two timing annotations.
    #[serde(skip_serializing_if = "is_default")]
    pub expose_timing: bool,
    /// Only account for this namespace; empty means all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Patterns of pods to ignore.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pod_exclude: Vec<PodPattern>,
    /// Publish the fingerprint of the accounted pods.
    #[serde(skip_serializing_if = "is_default")]
    pub pod_set_fingerprint: bool,
    /// Which pods the fingerprint covers.
    #[serde(serialize_with = "method")]
    pub pod_set_fingerprint_method: Method,
    /// File for the fingerprint and its pods after each scan; empty means none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pod_set_fingerprint_status_file: String,
    /// Read the machine again at each scan.
    #[serde(skip_serializing_if = "is_default")]
    pub refresh_node_resources: bool,
    /// Resources that are not published, by node name; `*` stands for every node.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub resource_exclude: BTreeMap<String, Vec<String>>,
    /// Root of the sysfs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sysfs_root: String,
}

impl Default for ResourceMonitor {
    fn default() -> Self {
        Self {
            exact_accounting: false,
            exclude_terminal_pods: false,
            expose_timing: false,
            namespace: String::new(),
            pod_exclude: Vec::new(),
            pod_set_fingerprint: true,
            pod_set_fingerprint_method: Method::WithExclusiveResources,
            pod_set_fingerprint_status_file: String::new(),
            refresh_node_resources: false,
            resource_exclude: BTreeMap::new(),
            sysfs_root: "/sys".to_owned(),
        }
    }
}

/// Selects pods by shell patterns of their namespace and name; both must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodPattern {
    /// Pattern of the name.
    pub name_pattern: String,
    /// Pattern of the namespace.
    pub namespace_pattern: String,
}

/// Settings of the main loop.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "one for each switch that users have"
)]
pub struct TopologyExporter {
    /// Make the Node the owner of the object.
    #[serde(rename = "addNRTOwnerEnable", skip_serializing_if = "is_default")]
    pub add_nrt_owner_enable: bool,
    /// The `KubeletConfiguration` file with the topology manager's settings.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kubelet_config_file: String,
    /// How many notifications per [`time_unit_to_limit_events`](Self::time_unit_to_limit_events) may cause scans; 0 or less: no limit.
    #[serde(skip_serializing_if = "is_default")]
    pub max_event_per_time_unit: i64,
    /// Listen address of the metrics endpoint.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub metrics_address: String,
    /// Serve metrics only to those whom the API server lets read them. Not in the original.
    #[serde(skip_serializing_if = "is_default")]
    pub metrics_auth: bool,
    /// Whether and how metrics are served.
    pub metrics_mode: MetricsMode,
    /// Port of the metrics endpoint.
    #[serde(skip_serializing_if = "is_default")]
    pub metrics_port: i64,
    /// Certificates and TLS limits of the metrics endpoint.
    #[serde(rename = "metricsTLS")]
    pub metrics_tls: MetricsTls,
    /// A file that causes a scan when it is written or touched; empty means none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub notify_file_path: String,
    /// Report in the conditions of the own pod.
    #[serde(skip_serializing_if = "is_default")]
    pub pod_readiness_enable: bool,
    /// Endpoint of the kubelet.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pod_resources_socket_path: String,
    /// A container that runs on the shared CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference_container: Option<ContainerId>,
    /// Time between two scans; 0: scans only after events.
    #[serde(serialize_with = "nanos", skip_serializing_if = "is_default")]
    pub sleep_interval: GoDuration,
    /// See [`max_event_per_time_unit`](Self::max_event_per_time_unit).
    #[serde(serialize_with = "nanos", skip_serializing_if = "is_default")]
    pub time_unit_to_limit_events: GoDuration,
    /// Topology manager policy to publish; empty means unknown.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub topology_manager_policy: String,
    /// Topology manager scope to publish; empty means unknown.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub topology_manager_scope: String,
    /// Maximum number of NUMA nodes that the kubelet's topology manager supports, from the extra file; not part of the daemon's file.
    #[serde(skip)]
    pub topology_manager_max_numa_nodes: Option<u32>,
    /// Settings of the kubelet's other managers, from the extra file; not part of the daemon's file.
    #[serde(skip)]
    pub resource_managers: Option<ResourceManagers>,
    /// Watch this node's pods on the API server, to publish changes at once. Not in the original.
    #[serde(skip_serializing_if = "is_default")]
    pub watch_pods: bool,
}

/// Settings of the kubelet's CPU and memory managers, which a scheduler needs to decide like them. The original does not publish them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceManagers {
    /// Policy of the CPU manager: `none` or `static`; not validated.
    pub cpu: String,
    /// Options of the CPU manager's policy; not validated.
    pub cpu_options: BTreeMap<String, String>,
    /// Policy of the memory manager: `None` or `Static`; not validated.
    pub memory: String,
}

impl ResourceManagers {
    /// The CPU manager option for whole cores.
    const FULL_CORES: &str = "full-pcpus-only";
    /// CPU manager options that do not change in which order CPUs are taken.
    const KEEP_ORDER: [&str; 2] = [Self::FULL_CORES, "strict-cpu-reservation"];

    /// Returns whether containers get only whole cores (`full-pcpus-only`).
    pub fn full_cores(&self) -> bool {
        let given = self.cpu_options.get(Self::FULL_CORES);
        given.is_some_and(|value| goflags::boolean(value) == Some(true))
    }

    /// Returns whether the CPU manager takes the whole cores of a socket in one order, whatever their number (kubelet-node.md 6.4): no
    /// option spreads them or looks at caches. Of options that are unknown here it is not known.
    pub fn packs_cores(&self) -> bool {
        self.cpu == "static"
            && self.cpu_options.iter().all(|(name, value)| {
                Self::KEEP_ORDER.contains(&name.as_str()) || goflags::boolean(value) == Some(false)
            })
    }
}

/// The default of [`TopologyExporter::kubelet_config_file`]. It is a guess: the file need not exist.
pub const DEFAULT_KUBELET_CONFIG_FILE: &str = "/podresources/config.yaml";

impl Default for TopologyExporter {
    fn default() -> Self {
        Self {
            add_nrt_owner_enable: true,
            kubelet_config_file: DEFAULT_KUBELET_CONFIG_FILE.to_owned(),
            max_event_per_time_unit: 1,
            metrics_address: "0.0.0.0".to_owned(),
            metrics_auth: false,
            metrics_mode: MetricsMode::Disabled,
            metrics_port: i64::from(api::metrics::RTE_PORT),
            metrics_tls: MetricsTls::default(),
            notify_file_path: String::new(),
            pod_readiness_enable: true,
            pod_resources_socket_path: "unix:///podresources/kubelet.sock".to_owned(),
            reference_container: None,
            sleep_interval: GoDuration::from_seconds(60),
            time_unit_to_limit_events: GoDuration::from_seconds(1),
            topology_manager_policy: String::new(),
            topology_manager_scope: String::new(),
            topology_manager_max_numa_nodes: None,
            resource_managers: None,
            watch_pods: true,
        }
    }
}

/// Whether and how metrics are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MetricsMode {
    /// No metrics.
    Disabled,
    /// Plain HTTP.
    Http,
    /// HTTPS.
    HttpTls,
}

impl MetricsMode {
    /// Parses a mode in any case. The two blanks in the error text are upstream's.
    fn parse(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "disabled" => Ok(Self::Disabled),
            "http" => Ok(Self::Http),
            "httptls" => Ok(Self::HttpTls),
            _ => Err(format!("unsupported method  \"{text}\"")),
        }
    }
}

/// Certificates and TLS limits of the metrics endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MetricsTls {
    /// File name of the certificate in the directory.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cert_file: String,
    /// Directory of certificate and key.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub certs_dir: String,
    /// Go cipher suite names, separated by commas.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cipher_suites: String,
    /// File name of the key in the directory.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key_file: String,
    /// `VersionTLS10` .. `VersionTLS13`, or empty.
    #[serde(rename = "minTLSVersion", skip_serializing_if = "String::is_empty")]
    pub min_tls_version: String,
    /// Require a client certificate and verify it.
    #[serde(skip_serializing_if = "is_default")]
    pub want_cli_auth: bool,
}

impl Default for MetricsTls {
    fn default() -> Self {
        Self {
            cert_file: "tls.crt".to_owned(),
            certs_dir: "/etc/secrets/rte".to_owned(),
            cipher_suites: String::new(),
            key_file: "tls.key".to_owned(),
            min_tls_version: String::new(),
            want_cli_auth: false,
        }
    }
}

/// Identifies a container by namespace, pod and container name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerId {
    /// The container.
    pub container_name: String,
    /// The namespace.
    pub namespace: String,
    /// The pod.
    pub pod_name: String,
}

impl ContainerId {
    /// Parses `namespace/pod/container`; ignores blanks around the parts. An empty text means none.
    fn parse(text: &str) -> Result<Option<Self>, String> {
        if text.is_empty() {
            return Ok(None);
        }
        let parts: Vec<&str> = text.split('/').map(str::trim).collect();
        let [namespace, pod_name, container_name] = parts[..] else {
            return Err(format!("malformed ident: \"{text}\""));
        };
        Ok(Some(Self {
            container_name: container_name.to_owned(),
            namespace: namespace.to_owned(),
            pod_name: pod_name.to_owned(),
        }))
    }
}

impl Config {
    /// Returns the YAML text that `--dump-config` shows.
    #[expect(
        clippy::missing_panics_doc,
        reason = "plain data can always be written"
    )]
    pub fn dump(&self) -> String {
        serde_yaml::to_string(self).expect("a configuration is plain data")
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields so")]
fn method<S: Serializer>(method: &Method, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(method.as_str())
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields so")]
fn nanos<S: Serializer>(duration: &GoDuration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_i64(duration.as_nanos())
}

#[cfg(test)]
mod tests;
