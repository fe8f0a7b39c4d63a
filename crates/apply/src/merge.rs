//! What an update keeps from the existing object (operator.md 3.2).

use serde_json::{Map, Value, json};

/// Metadata that the API server or other programs own.
const PRESERVED_METADATA: [&str; 7] = [
    "creationTimestamp",
    "selfLink",
    "generation",
    "uid",
    "resourceVersion",
    "managedFields",
    "finalizers",
];

/// Metadata that changes even when an update changes nothing else.
const VOLATILE_METADATA: [&str; 4] = ["managedFields", "resourceVersion", "generation", "selfLink"];

/// Values that the cluster assigns to a service for its lifetime.
const ASSIGNED_TO_SERVICES: [&str; 4] = ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"];

/// Returns the object to write: `desired`, with the fields of other owners copied from `existing`. Labels and annotations are merged; the
/// desired value wins.
pub fn updated(existing: &Value, desired: &Value) -> Value {
    let mut result = desired.clone();
    let empty = Map::new();
    let old = existing
        .get("metadata")
        .and_then(Value::as_object)
        .unwrap_or(&empty);
    if let Some(metadata) = result.get_mut("metadata").and_then(Value::as_object_mut) {
        for key in PRESERVED_METADATA {
            match old.get(key) {
                Some(value) => metadata.insert(key.into(), value.clone()),
                None => metadata.remove(key),
            };
        }
        for key in ["labels", "annotations"] {
            merge_maps(metadata, key, old.get(key));
        }
        if !metadata.contains_key("ownerReferences")
            && let Some(owners) = old.get("ownerReferences")
        {
            metadata.insert("ownerReferences".into(), owners.clone());
        }
    }
    if let (Some(status), Some(map)) = (existing.get("status"), result.as_object_mut()) {
        map.insert("status".into(), status.clone());
    }
    match desired.get("kind").and_then(Value::as_str) {
        Some("ServiceAccount") => keep_secrets(existing, &mut result),
        Some("Service") => keep_addresses(existing, &mut result),
        _ => {}
    }
    result
}

/// Returns whether two states of an object are equal, apart from the bookkeeping of the API server.
pub fn equal(left: &Value, right: &Value) -> bool {
    let strip = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            for key in VOLATILE_METADATA {
                metadata.remove(key);
            }
        }
        object
    };
    strip(left) == strip(right)
}

/// Returns whether `existing` contains everything in `desired`; it may contain more. Used when the API server cannot do a dry run.
pub fn covers(existing: &Value, desired: &Value) -> bool {
    match (existing, desired) {
        (Value::Object(existing), Value::Object(desired)) => desired.iter().all(|(key, value)| {
            existing
                .get(key)
                .is_some_and(|existing| covers(existing, value))
        }),
        (Value::Array(existing), Value::Array(desired)) => {
            existing.len() == desired.len()
                && existing
                    .iter()
                    .zip(desired)
                    .all(|(existing, desired)| covers(existing, desired))
        }
        // the API server returns 1.0 as 1
        (Value::Number(existing), Value::Number(desired)) => existing.as_f64() == desired.as_f64(),
        _ => existing == desired,
    }
}

fn merge_maps(metadata: &mut Map<String, Value>, key: &str, old: Option<&Value>) {
    let Some(old) = old.and_then(Value::as_object) else {
        return;
    };
    let mut merged = old.clone();
    if let Some(new) = metadata.get(key).and_then(Value::as_object) {
        merged.extend(new.clone());
    }
    metadata.insert(key.into(), Value::Object(merged));
}

fn keep_secrets(existing: &Value, result: &mut Value) {
    let Some(map) = result.as_object_mut() else {
        return;
    };
    if let Some(secrets) = existing.get("secrets") {
        map.insert("secrets".into(), secrets.clone());
    }
    if let Some(old) = existing.get("imagePullSecrets").and_then(Value::as_array) {
        let mut all = old.clone();
        let new = map
            .get("imagePullSecrets")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        all.extend(new.into_iter().filter(|secret| !old.contains(secret)));
        map.insert("imagePullSecrets".into(), Value::Array(all));
    }
}

fn keep_addresses(existing: &Value, result: &mut Value) {
    let Some(old) = existing.get("spec").and_then(Value::as_object) else {
        return;
    };
    let Some(map) = result.as_object_mut() else {
        return;
    };
    let Some(spec) = map
        .entry("spec")
        .or_insert_with(|| json!({}))
        .as_object_mut()
    else {
        return;
    };
    for key in ASSIGNED_TO_SERVICES {
        if let Some(value) = old.get(key) {
            spec.entry(key).or_insert_with(|| value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_and_foreign_metadata_survive_and_desired_values_win() {
        let existing = json!({
            "kind": "ConfigMap",
            "metadata": {
                "name": "a", "uid": "u", "resourceVersion": "7", "finalizers": ["f"],
                "labels": {"theirs": "1", "ours": "old"}, "annotations": {"theirs": "1"},
                "ownerReferences": [{"uid": "o"}],
            },
            "data": {"gone": "1"},
        });
        let desired = json!({"kind": "ConfigMap", "metadata": {"name": "a", "labels": {"ours": "new"}}, "data": {"k": "v"}});
        assert_eq!(
            updated(&existing, &desired),
            json!({
                "kind": "ConfigMap",
                "metadata": {
                    "name": "a", "uid": "u", "resourceVersion": "7", "finalizers": ["f"],
                    "labels": {"theirs": "1", "ours": "new"}, "annotations": {"theirs": "1"},
                    "ownerReferences": [{"uid": "o"}],
                },
                "data": {"k": "v"},
            })
        );
    }

    #[test]
    fn service_keeps_its_addresses_unless_told_otherwise() {
        let existing = json!({"kind": "Service", "metadata": {}, "spec": {"clusterIP": "10.0.0.1", "ipFamilies": ["IPv4"], "type": "ClusterIP"}});
        let result = updated(
            &existing,
            &json!({"kind": "Service", "metadata": {}, "spec": {"ipFamilies": ["IPv6"]}}),
        );
        assert_eq!(
            result["spec"],
            json!({"clusterIP": "10.0.0.1", "ipFamilies": ["IPv6"]})
        );
    }

    #[test]
    fn service_account_keeps_secrets_and_unites_pull_secrets() {
        let existing = json!({"kind": "ServiceAccount", "metadata": {}, "secrets": [{"name": "s"}], "imagePullSecrets": [{"name": "a"}]});
        let desired = json!({"kind": "ServiceAccount", "metadata": {}, "imagePullSecrets": [{"name": "a"}, {"name": "b"}]});
        let result = updated(&existing, &desired);
        assert_eq!(result["secrets"], json!([{"name": "s"}]));
        assert_eq!(
            result["imagePullSecrets"],
            json!([{"name": "a"}, {"name": "b"}])
        );
    }

    #[test]
    fn book_keeping_makes_no_difference() {
        let left = json!({"metadata": {"name": "a", "resourceVersion": "1", "managedFields": []}, "data": {}});
        let right =
            json!({"metadata": {"name": "a", "resourceVersion": "2", "generation": 3}, "data": {}});
        assert!(equal(&left, &right));
        assert!(!equal(
            &left,
            &json!({"metadata": {"name": "a"}, "data": {"k": "v"}})
        ));
    }

    #[test]
    fn covered_means_that_nothing_desired_is_missing() {
        let existing = json!({"a": 1, "list": [{"name": "x", "default": true}]});
        assert!(covers(&existing, &json!({"list": [{"name": "x"}]})));
        assert!(!covers(&existing, &json!({"list": []})));
        assert!(!covers(&existing, &json!({"b": 1})));
    }
}
