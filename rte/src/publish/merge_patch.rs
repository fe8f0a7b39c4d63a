//! JSON merge patches (RFC 7386), which turn one document into another. A changed array is sent as a whole.

use serde_json::{Map, Value};

/// Returns the patch; `None` when the documents are equal.
pub(super) fn diff(from: &Value, to: &Value) -> Option<Value> {
    if from == to {
        return None;
    }
    let (Value::Object(from), Value::Object(to)) = (from, to) else {
        return Some(to.clone());
    };
    let removed = from
        .keys()
        .filter(|key| !to.contains_key(*key))
        .map(|key| (key.clone(), Value::Null));
    let changed = to.iter().filter_map(|(key, value)| {
        let before = from.get(key).unwrap_or(&Value::Null);
        diff(before, value).map(|patch| (key.clone(), patch))
    });
    Some(Value::Object(removed.chain(changed).collect::<Map<_, _>>()))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::same(json!({"a": [1]}), json!({"a": [1]}), None)]
    #[case::changed(json!({"a": 1, "b": 2}), json!({"a": 1, "b": 3}), Some(json!({"b": 3})))]
    #[case::added(json!({}), json!({"a": {"b": 1}}), Some(json!({"a": {"b": 1}})))]
    #[case::removed(json!({"a": {"b": 1, "c": 2}}), json!({"a": {"b": 1}}), Some(json!({"a": {"c": null}})))]
    #[case::arrays_go_whole(json!({"a": [1, 2]}), json!({"a": [1, 3]}), Some(json!({"a": [1, 3]})))]
    #[case::other_kind(json!({"a": {"b": 1}}), json!({"a": 2}), Some(json!({"a": 2})))]
    fn patch_holds_what_differs(
        #[case] from: Value,
        #[case] to: Value,
        #[case] expected: Option<Value>,
    ) {
        assert_eq!(diff(&from, &to), expected);
        let mut patched = from;
        if let Some(patch) = expected {
            json_patch::merge(&mut patched, &patch);
        }
        assert_eq!(patched, to);
    }
}
