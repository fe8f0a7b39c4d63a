//! The review that a webhook is asked about.

use serde_json::{Value, json};

use super::Review;
use crate::admission::policies;

/// Returns the body of a call, without the unique id of the review.
pub(super) fn body(review: &Review<'_>, version: &str, spoken: &str) -> Value {
    let mut request = policies::request(review, version);
    if let Some(fields) = request.as_object_mut() {
        for field in ["subResource", "requestSubResource", "name", "namespace"] {
            if fields.get(field).is_some_and(|value| value == "") {
                fields.remove(field);
            }
        }
    }
    let versioned = |object: Option<&Value>| {
        object.map_or(Value::Null, |object| {
            policies::versioned(review, version, object)
        })
    };
    request["object"] = versioned(review.object);
    request["oldObject"] = versioned(review.attempt.before);
    json!({
        "kind": "AdmissionReview",
        "apiVersion": format!("admission.k8s.io/{spoken}"),
        "request": request,
    })
}
