//! The flags of rte.md 2.2 and the settings that they change.

use super::go_flags::{Error, Kind, Spec, boolean, duration, number};
use super::{Config, ContainerId, MetricsMode};

const fn switch(name: &'static str, usage: &'static str) -> Spec {
    Spec {
        name,
        kind: Kind::Bool,
        usage,
    }
}

const fn value(name: &'static str, usage: &'static str) -> Spec {
    Spec {
        name,
        kind: Kind::Value,
        usage,
    }
}

/// All flags. The flags of klog without an effect are accepted, so that command lines of the original work.
pub(crate) const SPECS: &[Spec] = &[
    value(
        "config",
        "file with excludes and topology manager settings; not used when a configuration root is given (default /etc/resource-topology-exporter/config.yaml)",
    ),
    switch("debug", "log the configuration at each stage"),
    value(
        "kubeconfig",
        "path of a kubeconfig (default: the pod's environment)",
    ),
    switch("no-publish", "scan, but never write to the API server"),
    switch("oneshot", "publish once and exit"),
    value(
        "hostname",
        "name of the object to write (default: NODE_NAME, or the host's name)",
    ),
    switch(
        "patch-mode",
        "send merge patches instead of whole objects (default true)",
    ),
    value(
        "patch-resync",
        "read and update the whole object after so many patches, 0 or less for never (default 10)",
    ),
    value(
        "watch-namespace",
        "only account for pods of this namespace (default: all)",
    ),
    value("sysfs", "root of the sysfs to read (default /sys)"),
    switch(
        "refresh-node-resources",
        "follow changes of the node's capacity",
    ),
    switch(
        "pods-fingerprint",
        "publish the fingerprint of the pods that were accounted for (default true)",
    ),
    value(
        "pods-fingerprint-method",
        "pods to cover: all or with-exclusive-resources (default with-exclusive-resources)",
    ),
    value(
        "pods-fingerprint-status-file",
        "file to write the fingerprint and its pods to",
    ),
    switch("expose-timing", "write the timing annotations"),
    switch("exclude-terminal-pods", "do not account for finished pods"),
    switch(
        "exact-accounting",
        "account for excluded pods and other namespaces too, and for memory of several zones once",
    ),
    value(
        "topology-manager-policy",
        "policy to publish (default: from the kubelet's configuration)",
    ),
    value(
        "topology-manager-scope",
        "scope to publish (default: from the kubelet's configuration)",
    ),
    value(
        "sleep-interval",
        "time between two scans, 0 for none without an event (default 60s)",
    ),
    value(
        "kubelet-config-file",
        "KubeletConfiguration to read the topology manager's settings from (default /podresources/config.yaml)",
    ),
    value(
        "podresources-socket",
        "endpoint of the kubelet (default unix:///podresources/kubelet.sock)",
    ),
    switch(
        "podreadiness",
        "report on the conditions of the own pod (default true)",
    ),
    switch(
        "add-nrt-owner",
        "make the Node the owner of the object (default true)",
    ),
    value("notify-file", "file whose writes and touches cause a scan"),
    switch(
        "watch-pods",
        "follow this node's pods on the API server to publish changes at once (default true)",
    ),
    value(
        "max-events-per-second",
        "limit of scans caused by the notify file, 0 or less for none (default 1)",
    ),
    value(
        "reference-container",
        "namespace/pod/container of a container on the shared CPUs",
    ),
    value(
        "metrics-mode",
        "disabled, http or httptls (default disabled)",
    ),
    value("metrics-port", "port of the metrics (default 2112)"),
    value("metrics-ip", "address of the metrics (default 0.0.0.0)"),
    value(
        "metrics-certs-dir",
        "directory of certificate and key (default /etc/secrets/rte)",
    ),
    value(
        "metrics-cert-file",
        "certificate, in that directory (default tls.crt)",
    ),
    value(
        "metrics-key-file",
        "key, in that directory (default tls.key)",
    ),
    switch(
        "metrics-want-cli-auth",
        "ask clients for a certificate and verify it",
    ),
    value(
        "metrics-tls-min-version",
        "VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13",
    ),
    value(
        "metrics-tls-cipher-suites",
        "Go names of cipher suites, separated by commas",
    ),
    switch("version", "print the version and exit"),
    value(
        "dump-config",
        "show the configuration: - on stdout, .andexit on stdout and exit, .log in the log",
    ),
    value(
        "v",
        "verbosity of the log; never below that of the configuration files (default 2)",
    ),
    value("vmodule", "accepted and ignored"),
    switch("logtostderr", "accepted and ignored"),
    switch("alsologtostderr", "accepted and ignored"),
    value("log_dir", "accepted and ignored"),
    value("log_file", "accepted and ignored"),
    value("log_file_max_size", "accepted and ignored"),
    switch("add_dir_header", "accepted and ignored"),
    switch("skip_headers", "accepted and ignored"),
    switch("one_output", "accepted and ignored"),
    switch("skip_log_headers", "accepted and ignored"),
    value("stderrthreshold", "accepted and ignored"),
    value("log_backtrace_at", "accepted and ignored"),
];

/// Applies the flag `name` to the configuration. The values of `version`, `dump-config` and `config` are only validated: these flags
/// control how the configuration is loaded or shown and are not part of it.
pub(crate) fn set_flag(config: &mut Config, name: &'static str, value: &str) -> Result<(), Error> {
    set(config, name, value).map_err(|reason| Error::Value {
        flag: name,
        value: value.to_owned(),
        reason,
    })
}

fn set(config: &mut Config, name: &'static str, value: &str) -> Result<(), String> {
    let Config {
        global,
        nrt_updater: updater,
        resource_monitor: monitor,
        topology_exporter: exporter,
    } = config;
    match name {
        "debug" => global.debug = boolean(value)?,
        "kubeconfig" => value.clone_into(&mut global.kubeconfig),
        "v" => global.verbose = global.verbose.max(number(value)?),
        "no-publish" => updater.no_publish = boolean(value)?,
        "oneshot" => updater.one_shot = boolean(value)?,
        "hostname" => value.clone_into(&mut updater.hostname),
        "patch-mode" => updater.patch_mode = boolean(value)?,
        "patch-resync" => updater.patch_resync = number(value)?,
        "watch-namespace" => value.clone_into(&mut monitor.namespace),
        "sysfs" => value.clone_into(&mut monitor.sysfs_root),
        "refresh-node-resources" => monitor.refresh_node_resources = boolean(value)?,
        "pods-fingerprint" => monitor.pod_set_fingerprint = boolean(value)?,
        "pods-fingerprint-method" => monitor.pod_set_fingerprint_method = value.parse()?,
        "pods-fingerprint-status-file" => {
            value.clone_into(&mut monitor.pod_set_fingerprint_status_file);
        }
        "expose-timing" => monitor.expose_timing = boolean(value)?,
        "exact-accounting" => monitor.exact_accounting = boolean(value)?,
        "exclude-terminal-pods" => monitor.exclude_terminal_pods = boolean(value)?,
        "topology-manager-policy" => value.clone_into(&mut exporter.topology_manager_policy),
        "topology-manager-scope" => value.clone_into(&mut exporter.topology_manager_scope),
        "sleep-interval" => exporter.sleep_interval = duration(value)?,
        "kubelet-config-file" => value.clone_into(&mut exporter.kubelet_config_file),
        "podresources-socket" => value.clone_into(&mut exporter.pod_resources_socket_path),
        "podreadiness" => exporter.pod_readiness_enable = boolean(value)?,
        "add-nrt-owner" => exporter.add_nrt_owner_enable = boolean(value)?,
        "notify-file" => value.clone_into(&mut exporter.notify_file_path),
        "watch-pods" => exporter.watch_pods = boolean(value)?,
        "max-events-per-second" => exporter.max_event_per_time_unit = number(value)?,
        "reference-container" => exporter.reference_container = reference(value)?,
        "metrics-mode" => exporter.metrics_mode = mode(value)?,
        "metrics-port" => exporter.metrics_port = number(value)?,
        "metrics-ip" => value.clone_into(&mut exporter.metrics_address),
        "metrics-certs-dir" => value.clone_into(&mut exporter.metrics_tls.certs_dir),
        "metrics-cert-file" => value.clone_into(&mut exporter.metrics_tls.cert_file),
        "metrics-key-file" => value.clone_into(&mut exporter.metrics_tls.key_file),
        "metrics-want-cli-auth" => exporter.metrics_tls.want_cli_auth = boolean(value)?,
        "metrics-tls-min-version" => value.clone_into(&mut exporter.metrics_tls.min_tls_version),
        "metrics-tls-cipher-suites" => value.clone_into(&mut exporter.metrics_tls.cipher_suites),
        "version" => drop(boolean(value)?),
        "dump-config" if !matches!(value, "-" | ".andexit" | ".log") => {
            return Err("must be one of -, .andexit, .log".to_owned());
        }
        // flags of klog
        _ => {}
    }
    Ok(())
}

/// Parses a metrics mode in any case. The two blanks in the error text are upstream's.
pub(super) fn mode(text: &str) -> Result<MetricsMode, String> {
    MetricsMode::parse(text).ok_or_else(|| format!("unsupported method  \"{text}\""))
}

/// Parses a reference container; an empty text means none.
pub(super) fn reference(text: &str) -> Result<Option<ContainerId>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    ContainerId::parse(text)
        .map(Some)
        .ok_or_else(|| format!("malformed ident: \"{text}\""))
}
