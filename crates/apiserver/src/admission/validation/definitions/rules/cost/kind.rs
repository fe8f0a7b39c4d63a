//! The types of cel-go's checker, which decide what overload a call uses.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::admission::validation::definitions::rules::types::escaped;

/// Name of the duration type.
pub(super) const DURATION: &str = "google.protobuf.Duration";
/// Name of the timestamp type.
pub(super) const TIMESTAMP: &str = "google.protobuf.Timestamp";

/// The largest request, in bytes.
pub(super) const LARGEST_REQUEST: u64 = 3 * 1024 * 1024;

/// A type.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// Any type.
    Dyn,
    /// A type that has only a name: `bool`, `string`, `kubernetes.Quantity`, ...
    Named(Arc<str>),
    /// A list with its item type.
    List(Arc<Kind>),
    /// A map with its key and value types.
    Map(Arc<Kind>, Arc<Kind>),
    /// An optional value.
    Optional(Arc<Kind>),
    /// The type of types.
    Type,
    /// An object of the schema.
    Object(Arc<Declared>),
    /// A type parameter in a signature.
    Parameter(Arc<str>),
    /// A type variable that inference is to resolve.
    Variable(usize),
}

impl Kind {
    /// Makes a type from a name.
    pub(super) fn named(name: &str) -> Self {
        match name {
            "dyn" => Self::Dyn,
            name => Self::Named(name.into()),
        }
    }

    /// Returns the name of a type that has only a name; otherwise an empty text.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Named(name) => name,
            _ => "",
        }
    }

    /// Parses a type in cel-go's notation, such as `map(string, list(<A>))`; `None` for text that is not understood.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let Some((name, rest)) = text.split_once('(') else {
            return Some(match text {
                "type" => Self::Type,
                name => match name.strip_prefix('<') {
                    Some(name) => Self::Parameter(name.trim_end_matches('>').into()),
                    None => Self::named(name),
                },
            });
        };
        let inside = split(rest.strip_suffix(')')?);
        let mut inner = inside.iter().map(|text| Self::parse(text).map(Arc::new));
        Some(match name {
            "list" => Self::List(inner.next()??),
            "map" => Self::Map(inner.next()??, inner.next()??),
            "optional_type" => Self::Optional(inner.next()??),
            "type" => Self::Type,
            _ => return None,
        })
    }

    /// Returns whether its size is always one.
    pub(super) fn is_scalar(&self) -> bool {
        match self {
            Self::Named(name) => {
                ["bool", "double", "int", "uint", DURATION, TIMESTAMP].contains(&&**name)
            }
            Self::Optional(inner) => inner.is_scalar(),
            _ => false,
        }
    }

    /// Returns the types that it consists of.
    pub(super) fn parts(&self) -> Vec<&Arc<Self>> {
        match self {
            Self::List(one) | Self::Optional(one) => vec![one],
            Self::Map(keys, values) => vec![keys, values],
            _ => Vec::new(),
        }
    }

    /// Returns the same type with other parts.
    pub(super) fn with_parts(&self, change: &mut dyn FnMut(&Self) -> Self) -> Self {
        match self {
            Self::List(one) => Self::List(Arc::new(change(one))),
            Self::Optional(one) => Self::Optional(Arc::new(change(one))),
            Self::Map(keys, values) => Self::Map(Arc::new(change(keys)), Arc::new(change(values))),
            other => other.clone(),
        }
    }

    /// Returns whether both are the same type.
    pub(super) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Dyn, Self::Dyn) | (Self::Type, Self::Type) => true,
            (Self::Named(one), Self::Named(two)) | (Self::Parameter(one), Self::Parameter(two)) => {
                one == two
            }
            (Self::Variable(one), Self::Variable(two)) => one == two,
            (Self::Object(one), Self::Object(two)) => Arc::ptr_eq(one, two),
            (Self::List(_), Self::List(_))
            | (Self::Map(..), Self::Map(..))
            | (Self::Optional(_), Self::Optional(_)) => {
                let (one, two) = (self.parts(), other.parts());
                one.iter().zip(two).all(|(one, two)| one.is(two))
            }
            _ => false,
        }
    }

    /// Returns whether null may be used as a value of it.
    pub(super) fn is_nullable(&self) -> bool {
        match self {
            Self::Object(_) | Self::Optional(_) => true,
            // the names of message and library types contain dots
            Self::Named(name) => name.contains('.') || &**name == "null_type",
            _ => false,
        }
    }

    /// Returns whether it is at least as general as another type that it agrees with.
    fn is_at_least_as_general(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Dyn | Self::Variable(_) | Self::Parameter(_), _) => true,
            (_, Self::Dyn | Self::Variable(_) | Self::Parameter(_)) => false,
            (Self::List(_), Self::List(_))
            | (Self::Map(..), Self::Map(..))
            | (Self::Optional(_), Self::Optional(_)) => {
                let (one, two) = (self.parts(), other.parts());
                let mut pairs = one.iter().zip(two);
                pairs.all(|(one, two)| one.is_at_least_as_general(two))
            }
            (one, two) => one.is(two),
        }
    }

    /// Returns the more general of two types that unify.
    pub(super) fn most_general(&self, other: &Self) -> Self {
        let wider = if self.is_at_least_as_general(other) {
            self
        } else {
            other
        };
        wider.clone()
    }
}

/// Splits a text at the commas outside of nested brackets.
pub(super) fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0_usize);
    for (index, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(text[start..index].trim());
                start = index + 1;
            }
            _ => {}
        }
    }
    let last = text[start..].trim();
    if !last.is_empty() {
        parts.push(last);
    }
    parts
}

/// What the schema says about the values of one of its parts.
#[derive(Debug)]
pub(in crate::admission::validation::definitions::rules) struct Declared {
    pub(super) form: Form,
    /// Largest number of bytes, items or fields.
    pub(super) max_size: u64,
    /// Length of the shortest value as JSON, in bytes.
    pub(super) min_length: u64,
}

/// The form of the values.
#[derive(Debug)]
pub(super) enum Form {
    Scalar(Kind),
    List(Arc<Declared>),
    Map(Arc<Declared>),
    Object(BTreeMap<String, Arc<Declared>>),
}

impl Declared {
    /// Returns the type of the values.
    pub(super) fn kind(self: &Arc<Self>) -> Kind {
        match &self.form {
            Form::Scalar(kind) => kind.clone(),
            Form::List(items) => Kind::List(Arc::new(items.kind())),
            Form::Map(values) => {
                Kind::Map(Arc::new(Kind::named("string")), Arc::new(values.kind()))
            }
            Form::Object(_) => Kind::Object(Arc::clone(self)),
        }
    }

    /// Returns a field of an object by its name in rules; reserved words may be written without escapes.
    pub(super) fn field(&self, name: &str) -> Option<&Arc<Self>> {
        match &self.form {
            Form::Object(fields) => fields.get(name).or_else(|| fields.get(&escaped(name))),
            _ => None,
        }
    }

    /// Returns the largest size of the value at the end of a path; `None` where the path leaves the schema.
    pub(super) fn max_size_at(&self, path: &[String]) -> Option<u64> {
        let Some((step, rest)) = path.split_first() else {
            return Some(self.max_size);
        };
        match (step.as_str(), &self.form) {
            ("@items" | "@values", Form::List(inner) | Form::Map(inner)) => inner.max_size_at(rest),
            // keys have no schema and no size
            ("@keys", Form::Map(_)) => rest.is_empty().then_some(0),
            (name, Form::Object(fields)) => fields.get(name)?.max_size_at(rest),
            _ => None,
        }
    }

    /// Returns how often a value can occur in an object.
    pub(in crate::admission::validation::definitions::rules) fn max_occurrences(&self) -> u64 {
        LARGEST_REQUEST / (self.min_length + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_read_as_they_are_written() {
        let kind = Kind::parse("map(string, list(optional_type(<T>)))").unwrap();
        let Kind::Map(keys, values) = &kind else {
            panic!("a map")
        };
        assert_eq!(keys.name(), "string");
        let items = values.parts()[0];
        assert!(matches!(&**items, Kind::Optional(inner) if matches!(**inner, Kind::Parameter(_))));
        assert!(Kind::parse("wrapper(int)").is_none());
    }
}
