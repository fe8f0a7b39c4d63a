//! Compares two values field by field.

use serde_json::Value;

use super::check::check_scalar;
use super::fields::{Element, FieldSet};
use super::pairs::{entry, group, grouped, items, names};
use super::types::{Form, Type};

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
            let (old, new) = (grouped(ty, keys, old), grouped(ty, keys, new));
            compare_lists(ty, &old, &new, path, found);
            false
        }
    }
}

/// Compares two lists element by element, in the order of the first list.
fn compare_lists(
    ty: Type<'_>,
    old: &[(Element, Vec<&Value>)],
    new: &[(Element, Vec<&Value>)],
    path: &mut Vec<Element>,
    found: &mut Comparison,
) {
    let mut elements: Vec<&Element> = old.iter().map(|(element, _)| element).collect();
    for (element, _) in new {
        if !elements.contains(&element) {
            elements.push(element);
        }
    }
    for element in elements {
        path.push(element.clone());
        compare_items(ty, group(old, element), group(new, element), path, found);
        path.pop();
    }
}

/// Compares the items of one element; a list that is not valid has several.
fn compare_items(
    ty: Type<'_>,
    before: &[&Value],
    after: &[&Value],
    path: &mut Vec<Element>,
    found: &mut Comparison,
) {
    match (before, after) {
        ([] | [_], [] | [_]) => {
            let (before, after) = (before.first().copied(), after.first().copied());
            compare_at(ty.item(), before, after, path, found);
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
