//! The fields of a value: lists them, and removes some.

use serde_json::{Map, Value};

use super::fields::{Element, FieldSet};
use super::types::{Form, Type};
use crate::values::fields::{elements, members};

/// Returns the fields that a value sets.
pub(crate) fn fields(ty: Type<'_>, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    collect(ty, value, &mut Vec::new(), &mut set);
    set
}

fn collect(ty: Type<'_>, value: &Value, path: &mut Vec<Element>, set: &mut FieldSet) {
    match ty.form(Some(value)) {
        Form::Scalar(_) | Form::Map { atomic: true } | Form::List { atomic: true, .. } => {
            set.insert(path);
        }
        Form::Map { .. } => {
            for (name, field) in members(value) {
                let Some(inner) = ty.field(name) else {
                    continue;
                };
                path.push(Element::Field(name.clone()));
                collect(inner, field, path, set);
                let is_empty = field.is_null() || field.as_object().is_some_and(Map::is_empty);
                if is_empty || !ty.names(name) {
                    set.insert(path);
                }
                path.pop();
            }
        }
        Form::List { keys, .. } => {
            let items: Vec<(Element, &Value)> = elements(value)
                .filter_map(|item| Some((ty.element(&keys, item).ok()?, item)))
                .collect();
            for (element, item) in &items {
                let count = items.iter().filter(|(other, _)| other == element).count();
                path.push(element.clone());
                // when several items have the same identity, nothing below them can be told apart
                if count == 1 {
                    collect(ty.item(), item, path, set);
                }
                set.insert(path);
                path.pop();
            }
        }
    }
}

/// Returns a value without the given fields; `None` when nothing is left.
pub(crate) fn remove(ty: Type<'_>, value: &Value, removed: &FieldSet) -> Option<Value> {
    match ty.form(Some(value)) {
        Form::Scalar(_) => Some(value.clone()),
        Form::Map { atomic: true } | Form::List { atomic: true, .. } => None,
        Form::Map { .. } => {
            let mut rest = Map::new();
            for (name, field) in value.as_object()? {
                let element = Element::Field(name.clone());
                if removed.members.contains(&element) {
                    continue;
                }
                let kept = match (removed.children.get(&element), ty.field(name)) {
                    (Some(below), Some(inner)) if !below.is_empty() => remove(inner, field, below),
                    _ => Some(field.clone()),
                };
                if let Some(kept) = kept {
                    rest.insert(name.clone(), kept);
                }
            }
            (!rest.is_empty()).then_some(Value::Object(rest))
        }
        Form::List { keys, .. } => {
            let mut rest = Vec::new();
            for item in value.as_array()? {
                let Ok(element) = ty.element(&keys, item) else {
                    rest.push(item.clone());
                    continue;
                };
                if removed.members.contains(&element) {
                    continue;
                }
                match removed.children.get(&element) {
                    Some(below) if !below.is_empty() => {
                        rest.extend(remove(ty.item(), item, below));
                    }
                    _ => rest.push(item.clone()),
                }
            }
            (!rest.is_empty()).then_some(Value::Array(rest))
        }
    }
}

/// Returns the set, with each schema-named field that has members below it as a member, too.
pub(crate) fn with_named(ty: Option<Type<'_>>, set: &FieldSet) -> FieldSet {
    let mut members = set.members.clone();
    let mut children = std::collections::BTreeMap::new();
    for (element, child) in &set.children {
        let inner = match element {
            Element::Field(name) => {
                if ty.is_some_and(|ty| ty.names(name)) {
                    members.insert(element.clone());
                }
                ty.and_then(|ty| ty.field(name))
            }
            Element::Key(_) => ty.map(|ty| ty.item()),
            Element::Value(_) | Element::Index(_) => None,
        };
        children.insert(element.clone(), with_named(inner, child));
    }
    FieldSet { members, children }
}
