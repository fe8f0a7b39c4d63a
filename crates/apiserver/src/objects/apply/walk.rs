//! Walks over typed values: lists the fields of one, compares two, merges two, and removes fields from one.

use serde_json::{Map, Value};

use super::fields::{Element, FieldSet, path_text};
use super::types::{Form, Scalar, Type};

/// Checks a value and returns the errors, each with its path.
pub(crate) fn validate(ty: Type<'_>, value: &Value, duplicates: bool) -> Vec<String> {
    let mut found = Vec::new();
    check(ty, value, duplicates, &mut Vec::new(), &mut found);
    found
}

fn check(
    ty: Type<'_>,
    value: &Value,
    duplicates: bool,
    path: &mut Vec<Element>,
    found: &mut Vec<String>,
) {
    let report = |path: &[Element], message: &str| {
        if path.is_empty() {
            message.to_owned()
        } else {
            format!("{}: {message}", path_text(path))
        }
    };
    if value.is_null() {
        return;
    }
    match ty.form(Some(value)) {
        Form::Map { .. } => {
            let Some(fields) = value.as_object() else {
                found.push(report(path, &format!("expected map, got {}", shown(value))));
                return;
            };
            for (name, field) in fields {
                path.push(Element::Field(name.clone()));
                let Some(inner) = ty.field(name) else {
                    found.push(report(path, "field not declared in schema"));
                    path.pop();
                    // the remaining fields are not checked
                    break;
                };
                check(inner, field, duplicates, path, found);
                path.pop();
            }
        }
        Form::List { atomic, keys } => {
            let Some(items) = value.as_array() else {
                found.push(report(
                    path,
                    &format!("expected list, got {}", shown(value)),
                ));
                return;
            };
            let mut seen = Vec::new();
            for (index, item) in items.iter().enumerate() {
                let element = if atomic {
                    Element::Index(index as i64)
                } else {
                    match ty.element(&keys, item) {
                        Ok(element) => element,
                        Err(why) => {
                            found.push(report(path, &format!("element {index}: {why}")));
                            return;
                        }
                    }
                };
                if !atomic && seen.contains(&element) && !duplicates {
                    found.push(report(
                        path,
                        &format!("duplicate entries for key {element}"),
                    ));
                }
                seen.push(element.clone());
                path.push(element);
                check(ty.item(), item, duplicates, path, found);
                path.pop();
            }
        }
        Form::Scalar(scalar) => {
            if let Err(why) = check_scalar(scalar, value) {
                found.push(report(path, &why));
            }
        }
    }
}

/// Returns a value as error messages show it.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => format!("&{{{text}}}"),
        other => format!("&{{{other}}}"),
    }
}

fn check_scalar(scalar: Scalar, value: &Value) -> Result<(), String> {
    let go_type = match value {
        Value::Object(_) => "map[string]interface {}",
        Value::Array(_) => "[]interface {}",
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::Number(_) | Value::Null => "number",
    };
    let (good, why) = match scalar {
        Scalar::Numeric => (
            value.is_number(),
            format!("expected numeric (int or float), got {go_type}"),
        ),
        Scalar::Text => (
            value.is_string(),
            format!("expected string, got &value.valueUnstructured{{Value:{value}}}"),
        ),
        Scalar::Boolean => (
            value.is_boolean(),
            format!("expected boolean, got {}", shown(value)),
        ),
        Scalar::Any => (
            !value.is_object() && !value.is_array(),
            format!("expected any scalar, got {}", shown(value)),
        ),
    };
    if good || value.is_null() {
        Ok(())
    } else {
        Err(why)
    }
}

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
            for (name, field) in value.as_object().into_iter().flatten() {
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
            let items: Vec<(Element, &Value)> = value
                .as_array()
                .into_iter()
                .flatten()
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

/// The differences between two values.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Comparison {
    /// Fields only in the first.
    pub(crate) removed: FieldSet,
    /// Fields in both, with different values.
    pub(crate) modified: FieldSet,
    /// Fields only in the second.
    pub(crate) added: FieldSet,
}

impl Comparison {
    /// Returns the differences outside the given fields.
    pub(crate) fn excluding(&self, fields: &FieldSet) -> Self {
        Self {
            removed: self.removed.recursive_difference(fields),
            modified: self.modified.recursive_difference(fields),
            added: self.added.recursive_difference(fields),
        }
    }

    /// Returns the fields that the second value sets.
    pub(crate) fn set(&self) -> FieldSet {
        self.modified.union(&self.added)
    }
}

/// Compares two values.
pub(crate) fn compare(ty: Type<'_>, left: &Value, right: &Value) -> Comparison {
    let mut found = Comparison::default();
    compare_at(ty, Some(left), Some(right), &mut Vec::new(), &mut found);
    found
}

fn compare_at(
    ty: Type<'_>,
    left: Option<&Value>,
    right: Option<&Value>,
    path: &mut Vec<Element>,
    found: &mut Comparison,
) {
    if left == right {
        return;
    }
    let (left_form, right_form) = (ty.form(left), ty.form(right));
    let is_leaf = if right.is_none() {
        compare_as(&left_form, ty, left, right, path, found)
    } else if left.is_none() || left_form == right_form {
        compare_as(&right_form, ty, left, right, path, found)
    } else {
        compare_as(&left_form, ty, left, right, path, found);
        compare_as(&right_form, ty, left, right, path, found)
    };
    if !is_leaf {
        if left.is_none() {
            found.added.insert(path);
        } else if right.is_none() {
            found.removed.insert(path);
        }
    }
}

/// Compares two values in one form; returns whether they were handled as a leaf.
fn compare_as(
    form: &Form<'_>,
    ty: Type<'_>,
    left: Option<&Value>,
    right: Option<&Value>,
    path: &mut Vec<Element>,
    found: &mut Comparison,
) -> bool {
    match form {
        Form::Scalar(scalar) => {
            let bad = |value: Option<&Value>| {
                value.is_some_and(|value| check_scalar(*scalar, value).is_err())
            };
            if bad(left) && bad(right) {
                return false;
            }
            compare_leaf(left, right, path, found);
            true
        }
        Form::Map { atomic } => {
            let names = names(left, right);
            if *atomic || names.is_empty() {
                compare_leaf(left, right, path, found);
                return true;
            }
            for name in names {
                let Some(inner) = ty.field(name) else {
                    continue;
                };
                path.push(Element::Field(name.clone()));
                compare_at(inner, entry(left, name), entry(right, name), path, found);
                path.pop();
            }
            false
        }
        Form::List { atomic, keys } => {
            let (old, new) = (items(left), items(right));
            if *atomic || old.is_empty() && new.is_empty() {
                compare_leaf(left, right, path, found);
                return true;
            }
            let old = grouped(ty, keys, old);
            let new = grouped(ty, keys, new);
            let mut elements: Vec<&Element> = old.iter().map(|(element, _)| element).collect();
            for (element, _) in &new {
                if !elements.contains(&element) {
                    elements.push(element);
                }
            }
            for element in elements {
                let (before, after) = (group(&old, element), group(&new, element));
                path.push(element.clone());
                match (before, after) {
                    ([] | [_], [] | [_]) => {
                        compare_at(
                            ty.item(),
                            before.first().copied(),
                            after.first().copied(),
                            path,
                            found,
                        );
                    }
                    ([_, _, ..], [_, _, ..]) => {
                        if before != after {
                            found.modified.insert(path);
                        }
                    }
                    ([_, _, ..], _) => {
                        if let Some(after) = after.first() {
                            compare_at(ty.item(), None, Some(after), path, found);
                        }
                        found.removed.insert(path);
                    }
                    (_, _) => {
                        if let Some(before) = before.first() {
                            compare_at(ty.item(), Some(before), None, path, found);
                        }
                        found.added.insert(path);
                    }
                }
                path.pop();
            }
            false
        }
    }
}

fn compare_leaf(
    left: Option<&Value>,
    right: Option<&Value>,
    path: &[Element],
    found: &mut Comparison,
) {
    match (left, right) {
        (None, _) => found.added.insert(path),
        (_, None) => found.removed.insert(path),
        (Some(left), Some(right)) if left != right => found.modified.insert(path),
        _ => {}
    }
}

/// Returns the field names of both values, sorted.
fn names<'a>(left: Option<&'a Value>, right: Option<&'a Value>) -> Vec<&'a String> {
    let of = |value: Option<&'a Value>| value.and_then(Value::as_object).into_iter().flatten();
    let mut names: Vec<&String> = of(left).chain(of(right)).map(|(name, _)| name).collect();
    names.sort();
    names.dedup();
    names
}

fn entry<'a>(value: Option<&'a Value>, name: &str) -> Option<&'a Value> {
    value?.as_object()?.get(name)
}

fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Groups items by their element, in the order of first appearance.
fn grouped<'v>(ty: Type<'_>, keys: &[&str], items: &'v [Value]) -> Vec<(Element, Vec<&'v Value>)> {
    let mut groups: Vec<(Element, Vec<&Value>)> = Vec::new();
    for item in items {
        let Ok(element) = ty.element(keys, item) else {
            continue;
        };
        match groups.iter_mut().find(|(other, _)| *other == element) {
            Some((_, values)) => values.push(item),
            None => groups.push((element, vec![item])),
        }
    }
    groups
}

fn group<'g, 'v>(groups: &'g [(Element, Vec<&'v Value>)], element: &Element) -> &'g [&'v Value] {
    let found = groups.iter().find(|(other, _)| other == element);
    found.map_or(&[], |(_, values)| values.as_slice())
}

/// Merges the second value into the first.
pub(crate) fn merge(ty: Type<'_>, left: &Value, right: &Value) -> Result<Value, String> {
    Ok(merge_at(ty, Some(left), Some(right))?.unwrap_or(Value::Null))
}

fn merge_at(
    ty: Type<'_>,
    left: Option<&Value>,
    right: Option<&Value>,
) -> Result<Option<Value>, String> {
    let form = ty.form(right.or(left));
    let leaf = || right.or(left).cloned();
    match form {
        Form::Scalar(_) => Ok(leaf()),
        Form::Map { atomic } => {
            let names = names(left, right);
            if atomic || names.is_empty() {
                return Ok(leaf());
            }
            let mut merged = Map::new();
            for name in names {
                let (old, new) = (entry(left, name), entry(right, name));
                let value = match ty.field(name) {
                    Some(inner) => merge_at(inner, old, new)?,
                    None => new.or(old).cloned(),
                };
                if let Some(value) = value {
                    merged.insert(name.clone(), value);
                }
            }
            Ok((!merged.is_empty()).then_some(Value::Object(merged)))
        }
        Form::List { atomic, keys } => {
            let (old, new) = (items(left), items(right));
            if atomic || old.is_empty() && new.is_empty() {
                return Ok(leaf());
            }
            let merged = merge_lists(ty, &keys, old, new)?;
            Ok((!merged.is_empty()).then_some(Value::Array(merged)))
        }
    }
}

/// Merges two lists. Items of the second list keep its order; items that only the first has keep their position relative to the shared
/// items.
fn merge_lists(
    ty: Type<'_>,
    keys: &[&str],
    old: &[Value],
    new: &[Value],
) -> Result<Vec<Value>, String> {
    let named = |list: &[Value]| -> Result<Vec<Element>, String> {
        list.iter()
            .enumerate()
            .map(|(index, item)| {
                ty.element(keys, item)
                    .map_err(|why| format!("element {index}: {why}"))
            })
            .collect()
    };
    let (old_names, new_names) = (named(old)?, named(new)?);
    for (index, name) in new_names.iter().enumerate() {
        if new_names[..index].contains(name) {
            return Err(format!("duplicate entries for key {name}"));
        }
    }
    // when several old items have the same identity, they count as absent: there is no way to know which one is meant
    let old_value = |name: &Element| {
        let mut same = old_names
            .iter()
            .zip(old)
            .filter(|(other, _)| *other == name);
        match (same.next(), same.next()) {
            (Some((_, value)), None) => Some(value),
            _ => None,
        }
    };
    let mut shared = new_names
        .iter()
        .filter(|name| old_names.contains(name))
        .peekable();
    let mut merged = Vec::new();
    let mut done: Vec<&Element> = Vec::new();
    let (mut left, mut right) = (0, 0);
    let take = |name: &Element, right: usize, merged: &mut Vec<Value>| -> Result<(), String> {
        merged.extend(merge_at(ty.item(), old_value(name), Some(&new[right]))?);
        Ok(())
    };
    while left < old.len() || right < new.len() {
        if left < old.len() && right < new.len() {
            let name = &old_names[left];
            if *name == new_names[right] {
                take(name, right, &mut merged)?;
                done.push(&new_names[right]);
                left += 1;
                right += 1;
                shared.next();
                continue;
            }
            if new_names.contains(name) && shared.peek().is_some_and(|next| *next != name) {
                left += 1;
                continue;
            }
        }
        if left < old.len() {
            let name = &old_names[left];
            if !new_names.contains(name) {
                merged.extend(merge_at(ty.item(), Some(&old[left]), None)?);
                left += 1;
                continue;
            }
            if done.contains(&name) {
                left += 1;
            }
        }
        if right < new.len() {
            let name = &new_names[right];
            take(name, right, &mut merged)?;
            done.push(name);
            right += 1;
            if shared.peek().is_some_and(|next| *next == name) {
                shared.next();
            }
        }
    }
    Ok(merged)
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
