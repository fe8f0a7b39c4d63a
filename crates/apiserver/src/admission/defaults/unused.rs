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

/// Drops the workload of a pod, and in its volumes certificates of its own and bundles of those that it may trust.
pub(super) fn of_pod(spec: &mut Value) {
    remove(spec, "workloadRef");
    let Some(volumes) = spec.get_mut("volumes") else {
        return;
    };
    for volume in items(volumes) {
        let projected = existing_object(volume, "projected");
        let Some(sources) = projected.and_then(|projected| projected.get_mut("sources")) else {
            continue;
        };
        for source in items(sources) {
            remove(source, "podCertificate");
            remove(source, "clusterTrustBundle");
        }
    }
}

/// Drops by which signal a container is stopped.
pub(super) fn of_lifecycle(lifecycle: &mut Value) {
    remove(lifecycle, "stopSignal");
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
