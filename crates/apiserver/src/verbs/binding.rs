//! Binding of pods to nodes.

use std::sync::Arc;

use serde_json::{Value, json};

use super::request::{Answer, Request};
use crate::admission::policies::Operation;
use crate::admission::validation::names;
use crate::admission::webhooks;
use crate::failure::{Failure, Subject};
use crate::storage::{Key, State};
use crate::values::fields::members;
use crate::values::pods;
use crate::values::times::now;

/// Labels of nodes that are copied to a pod when it is bound.
const TOPOLOGY: [&str; 2] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
];

impl Request<'_> {
    /// Binds a pod to a node.
    pub(crate) fn bind(&self, state: &mut State) -> Result<Answer, Failure> {
        let mut binding = self.parse()?;
        self.of_bindings()?.admit(&mut binding)?;
        let name = binding["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let name = name.as_str();
        if !self.name.is_empty() && self.name != name {
            return Err(Failure::bad_request(
                "name in URL does not match name in Binding object",
            ));
        }
        let pod_request = Request { name, ..*self };
        target_node(&binding)?;
        check_name(name)?;
        let subject = Subject {
            group: "",
            resource: "pods",
            name,
        };
        let before = state
            .get("pods", self.namespace, name)
            .ok_or_else(|| Failure::not_found(&subject))?;
        check_preconditions(&subject, &binding["metadata"], before)?;
        check_is_free(name, before)?;
        let before = Arc::clone(before);
        self.complete_binding(state, &mut binding);
        let warnings = self.ask_all(
            state,
            pod_request.attempt(None),
            Operation::Create,
            Some(&mut binding),
            None,
        )?;
        let node = target_node(&binding)?;
        let mut pod = Value::clone(&before);
        place(state, &mut pod, node, &binding["metadata"]);
        if !pod_request.dry_run() {
            state.put(Key::new("pods", self.namespace, name), pod);
        }
        Ok(Answer {
            warnings,
            ..Answer::success()
        })
    }
}

impl Request<'_> {
    /// Returns the request as one about a binding, which is an object of its own or a part of a pod.
    fn of_bindings(&self) -> Result<Self, Failure> {
        if self.subresource.is_empty() {
            Ok(*self)
        } else {
            self.for_subresource_kind()
        }
    }

    /// Adds to a binding what webhooks see of it besides its body.
    fn complete_binding(&self, state: &State, binding: &mut Value) {
        if !webhooks::are_there(state) {
            return;
        }
        binding["metadata"]["namespace"] = json!(self.namespace);
        if let Ok(request) = self.for_subresource_kind() {
            request.track(None, binding);
        }
    }
}

/// Returns the name of the node that a pod is to be bound to.
fn target_node(binding: &Value) -> Result<&str, Failure> {
    let target = &binding["target"];
    let node = target["name"].as_str().unwrap_or_default();
    let kind = target["kind"].as_str().unwrap_or_default();
    if !kind.is_empty() && kind != "Node" {
        return Err(Failure::internal_without_reason(format!(
            "target.kind: Unsupported value: {kind:?}: supported values: \"Node\", \"<empty>\""
        )));
    }
    if node.is_empty() {
        return Err(Failure::internal_without_reason(
            "target.name: Required value",
        ));
    }
    Ok(node)
}

/// Checks that a pod can have a name.
fn check_name(name: &str) -> Result<(), Failure> {
    if name.is_empty() {
        return Err(Failure::bad_request("Name parameter required."));
    }
    let wrong = names::path_segment(name);
    if wrong.is_empty() {
        return Ok(());
    }
    let wrong = wrong.join(";");
    Err(Failure::bad_request(format!(
        "Name parameter invalid: {name:?}: {wrong}"
    )))
}

/// Checks that the pod is the one that the metadata of the binding describes.
fn check_preconditions(subject: &Subject<'_>, given: &Value, pod: &Value) -> Result<(), Failure> {
    for (field, word) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
        let wanted = given[field].as_str().unwrap_or_default();
        let seen = pod["metadata"][field].as_str().unwrap_or_default();
        if !wanted.is_empty() && wanted != seen {
            return Err(Failure::conflict(
                subject,
                &format!(
                    "Precondition failed: {word} in precondition: {wanted}, {word} in object meta: {seen}"
                ),
            ));
        }
    }
    Ok(())
}

/// Checks that a pod may be bound: it is not being deleted, has no node, and nothing gates it.
fn check_is_free(name: &str, pod: &Value) -> Result<(), Failure> {
    let conflict = |why: &str| {
        let subject = Subject {
            group: "",
            resource: "pods/binding",
            name,
        };
        Err(Failure::conflict(&subject, why))
    };
    if pod["metadata"]["deletionTimestamp"].is_string() {
        return conflict(&format!(
            "pod {name} is being deleted, cannot be assigned to a host"
        ));
    }
    if let Some(known) = pod["spec"]["nodeName"]
        .as_str()
        .filter(|known| !known.is_empty())
    {
        return conflict(&format!("pod {name} is already assigned to node {known:?}"));
    }
    if pod["spec"]["schedulingGates"]
        .as_array()
        .is_some_and(|gates| !gates.is_empty())
    {
        return conflict(&format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    Ok(())
}

/// Puts a pod on a node, with the annotations and labels that the binding brings and the topology of the node.
fn place(state: &State, pod: &mut Value, node: &str, given: &Value) {
    pod["spec"]["nodeName"] = json!(node);
    if let Some(status) = pod["status"].as_object_mut() {
        status.remove("nominatedNodeName");
    }
    for part in ["annotations", "labels"] {
        for (key, value) in members(&given[part]) {
            pod["metadata"][part][key] = value.clone();
        }
    }
    if let Some(labels) = state
        .get("nodes", "", node)
        .and_then(|node| node["metadata"]["labels"].as_object())
    {
        for name in TOPOLOGY {
            if let Some(value) = labels.get(name) {
                pod["metadata"]["labels"][name] = value.clone();
            }
        }
    }
    let condition = json!({"type": "PodScheduled", "status": "True"});
    pods::set_condition(&mut pod["status"], condition, &now());
}
