//! Annotations of pods and templates that mean something: which values they may have, and which may not be changed.
//!
//! One is missing: the tolerations of old (`scheduler.alpha.kubernetes.io/tolerations`), which have no effect, but must be valid.

use serde_json::{Value, json};

use super::super::checks::{containers, text};
use super::super::volumes;
use crate::failure::Cause;
use crate::values::annotations::{LOCAL, MIRROR, SECCOMP_OF_CONTAINER, SECCOMP_OF_POD};
use crate::values::app_armor;
use crate::values::fields::members;
use crate::values::pods::all_containers;

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Checks the annotations of a pod with this specification, or of a template.
pub(in super::super) fn check(
    annotations: &Value,
    spec: &Value,
    path: &str,
    causes: &mut Vec<Cause>,
) {
    values(annotations, spec, path, has_cost(annotations), causes);
}

/// Checks the annotations of a changed pod, whatever part of it was changed.
pub(in super::super) fn of_change(before: &Value, object: &Value, causes: &mut Vec<Cause>) {
    const PATH: &str = "metadata.annotations";
    let (old, new) = (
        &before["metadata"]["annotations"],
        &object["metadata"]["annotations"],
    );
    for (verb, some, others) in [("remove or update", old, new), ("add", new, old)] {
        for (name, value) in members(some) {
            let is_same = match verb {
                "add" => !others[name].is_null(),
                _ => others[name] == *value,
            };
            if is_same {
                continue;
            }
            let at = format!("{PATH}[{name}]");
            if name.starts_with(app_armor::OF_CONTAINER) {
                let why = format!("may not {verb} AppArmor annotations");
                causes.push(Cause::forbidden(&*at, &why));
            }
            if name == MIRROR {
                let why = format!("may not {verb} mirror pod annotation");
                causes.push(Cause::forbidden(at, &why));
            }
        }
    }
    // a cost that was wrong before stays allowed
    let is_cost_right = has_cost(new) || !has_cost(old);
    values(new, &object["spec"], PATH, is_cost_right, causes);
}

fn values(
    annotations: &Value,
    spec: &Value,
    path: &str,
    is_cost_right: bool,
    causes: &mut Vec<Cause>,
) {
    if !annotations[MIRROR].is_null() && text(&spec["nodeName"]).is_empty() {
        let why = "must set spec.nodeName if mirror pod annotation is set";
        let at = format!("{path}[{MIRROR}]");
        causes.push(Cause::invalid(at, &annotations[MIRROR], why));
    }
    if !is_cost_right {
        let at = format!("{path}[{DELETION_COST}]");
        let why = "must be a 32bit integer";
        causes.push(Cause::invalid(at, &annotations[DELETION_COST], why));
    }
    let all = || members(annotations);
    if let Some(profile) = annotations[SECCOMP_OF_POD].as_str() {
        seccomp(profile, &format!("{path}.{SECCOMP_OF_POD}"), causes);
    }
    for (name, profile) in all().filter(|(name, _)| name.starts_with(SECCOMP_OF_CONTAINER)) {
        seccomp(text(profile), &format!("{path}.{name}"), causes);
    }
    for (name, profile) in all() {
        let Some(container) = name.strip_prefix(app_armor::OF_CONTAINER) else {
            continue;
        };
        let at = format!("{path}[{name}]");
        if !all_containers(spec).any(|known| known["name"] == container) {
            causes.push(Cause::invalid(
                &*at,
                &json!(container),
                "container not found",
            ));
        }
        if !app_armor::is_profile(text(profile)) {
            let why = format!("invalid AppArmor profile name: {profile}");
            causes.push(Cause::invalid(at, profile, &why));
        }
    }
}

/// Checks that AppArmor profiles are the same in annotations and in fields; `path` is that of the specification.
pub(in super::super) fn agree(
    annotations: &Value,
    spec: &Value,
    path: &str,
    causes: &mut Vec<Cause>,
) {
    if spec["os"]["name"] == "windows" {
        return;
    }
    for (at, container) in containers(spec, path) {
        let own = &container["securityContext"]["appArmorProfile"];
        let field = if own.is_null() {
            &spec["securityContext"]["appArmorProfile"]
        } else {
            own
        };
        let Some(given) = app_armor::annotation(annotations, container).as_str() else {
            continue;
        };
        let at = format!("{at}.securityContext.appArmorProfile");
        let local = given.strip_prefix(LOCAL);
        let kind = match local {
            Some(_) => json!("Localhost"),
            None => app_armor::profile(given)["type"].take(),
        };
        let kinds = ["Localhost", "RuntimeDefault", "Unconfined"];
        if !kinds.contains(&text(&field["type"])) {
            continue;
        }
        if field["type"] != kind {
            let why = "apparmor type in annotation and field must match";
            causes.push(Cause::forbidden(format!("{at}.type"), why));
        } else if local.is_some_and(|local| field["localhostProfile"] != local) {
            let why = "apparmor profile in annotation and field must match";
            causes.push(Cause::forbidden(format!("{at}.localhostProfile"), why));
        }
    }
}

/// Returns whether the cost of a deletion is a number, or missing.
fn has_cost(annotations: &Value) -> bool {
    let Some(cost) = annotations[DELETION_COST].as_str() else {
        return true;
    };
    let is_plain = cost == "0" || cost.starts_with(|first| matches!(first, '-' | '1'..='9'));
    is_plain && cost.parse::<i32>().is_ok()
}

fn seccomp(profile: &str, path: &str, causes: &mut Vec<Cause>) {
    match profile.strip_prefix(LOCAL) {
        Some(name) => volumes::descending(name, path, causes),
        None if ["runtime/default", "docker/default", "unconfined"].contains(&profile) => {}
        None => {
            let why = "must be a valid seccomp profile";
            causes.push(Cause::invalid(path, &json!(profile), why));
        }
    }
}
