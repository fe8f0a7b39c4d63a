//! Tests of the views that clients ask for.

use rstest::rstest;
use serde_json::json;

use super::*;
use crate::registry::Registry;
use crate::storage::Store;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

fn view(accept: &str, version: &str, kind: &str, body: Value) -> Value {
    let store = Store::new(1);
    let table = Registry::default().table(&store.lock());
    let resource = table.of_kind(version, kind).unwrap();
    View::negotiate(accept, "").unwrap().of(resource, body)
}

#[rstest]
#[case("", Some(View::Whole))]
#[case("application/json", Some(View::Whole))]
#[case(TABLE, Some(View::Table(Included::Metadata)))]
#[case(
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    Some(View::Metadata)
)]
#[case("application/vnd.kubernetes.protobuf, */*", Some(View::Whole))]
#[case("application/vnd.kubernetes.protobuf", None)]
fn what_is_accepted_chooses_the_view(#[case] accept: &str, #[case] expected: Option<View>) {
    assert_eq!(View::negotiate(accept, ""), expected);
}

#[test]
fn an_empty_table_has_null_for_rows_if_the_kind_has_no_columns_of_its_own() {
    let list = |kind: &str| json!({"kind": format!("{kind}List"), "metadata": {}, "items": []});
    let rows = |version, kind| view(TABLE, version, kind, list(kind))["rows"].clone();
    assert_eq!(rows("v1", "LimitRange"), Value::Null);
    assert_eq!(rows("v1", "Pod"), json!([]));
    assert_eq!(rows("rbac.authorization.k8s.io/v1", "Role"), Value::Null);
}

#[test]
fn only_a_whole_daemon_set_tells_how_often_its_template_changed() {
    const ACCEPT: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let shown = |annotations: Value| {
        let set =
            json!({"kind": "DaemonSet", "metadata": {"name": "d", "annotations": annotations}});
        view(ACCEPT, "apps/v1", "DaemonSet", set)["metadata"].clone()
    };
    assert_eq!(
        shown(json!({TEMPLATE_GENERATION: "1"})),
        json!({"name": "d"})
    );
    assert_eq!(
        shown(json!({TEMPLATE_GENERATION: "1", "a": "b"})),
        json!({"name": "d", "annotations": {"a": "b"}})
    );
}

#[rstest]
#[case("apps/v1", "Deployment", "")]
#[case("v1", "ReplicationController", "")]
fn a_scale_has_columns_of_its_own(#[case] version: &str, #[case] kind: &str, #[case] format: &str) {
    let scale = json!({"kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": 3}});
    let table = view(TABLE, version, kind, scale);
    assert_eq!(table["rows"][0]["cells"], json!(["a", 3, 0, "<unknown>"]));
    assert_eq!(table["columnDefinitions"][0]["format"], format);
    assert_eq!(table["columnDefinitions"][1]["name"], "Desired");
}

#[test]
fn a_pod_that_restarts_is_told_with_its_reason() {
    let pod = json!({"kind": "Pod", "metadata": {"name": "p", "resourceVersion": "7"},
        "spec": {"nodeName": "n", "containers": [{"name": "c"}, {"name": "d"}]},
        "status": {"phase": "Running", "podIPs": [{"ip": "192.0.2.1"}], "containerStatuses": [
            {"name": "c", "restartCount": 2, "ready": false, "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
            {"name": "d", "restartCount": 0, "ready": true, "state": {"running": {}}}]}});
    let table = view(TABLE, "v1", "Pod", pod);
    assert_eq!(
        table["rows"][0]["cells"],
        json!([
            "p",
            "1/2",
            "CrashLoopBackOff",
            "2",
            "<unknown>",
            "192.0.2.1",
            "n",
            "<none>",
            "<none>"
        ])
    );
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(table["metadata"], json!({"resourceVersion": "7"}));
    assert_eq!(table["columnDefinitions"][1]["name"], "Ready");
}

#[test]
fn every_row_has_as_many_cells_as_there_are_columns() {
    let store = Store::new(1);
    let table = Registry::default().table(&store.lock());
    for resource in &table.ordered {
        if !resource.verbs.iter().any(|verb| verb == "list") {
            continue;
        }
        let columns = columns::definitions(resource);
        let cells = cells::of(resource, &json!({"metadata": {"name": "x"}}));
        // component statuses have no objects
        if resource.storage != "componentstatuses" {
            assert_eq!(
                cells.len(),
                columns.as_array().unwrap().len(),
                "{}",
                resource.storage
            );
        }
    }
}

#[test]
fn metadata_alone_leaves_out_the_rest() {
    let list = json!({"kind": "ConfigMapList", "metadata": {"resourceVersion": "3"},
        "items": [{"metadata": {"name": "a"}, "data": {"b": "c"}}]});
    let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let seen = view(accept, "v1", "ConfigMap", list);
    assert_eq!(
        seen["items"],
        json!([{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "a"}}])
    );
}
