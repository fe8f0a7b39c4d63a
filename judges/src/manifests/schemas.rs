//! The schemas of the built-in kinds, as a real server publishes them.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

static SCHEMAS: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    let text = include_str!("../../../crates/apiserver/corpus/facts/schemas.json");
    serde_json::from_str(text).unwrap_or_default()
});

static ANYTHING: Value = Value::Null;

/// What a value of a schema is, as far as changes of it depend on that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Structure,
    Map,
    List,
    Text,
    Bytes,
    Time,
    Quantity,
    IntOrString,
    Integer,
    Boolean,
    Anything,
}

/// The schema of a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schema(&'static Value);

/// Returns the name of the schema of a kind.
pub(super) fn of_kind(group: &str, version: &str, kind: &str) -> Option<String> {
    let number = version.rsplit('/').next().unwrap_or(version);
    let wanted = json!({"group": group, "kind": kind, "version": number});
    let found = SCHEMAS.iter().find(|(_, schema)| {
        let kinds = schema["x-kubernetes-group-version-kind"].as_array();
        kinds.is_some_and(|kinds| kinds.contains(&wanted))
    });
    found.map(|(name, _)| name.clone())
}

impl Schema {
    pub(super) fn named(name: &str) -> Self {
        Self(SCHEMAS.get(name).unwrap_or(&ANYTHING))
    }

    fn follow(schema: &'static Value) -> Self {
        match schema["$ref"].as_str() {
            Some(name) => Self::named(name),
            None => Self(schema),
        }
    }

    pub(super) fn form(self) -> Form {
        let schema = self.0;
        if schema["x-kubernetes-int-or-string"] == true || schema["format"] == "int-or-string" {
            return Form::IntOrString;
        }
        let quantity = Schema::named("io.k8s.apimachinery.pkg.api.resource.Quantity");
        if std::ptr::eq(schema, quantity.0) {
            return Form::Quantity;
        }
        match (schema["type"].as_str(), schema["format"].as_str()) {
            (Some("object"), _) if schema["additionalProperties"].is_object() => Form::Map,
            (Some("object"), _) if schema["properties"].is_object() => Form::Structure,
            (Some("array"), _) => Form::List,
            (Some("string"), Some("byte")) => Form::Bytes,
            (Some("string"), Some("date-time")) => Form::Time,
            (Some("string"), _) => Form::Text,
            (Some("integer"), _) => Form::Integer,
            (Some("boolean"), _) => Form::Boolean,
            _ => Form::Anything,
        }
    }

    /// Returns the schema of a field or of the value of a key.
    pub(super) fn field(self, name: &str) -> Self {
        match self.form() {
            Form::Map => Self::follow(&self.0["additionalProperties"]),
            _ => Self::follow(&self.0["properties"][name]),
        }
    }

    pub(super) fn items(self) -> Self {
        Self::follow(&self.0["items"])
    }

    /// Returns the fields of a structure.
    pub(super) fn fields(self) -> impl Iterator<Item = &'static str> {
        let fields = self.0["properties"].as_object().into_iter().flatten();
        fields.map(|(name, _)| name.as_str())
    }

    /// Returns the texts that are allowed; none where all are.
    pub(super) fn choices(self) -> Vec<Value> {
        self.0["enum"].as_array().cloned().unwrap_or_default()
    }

    fn required(self) -> impl Iterator<Item = &'static str> {
        let required = self.0["required"].as_array().into_iter().flatten();
        required.filter_map(Value::as_str)
    }

    /// Makes a value of the right types with as few fields as possible, which need not be valid.
    pub(super) fn sample(self) -> Value {
        match self.form() {
            Form::Structure => {
                let fields = self.required();
                fields
                    .map(|name| (name.to_owned(), self.field(name).sample()))
                    .collect()
            }
            Form::Map => json!({"k": self.field("k").sample()}),
            Form::List => json!([self.items().sample()]),
            Form::Text => self
                .choices()
                .first()
                .cloned()
                .unwrap_or_else(|| json!("x")),
            Form::Bytes => json!("Yg=="),
            Form::Time => json!("2026-01-01T00:00:00Z"),
            Form::Quantity => json!("1"),
            Form::IntOrString | Form::Integer => json!(1),
            Form::Boolean => json!(true),
            Form::Anything => json!({}),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_those_of_the_types() {
        let pod = Schema::named(&of_kind("", "v1", "Pod").unwrap());
        let spec = pod.field("spec");
        let container = spec.field("containers").items();
        let forms = [
            spec,
            spec.field("containers"),
            spec.field("nodeSelector"),
            container
                .field("resources")
                .field("limits")
                .field("any name"),
            container
                .field("livenessProbe")
                .field("tcpSocket")
                .field("port"),
            spec.field("hostNetwork"),
            spec.field("priority"),
            pod.field("metadata").field("creationTimestamp"),
        ]
        .map(Schema::form);
        assert_eq!(
            forms,
            [
                Form::Structure,
                Form::List,
                Form::Map,
                Form::Quantity,
                Form::IntOrString,
                Form::Boolean,
                Form::Integer,
                Form::Time
            ]
        );
    }

    #[test]
    fn a_sample_has_the_required_fields() {
        let policy = of_kind("networking.k8s.io", "networking.k8s.io/v1", "Ingress").unwrap();
        let paths = Schema::named(&policy)
            .field("spec")
            .field("rules")
            .items()
            .field("http")
            .field("paths");
        let sample = paths.items().sample();
        assert_eq!(sample, json!({"backend": {}, "pathType": "Exact"}));
    }
}
