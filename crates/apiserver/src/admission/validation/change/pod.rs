//! Changes of pods that are not allowed.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::checks::{filled, indexed, text};
use super::super::{internal, pod};
use crate::failure::Cause;
use crate::values::fields::{copy, elements, members};

/// Which fields of a pod may be changed, in the words of the refusal.
const POD_CHANGES: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// Checks a change of the specification of a pod.
pub(super) fn check(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    for list in ["containers", "initContainers"] {
        let count = |spec: &Value| spec[list].as_array().map_or(0, Vec::len);
        if count(old) != count(new) {
            causes.push(Cause::forbidden(
                format!("spec.{list}"),
                "pod updates may not add or remove containers",
            ));
            return;
        }
        images(&new[list], &format!("spec.{list}"), causes);
    }
    if !deadline(old, new, causes) {
        return;
    }
    tolerations(old, new, causes);
    gates(old, new, causes);
    if old == new {
        return;
    }
    let mut fixed = without_allowed_changes(old, new);
    if filled(&old["schedulingGates"]) {
        place(old, &mut fixed, causes);
    }
    // indexing by the name of a missing list leaves a null
    if let Some(fields) = fixed.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    if fixed != *old {
        let difference = internal::difference(old, &fixed);
        causes.push(Cause::forbidden(
            "spec",
            &format!("{POD_CHANGES}\n{difference}"),
        ));
    }
}

/// Checks the images of containers once more, as a real server does.
fn images(list: &Value, path: &str, causes: &mut Vec<Cause>) {
    for (at, container) in indexed(list, path) {
        let image = text(&container["image"]);
        let at = format!("{at}.image");
        if image.is_empty() {
            causes.push(Cause::required(&*at, ""));
        }
        if image.trim() != image {
            let why = "must not have leading or trailing whitespace";
            causes.push(Cause::invalid(at, &json!(image), why));
        }
    }
}

/// Returns the new specification of a pod with the old values of all fields that any pod may change.
fn without_allowed_changes(old: &Value, new: &Value) -> Value {
    let mut fixed = new.clone();
    for list in ["containers", "initContainers"] {
        let before = elements(&old[list]);
        let after = fixed[list].as_array_mut().into_iter().flatten();
        for (container, before) in after.zip(before) {
            copy(before, container, "image");
        }
    }
    let was_negative = old["terminationGracePeriodSeconds"]
        .as_i64()
        .is_some_and(|seconds| seconds < 0);
    let mut free = vec!["activeDeadlineSeconds", "schedulingGates", "tolerations"];
    if was_negative && new["terminationGracePeriodSeconds"] == 1 {
        free.push("terminationGracePeriodSeconds");
    }
    for field in free {
        copy(old, &mut fixed, field);
    }
    fixed
}

/// Checks a change of where a pod that waits at a gate may be placed: it may become narrower. What is allowed, or told already, is undone.
fn place(old: &Value, fixed: &mut Value, causes: &mut Vec<Cause>) {
    let (was, is) = (&old["nodeSelector"], &fixed["nodeSelector"]);
    let mut known = members(was);
    if known.any(|(key, value)| is[key] != *value) {
        let why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        causes.push(Cause::invalid("spec.nodeSelector", is, why));
    }
    copy(old, fixed, "nodeSelector");
    let (was, is) = (
        &old["affinity"]["nodeAffinity"],
        fixed["affinity"]["nodeAffinity"].clone(),
    );
    if *was == is {
        return;
    }
    affinity(was, &is, causes);
    let affinity = &fixed["affinity"];
    let only_nodes = affinity["podAffinity"].is_null() && affinity["podAntiAffinity"].is_null();
    if affinity.is_null() {
        fixed["affinity"] = json!({"nodeAffinity": was});
    } else if old["affinity"].is_null() && only_nodes {
        fixed["affinity"] = Value::Null;
    } else {
        copy(&old["affinity"], &mut fixed["affinity"], "nodeAffinity");
    }
}

fn affinity(was: &Value, is: &Value, causes: &mut Vec<Cause>) {
    let path = format!("spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms");
    let terms = |affinity: &Value| {
        let terms = affinity[REQUIRED]["nodeSelectorTerms"].as_array();
        terms.cloned().unwrap_or_default()
    };
    let (old, new) = (terms(was), terms(is));
    if old.is_empty() {
        return;
    }
    let written = |term: &Value| internal::written("NodeSelectorTerm", term);
    if old.len() != new.len() {
        let all: Vec<String> = new.iter().map(written).collect();
        let shown = if new.is_empty() {
            "null".to_owned()
        } else {
            format!("[{}]", all.join(","))
        };
        let why = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        causes.push(Cause::invalid(path, &Value::Null, why).with_value(&shown));
        return;
    }
    for (index, (old, new)) in old.iter().zip(&new).enumerate() {
        if !only_adds(old, new) {
            let why = "only additions are allowed (no mutations or deletions)";
            let cause = Cause::invalid(format!("{path}[{index}]"), &Value::Null, why);
            causes.push(cause.with_value(&written(new)));
        }
    }
}

/// Returns whether a term only demands more than before.
fn only_adds(old: &Value, new: &Value) -> bool {
    let of = |term: &Value, field: &str| term[field].as_array().cloned().unwrap_or_default();
    let fields = ["matchExpressions", "matchFields"];
    let is_empty = |term: &Value| fields.iter().all(|field| of(term, field).is_empty());
    if is_empty(old) && !is_empty(new) {
        return false;
    }
    fields
        .iter()
        .all(|field| of(new, field).starts_with(&of(old, field)))
}

/// Checks that the tolerations of a pod are kept, with other seconds at most; then all are checked once more.
fn tolerations(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let empty = Vec::new();
    let (known, given) = (
        old["tolerations"].as_array().unwrap_or(&empty),
        new["tolerations"].as_array().unwrap_or(&empty),
    );
    let seconds_aside = |toleration: &Value| {
        let mut toleration = toleration.clone();
        if let Some(fields) = toleration.as_object_mut() {
            fields.remove("tolerationSeconds");
        }
        toleration
    };
    let all_kept = known.iter().all(|toleration| {
        given
            .iter()
            .any(|other| seconds_aside(other) == seconds_aside(toleration))
    });
    if all_kept {
        pod::tolerations(&new["tolerations"], "spec.tolerations", causes);
    } else {
        causes.push(Cause::forbidden(
            "spec.tolerations",
            "existing toleration can not be modified except its tolerationSeconds",
        ));
    }
}

/// Checks the time that a pod may take; returns false where a real server looks no further.
fn deadline(old: &Value, new: &Value, causes: &mut Vec<Cause>) -> bool {
    const FIELD: &str = "activeDeadlineSeconds";
    let path = format!("spec.{FIELD}");
    let most = i64::from(i32::MAX);
    let why = match (old[FIELD].as_i64(), new[FIELD].as_i64()) {
        (_, Some(is)) if !(0..=most).contains(&is) => {
            format!("must be between 0 and {most}, inclusive")
        }
        (Some(was), Some(is)) if was < is => {
            "must be less than or equal to previous value".to_owned()
        }
        (Some(_), None) => {
            let why = "must not update from a positive integer to nil value";
            causes.push(Cause::invalid(path, &Value::Null, why));
            return true;
        }
        _ => return true,
    };
    causes.push(Cause::invalid(path, &new[FIELD], &why));
    false
}

fn gates(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    // the last of several gates of a name counts
    let mut added: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, gate) in elements(&new["schedulingGates"]).enumerate() {
        added.insert(text(&gate["name"]), index);
    }
    for gate in elements(&old["schedulingGates"]) {
        added.remove(text(&gate["name"]));
    }
    for (gate, index) in added {
        let why = format!("only deletion is allowed, but found new scheduling gate '{gate}'");
        let at = format!("spec.schedulingGates[{index}].name");
        causes.push(Cause::forbidden(at, &why));
    }
}
