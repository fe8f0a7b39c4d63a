//! The lifecycle of definitions after they are written: names are accepted, the definition is established, and on deletion all its objects are
//! deleted first. In a real server, controllers do this; here the write does it, in the same steps.

use std::sync::Arc;

use serde_json::{Value, json};

use self::names::NamesInUse;
use crate::admission::validation::definitions::approval;
use crate::objects::apply::Tracker;
use crate::registry::definition::{condition, is_true, set_condition, texts};
use crate::registry::{Resource, built_in, storage_name};
use crate::storage::{DEFINITIONS, Key, Object, State};
use crate::values::times::now;
use crate::verbs::deletion::{has_finalizers, mark_for_deletion};

mod names;

/// The finalizer that keeps a definition until its objects are gone.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";
/// The field manager of the status.
const MANAGER: &str = "kube-apiserver";

/// Returns a definition with its deletion started.
pub(crate) fn start_deletion(definition: &Value, now: &str) -> Value {
    let mut definition = definition.clone();
    definition["metadata"]["deletionTimestamp"] = json!(now);
    let finalizers = &mut definition["metadata"]["finalizers"];
    if !finalizers.is_array() {
        *finalizers = json!([]);
    }
    if let Some(list) = finalizers.as_array_mut()
        && !list.contains(&json!(CLEANUP))
    {
        list.push(json!(CLEANUP));
    }
    set_condition(
        &mut definition,
        "Terminating",
        "True",
        "InstanceDeletionPending",
        "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        now,
    );
    definition
}

/// Reconciles all definitions until nothing changes.
pub(crate) fn reconcile(state: &mut State) {
    let table = built_in();
    let Some(resource) = table.of_kind("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    else {
        return;
    };
    let keys: Vec<Key> = state
        .list(DEFINITIONS, "")
        .map(|(key, _)| key.clone())
        .collect();
    let mut changed = true;
    // names that one definition gives up may be those that another waits for
    while std::mem::take(&mut changed) {
        for key in &keys {
            changed |= step(state, resource, key);
        }
    }
}

/// Takes the next step of a definition; returns whether anything changed.
fn step(state: &mut State, resource: &Resource, key: &Key) -> bool {
    let Some(definition) = state.get(&key.resource, "", &key.name).map(Arc::clone) else {
        return false;
    };
    let now = now();
    let mut next = Value::clone(&definition);
    if definition["metadata"]["deletionTimestamp"].is_string() {
        return step_deletion(state, resource, key, &definition, next);
    }
    let group = definition["spec"]["group"].as_str().unwrap_or_default();
    {
        let all = state.list(DEFINITIONS, "").map(|(_, other)| other.value());
        names::accept(&mut next, &NamesInUse::of(all, group), &now);
    }
    if next == *definition.value()
        && is_true(&next, "NamesAccepted")
        && !is_true(&next, "Established")
    {
        let message = "the initial names have been accepted";
        set_condition(
            &mut next,
            "Established",
            "True",
            "InitialNamesAccepted",
            message,
            &now,
        );
    }
    if next == *definition.value() && approval::is_protected(group) {
        approve(&mut next, &now);
    }
    write(state, resource, key, &definition, next)
}

/// Sets the condition that shows the approval of a definition in a protected group.
fn approve(definition: &mut Value, now: &str) {
    const KIND: &str = "KubernetesAPIApprovalPolicyConformant";
    let approval = approval::of(definition);
    let (status, reason) = approval.condition();
    set_condition(definition, KIND, status, reason, &approval.why(), now);
}

/// Takes the next step of a deletion: first the objects are deleted, then the finalizer is removed.
fn step_deletion(
    state: &mut State,
    resource: &Resource,
    key: &Key,
    before: &Arc<Object>,
    mut next: Value,
) -> bool {
    let now = now();
    let is_held = texts(&before["metadata"]["finalizers"]).any(|name| name == CLEANUP);
    if !is_held {
        return false;
    }
    let reason = condition(before, "Terminating").map(|found| &found["reason"]);
    if reason.is_some_and(|reason| reason == "InstanceDeletionPending") {
        let message = "CustomResource deletion is in progress";
        set_condition(
            &mut next,
            "Terminating",
            "True",
            "InstanceDeletionInProgress",
            message,
            &now,
        );
        return write(state, resource, key, before, next);
    }
    let (reason, message) = if is_true(before, "Established") {
        if !delete_objects(state, before) {
            return false;
        }
        ("InstanceDeletionCompleted", "removed all instances")
    } else {
        ("NeverEstablished", "resource was never established")
    };
    set_condition(&mut next, "Terminating", "False", reason, message, &now);
    let left: Vec<Value> = texts(&before["metadata"]["finalizers"])
        .filter(|name| *name != CLEANUP)
        .map(Value::from)
        .collect();
    if left.is_empty() {
        state.remove(key);
        return true;
    }
    next["metadata"]["finalizers"] = json!(left);
    write(state, resource, key, before, next)
}

/// Deletes the objects of a definition; returns whether none is left.
fn delete_objects(state: &mut State, definition: &Value) -> bool {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let storage = storage_name(
        &text(&definition["spec"]["group"]),
        &text(&definition["status"]["acceptedNames"]["plural"]),
    );
    let objects: Vec<(Key, Arc<Object>)> = state
        .list(&storage, "")
        .map(|(key, object)| (key.clone(), Arc::clone(object)))
        .collect();
    let mut left = 0;
    for (key, object) in objects {
        if !has_finalizers(&object) {
            state.remove(&key);
            continue;
        }
        left += 1;
        if object["metadata"]["deletionTimestamp"].is_null() {
            let mut marked = Value::clone(&object);
            mark_for_deletion(&mut marked, false);
            state.put(key, marked);
        }
    }
    left == 0
}

/// Writes the status of a definition if it changed; returns whether it did.
fn write(
    state: &mut State,
    resource: &Resource,
    key: &Key,
    before: &Arc<Object>,
    mut next: Value,
) -> bool {
    if next == *before.value() {
        return false;
    }
    let now = now();
    Tracker::new(resource, "status", &now).update(Some(before), &mut next, MANAGER);
    state.put(key.clone(), next);
    true
}
