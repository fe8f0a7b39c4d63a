//! The extra file (rte.md 2.4): settings of the topology manager, and what to hide. The operator renders it into a `ConfigMap`.
//!
//! Beside it may be a second file of ours with more settings of the kubelet's managers. They are not in the first one, because programs
//! that read it strictly would refuse it. Older operators of ours wrote them there all the same, so they are read from both.
//!
//! As in Go, keys match in any case, and unknown keys are ignored.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde_yaml::{Mapping, Value};

use super::{Config, PodPattern, ResourceManagers, TopologyExporter};

/// Key of the topology manager's options, in this file and in a `KubeletConfiguration`.
const OPTIONS: &str = "topologyManagerPolicyOptions";
/// The topology manager option that schedulers need; its value is a text.
pub(crate) const MAX_NUMA_NODES: &str = "max-allowable-numa-nodes";

/// Keys of the other managers, in both files and in a `KubeletConfiguration`.
const CPU_POLICY: &str = "cpuManagerPolicy";
const CPU_OPTIONS: &str = "cpuManagerPolicyOptions";
const MEMORY_POLICY: &str = "memoryManagerPolicy";

/// The file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The file exists but cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file is not valid YAML.
    #[error("cannot parse {}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: serde_yaml::Error,
    },
    /// A value has the wrong type.
    #[error("{key} is not a {expected}")]
    Type {
        /// The dotted key.
        key: String,
        /// The expected type.
        expected: &'static str,
    },
}

/// Applies the file at `path` to the configuration; a missing file changes nothing.
pub(super) fn apply(config: &mut Config, path: &Path) -> Result<(), Error> {
    match read(path)? {
        Some(value) => decode(config, &value),
        None => Ok(()),
    }
}

/// Applies the settings of the kubelet's managers in the second file at `path`; a missing file changes nothing.
pub(super) fn apply_managers(config: &mut Config, path: &Path) -> Result<(), Error> {
    let value = read(path)?.unwrap_or(Value::Null);
    let Some(root) = mapping(&value, "the file")? else {
        return Ok(());
    };
    decode_kubelet(config, root)
}

/// Returns the content of a file; `None` if it does not exist.
fn read(path: &Path) -> Result<Option<Value>, Error> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(Error::Read {
                path: path.to_owned(),
                source,
            });
        }
    };
    let parsed = serde_yaml::from_str(&text).map_err(|source| Error::Parse {
        path: path.to_owned(),
        source,
    })?;
    Ok(Some(parsed))
}

fn decode(config: &mut Config, value: &Value) -> Result<(), Error> {
    let Some(root) = mapping(value, "the file")? else {
        return Ok(());
    };
    decode_kubelet(config, root)?;
    if let Some(excludes) = field(root, "resourceExclude")
        && let Some(excludes) = mapping(excludes, "resourceExclude")?
    {
        let mut nodes = BTreeMap::new();
        for (node, resources) in excludes {
            let node = string(node, "resourceExclude")?;
            let resources = strings(resources, &node)?;
            nodes.insert(node, resources);
        }
        config.resource_monitor.resource_exclude = nodes;
    }
    if let Some(pods) = field(root, "podExclude") {
        config.resource_monitor.pod_exclude = pod_patterns(pods)?;
    }
    Ok(())
}

fn decode_kubelet(config: &mut Config, root: &Mapping) -> Result<(), Error> {
    if let Some(section) = field(root, "kubelet")
        && let Some(section) = mapping(section, "kubelet")?
    {
        kubelet(&mut config.topology_exporter, section)?;
    }
    Ok(())
}

/// Applies the section with the kubelet's settings.
fn kubelet(exporter: &mut TopologyExporter, section: &Mapping) -> Result<(), Error> {
    for (key, target) in [
        (
            "topologyManagerPolicy",
            &mut exporter.topology_manager_policy,
        ),
        ("topologyManagerScope", &mut exporter.topology_manager_scope),
    ] {
        if let Some(value) = field(section, key) {
            *target = string(value, key)?;
        }
    }
    if let Some(text) = options(section, OPTIONS)?.get(MAX_NUMA_NODES) {
        let most = text.parse().map_err(|_| wrong(MAX_NUMA_NODES, "number"))?;
        exporter.topology_manager_max_numa_nodes = Some(most);
    }
    if let Some(managers) = resource_managers(section)? {
        exporter.resource_managers = Some(managers);
    }
    Ok(())
}

/// Returns the options of a manager.
fn options(section: &Mapping, key: &str) -> Result<BTreeMap<String, String>, Error> {
    let mut options = BTreeMap::new();
    if let Some(list) = field(section, key)
        && let Some(list) = mapping(list, key)?
    {
        for (name, value) in list {
            let name = string(name, key)?;
            let value = string(value, &name)?;
            options.insert(name, value);
        }
    }
    Ok(options)
}

/// Returns the settings of the other managers if both policies are given, otherwise `None`.
fn resource_managers(section: &Mapping) -> Result<Option<ResourceManagers>, Error> {
    let text = |key| field(section, key).map(|value| string(value, key));
    let (Some(cpu), Some(memory)) = (text(CPU_POLICY), text(MEMORY_POLICY)) else {
        return Ok(None);
    };
    Ok(Some(ResourceManagers {
        cpu: cpu?,
        cpu_options: options(section, CPU_OPTIONS)?,
        memory: memory?,
    }))
}

/// Parses a list of texts.
pub(super) fn strings(value: &Value, key: &str) -> Result<Vec<String>, Error> {
    let items = sequence(value, key)?.iter();
    items.map(|item| string(item, key)).collect()
}

/// Parses a list of pod patterns.
pub(super) fn pod_patterns(value: &Value) -> Result<Vec<PodPattern>, Error> {
    sequence(value, "podExclude")?
        .iter()
        .map(pod_pattern)
        .collect()
}

fn pod_pattern(value: &Value) -> Result<PodPattern, Error> {
    let mut pattern = PodPattern::default();
    if let Some(entry) = mapping(value, "podExclude")? {
        for (key, target) in [
            ("namespacePattern", &mut pattern.namespace_pattern),
            ("namePattern", &mut pattern.name_pattern),
        ] {
            if let Some(value) = field(entry, key) {
                *target = string(value, key)?;
            }
        }
    }
    Ok(pattern)
}

/// Returns the value of a key in any case; an exact match is preferred.
fn field<'a>(mapping: &'a Mapping, name: &str) -> Option<&'a Value> {
    mapping.get(name).or_else(|| {
        mapping
            .iter()
            .find(|(key, _)| {
                key.as_str()
                    .is_some_and(|key| key.eq_ignore_ascii_case(name))
            })
            .map(|(_, value)| value)
    })
}

fn mapping<'a>(value: &'a Value, key: &str) -> Result<Option<&'a Mapping>, Error> {
    match value {
        Value::Null => Ok(None),
        Value::Mapping(mapping) => Ok(Some(mapping)),
        _ => Err(wrong(key, "mapping")),
    }
}

fn sequence<'a>(value: &'a Value, key: &str) -> Result<&'a [Value], Error> {
    match value {
        Value::Null => Ok(&[]),
        Value::Sequence(items) => Ok(items),
        _ => Err(wrong(key, "list")),
    }
}

fn string(value: &Value, key: &str) -> Result<String, Error> {
    match value {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.clone()),
        _ => Err(wrong(key, "string")),
    }
}

fn wrong(key: &str, expected: &'static str) -> Error {
    Error::Type {
        key: key.to_owned(),
        expected,
    }
}
