//! Fields that a real server drops, as what they are for is not on by default.

use serde_json::Value;

use crate::values::fields::{existing_object, items, remove};

/// Drops them from a claim for devices, as devices with taints are not on.
pub(super) fn of_request(request: &mut Value) {
    remove(request, "tolerations");
}

/// Drops them from a slice of devices: taints, parts of devices, and devices for more than one claim.
pub(super) fn of_slice(spec: &mut Value) {
    remove(spec, "sharedCounters");
    remove(spec, "perDeviceNodeSelection");
    let Some(devices) = spec.get_mut("devices") else {
        return;
    };
    for device in items(devices) {
        for field in [
            "allNodes",
            "allowMultipleAllocations",
            "bindingConditions",
            "bindingFailureConditions",
            "bindsToNode",
            "consumesCounters",
            "nodeName",
            "nodeSelector",
            "taints",
        ] {
            remove(device, field);
        }
        let Some(Value::Object(capacity)) = device.get_mut("capacity") else {
            continue;
        };
        for amount in capacity.values_mut() {
            remove(amount, "requestPolicy");
        }
    }
}

/// Drops a claim's source that lies in another namespace, and one of a kind that only the newer field can have.
pub(super) fn of_claim(spec: &mut Value) {
    let is_elsewhere = spec["dataSourceRef"]["namespace"]
        .as_str()
        .is_some_and(|namespace| !namespace.is_empty());
    if is_elsewhere {
        remove(spec, "dataSourceRef");
    }
    let newer = existing_object(spec, "dataSourceRef").is_some();
    if let Some(source) = existing_object(spec, "dataSource") {
        let of = |field: &str| source[field].as_str().unwrap_or_default();
        let known = matches!(
            (of("apiGroup"), of("kind")),
            ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
        );
        if !known && !newer {
            remove(spec, "dataSource");
        }
    }
}

/// Drops how the holder of a lease is chosen by the server.
pub(super) fn of_lease(spec: &mut Value) {
    remove(spec, "strategy");
    remove(spec, "preferredHolder");
}

/// Drops the name under which pods can ask for devices of a class as for a resource.
pub(super) fn of_class(spec: &mut Value) {
    remove(spec, "extendedResourceName");
}

/// Drops what endpoints of the current version have from older versions only.
pub(super) fn of_endpoint(endpoint: &mut Value) {
    remove(endpoint, "deprecatedTopology");
}
