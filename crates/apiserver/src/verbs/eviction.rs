//! Eviction of pods, within their disruption budgets.

use std::sync::Arc;

use serde_json::{Value, json};

use super::delete::Options;
use super::request::{Answer, Request};
use crate::admission::policies::Operation;
use crate::failure::{Failure, Subject};
use crate::objects::apply::Tracker;
use crate::objects::selectors;
use crate::registry;
use crate::storage::{Key, Object, State};
use crate::values::fields::elements;
use crate::values::pods;
use crate::values::times::now;

const BUDGETS: &str = "poddisruptionbudgets.policy";
/// Field manager of writes by the server itself.
const OWN_MANAGER: &str = "kube-apiserver";
/// Largest number of evicted pods that a budget records.
const MAX_DISRUPTED_PODS: usize = 2000;

impl Request<'_> {
    /// Deletes a pod if the disruption budgets of its namespace allow it.
    pub(crate) fn evict(&self, state: &mut State) -> Result<Answer, Failure> {
        let mut eviction = self.parse()?;
        self.check_eviction(&mut eviction)?;
        let pod = Arc::clone(self.existing(state)?);
        let warnings = self.ask_all(
            state,
            self.attempt(None),
            Operation::Create,
            Some(&mut eviction),
            None,
        )?;
        let mut options = Options::parse_unchecked(&eviction["deleteOptions"]);
        options.dry_run |= self.dry_run();
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
        Ok(Answer {
            warnings,
            ..Answer::success()
        })
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
        let Some((key, budget)) = self.budget_of(state, pod)? else {
            return Ok(());
        };
        if may_go_anyway(pod, &budget) {
            return Ok(());
        }
        let allowed = disruptions_allowed(&key.name, &budget)?;
        if !dry_run {
            self.take_disruption(state, key, &budget, allowed);
        }
        Ok(())
    }

    /// Returns the budget that selects a pod; a pod must not have several.
    fn budget_of(&self, state: &State, pod: &Value) -> Result<Option<(Key, Arc<Object>)>, Failure> {
        let labels = &pod["metadata"]["labels"];
        let mut budgets = state
            .list(BUDGETS, self.namespace)
            .filter(|(_, budget)| selectors::selects(&budget["spec"]["selector"], labels))
            .map(|(key, budget)| (key.clone(), Arc::clone(budget)));
        match (budgets.next(), budgets.next()) {
            (_, Some(_)) => Err(Failure::internal_without_reason(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            )),
            (budget, None) => Ok(budget),
        }
    }

    /// Writes a budget with one disruption less, which is that of this pod.
    fn take_disruption(&self, state: &mut State, key: Key, before: &Value, allowed: i64) {
        let mut budget = before.clone();
        budget["status"]["disruptionsAllowed"] = json!(allowed - 1);
        budget["status"]["disruptedPods"][self.name] = json!(now());
        if allowed == 1 {
            set_exhausted_condition(&mut budget);
        }
        if let Some(resource) = registry::built_in().of_kind("policy/v1", "PodDisruptionBudget") {
            let now = now();
            let tracker = Tracker::new(resource, "status", &now);
            tracker.update(Some(before), &mut budget, OWN_MANAGER);
        }
        state.put(key, budget);
    }
}

fn number(status: &Value, field: &str) -> i64 {
    status[field].as_i64().unwrap_or_default()
}

/// Returns whether a pod that is not ready may be evicted, because its budget says so or enough other pods are healthy.
fn may_go_anyway(pod: &Value, budget: &Value) -> bool {
    let is_ready = elements(&pod["status"]["conditions"])
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    if is_ready {
        return false;
    }
    let always = budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow";
    let current = number(&budget["status"], "currentHealthy");
    let desired = number(&budget["status"], "desiredHealthy");
    always || current >= desired && desired > 0
}

/// Returns how many disruptions a budget still allows; refuses when there is none.
fn disruptions_allowed(name: &str, budget: &Value) -> Result<i64, Failure> {
    let status = &budget["status"];
    let generation = number(&budget["metadata"], "generation");
    if number(status, "observedGeneration") < generation {
        return Err(Failure::too_many_evictions(
            &format!("The disruption budget {name} is still being processed by the server."),
            Some(10),
        ));
    }
    let forbid = |why: &str| {
        let subject = Subject {
            group: "policy",
            resource: "poddisruptionbudget",
            name,
        };
        Err(Failure::forbidden(&subject, why))
    };
    let allowed = number(status, "disruptionsAllowed");
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
        return Err(Failure::too_many_evictions(
            &refusal_message(name, status),
            None,
        ));
    }
    Ok(allowed)
}

fn refusal_message(name: &str, status: &Value) -> String {
    let current = number(status, "currentHealthy");
    let desired = number(status, "desiredHealthy");
    let empty = Value::Null;
    let condition = elements(&status["conditions"])
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
