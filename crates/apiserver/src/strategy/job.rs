//! How a job finds its pods: by a label with its uid that the server puts into the template.

use serde_json::{Value, json};

/// Selector and labels of a new job that does not choose its selector itself.
pub(super) fn prepare(object: &mut Value) {
    if object["spec"]["manualSelector"] == true {
        return;
    }
    let uid = object["metadata"]["uid"].clone();
    let name = object["metadata"]["name"].clone();
    // labels that were defaulted from the template are the same map in a real server
    let shared = object["metadata"]["labels"].is_object()
        && object["metadata"]["labels"] == object["spec"]["template"]["metadata"]["labels"];
    for (label, value) in [
        ("controller-uid", &uid),
        ("batch.kubernetes.io/controller-uid", &uid),
        ("job-name", &name),
        ("batch.kubernetes.io/job-name", &name),
    ] {
        object["spec"]["template"]["metadata"]["labels"][label] = value.clone();
        if shared {
            object["metadata"]["labels"][label] = value.clone();
        }
    }
    object["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"] = json!(uid);
}
