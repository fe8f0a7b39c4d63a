//! Owners, compared with those that a real server of the same version reports for the same writes.

use rstest::rstest;
use serde_json::json;

use super::*;
use crate::failure::Failure;
use crate::registry::{Registry, Resource};
use crate::storage::Store;

fn with_resource<T>(version: &str, kind: &str, use_it: impl FnOnce(&Resource) -> T) -> T {
    let store = Store::new(1);
    let table = Registry::default().table(&store.lock());
    use_it(table.of_kind(version, kind).unwrap())
}

fn apply(
    before: Option<&Value>,
    configuration: &Value,
    manager: &str,
    force: bool,
) -> Result<Value, Failure> {
    let version = configuration["apiVersion"].as_str().unwrap();
    let kind = configuration["kind"].as_str().unwrap();
    with_resource(version, kind, |resource| {
        Tracker::new(resource, "", "2026-01-01T00:00:00Z").apply(
            before,
            configuration,
            manager,
            force,
        )
    })
}

fn update(before: Option<&Value>, mut after: Value, manager: &str) -> Value {
    let version = after["apiVersion"].as_str().unwrap().to_owned();
    let kind = after["kind"].as_str().unwrap().to_owned();
    with_resource(&version, &kind, |resource| {
        Tracker::new(resource, "", "2026-01-01T00:00:00Z").update(before, &mut after, manager);
    });
    after
}

fn config_map(data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "uid": "u"}, "data": data})
}

fn shares(object: &Value) -> Vec<(String, String, Value)> {
    let entries = object["metadata"]["managedFields"].as_array();
    entries
        .into_iter()
        .flatten()
        .map(|entry| {
            let text = |field: &str| entry[field].as_str().unwrap().to_owned();
            (
                text("manager"),
                text("operation"),
                entry["fieldsV1"].clone(),
            )
        })
        .collect()
}

#[test]
fn a_new_deployment_is_owned_by_its_creator() {
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "labels": {"a": "b"}},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "strategy": {"type": "Recreate"},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [
                {"name": "c", "image": "i", "ports": [{"containerPort": 80, "protocol": "TCP"}]}]}}}});
    let owned = update(None, deployment, "kubectl");
    let expected = json!({
        "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
        "f:spec": {"f:replicas": {}, "f:selector": {}, "f:strategy": {"f:type": {}}, "f:template": {
            "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
            "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}, "f:name": {}, "f:resources": {},
                "f:ports": {".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}, "f:protocol": {}}}}}}}},
    });
    assert_eq!(
        shares(&owned),
        [("kubectl".to_owned(), "Update".to_owned(), expected)]
    );
}

#[test]
fn an_applier_gives_up_what_it_no_longer_applies() {
    let first = apply(
        None,
        &without_uid(&json!({"a": "1", "b": "2"})),
        "one",
        false,
    )
    .unwrap();
    let second = apply(Some(&first), &without_uid(&json!({"a": "1"})), "one", false).unwrap();
    assert_eq!(second["data"], json!({"a": "1"}));
    assert_eq!(
        shares(&second),
        [(
            "one".to_owned(),
            "Apply".to_owned(),
            json!({"f:data": {"f:a": {}}})
        )]
    );
}

fn without_uid(data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data})
}

#[test]
fn what_another_applies_too_stays() {
    let first = apply(None, &without_uid(&json!({"a": "1"})), "one", false).unwrap();
    let both = apply(Some(&first), &without_uid(&json!({"a": "1"})), "two", false).unwrap();
    let left = apply(Some(&both), &without_uid(&json!({})), "one", false).unwrap();
    assert_eq!(left["data"], json!({"a": "1"}));
}

#[test]
fn a_conflict_names_the_owner_and_the_field() {
    let first = apply(None, &without_uid(&json!({"a": "1"})), "one", false).unwrap();
    let refused = apply(Some(&first), &without_uid(&json!({"a": "2"})), "two", false).unwrap_err();
    assert_eq!(
        refused.message,
        "Apply failed with 1 conflict: conflict with \"one\": .data.a"
    );
    assert_eq!(
        refused.details["causes"],
        json!([{"reason": "FieldManagerConflict", "message": "conflict with \"one\"", "field": ".data.a"}])
    );
    let forced = apply(Some(&first), &without_uid(&json!({"a": "2"})), "two", true).unwrap();
    assert_eq!(shares(&forced).len(), 1);
    assert_eq!(forced["data"]["a"], "2");
}

#[test]
fn an_update_takes_what_it_changes_and_frees_what_it_removes() {
    let first = update(None, config_map(&json!({"a": "1", "b": "2"})), "one");
    let mut changed = first.clone();
    changed["data"] = json!({"a": "3"});
    let second = update(Some(&first), changed, "two");
    assert_eq!(
        shares(&second),
        [
            ("one".to_owned(), "Update".to_owned(), json!({"f:data": {}})),
            (
                "two".to_owned(),
                "Update".to_owned(),
                json!({"f:data": {"f:a": {}}})
            ),
        ]
    );
}

#[test]
fn client_side_apply_hands_over_without_conflicts() {
    let last = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "annotations": {}}, "data": {"a": "1"}});
    let mut object = config_map(&json!({"a": "1"}));
    object["metadata"]["annotations"] = json!({LAST_APPLIED: last.to_string()});
    let before = update(None, object, "kubectl-client-side-apply");
    let taken = apply(
        Some(&before),
        &without_uid(&json!({"a": "2"})),
        "kubectl",
        false,
    )
    .unwrap();
    assert_eq!(taken["data"]["a"], "2");
    assert!(
        apply(
            Some(&before),
            &without_uid(&json!({"a": "2"})),
            "other",
            false
        )
        .is_err()
    );
}

#[rstest]
#[case::unknown_field(
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"}, "dat": {}}),
    500,
    "failed to create typed patch object (n/c; /v1, Kind=ConfigMap): .dat: field not declared in schema"
)]
#[case::another_type(
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "managedFields": []}}),
    400,
    "metadata.managedFields must be nil"
)]
fn bad_configurations_are_refused(
    #[case] configuration: Value,
    #[case] code: u16,
    #[case] message: &str,
) {
    let refused = apply(None, &configuration, "one", false).unwrap_err();
    assert_eq!((refused.code, refused.message.as_str()), (code, message));
}

#[test]
fn times_alone_are_no_change() {
    let before = update(None, config_map(&json!({"a": "1"})), "one");
    let mut after = before.clone();
    after["metadata"]["managedFields"][0]["time"] = json!("2027-01-01T00:00:00Z");
    keep_times(&before, &mut after);
    assert_eq!(before, after);
}

#[rstest]
#[case("given", "kubectl/v1.2.3 (linux/amd64)", "given")]
#[case("", "kubectl/v1.2.3 (linux/amd64)", "kubectl")]
#[case("", "", "")]
fn managers_are_named_by_parameter_or_program(
    #[case] parameter: &str,
    #[case] agent: &str,
    #[case] expected: &str,
) {
    assert_eq!(manager_name(parameter, agent), expected);
}
