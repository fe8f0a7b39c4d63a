//! Strategic merge patches: the schema says which lists are merged by which key.

use serde_json::{Map, Value};

use self::directives::{
    DELETE_FROM, DIRECTIVE, ELEMENT_ORDER, retain_keys, unknown_directive, without_directives,
    without_nulls_and_directives,
};
pub(crate) use self::error::Error;
use self::order::{arrange, check_order, is_same_item, position};
use super::node::Node;
use crate::values::go::go_text;

mod directives;
mod error;
mod order;

/// How a field is merged, according to the schema.
struct Strategy<'a> {
    merges: bool,
    replaces: bool,
    key: &'a str,
}

impl<'a> Strategy<'a> {
    fn of(field: Node<'a>) -> Self {
        let text = |word: &str| field.keyword(word).and_then(Value::as_str).unwrap_or("");
        let strategies = text("x-kubernetes-patch-strategy");
        let has = |name: &str| strategies.split(',').any(|strategy| strategy == name);
        Self {
            merges: has("merge"),
            replaces: has("replace"),
            key: text("x-kubernetes-patch-merge-key"),
        }
    }
}

/// Applies a patch to an object.
pub(crate) fn apply(
    schema: Node<'_>,
    original: Map<String, Value>,
    patch: Map<String, Value>,
) -> Result<Map<String, Value>, Error> {
    merge(schema, original, patch)
}

fn field<'a>(schema: Node<'a>, name: &str) -> Node<'a> {
    match schema.field(name) {
        Some(field) => field,
        None => Node::anything(),
    }
}

fn merge(
    schema: Node<'_>,
    mut original: Map<String, Value>,
    mut patch: Map<String, Value>,
) -> Result<Map<String, Value>, Error> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                Ok(patch)
            }
            Some("delete") => Ok(Map::new()),
            _ => Err(unknown_directive(&patch)),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    ordered_lists(schema, &mut original, &mut patch)?;
    for (key, value) in patch {
        let (name, deletes) = match key.strip_prefix(DELETE_FROM) {
            Some(rest) => match rest.strip_prefix('/') {
                Some(name) => (name.to_owned(), true),
                None => return Err(Error::PrimitiveList),
            },
            None => (key, false),
        };
        if value.is_null() {
            original.remove(&name);
            continue;
        }
        let sub = field(schema, &name);
        let merged = match (original.remove(&name), value) {
            (Some(Value::Object(old)), Value::Object(new)) => {
                if Strategy::of(sub).replaces {
                    Some(Value::Object(new))
                } else {
                    Some(Value::Object(merge(sub, old, new)?))
                }
            }
            (Some(Value::Array(old)), Value::Array(new)) => {
                let strategy = Strategy::of(sub);
                Some(Value::Array(if deletes {
                    old.into_iter().filter(|item| !new.contains(item)).collect()
                } else if strategy.merges {
                    merge_lists(sub, old, new, strategy.key)?
                } else {
                    new
                }))
            }
            (old, _) if deletes => old,
            (_, new) => without_nulls_and_directives(new),
        };
        if let Some(merged) = merged {
            original.insert(name, merged);
        }
    }
    Ok(original)
}

/// Merges the lists whose order the patch sets, and removes them from the patch.
fn ordered_lists(
    schema: Node<'_>,
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
) -> Result<(), Error> {
    let directives: Vec<String> = patch
        .keys()
        .filter(|key| key.starts_with(ELEMENT_ORDER))
        .cloned()
        .collect();
    for directive in directives {
        let order = match patch.remove(&directive) {
            Some(Value::Array(order)) => order,
            other => return Err(Error::NoList(go_type(other.as_ref()))),
        };
        let name = directive
            .strip_prefix(ELEMENT_ORDER)
            .and_then(|rest| rest.strip_prefix('/'))
            .ok_or(Error::ElementOrder)?;
        let sub = field(schema, name);
        let key = Strategy::of(sub).key;
        let given = list(patch.get(name))?;
        let present = list(original.get(name))?;
        if let Some(given) = &given {
            check_order(given, &order, key)?;
        }
        let server_order = present.clone().unwrap_or_default();
        let merged = match (present, given) {
            (None, None) => continue,
            (Some(present), None) => present,
            (None, Some(given)) => {
                let tidied = without_directives(Value::Array(given));
                tidied
                    .and_then(|tidied| tidied.as_array().cloned())
                    .unwrap_or_default()
            }
            (Some(present), Some(given)) if Strategy::of(sub).merges => {
                merge_lists(sub, present, given, key)?
            }
            (Some(_), Some(given)) => given,
        };
        patch.remove(name);
        original.insert(
            name.to_owned(),
            Value::Array(arrange(merged, &order, &server_order, key)),
        );
    }
    Ok(())
}

fn list(value: Option<&Value>) -> Result<Option<Vec<Value>>, Error> {
    match value {
        None => Ok(None),
        Some(Value::Array(list)) => Ok(Some(list.clone())),
        other => Err(Error::NoList(go_type(other))),
    }
}

/// Returns the name of the Go type to which a JSON value is decoded.
fn go_type(value: Option<&Value>) -> &'static str {
    match value {
        Some(Value::Object(_)) => "map[string]interface {}",
        Some(Value::Array(_)) => "[]interface {}",
        Some(Value::String(_)) => "string",
        Some(Value::Bool(_)) => "bool",
        Some(Value::Number(number)) if number.is_f64() => "float64",
        Some(Value::Number(_)) => "int64",
        Some(Value::Null) | None => "%!s(<nil>)",
    }
}

fn merge_lists(
    schema: Node<'_>,
    mut original: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
) -> Result<Vec<Value>, Error> {
    let objects = original
        .iter()
        .chain(&patch)
        .filter(|item| item.is_object())
        .count();
    if objects == 0 {
        let mut merged: Vec<Value> = Vec::new();
        for item in original.iter().chain(&patch) {
            if !merged.contains(item) {
                merged.push(item.clone());
            }
        }
        return Ok(arrange(merged, &patch, &original, ""));
    }
    if objects < original.len() + patch.len() {
        return Err(Error::Mixed);
    }
    if key.is_empty() {
        let items = schema.items().map_or("", |items| items.type_name());
        return Err(Error::NoKeyOfList(items.to_owned()));
    }
    let mut plain_items = Vec::new();
    let mut replaces = false;
    for item in patch {
        let no_key = |item: &Value| Error::NoMergeKey {
            item: go_text(item),
            key: key.to_owned(),
        };
        match item.get(DIRECTIVE).map(|directive| directive.as_str()) {
            None => plain_items.push(item),
            Some(Some("delete")) => {
                if item.get(key).is_none() {
                    return Err(no_key(&item));
                }
                original.retain(|other| !is_same_item(other, &item, key));
            }
            Some(Some("replace")) => replaces = true,
            Some(_) => {
                return Err(item.as_object().map_or(Error::Mixed, unknown_directive));
            }
        }
    }
    if replaces {
        return Ok(plain_items);
    }
    let server_order = original.clone();
    let items = match schema.items() {
        Some(items) => items,
        None => Node::anything(),
    };
    for item in &plain_items {
        if item.get(key).is_none() {
            return Err(Error::NoMergeKey {
                item: go_text(item),
                key: key.to_owned(),
            });
        }
        match position(&original, item, key) {
            Some(index) => {
                let old = original[index].as_object().cloned().unwrap_or_default();
                let new = item.as_object().cloned().unwrap_or_default();
                original[index] = Value::Object(merge(items, old, new)?);
            }
            None => original.push(item.clone()),
        }
    }
    Ok(arrange(original, &plain_items, &server_order, key))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn patched(kind: &str, original: &Value, patch: &Value) -> Result<Value, Error> {
        apply(
            Node::of_type(kind),
            original.as_object().unwrap().clone(),
            patch.as_object().unwrap().clone(),
        )
        .map(Value::Object)
    }

    #[rstest]
    #[case::merges_by_key(
        json!({"containers": [{"name": "a", "image": "x"}, {"name": "b"}]}),
        json!({"containers": [{"name": "a", "image": "y"}, {"name": "c"}]}),
        json!({"containers": [{"name": "a", "image": "y"}, {"name": "c"}, {"name": "b"}]})
    )]
    #[case::deletes_by_key(
        json!({"containers": [{"name": "a"}, {"name": "b"}]}),
        json!({"containers": [{"name": "a", "$patch": "delete"}]}),
        json!({"containers": [{"name": "b"}]})
    )]
    #[case::replaces_the_list(
        json!({"containers": [{"name": "a"}, {"name": "b"}]}),
        json!({"containers": [{"name": "c"}, {"$patch": "replace"}]}),
        json!({"containers": [{"name": "c"}]})
    )]
    #[case::keeps_the_given_order(
        json!({"containers": [{"name": "a"}, {"name": "b"}, {"name": "s"}]}),
        json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "containers": [{"name": "b", "image": "y"}]}),
        json!({"containers": [{"name": "b", "image": "y"}, {"name": "a"}, {"name": "s"}]})
    )]
    #[case::atomic_lists_are_replaced(
        json!({"tolerations": [{"key": "a"}]}),
        json!({"tolerations": [{"key": "b"}]}),
        json!({"tolerations": [{"key": "b"}]})
    )]
    #[case::retains_only_the_named_volume_source(
        json!({"volumes": [{"name": "v", "emptyDir": {}}]}),
        json!({"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]}),
        json!({"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]})
    )]
    #[case::nulls_remove(
        json!({"nodeName": "n", "hostNetwork": true}),
        json!({"nodeName": null}),
        json!({"hostNetwork": true})
    )]
    #[case::nulls_and_directives_of_new_values_vanish(
        json!({}),
        json!({"securityContext": {"runAsUser": null, "$patch": "merge", "runAsGroup": 3}}),
        json!({"securityContext": {"runAsGroup": 3}})
    )]
    #[case::what_new_values_retain_stays_in_them(
        json!({}),
        json!({"nodeSelector": {"$retainKeys": ["a"], "a": "b"}}),
        json!({"nodeSelector": {"$retainKeys": ["a"], "a": "b"}})
    )]
    #[case::objects_are_replaced_on_request(
        json!({"nodeSelector": {"a": "b"}}),
        json!({"nodeSelector": {"c": "d", "$patch": "replace"}}),
        json!({"nodeSelector": {"c": "d"}})
    )]
    fn pod_specs(#[case] original: Value, #[case] patch: Value, #[case] expected: Value) {
        assert_eq!(
            patched("io.k8s.api.core.v1.PodSpec", &original, &patch),
            Ok(expected)
        );
    }

    #[test]
    fn finalizers_are_a_set() {
        let original = json!({"finalizers": ["a", "b"]});
        let kind = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
        let added = json!({"finalizers": ["c", "a"]});
        assert_eq!(
            patched(kind, &original, &added),
            Ok(json!({"finalizers": ["c", "a", "b"]}))
        );
        let removed = json!({"$deleteFromPrimitiveList/finalizers": ["a"]});
        assert_eq!(
            patched(kind, &original, &removed),
            Ok(json!({"finalizers": ["b"]}))
        );
    }

    #[test]
    fn an_item_without_its_key_is_refused() {
        let refused = patched(
            "io.k8s.api.core.v1.PodSpec",
            &json!({"containers": [{"name": "a"}]}),
            &json!({"containers": [{"image": "y"}]}),
        );
        assert!(matches!(refused, Err(Error::NoMergeKey { .. })));
    }
}
