//! The objects of a new cluster.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::admission::strategy::{first_service_address, service_range};
use crate::error::Error;
use crate::registry::{Registry, Table};
use crate::storage::{Key, State, Store};
use crate::values::times;

/// The objects in the store of a new cluster, as a real server writes them.
const BOOTSTRAP: &str = include_str!("../../corpus/facts/bootstrap.json");

/// Stores an object and adds what every object has; returns false when there is no such kind.
pub(super) fn seed(state: &mut State, table: &Table, object: &mut Value) -> bool {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let Some(resource) = table.of_kind(&text(&object["apiVersion"]), &text(&object["kind"])) else {
        return false;
    };
    object["metadata"]["uid"] = json!(uuid::Uuid::new_v4().to_string());
    object["metadata"]["creationTimestamp"] = json!(times::now());
    let key = Key::new(
        &resource.storage,
        &text(&object["metadata"]["namespace"]),
        &text(&object["metadata"]["name"]),
    );
    state.put(key, object.take());
    true
}

/// Stores the objects of a new cluster.
pub(super) fn bootstrap(store: &Store) -> Result<(), Error> {
    let objects: Vec<Value> = serde_json::from_str(BOOTSTRAP)?;
    let mut state = store.lock();
    let table = Registry::default().table(&state);
    let today = jiff::Timestamp::now().strftime("%Y-%m-%d").to_string();
    for mut object in objects {
        if object["data"]["since"].is_string() {
            // the day on which the cluster was created
            object["data"]["since"] = json!(today);
        }
        seed(&mut state, &table, &mut object);
    }
    Ok(())
}

/// Creates the service by which pods find this server, with its endpoints, and the range that services have their addresses from.
pub(super) fn kubernetes_service(store: &Store, address: SocketAddr) {
    let mut state = store.lock();
    let labels = json!({"component": "apiserver", "provider": "kubernetes"});
    let now = times::now();
    let meta = |labels: &Value| {
        json!({
            "name": "kubernetes", "namespace": "default", "uid": uuid::Uuid::new_v4().to_string(),
            "creationTimestamp": now, "labels": labels,
        })
    };
    let range = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
        "metadata": {
            "name": "kubernetes", "uid": uuid::Uuid::new_v4().to_string(),
            "creationTimestamp": now,
            "managedFields": [
                {
                    "apiVersion": "networking.k8s.io/v1", "fieldsType": "FieldsV1", "operation": "Apply", "time": now,
                    "manager": "kubernetes-service-cidr-controller", "subresource": "status",
                    "fieldsV1": {"f:status": {"f:conditions": {"k:{\"type\":\"Ready\"}": {
                        ".": {}, "f:lastTransitionTime": {}, "f:message": {}, "f:status": {}, "f:type": {},
                    }}}},
                },
                {
                    "apiVersion": "networking.k8s.io/v1", "fieldsType": "FieldsV1", "operation": "Update", "time": now,
                    "manager": "kube-apiserver", "fieldsV1": {"f:spec": {"f:cidrs": {}}},
                },
            ],
        },
        "spec": {"cidrs": [service_range()]},
        "status": {"conditions": [{
            "type": "Ready", "status": "True", "reason": "", "lastTransitionTime": now,
            "message": "Kubernetes default Service CIDR is ready",
        }]},
    });
    let key = Key::new("servicecidrs.networking.k8s.io", "", "kubernetes");
    state.put(key, range);
    let first = first_service_address().to_string();
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": meta(&labels),
        "spec": {
            "clusterIP": first, "clusterIPs": [first], "type": "ClusterIP", "sessionAffinity": "None",
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster",
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": address.port()}],
        },
        "status": {"loadBalancer": {}},
    });
    state.put(Key::new("services", "default", "kubernetes"), service);
    let mirrored = json!({"endpointslice.kubernetes.io/skip-mirror": "true"});
    let endpoints = json!({
        "apiVersion": "v1", "kind": "Endpoints", "metadata": meta(&mirrored),
        "subsets": [{"addresses": [{"ip": address.ip().to_string()}],
            "ports": [{"name": "https", "port": address.port(), "protocol": "TCP"}]}],
    });
    state.put(Key::new("endpoints", "default", "kubernetes"), endpoints);
    let mut slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": meta(&json!({"kubernetes.io/service-name": "kubernetes"})),
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address.ip().to_string()], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": address.port(), "protocol": "TCP"}],
    });
    slice["metadata"]["generation"] = json!(1);
    let key = Key::new("endpointslices.discovery.k8s.io", "default", "kubernetes");
    state.put(key, slice);
}
