//! The daemon's file and its configlets (rte.md 2.4): YAML, flattened to dotted keys; later files override earlier ones.
//!
//! Unlike upstream, a dump of the configuration is valid as such a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use api::duration::GoDuration;
use serde_yaml::Value;

use super::{Config, ContainerId, ResourceMonitor, extra_file, flags};

/// Prefix of the keys of hidden resources; the name of the node follows.
const RESOURCE_EXCLUDE: &str = "resourceMonitor.resourceExclude.";
/// Key of the hidden pods.
const POD_EXCLUDE: &str = "resourceMonitor.podExclude";

/// Key of the metrics port.
pub(super) const METRICS_PORT: &str = "topologyExporter.metricsPort";
/// Keys of the metrics address: the old one and the current one.
const METRICS_ADDRESSES: [&str; 2] = [
    "topologyExporter.MetricsAddress",
    "topologyExporter.metricsAddress",
];

/// Returns whether the files set the metrics address.
pub(super) fn has_metrics_address(keys: &Keys) -> bool {
    METRICS_ADDRESSES.iter().any(|key| keys.contains_key(*key))
}

/// The daemon's files cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A file or directory cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file is not valid YAML.
    #[error("cannot parse {}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: serde_yaml::Error,
    },
    /// A value has the wrong type.
    #[error("key \"{key}\" has non-{expected} value {value}")]
    Type {
        /// The dotted key.
        key: &'static str,
        /// The expected type.
        expected: &'static str,
        /// The value in the file, as YAML.
        value: String,
    },
    /// An exclude list has the wrong form.
    #[error(transparent)]
    Exclude(extra_file::Error),
    /// A value has the right type but is not valid.
    #[error("key \"{key}\": {reason}")]
    Value {
        /// The dotted key.
        key: &'static str,
        /// Why it is not valid.
        reason: String,
    },
}

/// All dotted keys with their values.
pub(super) type Keys = BTreeMap<String, Value>;

/// Reads `<root>/daemon/config.yaml` and then `<root>/daemon/config.yaml.d/*`. If the former does not exist, nothing is read; that is not
/// an error. Unlike upstream, a configlet may be a symbolic link to a file, because that is how the kubelet mounts a `ConfigMap`.
///
/// Also returns warnings about ignored files.
pub(super) fn read(root: &Path) -> Result<(Keys, Vec<String>), Error> {
    let mut keys = Keys::new();
    let mut ignored = Vec::new();
    let main = root.join("daemon/config.yaml");
    if !main.exists() {
        return Ok((keys, ignored));
    }
    merge(&mut keys, &main)?;
    let dir = root.join("daemon/config.yaml.d");
    let entries = match fs::read_dir(&dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((keys, ignored)),
        Err(source) => return Err(Error::Read { path: dir, source }),
    };
    let mut configlets = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|source| Error::Read {
            path: dir.clone(),
            source,
        })?;
        configlets.push(entry.path());
    }
    configlets.sort();
    for path in configlets {
        if path.is_file() {
            merge(&mut keys, &path)?;
        } else {
            ignored.push(format!(
                "ignored configlet: \"{}\" (not regular file)",
                path.display()
            ));
        }
    }
    Ok((keys, ignored))
}

fn merge(keys: &mut Keys, path: &Path) -> Result<(), Error> {
    let text = fs::read_to_string(path).map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })?;
    let value: Value = serde_yaml::from_str(&text).map_err(|source| Error::Parse {
        path: path.to_owned(),
        source,
    })?;
    flatten(keys, "", value);
    Ok(())
}

fn flatten(keys: &mut Keys, prefix: &str, value: Value) {
    match value {
        Value::Mapping(mapping) => {
            for (key, value) in mapping {
                let Some(key) = key.as_str() else { continue };
                let key = if prefix.is_empty() {
                    key.to_owned()
                } else {
                    format!("{prefix}.{key}")
                };
                flatten(keys, &key, value);
            }
        }
        Value::Null => {}
        other => {
            keys.insert(prefix.to_owned(), other);
        }
    }
}

/// Applies the keys to the configuration. Returns the unknown keys, for a warning.
pub(super) fn apply(config: &mut Config, keys: &Keys) -> Result<Vec<String>, Error> {
    let mut reader = Reader {
        keys,
        known: Vec::new(),
    };
    let Config {
        global,
        nrt_updater: updater,
        resource_monitor: monitor,
        topology_exporter: exporter,
    } = config;
    reader.boolean("global.debug", &mut global.debug)?;
    reader.string("global.kubeConfig", &mut global.kubeconfig)?;
    reader.string("global.kubeconfig", &mut global.kubeconfig)?;
    let mut verbose = i64::from(global.verbose);
    reader.integer("global.verbose", &mut verbose)?;
    global.verbose = i32::try_from(verbose).unwrap_or(i32::MAX);

    reader.boolean("nrtUpdater.noPublish", &mut updater.no_publish)?;
    reader.boolean("nrtUpdater.oneShot", &mut updater.one_shot)?;
    reader.string("nrtUpdater.hostname", &mut updater.hostname)?;
    reader.boolean("nrtUpdater.patchMode", &mut updater.patch_mode)?;
    reader.integer("nrtUpdater.patchResync", &mut updater.patch_resync)?;

    reader.string("resourceMonitor.namespace", &mut monitor.namespace)?;
    reader.string("resourceMonitor.sysfsRoot", &mut monitor.sysfs_root)?;
    reader.boolean(
        "resourceMonitor.refreshNodeResources",
        &mut monitor.refresh_node_resources,
    )?;
    reader.boolean(
        "resourceMonitor.podSetFingerprint",
        &mut monitor.pod_set_fingerprint,
    )?;
    reader.parsed(
        "resourceMonitor.podSetFingerprintMethod",
        &mut monitor.pod_set_fingerprint_method,
        str::parse,
    )?;
    reader.string(
        "resourceMonitor.podSetFingerprintStatusFile",
        &mut monitor.pod_set_fingerprint_status_file,
    )?;
    reader.boolean("resourceMonitor.exposeTiming", &mut monitor.expose_timing)?;
    reader.boolean(
        "resourceMonitor.exactAccounting",
        &mut monitor.exact_accounting,
    )?;
    reader.boolean(
        "resourceMonitor.excludeTerminalPods",
        &mut monitor.exclude_terminal_pods,
    )?;

    reader.duration(
        "topologyExporter.sleepInterval",
        &mut exporter.sleep_interval,
    )?;
    reader.string(
        "topologyExporter.kubeletConfigFile",
        &mut exporter.kubelet_config_file,
    )?;
    reader.string(
        "topologyExporter.podResourcesSocketPath",
        &mut exporter.pod_resources_socket_path,
    )?;
    reader.boolean(
        "topologyExporter.podReadinessEnable",
        &mut exporter.pod_readiness_enable,
    )?;
    reader.boolean(
        "topologyExporter.addNRTOwnerEnable",
        &mut exporter.add_nrt_owner_enable,
    )?;
    reader.string(
        "topologyExporter.notifyFilePath",
        &mut exporter.notify_file_path,
    )?;
    reader.boolean("topologyExporter.watchPods", &mut exporter.watch_pods)?;
    reader.integer(
        "topologyExporter.maxEventPerTimeUnit",
        &mut exporter.max_event_per_time_unit,
    )?;
    reader.duration(
        "topologyExporter.timeUnitToLimitEvents",
        &mut exporter.time_unit_to_limit_events,
    )?;
    reader.parsed(
        "topologyExporter.referenceContainer",
        &mut exporter.reference_container,
        flags::reference,
    )?;
    reader.reference_parts(&mut exporter.reference_container)?;
    reader.string(
        "topologyExporter.topologyManagerPolicy",
        &mut exporter.topology_manager_policy,
    )?;
    reader.string(
        "topologyExporter.topologyManagerScope",
        &mut exporter.topology_manager_scope,
    )?;
    reader.parsed(
        "topologyExporter.metricsMode",
        &mut exporter.metrics_mode,
        flags::mode,
    )?;
    reader.integer(METRICS_PORT, &mut exporter.metrics_port)?;
    reader.string(METRICS_ADDRESSES[0], &mut exporter.metrics_address)?;
    reader.string(METRICS_ADDRESSES[1], &mut exporter.metrics_address)?;
    let tls = &mut exporter.metrics_tls;
    reader.string("topologyExporter.metricsTLS.certsDir", &mut tls.certs_dir)?;
    reader.string("topologyExporter.metricsTLS.certFile", &mut tls.cert_file)?;
    reader.string("topologyExporter.metricsTLS.keyFile", &mut tls.key_file)?;
    reader.boolean(
        "topologyExporter.metricsTLS.wantCliAuth",
        &mut tls.want_cli_auth,
    )?;
    reader.string(
        "topologyExporter.metricsTLS.minTLSVersion",
        &mut tls.min_tls_version,
    )?;
    reader.string(
        "topologyExporter.metricsTLS.cipherSuites",
        &mut tls.cipher_suites,
    )?;
    reader.excludes(monitor)?;
    Ok(reader.unknown())
}

/// Looks up keys by type and records which keys are known.
struct Reader<'a> {
    keys: &'a Keys,
    known: Vec<&'static str>,
}

impl Reader<'_> {
    fn look_up<T>(
        &mut self,
        key: &'static str,
        expected: &'static str,
        field: &mut T,
        convert: impl Fn(&Value) -> Option<T>,
    ) -> Result<(), Error> {
        self.known.push(key);
        let Some(value) = self.keys.get(key) else {
            return Ok(());
        };
        *field = convert(value).ok_or_else(|| Error::Type {
            key,
            expected,
            value: serde_yaml::to_string(value)
                .unwrap_or_default()
                .trim_end()
                .to_owned(),
        })?;
        Ok(())
    }

    fn string(&mut self, key: &'static str, field: &mut String) -> Result<(), Error> {
        self.look_up(key, "string", field, |value| {
            value.as_str().map(str::to_owned)
        })
    }

    fn boolean(&mut self, key: &'static str, field: &mut bool) -> Result<(), Error> {
        self.look_up(key, "bool", field, Value::as_bool)
    }

    fn integer(&mut self, key: &'static str, field: &mut i64) -> Result<(), Error> {
        self.look_up(key, "number", field, Value::as_i64)
    }

    /// Accepts nanoseconds, or a text such as `10s`.
    fn duration(&mut self, key: &'static str, field: &mut GoDuration) -> Result<(), Error> {
        self.look_up(key, "duration", field, |value| match value {
            Value::String(text) => text.parse().ok(),
            other => other.as_i64().map(GoDuration::from_nanos),
        })
    }

    fn parsed<T>(
        &mut self,
        key: &'static str,
        field: &mut T,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<(), Error> {
        let mut text = None;
        self.look_up(key, "string", &mut text, |value| {
            value.as_str().map(|text| Some(text.to_owned()))
        })?;
        if let Some(text) = text {
            *field = parse(&text).map_err(|reason| Error::Value { key, reason })?;
        }
        Ok(())
    }

    /// Reads the reference container in the form of a dump.
    fn reference_parts(&mut self, field: &mut Option<ContainerId>) -> Result<(), Error> {
        let mut id = field.clone().unwrap_or_default();
        for (key, part) in [
            (
                "topologyExporter.referenceContainer.containerName",
                &mut id.container_name,
            ),
            (
                "topologyExporter.referenceContainer.namespace",
                &mut id.namespace,
            ),
            (
                "topologyExporter.referenceContainer.podName",
                &mut id.pod_name,
            ),
        ] {
            self.string(key, part)?;
        }
        if id != ContainerId::default() {
            *field = Some(id);
        }
        Ok(())
    }

    /// Reads the excludes in the form of a dump.
    fn excludes(&mut self, monitor: &mut ResourceMonitor) -> Result<(), Error> {
        for (key, value) in self.keys.range(RESOURCE_EXCLUDE.to_owned()..) {
            let Some(node) = key.strip_prefix(RESOURCE_EXCLUDE) else {
                break;
            };
            let resources = extra_file::strings(value, node).map_err(Error::Exclude)?;
            monitor.resource_exclude.insert(node.to_owned(), resources);
        }
        self.known.push(POD_EXCLUDE);
        if let Some(value) = self.keys.get(POD_EXCLUDE) {
            monitor.pod_exclude = extra_file::pod_patterns(value).map_err(Error::Exclude)?;
        }
        Ok(())
    }

    fn unknown(&self) -> Vec<String> {
        self.keys
            .keys()
            .filter(|key| !self.known.contains(&key.as_str()) && !key.starts_with(RESOURCE_EXCLUDE))
            .cloned()
            .collect()
    }
}
