//! The selector of a job. It finds pods by a label with the job's uid, which the server adds to the template.

use serde_json::{Value, json};

/// Sets selector and labels of a new job, unless it chooses its own selector.
pub(super) fn prepare(object: &mut Value) {
    if object["spec"]["manualSelector"] == true {
        return;
    }
    let uid = object["metadata"]["uid"].clone();
    let name = json!(object["metadata"]["name"].as_str().unwrap_or_default());
    // in a real server, labels that were defaulted from the template are the same map as those of the template
    let labels = |meta: &Value| meta["labels"].as_object().cloned().unwrap_or_default();
    let shared = labels(&object["metadata"]) == labels(&object["spec"]["template"]["metadata"]);
    for (label, value) in [
        ("controller-uid", &uid),
        ("batch.kubernetes.io/controller-uid", &uid),
        ("job-name", &name),
        ("batch.kubernetes.io/job-name", &name),
    ] {
        let labels = &mut object["spec"]["template"]["metadata"]["labels"];
        // one that the user gave is for the validation
        if labels[label].is_null() {
            labels[label] = value.clone();
        }
        if shared {
            object["metadata"]["labels"][label] = value.clone();
        }
    }
    let selected =
        &mut object["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"];
    if selected.is_null() {
        *selected = json!(uid);
    }
}
