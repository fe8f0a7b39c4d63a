//! Smaller manifests: without one place each.

use serde_json::Value;

/// Returns every place, so that the last one is the first to try: the outer before the inner ones, and of a list its end before its begin, so
/// that an item that goes moves no other.
pub(super) fn places(manifest: &Value) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut open = vec![(Vec::new(), manifest)];
    while let Some((path, value)) = open.pop() {
        let inner: Vec<(String, &Value)> = match value {
            Value::Object(fields) => {
                let fields = fields.iter();
                fields.map(|(name, field)| (name.clone(), field)).collect()
            }
            Value::Array(list) => {
                let list = list.iter().enumerate();
                list.map(|(at, item)| (at.to_string(), item)).collect()
            }
            _ => Vec::new(),
        };
        for (step, value) in inner {
            let mut path = path.clone();
            path.push(step);
            found.push(path.clone());
            open.push((path, value));
        }
    }
    found.retain(|path| path.as_slice() != ["apiVersion"] && path.as_slice() != ["kind"]);
    // by depth, then by place; a stable sort keeps the order of the items of a list
    found.sort_by_key(|path| std::cmp::Reverse(path.len()));
    found
}

/// Removes a place; returns false where there is none.
pub(super) fn without(manifest: &mut Value, path: &[String]) -> bool {
    let Some((last, parents)) = path.split_last() else {
        return false;
    };
    let mut place = manifest;
    for step in parents {
        let inner = match place {
            Value::Object(fields) => fields.get_mut(step),
            Value::Array(list) => step.parse().ok().and_then(|at: usize| list.get_mut(at)),
            _ => None,
        };
        let Some(inner) = inner else {
            return false;
        };
        place = inner;
    }
    match place {
        Value::Object(fields) => fields.remove(last).is_some(),
        Value::Array(list) => match last.parse() {
            Ok(at) if at < list.len() => {
                list.remove(at);
                true
            }
            _ => false,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn everything_but_the_kind_can_go_and_the_outer_places_go_first() {
        let mut manifest = json!({"kind": "K", "spec": {"a": [1, 2]}, "x": 1});
        let mut places = places(&manifest);
        let mut order = Vec::new();
        while let Some(place) = places.pop() {
            order.push(place.join("/"));
        }
        assert_eq!(order, ["x", "spec", "spec/a", "spec/a/1", "spec/a/0"]);
        assert!(without(
            &mut manifest,
            &["spec".into(), "a".into(), "0".into()]
        ));
        assert_eq!(manifest, json!({"kind": "K", "spec": {"a": [2]}, "x": 1}));
    }
}
