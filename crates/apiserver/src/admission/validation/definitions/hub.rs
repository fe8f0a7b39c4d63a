//! The internal form in which a real server validates definitions: what all versions share is stored once, outside the versions.
//!
//! Refusals name fields of this form, not of the form that clients write: `spec.validation` is the schema of a definition whose versions
//! all have the same schema.

use serde_json::Value;

use crate::values::fields::elements;

static NOTHING: Value = Value::Null;

/// The specification of a definition.
#[derive(Debug)]
pub(super) struct Spec<'a> {
    /// The specification as written.
    pub(super) raw: &'a Value,
    /// The versions; parts that all versions share are `Null` there.
    pub(super) versions: Vec<Version<'a>>,
    /// The parts that all versions share.
    pub(super) shared: Parts<'a>,
}

/// A version of a definition.
#[derive(Debug)]
pub(super) struct Version<'a> {
    /// The version as written.
    pub(super) raw: &'a Value,
    /// The parts that are not shared.
    pub(super) own: Parts<'a>,
}

/// The parts of a version, or those that all versions share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts<'a> {
    /// `{openAPIV3Schema: ...}`.
    pub(super) schema: &'a Value,
    pub(super) subresources: &'a Value,
    pub(super) columns: &'a Value,
    pub(super) selectable: &'a Value,
}

/// The names of the parts in the form that clients write.
const PARTS: [&str; 4] = [
    "schema",
    "subresources",
    "additionalPrinterColumns",
    "selectableFields",
];

impl<'a> Parts<'a> {
    fn of(parts: [&'a Value; 4]) -> Self {
        let [schema, subresources, columns, selectable] = parts;
        Self {
            schema,
            subresources,
            columns,
            selectable,
        }
    }

    /// Returns the schema itself; `Null` when there is none.
    pub(super) fn open_api(&self) -> &'a Value {
        self.schema.get("openAPIV3Schema").unwrap_or(&NOTHING)
    }

    /// Returns whether the status is a subresource.
    pub(super) fn has_status(&self) -> bool {
        self.subresources["status"].is_object()
    }
}

impl<'a> Spec<'a> {
    /// Parses a specification in the form that clients write.
    pub(super) fn of(raw: &'a Value) -> Self {
        let versions: Vec<&Value> = elements(&raw["versions"]).collect();
        let first = versions.first().copied().unwrap_or(&NOTHING);
        let same = PARTS.map(|part| {
            versions
                .iter()
                .all(|version| value(version, part) == value(first, part))
        });
        let pick = |version: &'a Value, shared: bool| {
            let mut index = 0;
            Parts::of(PARTS.map(|part| {
                let picked = same[index] == shared;
                index += 1;
                if picked {
                    value(version, part)
                } else {
                    &NOTHING
                }
            }))
        };
        Self {
            raw,
            shared: pick(first, true),
            versions: versions
                .into_iter()
                .map(|version| Version {
                    raw: version,
                    own: pick(version, false),
                })
                .collect(),
        }
    }

    /// Returns the name of the first version; empty when there is none.
    pub(super) fn version(&self) -> &'a str {
        self.versions.first().map_or("", |version| version.name())
    }
}

impl<'a> Version<'a> {
    /// Returns the name of the version.
    pub(super) fn name(&self) -> &'a str {
        self.raw["name"].as_str().unwrap_or_default()
    }

    /// Returns a boolean field, such as `storage`.
    pub(super) fn is(&self, flag: &str) -> bool {
        self.raw[flag] == true
    }
}

fn value<'a>(version: &'a Value, part: &str) -> &'a Value {
    version.get(part).unwrap_or(&NOTHING)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_all_versions_have_stands_beside_them() {
        let raw = json!({"versions": [
            {"name": "v1", "schema": {"openAPIV3Schema": {"type": "object"}}, "subresources": {"status": {}}},
            {"name": "v2", "schema": {"openAPIV3Schema": {"type": "object"}}}]});
        let spec = Spec::of(&raw);
        assert_eq!(spec.shared.open_api(), &json!({"type": "object"}));
        assert!(
            spec.versions
                .iter()
                .all(|version| version.own.schema.is_null())
        );
        assert!(spec.shared.subresources.is_null());
        assert!(spec.versions[0].own.has_status() && !spec.versions[1].own.has_status());
        assert_eq!(spec.version(), "v1");
    }
}
