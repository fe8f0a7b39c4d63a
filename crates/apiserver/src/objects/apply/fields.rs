//! Sets of fields, in the form of `metadata.managedFields`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Map, Value};

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Element {
    /// A field of an object or an entry of a map.
    Field(String),
    /// The item of a list with these key fields: a JSON object with sorted fields.
    Key(String),
    /// The item of a set with this value, as JSON.
    Value(String),
    /// The item at this index.
    Index(i64),
}

impl Element {
    /// Makes the element of the item with these key fields.
    pub(crate) fn of_keys(mut keys: Vec<(&str, &Value)>) -> Self {
        keys.sort_by_key(|(name, _)| *name);
        let fields: Vec<String> = keys
            .into_iter()
            .map(|(name, value)| format!("{}:{value}", Value::from(name)))
            .collect();
        Self::Key(format!("{{{}}}", fields.join(",")))
    }

    fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        match kind {
            "f" => Some(Self::Field(rest.to_owned())),
            "k" => {
                let fields: Map<String, Value> = serde_json::from_str(rest).ok()?;
                let fields = fields.iter().map(|(name, value)| (name.as_str(), value));
                Some(Self::of_keys(fields.collect()))
            }
            "v" => {
                let value: Value = serde_json::from_str(rest).ok()?;
                Some(Self::Value(value.to_string()))
            }
            "i" => rest.parse().ok().map(Self::Index),
            _ => None,
        }
    }

    fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(keys) => format!("k:{keys}"),
            Self::Value(value) => format!("v:{value}"),
            Self::Index(index) => format!("i:{index}"),
        }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(keys) => {
                let fields: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
                let mut texts: Vec<String> = fields
                    .iter()
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect();
                texts.sort();
                write!(f, "[{}]", texts.join(","))
            }
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// Returns the text of a path, such as `.spec.containers[name="a"].image`.
pub(crate) fn path_text(path: &[Element]) -> String {
    path.iter().map(ToString::to_string).collect()
}

/// A set of fields: the members of this level, and sets below them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FieldSet {
    /// Members at this level.
    pub(crate) members: BTreeSet<Element>,
    /// The sets of deeper levels.
    pub(crate) children: BTreeMap<Element, FieldSet>,
}

impl FieldSet {
    /// Makes a set of dotted paths of named fields, such as `metadata.name`.
    pub(crate) fn of_names(paths: &[&str]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let path: Vec<Element> = path
                .split('.')
                .map(|name| Element::Field(name.to_owned()))
                .collect();
            set.insert(&path);
        }
        set
    }

    /// Adds a path.
    pub(crate) fn insert(&mut self, path: &[Element]) {
        match path {
            [] => {}
            [last] => {
                self.members.insert(last.clone());
            }
            [first, rest @ ..] => self.children.entry(first.clone()).or_default().insert(rest),
        }
    }

    /// Returns whether a path is a member.
    pub(crate) fn has(&self, path: &[Element]) -> bool {
        match path {
            [] => false,
            [last] => self.members.contains(last),
            [first, rest @ ..] => self
                .children
                .get(first)
                .is_some_and(|child| child.has(rest)),
        }
    }

    /// Returns whether there is no member at any level.
    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.values().all(Self::is_empty)
    }

    /// Returns the members of either set.
    pub(crate) fn union(&self, other: &Self) -> Self {
        let mut all = self.clone();
        all.members.extend(other.members.iter().cloned());
        for (element, child) in &other.children {
            let here = all.children.entry(element.clone()).or_default();
            *here = here.union(child);
        }
        all
    }

    /// Returns the members of both sets.
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let children = self.children.iter().filter_map(|(element, child)| {
            let both = child.intersection(other.children.get(element)?);
            (!both.is_empty()).then(|| (element.clone(), both))
        });
        Self {
            members: self.members.intersection(&other.members).cloned().collect(),
            children: children.collect(),
        }
    }

    /// Returns the members of this set that the other does not have.
    pub(crate) fn difference(&self, other: &Self) -> Self {
        self.without(other, false)
    }

    /// Returns the members of this set that are neither members of the other nor below one of its members.
    pub(crate) fn recursive_difference(&self, other: &Self) -> Self {
        self.without(other, true)
    }

    fn without(&self, other: &Self, recursive: bool) -> Self {
        let children = self.children.iter().filter_map(|(element, child)| {
            if recursive && other.members.contains(element) {
                return None;
            }
            let rest = match other.children.get(element) {
                Some(taken) => child.without(taken, recursive),
                None => child.clone(),
            };
            (!rest.is_empty()).then(|| (element.clone(), rest))
        });
        Self {
            members: self.members.difference(&other.members).cloned().collect(),
            children: children.collect(),
        }
    }

    /// Returns all paths.
    pub(crate) fn paths(&self) -> Vec<Vec<Element>> {
        let mut all = Vec::new();
        self.collect(&mut Vec::new(), &mut all);
        all
    }

    fn collect(&self, prefix: &mut Vec<Element>, all: &mut Vec<Vec<Element>>) {
        for element in &self.members {
            let mut path = prefix.clone();
            path.push(element.clone());
            all.push(path);
        }
        for (element, child) in &self.children {
            prefix.push(element.clone());
            child.collect(prefix, all);
            prefix.pop();
        }
    }

    /// Returns the set as `fieldsV1`.
    pub(crate) fn encode(&self) -> Value {
        self.encode_with(false)
    }

    fn encode_with(&self, is_member: bool) -> Value {
        let mut object = Map::new();
        if is_member && !self.is_empty() {
            object.insert(".".into(), Value::Object(Map::new()));
        }
        for element in &self.members {
            if !self.children.contains_key(element) {
                object.insert(element.encode(), Value::Object(Map::new()));
            }
        }
        for (element, child) in &self.children {
            let encoded = child.encode_with(self.members.contains(element));
            object.insert(element.encode(), encoded);
        }
        Value::Object(object)
    }

    /// Returns the set of a `fieldsV1`; `None` when it cannot be parsed.
    pub(crate) fn decode(fields: &Value) -> Option<Self> {
        if fields.is_null() {
            return Some(Self::default());
        }
        let mut set = Self::default();
        for (name, below) in fields.as_object()? {
            if name == "." {
                continue;
            }
            let element = Element::parse(name)?;
            let inner = below.as_object()?;
            if inner.is_empty() || inner.contains_key(".") {
                set.members.insert(element.clone());
            }
            let child = Self::decode(below)?;
            if !child.is_empty() {
                set.children.insert(element, child);
            }
        }
        Some(set)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_set_survives_its_encoding() {
        let fields = json!({"f:spec": {"f:containers": {"k:{\"name\":\"a\"}": {".": {}, "f:image": {}}}},
            "f:metadata": {"f:finalizers": {".": {}, "v:\"x\"": {}}}});
        let set = FieldSet::decode(&fields).unwrap();
        assert_eq!(set.encode(), fields);
        let texts: Vec<String> = set.paths().iter().map(|path| path_text(path)).collect();
        assert_eq!(
            texts,
            [
                ".metadata.finalizers",
                ".metadata.finalizers[=\"x\"]",
                ".spec.containers[name=\"a\"]",
                ".spec.containers[name=\"a\"].image",
            ]
        );
    }

    #[test]
    fn differences_are_exact_or_take_what_is_below() {
        let all = FieldSet::of_names(&["spec", "spec.a", "status.b"]);
        assert_eq!(
            all.difference(&FieldSet::of_names(&["spec"])),
            FieldSet::of_names(&["spec.a", "status.b"])
        );
        assert_eq!(
            all.recursive_difference(&FieldSet::of_names(&["spec"])),
            FieldSet::of_names(&["status.b"])
        );
    }
}
