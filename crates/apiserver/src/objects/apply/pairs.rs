//! Fields and items of two values, side by side.

use serde_json::Value;

use super::fields::Element;
use super::types::Type;

/// Returns the field names of both values, sorted.
pub(super) fn names<'a>(left: Option<&'a Value>, right: Option<&'a Value>) -> Vec<&'a String> {
    let of = |value: Option<&'a Value>| value.and_then(Value::as_object).into_iter().flatten();
    let mut names: Vec<&String> = of(left).chain(of(right)).map(|(name, _)| name).collect();
    names.sort();
    names.dedup();
    names
}

/// Returns a field of an object; `None` where there is none.
pub(super) fn entry<'a>(value: Option<&'a Value>, name: &str) -> Option<&'a Value> {
    value?.as_object()?.get(name)
}

/// Returns the items of a list; none of anything else.
pub(super) fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Groups items by their element, in the order of first appearance.
pub(super) fn grouped<'v>(
    ty: Type<'_>,
    keys: &[&str],
    items: &'v [Value],
) -> Vec<(Element, Vec<&'v Value>)> {
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

/// Returns the items of an element.
pub(super) fn group<'g, 'v>(
    groups: &'g [(Element, Vec<&'v Value>)],
    element: &Element,
) -> &'g [&'v Value] {
    let found = groups.iter().find(|(other, _)| other == element);
    found.map_or(&[], |(_, values)| values.as_slice())
}
