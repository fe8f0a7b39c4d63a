//! The schema as apply sees it: what is a leaf, which lists are merged by which key.

use serde_json::Value;

use super::fields::Element;
use crate::schema::Node;

/// Type of a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Type<'a> {
    kind: Kind<'a>,
    /// Whether fields that the schema does not name are kept here and below.
    open: bool,
}

#[derive(Clone, Copy, Debug)]
enum Kind<'a> {
    Schema(Node<'a>),
    /// Anything, always owned as a whole.
    Untyped,
    /// Anything, objects merged field by field.
    Deduced,
}

/// Scalars by what they may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    /// Numbers.
    Numeric,
    /// Texts.
    Text,
    /// Truth values.
    Boolean,
    /// Any of them.
    Any,
}

/// The form in which a value is handled.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Form<'a> {
    /// An object.
    Map {
        /// Owned as a whole.
        atomic: bool,
    },
    /// A list.
    List {
        /// Owned as a whole.
        atomic: bool,
        /// Fields that tell items apart; empty for a set.
        keys: Vec<&'a str>,
    },
    /// A leaf.
    Scalar(Scalar),
}

impl<'a> Type<'a> {
    /// The type of a schema.
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
        let preserves = node.word("x-kubernetes-preserve-unknown-fields");
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

    /// The form in which a value of this type is handled: that of the value where the type leaves a choice.
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

    /// In the order in which they are tried.
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
        let text = |word: &str| node.word(word).and_then(Value::as_str);
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

    /// Whether the schema names the field.
    pub(crate) fn names(&self, field: &str) -> bool {
        match self.kind {
            Kind::Schema(node) => node
                .properties()
                .is_some_and(|fields| fields.contains_key(field)),
            _ => false,
        }
    }

    /// Type of a field or of an entry; `None` when there can be none of that name.
    pub(crate) fn field(&self, name: &str) -> Option<Type<'a>> {
        let node = match self.kind {
            Kind::Untyped => return Some(Self::untyped()),
            Kind::Deduced => return Some(Self::deduced()),
            Kind::Schema(node) => node,
        };
        if let Some(schema) = node.properties().and_then(|fields| fields.get(name)) {
            return Some(Self::below(Node::new(schema), self.open));
        }
        match node.word("additionalProperties") {
            None => {
                let open = self.open || node.properties().is_none_or(serde_json::Map::is_empty);
                open.then(Self::deduced)
            }
            Some(Value::Bool(allowed)) => allowed.then(Self::deduced),
            Some(_) => node.additional().map(|node| Self::below(node, self.open)),
        }
    }

    /// Type of the items of a list.
    pub(crate) fn item(&self) -> Type<'a> {
        match self.kind {
            Kind::Schema(node) => match node.items() {
                Some(items) => Self::below(items, self.open),
                None => Self::untyped(),
            },
            _ => Self::untyped(),
        }
    }

    /// How an item of a merged list is named; the error says why it cannot be.
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
    let text = |word: &str| node.word(word).and_then(Value::as_str);
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
            let keys = node.word("x-kubernetes-list-map-keys");
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
