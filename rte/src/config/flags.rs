//! The flags of rte.md 2.2. Each comes with what it does to the configuration, so none can be accepted and forgotten.

use goflags::{command_line, klog};

use super::go_flags::{self, Error, Kind, Spec};
use super::{Config, ContainerId, MetricsMode};

/// A flag, and what its value does.
struct Flag {
    spec: Spec,
    effect: Effect,
}

/// What the value of a flag does.
#[derive(Clone, Copy)]
enum Effect {
    /// Sets a boolean.
    Switch(fn(&mut Config) -> &mut bool),
    /// Sets a text.
    Text(fn(&mut Config) -> &mut String),
    /// Sets a number.
    Number(fn(&mut Config) -> &mut i64),
    /// Does something else with the value, or refuses it.
    Parsed(fn(&mut Config, &str) -> Result<(), String>),
}

const fn flag(name: &'static str, kind: Kind, usage: &'static str, effect: Effect) -> Flag {
    let spec = Spec { name, kind, usage };
    Flag { spec, effect }
}

const fn switch(
    name: &'static str,
    usage: &'static str,
    field: fn(&mut Config) -> &mut bool,
) -> Flag {
    flag(name, Kind::Bool, usage, Effect::Switch(field))
}

const fn text(
    name: &'static str,
    usage: &'static str,
    field: fn(&mut Config) -> &mut String,
) -> Flag {
    flag(name, Kind::Value, usage, Effect::Text(field))
}

const fn number(
    name: &'static str,
    usage: &'static str,
    field: fn(&mut Config) -> &mut i64,
) -> Flag {
    flag(name, Kind::Value, usage, Effect::Number(field))
}

const fn parsed(
    name: &'static str,
    usage: &'static str,
    parse: fn(&mut Config, &str) -> Result<(), String>,
) -> Flag {
    flag(name, Kind::Value, usage, Effect::Parsed(parse))
}

/// All flags. The values of `version`, `dump-config`, `config` and `logging-format` are only validated here: these flags control how the configuration
/// is loaded or shown and how the program logs. They are not part of it.
const FLAGS: &[Flag] = &[
    parsed(
        "config",
        "file with excludes and topology manager settings; not used when a configuration root is given (default /etc/resource-topology-exporter/config.yaml)",
        |_, _| Ok(()),
    ),
    switch("debug", "log the configuration at each stage", |config| {
        &mut config.global.debug
    }),
    text(
        "kubeconfig",
        "path of a kubeconfig (default: the pod's environment)",
        |config| &mut config.global.kubeconfig,
    ),
    switch(
        "no-publish",
        "scan, but never write to the API server",
        |config| &mut config.nrt_updater.no_publish,
    ),
    switch("oneshot", "publish once and exit", |config| {
        &mut config.nrt_updater.one_shot
    }),
    text(
        "hostname",
        "name of the object to write (default: NODE_NAME, or the host's name)",
        |config| &mut config.nrt_updater.hostname,
    ),
    switch(
        "patch-mode",
        "send merge patches instead of whole objects (default true)",
        |config| &mut config.nrt_updater.patch_mode,
    ),
    number(
        "patch-resync",
        "read and update the whole object after so many patches, 0 or less for never (default 10)",
        |config| &mut config.nrt_updater.patch_resync,
    ),
    text(
        "watch-namespace",
        "only account for pods of this namespace (default: all)",
        |config| &mut config.resource_monitor.namespace,
    ),
    text(
        "sysfs",
        "root of the sysfs to read (default /sys)",
        |config| &mut config.resource_monitor.sysfs_root,
    ),
    switch(
        "refresh-node-resources",
        "follow changes of the node's capacity",
        |config| &mut config.resource_monitor.refresh_node_resources,
    ),
    switch(
        "pods-fingerprint",
        "publish the fingerprint of the pods that were accounted for (default true)",
        |config| &mut config.resource_monitor.pod_set_fingerprint,
    ),
    parsed(
        "pods-fingerprint-method",
        "pods to cover: all or with-exclusive-resources (default with-exclusive-resources)",
        |config, value| {
            config.resource_monitor.pod_set_fingerprint_method = value.parse()?;
            Ok(())
        },
    ),
    text(
        "pods-fingerprint-status-file",
        "file to write the fingerprint and its pods to",
        |config| &mut config.resource_monitor.pod_set_fingerprint_status_file,
    ),
    switch("expose-timing", "write the timing annotations", |config| {
        &mut config.resource_monitor.expose_timing
    }),
    switch(
        "exclude-terminal-pods",
        "do not account for finished pods",
        |config| &mut config.resource_monitor.exclude_terminal_pods,
    ),
    switch(
        "exact-accounting",
        "account for excluded pods and other namespaces too, and for memory of several zones once",
        |config| &mut config.resource_monitor.exact_accounting,
    ),
    text(
        "topology-manager-policy",
        "policy to publish (default: from the kubelet's configuration)",
        |config| &mut config.topology_exporter.topology_manager_policy,
    ),
    text(
        "topology-manager-scope",
        "scope to publish (default: from the kubelet's configuration)",
        |config| &mut config.topology_exporter.topology_manager_scope,
    ),
    parsed(
        "sleep-interval",
        "time between two scans, 0 for none without an event (default 60s)",
        |config, value| {
            config.topology_exporter.sleep_interval = go_flags::duration(value)?;
            Ok(())
        },
    ),
    text(
        "kubelet-config-file",
        "KubeletConfiguration to read the topology manager's settings from (default /podresources/config.yaml)",
        |config| &mut config.topology_exporter.kubelet_config_file,
    ),
    text(
        "podresources-socket",
        "endpoint of the kubelet (default unix:///podresources/kubelet.sock)",
        |config| &mut config.topology_exporter.pod_resources_socket_path,
    ),
    switch(
        "podreadiness",
        "report on the conditions of the own pod (default true)",
        |config| &mut config.topology_exporter.pod_readiness_enable,
    ),
    switch(
        "add-nrt-owner",
        "make the Node the owner of the object (default true)",
        |config| &mut config.topology_exporter.add_nrt_owner_enable,
    ),
    text(
        "notify-file",
        "file whose writes and touches cause a scan",
        |config| &mut config.topology_exporter.notify_file_path,
    ),
    switch(
        "watch-pods",
        "follow this node's pods on the API server to publish changes at once (default true)",
        |config| &mut config.topology_exporter.watch_pods,
    ),
    number(
        "max-events-per-second",
        "limit of scans caused by the notify file, 0 or less for none (default 1)",
        |config| &mut config.topology_exporter.max_event_per_time_unit,
    ),
    parsed(
        "reference-container",
        "namespace/pod/container of a container on the shared CPUs",
        |config, value| {
            config.topology_exporter.reference_container = ContainerId::parse(value)?;
            Ok(())
        },
    ),
    parsed(
        "metrics-mode",
        "disabled, http or httptls (default disabled)",
        |config, value| {
            config.topology_exporter.metrics_mode = MetricsMode::parse(value)?;
            Ok(())
        },
    ),
    number(
        "metrics-port",
        "port of the metrics (default 2112)",
        |config| &mut config.topology_exporter.metrics_port,
    ),
    text(
        "metrics-ip",
        "address of the metrics (default 0.0.0.0)",
        |config| &mut config.topology_exporter.metrics_address,
    ),
    text(
        "metrics-certs-dir",
        "directory of certificate and key (default /etc/secrets/rte)",
        |config| &mut config.topology_exporter.metrics_tls.certs_dir,
    ),
    text(
        "metrics-cert-file",
        "certificate, in that directory (default tls.crt)",
        |config| &mut config.topology_exporter.metrics_tls.cert_file,
    ),
    text(
        "metrics-key-file",
        "key, in that directory (default tls.key)",
        |config| &mut config.topology_exporter.metrics_tls.key_file,
    ),
    switch(
        "metrics-auth",
        "serve metrics only to those whom the API server lets read them (TokenReview, SubjectAccessReview)",
        |config| &mut config.topology_exporter.metrics_auth,
    ),
    switch(
        "metrics-want-cli-auth",
        "ask clients for a certificate and verify it",
        |config| &mut config.topology_exporter.metrics_tls.want_cli_auth,
    ),
    text(
        "metrics-tls-min-version",
        "VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13",
        |config| &mut config.topology_exporter.metrics_tls.min_tls_version,
    ),
    text(
        "metrics-tls-cipher-suites",
        "Go names of cipher suites, separated by commas",
        |config| &mut config.topology_exporter.metrics_tls.cipher_suites,
    ),
    Flag {
        spec: Spec {
            name: "version",
            kind: Kind::Bool,
            usage: "print the version and exit",
        },
        effect: Effect::Parsed(|_, value| go_flags::boolean(value).map(drop)),
    },
    parsed(
        "dump-config",
        "show the configuration: - on stdout, .andexit on stdout and exit, .log in the log",
        |_, value| match value {
            "-" | ".andexit" | ".log" => Ok(()),
            _ => Err("must be one of -, .andexit, .log".to_owned()),
        },
    ),
    parsed(
        "logging-format",
        "format of the log: text or json (default text)",
        |_, value| {
            let format: Result<daemon::log::Format, _> = value.parse();
            format.map(drop).map_err(|error| error.to_string())
        },
    ),
    parsed(
        "v",
        "verbosity of the log; never below that of the configuration files (default 2)",
        |config, value| {
            let verbose = &mut config.global.verbose;
            *verbose = (*verbose).max(go_flags::number(value)?);
            Ok(())
        },
    ),
];

/// Returns all flags, for the parser of the command line.
pub(crate) fn specs() -> Vec<Spec> {
    let klog = klog::FLAGS.map(|flag| Spec {
        name: flag.name,
        kind: match flag.kind {
            klog::Kind::Switch => Kind::Bool,
            klog::Kind::Number | klog::Kind::Text => Kind::Value,
        },
        usage: "a flag of klog, without effect",
    });
    FLAGS.iter().map(|flag| flag.spec).chain(klog).collect()
}

/// Applies a flag to the configuration. The flags of klog change nothing, but their values are checked.
pub(crate) fn set_flag(config: &mut Config, name: &str, value: &str) -> Result<(), Error> {
    if let Some(flag) = klog::find(name) {
        let checked = match flag.kind {
            klog::Kind::Switch => go_flags::boolean(value).map(drop),
            klog::Kind::Number => go_flags::number::<i64>(value).map(drop),
            klog::Kind::Text => Ok(()),
        };
        let is_switch = flag.kind == klog::Kind::Switch;
        return checked.map_err(|reason| wrong(flag.name, is_switch, value, reason));
    }
    let Some(Flag { spec, effect }) = FLAGS.iter().find(|flag| flag.spec.name == name) else {
        return Err(Error::Words(command_line::Error::Undefined(
            name.to_owned(),
        )));
    };
    let is_switch = spec.kind == Kind::Bool;
    let applied = effect.apply(config, value);
    applied.map_err(|reason| wrong(spec.name, is_switch, value, reason))
}

/// Says that a value is not valid, in Go's words.
fn wrong(flag: &'static str, is_switch: bool, value: &str, reason: String) -> Error {
    let value = value.to_owned();
    if is_switch {
        Error::Switch {
            flag,
            value,
            reason,
        }
    } else {
        Error::Value {
            flag,
            value,
            reason,
        }
    }
}

impl Effect {
    fn apply(self, config: &mut Config, value: &str) -> Result<(), String> {
        match self {
            Self::Switch(field) => *field(config) = go_flags::boolean(value)?,
            Self::Text(field) => value.clone_into(field(config)),
            Self::Number(field) => *field(config) = go_flags::number(value)?,
            Self::Parsed(parse) => parse(config, value)?,
        }
        Ok(())
    }
}
