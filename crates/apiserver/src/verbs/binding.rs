//! Binding and eviction of pods.

use std::sync::Arc;

use serde_json::{Value, json};

use super::delete::Options;
use super::request::{Answer, Request};
use crate::failure::{Failure, Subject};
use crate::objects::apply::Tracker;
use crate::objects::selectors;
use crate::registry;
use crate::storage::{Key, State};
use crate::values::pods;
use crate::values::times::now;

const BUDGETS: &str = "poddisruptionbudgets.policy";
/// Labels of nodes that are copied to a pod when it is bound.
const TOPOLOGY: [&str; 2] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
];
/// Field manager of writes by the server itself.
const OWN_MANAGER: &str = "kube-apiserver";
/// Largest number of evicted pods that a budget records.
const MAX_DISRUPTED_PODS: usize = 2000;

/// Returns the answer to a successful request.
fn success() -> Answer {
    Answer {
        code: 201,
        body: json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}),
        warnings: Vec::new(),
    }
}

impl Request<'_> {
    /// Binds a pod to a node.
    pub(crate) fn bind(&self, state: &mut State) -> Result<Answer, Failure> {
        let binding = self.parse()?;
        let name = binding["metadata"]["name"].as_str().unwrap_or_default();
        if !self.name.is_empty() && self.name != name {
            return Err(Failure::bad_request(
                "name in URL does not match name in Binding object",
            ));
        }
        let pod_request = Request { name, ..*self };
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
        let key = Key::new("pods", self.namespace, name);
        let subject = Subject {
            group: "",
            resource: "pods",
            name,
        };
        let before = state
            .get("pods", self.namespace, name)
            .cloned()
            .ok_or_else(|| Failure::not_found(&subject))?;
        let conflict = |why: &str| {
            let subject = Subject {
                resource: "pods/binding",
                ..subject
            };
            Err(Failure::conflict(&subject, why))
        };
        let given = &binding["metadata"];
        for (field, word) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
            let wanted = given[field].as_str().unwrap_or_default();
            let seen = before["metadata"][field].as_str().unwrap_or_default();
            if !wanted.is_empty() && wanted != seen {
                return Err(Failure::conflict(
                    &subject,
                    &format!(
                        "Precondition failed: {word} in precondition: {wanted}, {word} in object meta: {seen}"
                    ),
                ));
            }
        }
        if before["metadata"]["deletionTimestamp"].is_string() {
            return conflict(&format!(
                "pod {name} is being deleted, cannot be assigned to a host"
            ));
        }
        if let Some(known) = before["spec"]["nodeName"]
            .as_str()
            .filter(|known| !known.is_empty())
        {
            return conflict(&format!("pod {name} is already assigned to node {known:?}"));
        }
        if before["spec"]["schedulingGates"]
            .as_array()
            .is_some_and(|gates| !gates.is_empty())
        {
            return conflict(&format!("pod {name} has non-empty .spec.schedulingGates"));
        }
        let mut pod = Value::clone(&before);
        pod["spec"]["nodeName"] = json!(node);
        if let Some(status) = pod["status"].as_object_mut() {
            status.remove("nominatedNodeName");
        }
        for part in ["annotations", "labels"] {
            for (key, value) in given[part].as_object().into_iter().flatten() {
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
        if !pod_request.dry_run() {
            state.put(key, pod);
        }
        Ok(success())
    }

    /// Deletes a pod if the disruption budgets of its namespace allow it.
    pub(crate) fn evict(&self, state: &mut State) -> Result<Answer, Failure> {
        let mut eviction = self.parse()?;
        self.check_eviction(&mut eviction)?;
        let mut options = Options::parse_unchecked(&eviction["deleteOptions"]);
        options.dry_run |= self.dry_run();
        let pod = Arc::clone(self.existing(state)?);
        let phase = pod["status"]["phase"].as_str().unwrap_or_default();
        let ends = pod["metadata"]["deletionTimestamp"].is_string();
        if !ends && !["Succeeded", "Failed", "Pending"].contains(&phase) {
            self.check_budgets(state, &pod, options.dry_run)?;
        }
        if !options.dry_run {
            // the pod gets its condition before the other options are checked
            self.check_preconditions(&pod, &options)?;
            let mut marked = Value::clone(self.existing(state)?);
            let condition = json!({"type": "DisruptionTarget", "status": "True",
                "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"});
            pods::set_condition(&mut marked["status"], condition, &now());
            let written = state.put(self.key(), marked);
            if options.version.is_some() {
                options.version = written["metadata"]["resourceVersion"]
                    .as_str()
                    .map(str::to_owned);
            }
        }
        options.check(&eviction["deleteOptions"])?;
        self.delete_with(state, &options)?;
        Ok(success())
    }

    /// Checks that the body is an eviction of the pod in the path.
    fn check_eviction(&self, eviction: &mut Value) -> Result<(), Failure> {
        // the older version is accepted, too
        if eviction["apiVersion"] != "policy/v1beta1" || eviction["kind"] != "Eviction" {
            self.for_subresource_kind()?.check_kind(eviction)?;
        }
        let namespace = eviction["metadata"]["namespace"].as_str();
        if namespace.is_some_and(|given| !given.is_empty() && given != self.namespace) {
            return Err(Failure::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        if eviction["metadata"]["name"] != self.name {
            return Err(Failure::bad_request(
                "name in URL does not match name in Eviction object",
            ));
        }
        Ok(())
    }

    /// Takes one disruption from the budget of a pod, if it has one.
    fn check_budgets(&self, state: &mut State, pod: &Value, dry_run: bool) -> Result<(), Failure> {
        let labels = &pod["metadata"]["labels"];
        let budgets: Vec<(Key, Arc<Value>)> = state
            .list(BUDGETS, self.namespace)
            .filter(|(_, budget)| selectors::selects(&budget["spec"]["selector"], labels))
            .map(|(key, budget)| (key.clone(), Arc::clone(budget)))
            .collect();
        let (key, budget) = match budgets.as_slice() {
            [] => return Ok(()),
            [(key, budget)] => (key.clone(), Arc::clone(budget)),
            _ => {
                return Err(Failure::internal_without_reason(
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                ));
            }
        };
        let status = &budget["status"];
        let number = |field: &str| status[field].as_i64().unwrap_or_default();
        let ready = pod["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
        if !ready {
            // a pod that is not ready may be evicted when enough other pods are healthy
            let always = budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow";
            let (current, desired) = (number("currentHealthy"), number("desiredHealthy"));
            if always || current >= desired && desired > 0 {
                return Ok(());
            }
        }
        let name = key.name.as_str();
        let refuse = |message: &str, seconds: Option<u64>| {
            Err(Failure::too_many_evictions(message, seconds))
        };
        let generation = budget["metadata"]["generation"]
            .as_i64()
            .unwrap_or_default();
        if number("observedGeneration") < generation {
            return refuse(
                &format!("The disruption budget {name} is still being processed by the server."),
                Some(10),
            );
        }
        let forbid = |why: &str| {
            let subject = Subject {
                group: "policy",
                resource: "poddisruptionbudget",
                name,
            };
            Err(Failure::forbidden(&subject, why))
        };
        let allowed = number("disruptionsAllowed");
        if allowed < 0 {
            return forbid("pdb disruptions allowed is negative");
        }
        if status["disruptedPods"]
            .as_object()
            .is_some_and(|pods| pods.len() > MAX_DISRUPTED_PODS)
        {
            return forbid(
                "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
            );
        }
        if allowed == 0 {
            let (current, desired) = (number("currentHealthy"), number("desiredHealthy"));
            return refuse(&refusal_message(name, status, current, desired), None);
        }
        if dry_run {
            return Ok(());
        }
        let before = budget;
        let mut budget = Value::clone(&before);
        budget["status"]["disruptionsAllowed"] = json!(allowed - 1);
        budget["status"]["disruptedPods"][self.name] = json!(now());
        if allowed == 1 {
            set_exhausted_condition(&mut budget);
        }
        if let Some(resource) = registry::built_in().of_kind("policy/v1", "PodDisruptionBudget") {
            let now = now();
            let tracker = Tracker::new(resource, "status", &now);
            tracker.update(Some(&before), &mut budget, OWN_MANAGER);
        }
        state.put(key, budget);
        Ok(())
    }
}

fn refusal_message(name: &str, status: &Value, current: i64, desired: i64) -> String {
    let empty = Value::Null;
    let condition = status["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == "DisruptionAllowed")
        .unwrap_or(&empty);
    let message = condition["message"].as_str().unwrap_or_default();
    let reason = condition["reason"].as_str().unwrap_or_default();
    let explained = condition["status"] == "False" && !message.is_empty();
    if explained && reason == "SyncFailed" {
        format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
        )
    } else if current <= desired {
        format!(
            "The disruption budget {name} needs {desired} healthy pods and has {current} currently"
        )
    } else if explained {
        format!(
            "The disruption budget {name} does not allow evicting pods currently ({reason}): {message}"
        )
    } else {
        format!("The disruption budget {name} does not allow evicting pods currently")
    }
}

/// Sets the condition of a budget that allows no further disruption.
fn set_exhausted_condition(budget: &mut Value) {
    let condition = json!({
        "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
        "observedGeneration": budget["status"]["observedGeneration"], "lastTransitionTime": now(),
    });
    let list = &mut budget["status"]["conditions"];
    if !list.is_array() {
        *list = json!([]);
    }
    let Some(list) = list.as_array_mut() else {
        return;
    };
    match list
        .iter_mut()
        .find(|known| known["type"] == "DisruptionAllowed")
    {
        Some(known) => *known = condition,
        None => list.push(condition),
    }
}
