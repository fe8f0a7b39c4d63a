//! Checks of reviews of permissions.

use serde_json::{Value, json};

use super::checks::{filled, indexed, operands, text, wrong};
use super::names;
use crate::failure::Cause;

/// Returns what is wrong with a review of a kind, which was sent to a namespace or to none.
pub(crate) fn access(kind: &str, review: &Value, namespace: &str) -> Vec<Cause> {
    let spec = &review["spec"];
    let mut causes = Vec::new();
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let written = format!(
        "{{\"Path\":{},\"Verb\":{}}}",
        json!(text(&path["path"])),
        json!(text(&path["verb"]))
    );
    let of_path = |why: &str| {
        let cause = Cause::invalid("spec.nonResourceAttributes", &Value::Null, why);
        cause.with_value(&written)
    };
    match (resource.is_null(), path.is_null()) {
        (false, false) => {
            causes.push(of_path(
                "cannot be specified in combination with resourceAttributes",
            ));
        }
        (true, true) => {
            let why =
                "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            causes.push(Cause::invalid("spec.resourceAttributes", &Value::Null, why));
        }
        _ => {}
    }
    let is_own = kind == "SelfSubjectAccessReview";
    if !is_own && !filled(&spec["user"]) && !filled(&spec["groups"]) {
        let why = "at least one of user or group must be specified";
        causes.push(Cause::invalid("spec.user", &json!(""), why));
    }
    let at = "spec.resourceAttributes";
    selector(
        &resource["fieldSelector"],
        &format!("{at}.fieldSelector"),
        false,
        &mut causes,
    );
    selector(
        &resource["labelSelector"],
        &format!("{at}.labelSelector"),
        true,
        &mut causes,
    );
    if kind != "LocalSubjectAccessReview" {
        return causes;
    }
    let given = text(&resource["namespace"]);
    if !resource.is_null() && given != namespace {
        let why = "must match metadata.namespace";
        causes.push(Cause::invalid(
            format!("{at}.namespace"),
            &json!(given),
            why,
        ));
    }
    if !path.is_null() {
        causes.push(of_path("disallowed on this kind of request"));
    }
    causes
}

/// Checks a selector of objects, by labels or by fields.
fn selector(selector: &Value, path: &str, is_of_labels: bool, causes: &mut Vec<Cause>) {
    if selector.is_null() {
        return;
    }
    match (
        filled(&selector["rawSelector"]),
        filled(&selector["requirements"]),
    ) {
        (true, true) => {
            let why = "may not specified at the same time as requirements";
            let at = format!("{path}.rawSelector");
            causes.push(Cause::invalid(at, &selector["rawSelector"], why));
        }
        (false, false) => {
            let why = format!("when {path} is specified, requirements or rawSelector is required");
            causes.push(Cause::required(format!("{path}.requirements"), &why));
        }
        _ => {}
    }
    for (path, one) in indexed(&selector["requirements"], &format!("{path}.requirements")) {
        operands(one, &path, causes);
        let key = text(&one["key"]);
        let at_key = format!("{path}.key");
        if is_of_labels {
            wrong(names::key(key), key, &at_key, causes);
            for (at, value) in indexed(&one["values"], &format!("{path}.values")) {
                wrong(names::value(text(value)), text(value), &at, causes);
            }
        } else if key.is_empty() {
            causes.push(Cause::required(at_key, "must be specified"));
        }
    }
}
