//! The types of cel-go's checker, which decide what overload a call uses.

use std::collections::HashMap;
use std::sync::Arc;

use super::declared::Declared;

/// Name of the duration type.
pub(super) const DURATION: &str = "google.protobuf.Duration";
/// Name of the timestamp type.
pub(super) const TIMESTAMP: &str = "google.protobuf.Timestamp";

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
    fn with_parts(&self, change: &mut dyn FnMut(&Self) -> Self) -> Self {
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
    fn is_nullable(&self) -> bool {
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

/// What type variables were resolved to.
#[derive(Clone, Debug, Default)]
pub(super) struct Substitution {
    bindings: HashMap<usize, Kind>,
    count: usize,
}

impl Substitution {
    /// Makes a new type variable.
    pub(super) fn new_variable(&mut self) -> Kind {
        self.count += 1;
        Kind::Variable(self.count)
    }

    /// Returns a type whose parameters are replaced by type variables.
    pub(super) fn instantiate(
        &mut self,
        kind: &Kind,
        variables: &mut HashMap<Arc<str>, Kind>,
    ) -> Kind {
        match kind {
            Kind::Parameter(name) => {
                let known = variables.get(name).cloned();
                known.unwrap_or_else(|| {
                    let variable = self.new_variable();
                    variables.insert(Arc::clone(name), variable.clone());
                    variable
                })
            }
            other => other.with_parts(&mut |inner| self.instantiate(inner, variables)),
        }
    }

    /// Returns a type with resolved variables. At the end, unresolved variables become `dyn`.
    pub(super) fn resolved(&self, kind: &Kind, at_the_end: bool) -> Kind {
        match kind {
            Kind::Variable(number) => match self.bindings.get(number) {
                Some(found) => self.resolved(found, at_the_end),
                None if at_the_end => Kind::Dyn,
                None => kind.clone(),
            },
            other => other.with_parts(&mut |inner| self.resolved(inner, at_the_end)),
        }
    }

    /// Returns whether values of the first types may be used as those of the second. What is learned about variables is kept only if so.
    pub(super) fn unify(&mut self, one: &[Kind], two: &[Kind]) -> bool {
        let before = self.bindings.clone();
        let unified = one.len() == two.len()
            && one
                .iter()
                .zip(two)
                .all(|(one, two)| self.unify_one(one, two));
        if !unified {
            self.bindings = before;
        }
        unified
    }

    fn unify_one(&mut self, one: &Kind, two: &Kind) -> bool {
        if let Kind::Variable(number) = two {
            let was_bound = self.bindings.contains_key(number);
            if self.unify_variable(one, *number) {
                return true;
            }
            if was_bound {
                return false;
            }
        }
        match (one, two) {
            (Kind::Variable(number), _) => self.unify_variable(two, *number),
            (Kind::Dyn, _) | (_, Kind::Dyn) => true,
            (Kind::Named(name), other) | (other, Kind::Named(name)) if &**name == "null_type" => {
                other.is_nullable()
            }
            (Kind::List(_), Kind::List(_))
            | (Kind::Map(..), Kind::Map(..))
            | (Kind::Optional(_), Kind::Optional(_)) => {
                let (one, two) = (one.parts(), two.parts());
                one.iter()
                    .zip(two)
                    .all(|(one, two)| self.unify_one(one, two))
            }
            (one, two) => one.is(two),
        }
    }

    /// Returns whether a type variable may stand for a type. If so, the variable is set to it.
    fn unify_variable(&mut self, kind: &Kind, number: usize) -> bool {
        let variable = Kind::Variable(number);
        if kind.is(&variable) {
            return true;
        }
        if let Some(known) = self.bindings.get(&number).cloned() {
            if kind.is(&known) {
                return true;
            }
            if !self.unify_one(kind, &known) {
                return false;
            }
            let wider = kind.most_general(&known);
            if !self.mentions(&wider, number) {
                self.bindings.insert(number, wider);
            }
            return true;
        }
        let is_free = !self.mentions(kind, number);
        if is_free {
            self.bindings.insert(number, kind.clone());
        }
        is_free
    }

    fn mentions(&self, kind: &Kind, number: usize) -> bool {
        match kind {
            Kind::Variable(other) => {
                *other == number
                    || self
                        .bindings
                        .get(other)
                        .is_some_and(|known| self.mentions(known, number))
            }
            other => other
                .parts()
                .iter()
                .any(|inner| self.mentions(inner, number)),
        }
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

    #[test]
    fn open_types_are_found_by_what_is_given() {
        let mut substitution = Substitution::default();
        let mut variables = HashMap::new();
        let wanted = Kind::parse("list(<T>)").unwrap();
        let wanted = substitution.instantiate(&wanted, &mut variables);
        let texts = Kind::parse("list(string)").unwrap();
        let amounts = Kind::parse("list(int)").unwrap();
        let variable = Kind::List(Arc::new(substitution.new_variable()));
        assert!(substitution.unify(
            &[texts.clone(), variable.clone()],
            &[wanted.clone(), wanted.clone()]
        ));
        assert!(substitution.resolved(&variable, true).is(&texts));
        assert!(!substitution.unify(&[amounts], &[wanted]));
        let any = substitution.new_variable();
        assert!(matches!(substitution.resolved(&any, true), Kind::Dyn));
    }
}
