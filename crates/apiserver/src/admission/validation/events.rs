//! Checks of events, of both groups.

use serde_json::{Value, json};

use super::checks::{filled, text, wrong};
use super::names;
use crate::failure::Cause;
use crate::registry::Resource;

/// Longest name of who reports, and longest action and reason, in bytes.
const LONGEST: usize = 128;
const MISMATCH: &str = "does not match event.namespace";

/// Checks an event. Its fields have the names of group "".
pub(super) fn check(resource: &Resource, object: &Value, causes: &mut Vec<Cause>) {
    let strict = resource.group == "events.k8s.io";
    let about = text(&object["involvedObject"]["namespace"]);
    let own = text(&object["metadata"]["namespace"]);
    let timed = object["eventTime"].is_string();
    let fits = match (about.is_empty(), timed) {
        (true, false) => own == "default",
        (true, true) => own == "default" || own == "kube-system",
        (false, false) => about == own,
        (false, true) => true,
    };
    if !fits {
        causes.push(Cause::invalid(
            "involvedObject.namespace",
            &json!(about),
            MISMATCH,
        ));
    }
    if timed {
        reported(object, strict, causes);
    }
}

/// Checks who reports what.
fn reported(object: &Value, strict: bool, causes: &mut Vec<Cause>) {
    let at = if strict {
        "reportingController"
    } else {
        "reportingComponent"
    };
    let controller = text(&object["reportingComponent"]);
    if controller.is_empty() {
        causes.push(Cause::required(at, ""));
    }
    wrong(names::key(controller), controller, at, causes);
    for (field, longest) in [
        ("reportingInstance", LONGEST),
        ("action", LONGEST),
        ("reason", LONGEST),
        ("message", 1024),
    ] {
        if !filled(&object[field]) && field != "message" {
            causes.push(Cause::required(field, ""));
        }
        if text(&object[field]).len() > longest {
            let why = format!("can have at most {longest} characters");
            causes.push(Cause::invalid(field, &json!(""), &why));
        }
    }
}

/// Checks what only new events of the named group must have.
pub(super) fn of_new(resource: &Resource, object: &Value, causes: &mut Vec<Cause>) {
    if resource.group != "events.k8s.io" {
        return;
    }
    series(object, causes);
    if !object["eventTime"].is_string() {
        causes.push(Cause::required("eventTime", ""));
    }
    let mut refuse = |field: &str, why: &str| causes.push(Cause::invalid(field, &json!(""), why));
    let kind = text(&object["type"]);
    if kind != "Normal" && kind != "Warning" {
        refuse("type", &format!("has invalid value: {kind}"));
    }
    for field in ["firstTimestamp", "lastTimestamp"] {
        if object[field].is_string() {
            refuse(field, "needs to be unset");
        }
    }
    if object["count"].as_i64().unwrap_or_default() != 0 {
        refuse("count", "needs to be unset");
    }
    if filled(&object["source"]["component"]) || filled(&object["source"]["host"]) {
        refuse("source", "needs to be unset");
    }
}

fn series(object: &Value, causes: &mut Vec<Cause>) {
    let series = &object["series"];
    if series.is_null() {
        return;
    }
    if series["count"].as_i64().unwrap_or_default() < 2 {
        causes.push(Cause::invalid(
            "series.count",
            &json!(""),
            "should be at least 2",
        ));
    }
    if !series["lastObservedTime"].is_string() {
        causes.push(Cause::required("series.lastObservedTime", ""));
    }
}

/// Checks a change in the named group, where nothing but the series may change.
pub(super) fn of_change(
    resource: &Resource,
    before: &Value,
    object: &Value,
    causes: &mut Vec<Cause>,
) {
    if resource.group != "events.k8s.io" {
        return;
    }
    if before["series"] != object["series"] {
        series(object, causes);
    }
    for (field, at) in [
        ("involvedObject", "involvedObject"),
        ("reason", "reason"),
        ("message", "message"),
        ("source", "source"),
        ("firstTimestamp", "firstTimestamp"),
        ("lastTimestamp", "lastTimestamp"),
        ("count", "count"),
        // a real server looks at it twice
        ("reason", "reason"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingComponent", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ] {
        let value = &object[field];
        if before[field] == *value {
            continue;
        }
        let shown = match field {
            "involvedObject" => reference(value),
            "related" if value.is_object() => reference(value),
            "source" => format!(
                "{{\"Component\":{},\"Host\":{}}}",
                json!(text(&value["component"])),
                json!(text(&value["host"]))
            ),
            "count" => value.as_i64().unwrap_or_default().to_string(),
            "related" | "firstTimestamp" | "lastTimestamp" | "eventTime" => value.to_string(),
            _ => json!(text(value)).to_string(),
        };
        let cause = Cause::invalid(at, &Value::Null, "field is immutable");
        causes.push(cause.with_value(&shown));
    }
}

/// Writes a reference to an object in the server's internal form.
fn reference(value: &Value) -> String {
    let fields: Vec<String> = [
        ("Kind", "kind"),
        ("Namespace", "namespace"),
        ("Name", "name"),
        ("UID", "uid"),
        ("APIVersion", "apiVersion"),
        ("ResourceVersion", "resourceVersion"),
        ("FieldPath", "fieldPath"),
    ]
    .into_iter()
    .map(|(shown, field)| format!("{shown:?}:{}", json!(text(&value[field]))))
    .collect();
    format!("{{{}}}", fields.join(","))
}
