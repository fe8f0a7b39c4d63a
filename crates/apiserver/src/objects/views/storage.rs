//! Cells of volumes, claims, storage classes and drivers.

use serde_json::{Value, json};

use crate::values::words::{items, none_if_empty, or, text};

/// Returns the cells of an object; `None` for kinds of other modules.
pub(super) fn cells(storage: &str, object: &Value, created: &str) -> Option<Vec<Value>> {
    let name = json!(text(&object["metadata"]["name"]));
    let (spec, status) = (&object["spec"], &object["status"]);
    Some(match storage {
        "storageclasses.storage.k8s.io" => storage_class(object, created),
        "persistentvolumes" => volume(object, created),
        "persistentvolumeclaims" => claim(object, created),
        "csidrivers.storage.k8s.io" => csi_driver(object, created),
        "volumeattachments.storage.k8s.io" => vec![
            name,
            json!(text(&spec["attacher"])),
            json!(text(&spec["source"]["persistentVolumeName"])),
            json!(text(&spec["nodeName"])),
            json!(status["attached"] == true),
            json!(created),
        ],
        _ => return None,
    })
}

fn storage_class(object: &Value, created: &str) -> Vec<Value> {
    let name = json!(text(&object["metadata"]["name"]));
    let default = &object["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"];
    let mark = if default == "true" { " (default)" } else { "" };
    vec![
        json!(format!("{}{mark}", text(&name))),
        json!(text(&object["provisioner"])),
        json!(or(&object["reclaimPolicy"], "Delete")),
        json!(or(&object["volumeBindingMode"], "Immediate")),
        json!(object["allowVolumeExpansion"] == true),
        json!(created),
    ]
}

fn csi_driver(object: &Value, created: &str) -> Vec<Value> {
    let name = json!(text(&object["metadata"]["name"]));
    let spec = &object["spec"];
    let modes: Vec<String> = items(&spec["volumeLifecycleModes"])
        .iter()
        .map(text)
        .collect();
    let tokens = match spec["tokenRequests"].as_array() {
        Some(tokens) => tokens
            .iter()
            .map(|token| text(&token["audience"]))
            .collect::<Vec<_>>()
            .join(","),
        None => "<unset>".into(),
    };
    vec![
        name,
        json!(spec["attachRequired"] != false),
        json!(spec["podInfoOnMount"] == true),
        json!(spec["storageCapacity"] == true),
        json!(tokens),
        json!(spec["requiresRepublish"] == true),
        json!(none_if_empty(modes.join(","))),
        json!(created),
    ]
}

/// Returns access modes by their short names.
fn modes(list: &Value) -> String {
    let all = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let shown: Vec<&str> = all
        .into_iter()
        .filter(|(mode, _)| items(list).iter().any(|given| given == mode))
        .map(|(_, short)| short)
        .collect();
    shown.join(",")
}

fn volume(volume: &Value, created: &str) -> Vec<Value> {
    let (spec, status) = (&volume["spec"], &volume["status"]);
    let claim = &spec["claimRef"];
    let claim = if claim.is_object() {
        format!("{}/{}", text(&claim["namespace"]), text(&claim["name"]))
    } else {
        String::new()
    };
    let phase = if volume["metadata"]["deletionTimestamp"].is_string() {
        "Terminating".to_owned()
    } else {
        text(&status["phase"])
    };
    vec![
        volume["metadata"]["name"].clone(),
        json!(or(&spec["capacity"]["storage"], "0")),
        json!(modes(&spec["accessModes"])),
        json!(text(&spec["persistentVolumeReclaimPolicy"])),
        json!(phase),
        json!(claim),
        json!(text(&spec["storageClassName"])),
        json!(or(&spec["volumeAttributesClassName"], "<unset>")),
        json!(text(&status["reason"])),
        json!(created),
        json!(or(&spec["volumeMode"], "<unset>")),
    ]
}

fn claim(claim: &Value, created: &str) -> Vec<Value> {
    let (spec, status) = (&claim["spec"], &claim["status"]);
    let phase = if claim["metadata"]["deletionTimestamp"].is_string() {
        "Terminating".to_owned()
    } else {
        text(&status["phase"])
    };
    let bound = !text(&spec["volumeName"]).is_empty();
    let (capacity, access) = if bound {
        (
            or(&status["capacity"]["storage"], "0"),
            modes(&status["accessModes"]),
        )
    } else {
        (String::new(), String::new())
    };
    vec![
        claim["metadata"]["name"].clone(),
        json!(phase),
        json!(text(&spec["volumeName"])),
        json!(capacity),
        json!(access),
        json!(text(&spec["storageClassName"])),
        json!(or(&spec["volumeAttributesClassName"], "<unset>")),
        json!(created),
        json!(or(&spec["volumeMode"], "<unset>")),
    ]
}
