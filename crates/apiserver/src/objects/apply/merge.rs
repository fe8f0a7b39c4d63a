//! Merges one value into another.

use serde_json::{Map, Value};

use super::fields::Element;
use super::pairs::{entry, items, names};
use super::types::{Form, Type};

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
    let (old_names, new_names) = (elements(ty, keys, old)?, elements(ty, keys, new)?);
    check_unique(&new_names)?;
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

/// Returns which element of the list each item is.
fn elements(ty: Type<'_>, keys: &[&str], list: &[Value]) -> Result<Vec<Element>, String> {
    list.iter()
        .enumerate()
        .map(|(index, item)| {
            ty.element(keys, item)
                .map_err(|why| format!("element {index}: {why}"))
        })
        .collect()
}

fn check_unique(names: &[Element]) -> Result<(), String> {
    for (index, name) in names.iter().enumerate() {
        if names[..index].contains(name) {
            return Err(format!("duplicate entries for key {name}"));
        }
    }
    Ok(())
}
