//! Structural schemas: those of the built-in kinds, as a real server publishes them (almost without descriptions), and those of
//! `CustomResourceDefinition`s. Field validation, pruning, patches and apply all read schemas through this module.

use std::sync::LazyLock;

use serde_json::{Map, Value};

static BUILT_IN: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../corpus/facts/schemas.json")).unwrap_or_default()
});

static ANYTHING: Value = Value::Bool(true);

/// Returns the schemas of all built-in kinds by name.
pub(crate) fn built_in() -> &'static Map<String, Value> {
    &BUILT_IN
}

/// The schema of a value, with references resolved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node<'a> {
    /// The schema where it is used: keywords beside a reference count, too.
    here: &'a Value,
    /// The schema that a reference leads to, or the same schema.
    target: &'a Value,
    name: &'a str,
}

impl<'a> Node<'a> {
    /// Makes the root node of a schema.
    pub(crate) fn new(here: &'a Value) -> Self {
        let mut target = here;
        let mut name = "";
        // ends cycles of references; no chain is as long as this
        for _ in 0..16 {
            let Some(reference) = target.get("$ref").and_then(Value::as_str) else {
                break;
            };
            name = reference;
            target = BUILT_IN.get(reference).unwrap_or(&ANYTHING);
        }
        Self { here, target, name }
    }

    /// Returns the schema of a built-in type.
    #[cfg(test)]
    pub(crate) fn of_type(name: &'a str) -> Self {
        Self::named(name)
    }

    /// Returns the schema of the metadata that all objects have.
    pub(crate) fn object_meta() -> Node<'static> {
        Node::named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
    }

    fn named(name: &'a str) -> Self {
        let target = BUILT_IN.get(name).unwrap_or(&ANYTHING);
        Self {
            here: target,
            target,
            name,
        }
    }

    /// Returns the schema of a value about which nothing is known.
    pub(crate) fn anything() -> Node<'static> {
        Node::new(&ANYTHING)
    }

    /// Returns the value of a keyword.
    pub(crate) fn keyword(&self, key: &str) -> Option<&'a Value> {
        self.here.get(key).or_else(|| self.target.get(key))
    }

    fn text(&self, key: &str) -> Option<&'a str> {
        self.keyword(key).and_then(Value::as_str)
    }

    fn is(&self, key: &str) -> bool {
        self.keyword(key).and_then(Value::as_bool).unwrap_or(false)
    }

    /// Returns the last part of the type's name, as messages show it.
    pub(crate) fn type_name(&self) -> &'a str {
        self.name.rsplit('.').next().unwrap_or_default()
    }

    /// Returns the name of the built-in type; empty for an inline schema.
    pub(crate) fn full_name(&self) -> &'a str {
        self.name
    }

    /// Returns the schema as written, with references.
    pub(crate) fn raw(&self) -> &'a Value {
        self.here
    }

    /// Returns whether there is no schema at all.
    pub(crate) fn is_unknown(&self) -> bool {
        self.target == &ANYTHING
    }

    /// Returns whether the value is an amount such as `500m`.
    pub(crate) fn is_quantity(&self) -> bool {
        self.name.ends_with(".resource.Quantity")
    }

    /// Returns whether the value may be a number or a text.
    pub(crate) fn is_int_or_string(&self) -> bool {
        self.is("x-kubernetes-int-or-string") || self.text("format") == Some("int-or-string")
    }

    /// Returns whether fields that the schema does not name are kept.
    pub(crate) fn keeps_unknown(&self) -> bool {
        self.is("x-kubernetes-preserve-unknown-fields") || self.is_opaque()
    }

    /// Returns whether the schema says nothing about what is inside.
    pub(crate) fn is_opaque(&self) -> bool {
        self.target == &ANYTHING
            || (self.type_is("object") || self.keyword("type").is_none())
                && self.properties().is_none()
                && self.additional().is_none()
                && self.items().is_none()
                && self.keyword("oneOf").is_none()
                && !self.is_int_or_string()
    }

    /// Returns `object`, `array`, `string`, `integer`, `number`, `boolean`, or an empty text.
    pub(crate) fn kind(&self) -> &'a str {
        self.target
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or("")
    }

    /// Returns whether the value is of this type.
    pub(crate) fn type_is(&self, name: &str) -> bool {
        self.kind() == name
    }

    /// Returns the named fields.
    pub(crate) fn properties(&self) -> Option<&'a Map<String, Value>> {
        self.target.get("properties").and_then(Value::as_object)
    }

    /// Returns the schema of a map's other values.
    pub(crate) fn additional(&self) -> Option<Node<'a>> {
        let schema = self.target.get("additionalProperties")?;
        schema.is_object().then(|| Node::new(schema))
    }

    /// Returns the schema of a list's items.
    pub(crate) fn items(&self) -> Option<Node<'a>> {
        self.target.get("items").map(Node::new)
    }

    /// Returns the schema of a field; `None` for an unknown field.
    pub(crate) fn field(&self, name: &str) -> Option<Node<'a>> {
        if let Some(schema) = self.properties().and_then(|fields| fields.get(name)) {
            return Some(Node::new(schema));
        }
        if let Some(schema) = self.additional() {
            return Some(schema);
        }
        let open = self.keeps_unknown()
            || self.target.get("additionalProperties") == Some(&Value::Bool(true));
        open.then(Node::anything)
    }

    /// Returns the names of the required fields.
    pub(crate) fn required(&self) -> impl Iterator<Item = &'a str> {
        self.target
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
    }

    /// Returns the default value.
    pub(crate) fn default(&self) -> Option<&'a Value> {
        self.here.get("default")
    }

    /// Returns the format of the value, such as `int32`.
    pub(crate) fn format(&self) -> &'a str {
        self.text("format").unwrap_or_default()
    }
}
