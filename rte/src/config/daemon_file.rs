//! The daemon's file and its configlets (rte.md 2.4): YAML, flattened to dotted keys; later files override earlier ones.
//!
//! Unlike upstream, a dump of the configuration is valid as such a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde_yaml::Value;

use super::extra_file;

mod keys;
mod reader;

pub(super) use keys::apply;

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
