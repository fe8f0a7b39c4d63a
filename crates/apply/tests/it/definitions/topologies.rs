//! `NodeResourceTopology`, in both versions.

use serde_json::{Value, json};

use super::Server;

fn nrt(version: &str, body: &Value) -> Value {
    let api_version = format!("topology.node.k8s.io/{version}");
    let mut object = json!({"apiVersion": api_version, "kind": "NodeResourceTopology", "metadata": {"name": "node-a"}});
    object
        .as_object_mut()
        .unwrap()
        .extend(body.as_object().unwrap().clone());
    object
}

fn resource(quantity: &Value) -> Value {
    json!({"name": "cpu", "capacity": quantity, "allocatable": "1", "available": "500m"})
}

fn zone(fields: &Value) -> Value {
    let mut zone = json!({"name": "node-0", "type": "Node"});
    zone.as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    json!({"zones": [zone]})
}

pub(super) async fn topologies(server: &Server) {
    versions(server).await;
    quantities(server).await;
    required_fields(server).await;
}

async fn versions(server: &Server) {
    let body = json!({
        "topologyPolicies": ["SingleNUMANodePodLevel"],
        "attributes": [{"name": "a", "value": "v"}],
        "zones": [{
            "name": "node-0", "type": "Node", "parent": "socket-0", "costs": [{"name": "node-0", "value": 10}],
            "attributes": [{"name": "a", "value": "v"}],
            "resources": [{"name": "cpu", "capacity": 4, "allocatable": "3", "available": "1500m"}],
        }],
    });
    let created = server.accepts(nrt("v1alpha2", &body)).await;
    for key in ["topologyPolicies", "attributes", "zones"] {
        assert_eq!(created[key], body[key], "{key}");
    }
    let created = server.accepts(nrt("v1alpha1", &body)).await;
    assert_eq!(
        created.get("attributes"),
        None,
        "v1alpha1 has no object attributes"
    );
    server.accepts(nrt("v1alpha2", &json!({"zones": []}))).await;
    server
        .refuses(nrt("v1alpha2", &json!({})), "zones: Required value")
        .await;
    server
        .refuses(nrt("v1alpha2", &json!({"zones": null})), "zones")
        .await;
    server
        .refuses(
            nrt("v1alpha1", &json!({"zones": []})),
            "topologyPolicies: Required value",
        )
        .await;
}

async fn quantities(server: &Server) {
    for quantity in [
        json!("1"),
        json!(1),
        json!("1.5Gi"),
        json!("100m"),
        json!("1e3"),
        json!("-1"),
    ] {
        server
            .accepts(nrt(
                "v1alpha2",
                &zone(&json!({"resources": [resource(&quantity)]})),
            ))
            .await;
    }
    for quantity in [
        json!("one"),
        json!("1 Gi"),
        json!(1.5),
        json!(true),
        json!(""),
    ] {
        server
            .refuses(
                nrt(
                    "v1alpha2",
                    &zone(&json!({"resources": [resource(&quantity)]})),
                ),
                "zones[0].resources[0].capacity",
            )
            .await;
    }
}

async fn required_fields(server: &Server) {
    for (fields, missing) in [
        (
            json!({"costs": [{"name": "a"}]}),
            "zones[0].costs[0].value: Required value",
        ),
        (
            json!({"costs": [{"value": 1}]}),
            "zones[0].costs[0].name: Required value",
        ),
        (
            json!({"attributes": [{"name": "a"}]}),
            "zones[0].attributes[0].value: Required value",
        ),
        (
            json!({"resources": [{"name": "cpu", "capacity": 1, "allocatable": 1}]}),
            "zones[0].resources[0].available: Required value",
        ),
    ] {
        server
            .refuses(nrt("v1alpha2", &zone(&fields)), missing)
            .await;
    }
    server
        .refuses(
            nrt("v1alpha2", &json!({"zones": [{"name": "a"}]})),
            "zones[0].type: Required value",
        )
        .await;
    server
        .refuses(
            nrt(
                "v1alpha2",
                &json!({"zones": [], "attributes": [{"value": "v"}]}),
            ),
            "attributes[0].name: Required value",
        )
        .await;
}
