//! Changes of jobs that are not allowed.

use serde_json::{Value, json};

use super::{immutable, selector, shown_as};
use crate::failure::Cause;
use crate::values::fields::{copy, existing_object, remove};

/// Checks a change of a job.
pub(super) fn check(before: &Value, object: &Value, causes: &mut Vec<Cause>) {
    let (old, new) = (&before["spec"], &object["spec"]);
    completions(old, new, causes);
    selector(&old["selector"], &new["selector"], "spec.selector", causes);
    let never_started = old["suspend"] == true && before["status"]["startTime"].is_null();
    let kept = if never_started {
        with_new_directives(&old["template"], &new["template"])
    } else {
        old["template"].clone()
    };
    let template = &new["template"];
    shown_as("PodTemplateSpec", &kept, template, "spec.template", causes);
    let field = "completionMode";
    immutable(&old[field], &new[field], "spec.completionMode", causes);
    for (field, kind) in [
        ("podFailurePolicy", "PodFailurePolicy"),
        ("backoffLimitPerIndex", ""),
        ("managedBy", ""),
        ("successPolicy", "SuccessPolicy"),
    ] {
        let (was, is, path) = (&old[field], &new[field], format!("spec.{field}"));
        if kind.is_empty() {
            immutable(was, is, &path, causes);
        } else {
            shown_as(kind, was, is, &path, causes);
        }
    }
}

/// Checks that the number of completions stays; that of an indexed job may change together with the number of pods at a time.
fn completions(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let (was, is, path) = (&old["completions"], &new["completions"], "spec.completions");
    if new["completionMode"] != "Indexed" {
        immutable(was, is, path, causes);
    } else if was != is && !is.is_null() && *is != new["parallelism"] {
        let why = "can only be modified in tandem with spec.parallelism";
        causes.push(Cause::invalid(path, is, why));
    }
}

/// Returns the old template of a job that never ran with everything that says where its pods may be placed as in the new one.
fn with_new_directives(old: &Value, new: &Value) -> Value {
    let mut kept = old.clone();
    let (was, is) = (&old["spec"]["affinity"], &new["spec"]["affinity"]);
    if is.is_null() {
        if let Some(affinity) = existing_object(&mut kept["spec"], "affinity") {
            remove(affinity, "nodeAffinity");
        }
        if kept["spec"].get("affinity") == Some(&json!({})) {
            remove(&mut kept["spec"], "affinity");
        }
    } else if was.is_null() {
        let mut affinity = json!({});
        copy(is, &mut affinity, "nodeAffinity");
        kept["spec"]["affinity"] = affinity;
    } else {
        copy(is, &mut kept["spec"]["affinity"], "nodeAffinity");
    }
    for field in ["nodeSelector", "tolerations", "schedulingGates"] {
        copy(&new["spec"], &mut kept["spec"], field);
    }
    for field in ["annotations", "labels"] {
        copy(&new["metadata"], &mut kept["metadata"], field);
    }
    kept
}
