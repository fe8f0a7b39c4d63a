//! The selector of a job. It finds pods by a label with the job's uid, which the server adds to the template.

use serde_json::{Value, json};

/// Sets selector and labels of a new job, unless it chooses its own selector.
pub(super) fn prepare(object: &mut Value) {
    if object["spec"]["manualSelector"] == true {
        return;
    }
    let uid = object["metadata"]["uid"].clone();
    let name = object["metadata"]["name"].clone();
    // in a real server, labels that were defaulted from the template are the same map as those of the template
    let labels = |meta: &Value| meta["labels"].as_object().cloned().unwrap_or_default();
    let shared = labels(&object["metadata"]) == labels(&object["spec"]["template"]["metadata"]);
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
