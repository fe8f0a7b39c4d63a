//! The schema as apply needs it: what is a leaf, and which lists are merged by which key.

use serde_json::Value;

use super::fields::Element;
use crate::schema::Node;

/// The type of a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Type<'a> {
    kind: Kind<'a>,
    /// Whether fields that the schema does not name are kept at this level and below.
    open: bool,
}

#[derive(Clone, Copy, Debug)]
enum Kind<'a> {
    Schema(Node<'a>),
    /// Any value, always owned as a whole.
    Untyped,
    /// Any value; objects are merged field by field.
    Deduced,
}

/// What a scalar may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    /// Numbers.
    Numeric,
    /// Strings.
    Text,
    /// Booleans.
    Boolean,
    /// Any of them.
    Any,
}

/// How a value is handled.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Form<'a> {
    /// An object.
    Map {
        /// Whether it is owned as a whole.
        atomic: bool,
    },
    /// A list.
    List {
        /// Whether it is owned as a whole.
        atomic: bool,
        /// Fields that identify items; empty for a set.
        keys: Vec<&'a str>,
    },
    /// A leaf.
    Scalar(Scalar),
}

impl<'a> Type<'a> {
    /// Makes the type of a schema.
    pub(crate) fn new(node: Node<'a>) -> Self {
        Self::below(node, false)
    }

    fn below(node: Node<'a>, open: bool) -> Self {
        let kind = if node.full_name().ends_with(".runtime.RawExtension") {
            Kind::Untyped
        } else if node.is_unknown() {
            Kind::Deduced
        } else {
            Kind::Schema(node)
        };
        let preserves = node.keyword("x-kubernetes-preserve-unknown-fields");
        Self {
            kind,
            open: open || preserves == Some(&Value::Bool(true)),
        }
    }

    fn deduced() -> Self {
        Self {
            kind: Kind::Deduced,
            open: false,
        }
    }

    fn untyped() -> Self {
        Self {
            kind: Kind::Untyped,
            open: false,
        }
    }

    /// Returns how a value of this type is handled. If the type leaves a choice, the value decides.
    pub(crate) fn form(&self, value: Option<&Value>) -> Form<'a> {
        let forms = self.forms();
        let fitting = |form: &&Form<'a>| match value {
            Some(Value::Object(_)) => matches!(form, Form::Map { .. }),
            Some(Value::Array(_)) => matches!(form, Form::List { .. }),
            Some(Value::Null) | None => false,
            Some(_) => matches!(form, Form::Scalar(_)),
        };
        forms
            .iter()
            .find(fitting)
            .or_else(|| forms.first())
            .cloned()
            .unwrap_or(Form::Scalar(Scalar::Any))
    }

    /// Returns the possible forms, in the order in which they are tried.
    fn forms(&self) -> Vec<Form<'a>> {
        let all = |map_atomic| {
            vec![
                Form::Map { atomic: map_atomic },
                Form::Scalar(Scalar::Any),
                Form::List {
                    atomic: true,
                    keys: Vec::new(),
                },
            ]
        };
        let node = match self.kind {
            Kind::Untyped => return all(true),
            Kind::Deduced => return all(false),
            Kind::Schema(node) => node,
        };
        if node.is_quantity() {
            return vec![Form::Scalar(Scalar::Any)];
        }
        let text = |word: &str| node.keyword(word).and_then(Value::as_str);
        let map = || Form::Map {
            atomic: text("x-kubernetes-map-type") == Some("atomic"),
        };
        match node.kind() {
            "object" => vec![map()],
            "array" => vec![list(node)],
            "integer" | "number" => vec![Form::Scalar(Scalar::Numeric)],
            "boolean" => vec![Form::Scalar(Scalar::Boolean)],
            "string" if matches!(node.format(), "" | "byte") => vec![Form::Scalar(Scalar::Text)],
            "string" => vec![Form::Scalar(Scalar::Any)],
            _ => vec![map(), Form::Scalar(Scalar::Any), list(node)],
        }
    }

    /// Returns whether the schema names the field.
    pub(crate) fn names(&self, field: &str) -> bool {
        match self.kind {
            Kind::Schema(node) => node
                .properties()
                .is_some_and(|fields| fields.contains_key(field)),
            _ => false,
        }
    }

    /// Returns the type of a field or of a map entry; `None` when no such field can exist.
    pub(crate) fn field(&self, name: &str) -> Option<Type<'a>> {
        let node = match self.kind {
            Kind::Untyped => return Some(Self::untyped()),
            Kind::Deduced => return Some(Self::deduced()),
            Kind::Schema(node) => node,
        };
        if let Some(schema) = node.properties().and_then(|fields| fields.get(name)) {
            return Some(Self::below(Node::new(schema), self.open));
        }
        match node.keyword("additionalProperties") {
            None => {
                let open = self.open || node.properties().is_none_or(serde_json::Map::is_empty);
                open.then(Self::deduced)
            }
            Some(Value::Bool(allowed)) => allowed.then(Self::deduced),
            Some(_) => node.additional().map(|node| Self::below(node, self.open)),
        }
    }

    /// Returns the type of the items of a list.
    pub(crate) fn item(&self) -> Type<'a> {
        match self.kind {
            Kind::Schema(node) => match node.items() {
                Some(items) => Self::below(items, self.open),
                None => Self::untyped(),
            },
            _ => Self::untyped(),
        }
    }

    /// Returns the element that identifies an item of a merged list; the error says why there is none.
    pub(crate) fn element(&self, keys: &[&str], item: &Value) -> Result<Element, String> {
        if keys.is_empty() {
            return match item {
                Value::Object(_) => {
                    Err("associative list without keys has an element that's a map type".into())
                }
                Value::Array(_) => {
                    Err("not supported: associative list with lists as elements".into())
                }
                Value::Null => Err(
                    "associative list without keys has an element that's an explicit null".into(),
                ),
                value => Ok(Element::Value(value.to_string())),
            };
        }
        let Value::Object(fields) = item else {
            return Err(if item.is_null() {
                "associative list with keys may not have a null element".into()
            } else {
                "associative list with keys may not have non-map elements".into()
            });
        };
        let item_type = self.item();
        let mut found = Vec::new();
        for key in keys {
            let value = fields.get(*key).or_else(|| match item_type.kind {
                Kind::Schema(node) => node
                    .properties()
                    .and_then(|fields| fields.get(*key))
                    .and_then(|field| field.get("default")),
                _ => None,
            });
            found.extend(value.map(|value| (*key, value)));
        }
        if found.is_empty() {
            return Err(format!(
                "associative list with keys has an element that omits all key fields {keys:?} (and doesn't have default values for any key fields)"
            ).replace(", ", " "));
        }
        Ok(Element::of_keys(found))
    }
}

fn list(node: Node<'_>) -> Form<'_> {
    let text = |word: &str| node.keyword(word).and_then(Value::as_str);
    let atomic = Form::List {
        atomic: true,
        keys: Vec::new(),
    };
    match text("x-kubernetes-list-type") {
        Some("set") => Form::List {
            atomic: false,
            keys: Vec::new(),
        },
        Some("map") => {
            let keys = node.keyword("x-kubernetes-list-map-keys");
            let keys = keys.and_then(Value::as_array).into_iter().flatten();
            Form::List {
                atomic: false,
                keys: keys.filter_map(Value::as_str).collect(),
            }
        }
        Some(_) => atomic,
        None => match text("x-kubernetes-patch-strategy") {
            Some("merge" | "merge,retainKeys") => Form::List {
                atomic: false,
                keys: text("x-kubernetes-patch-merge-key").into_iter().collect(),
            },
            _ => atomic,
        },
    }
}
