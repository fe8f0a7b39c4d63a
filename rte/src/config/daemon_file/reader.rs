//! Reads dotted keys by type.

use goflags::GoDuration;
use serde_yaml::Value;

use super::{Error, Keys};
use crate::config::{ContainerId, ResourceMonitor, extra_file};

/// Prefix of the keys of hidden resources; the name of the node follows.
const RESOURCE_EXCLUDE: &str = "resourceMonitor.resourceExclude.";
/// Key of the hidden pods.
const POD_EXCLUDE: &str = "resourceMonitor.podExclude";

/// Looks up keys by type and records which keys are known.
pub(super) struct Reader<'a> {
    keys: &'a Keys,
    known: Vec<&'static str>,
}

impl<'a> Reader<'a> {
    /// Creates a reader of these keys.
    pub(super) fn new(keys: &'a Keys) -> Self {
        Self {
            keys,
            known: Vec::new(),
        }
    }

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

    /// Reads a text.
    pub(super) fn string(&mut self, key: &'static str, field: &mut String) -> Result<(), Error> {
        self.look_up(key, "string", field, |value| {
            value.as_str().map(str::to_owned)
        })
    }

    /// Reads a boolean.
    pub(super) fn boolean(&mut self, key: &'static str, field: &mut bool) -> Result<(), Error> {
        self.look_up(key, "bool", field, Value::as_bool)
    }

    /// Reads a whole number.
    pub(super) fn integer(&mut self, key: &'static str, field: &mut i64) -> Result<(), Error> {
        self.look_up(key, "number", field, Value::as_i64)
    }

    /// Accepts nanoseconds, or a text such as `10s`.
    pub(super) fn duration(
        &mut self,
        key: &'static str,
        field: &mut GoDuration,
    ) -> Result<(), Error> {
        self.look_up(key, "duration", field, |value| match value {
            Value::String(text) => text.parse().ok(),
            other => other.as_i64().map(GoDuration::from_nanos),
        })
    }

    /// Reads a text that `parse` understands.
    pub(super) fn parsed<T>(
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
    pub(super) fn reference_parts(&mut self, field: &mut Option<ContainerId>) -> Result<(), Error> {
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
    pub(super) fn excludes(&mut self, monitor: &mut ResourceMonitor) -> Result<(), Error> {
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

    /// Returns the keys that nobody asked for.
    pub(super) fn unknown(&self) -> Vec<String> {
        self.keys
            .keys()
            .filter(|key| !self.known.contains(&key.as_str()) && !key.starts_with(RESOURCE_EXCLUDE))
            .cloned()
            .collect()
    }
}
