//! Resource quotas: limits on the number of objects and on their total amounts in a namespace.

use api::quantity::Amount;
use serde_json::{Value, json};

use crate::admission::attempt::Attempt;
use crate::failure::Failure;
use crate::objects::apply::Tracker;
use crate::registry::built_in;
use crate::storage::{Key, State};
use crate::values::times::now;
use crate::values::{pods, quantity, quota};

/// Field manager of writes by the server itself.
const OWN_MANAGER: &str = "kube-apiserver";

/// Returns the amounts that a quota bounds but that some containers do not set, with the names of those containers.
fn unset_amounts(object: &Value, hard: &serde_json::Map<String, Value>) -> Vec<String> {
    let mut missing = Vec::new();
    for name in hard.keys() {
        let (what, resource) = match name.as_str() {
            "cpu" | "memory" => ("requests", name.as_str()),
            other => match other.split_once('.') {
                Some((what @ ("requests" | "limits"), resource @ ("cpu" | "memory"))) => {
                    (what, resource)
                }
                _ => continue,
            },
        };
        let without: Vec<&str> = pods::containers(&object["spec"])
            .filter(|container| container["resources"][what].get(resource).is_none())
            .filter_map(|container| container["name"].as_str())
            .collect();
        if !without.is_empty() {
            missing.push(format!("{name} for: {}", without.join(",")));
        }
    }
    missing
}

/// Adds a new object, or what a changed one takes more than before, to the use of its namespace's quotas, unless it exceeds one of them.
pub(super) fn charge(
    state: &mut State,
    attempt: &Attempt<'_>,
    object: &Value,
    dry_run: bool,
) -> Result<(), Failure> {
    if attempt.namespace.is_empty() || attempt.resource.storage == "resourcequotas" {
        return Ok(());
    }
    let resource = attempt.resource;
    let quotas: Vec<Value> = state
        .list("resourcequotas", attempt.namespace)
        .map(|(_, quota)| Value::clone(quota))
        .filter(|quota| quota::is_in_scope(quota, &resource.group, &resource.plural, object))
        .collect();
    if quotas.is_empty() {
        return Ok(());
    }
    let mut usage = quota::usage(&resource.group, &resource.plural, object);
    for (name, before) in attempt
        .before
        .map(|before| quota::usage(&resource.group, &resource.plural, before))
        .into_iter()
        .flatten()
    {
        // what is given back is counted by the controller
        match usage.get_mut(&name) {
            Some(amount) if *amount > before => *amount = *amount - before,
            _ => drop(usage.remove(&name)),
        }
    }
    let mut charged = Vec::new();
    for mut quota_object in quotas {
        let name = quota_object["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let Some(hard) = quota_object["spec"]["hard"].as_object().cloned() else {
            continue;
        };
        if attempt.resource.storage == "pods" {
            let missing = unset_amounts(object, &hard);
            if !missing.is_empty() {
                return Err(attempt.forbidden(&format!(
                    "failed quota: {name}: must specify {}",
                    missing.join("; ")
                )));
            }
        }
        let counts = |key: &&String| usage.get(*key).is_some_and(|amount| !amount.is_zero());
        let concerned: Vec<&String> = hard.keys().filter(counts).collect();
        if concerned.is_empty() {
            continue;
        }
        let unknown = unknown_amounts(&quota_object, &concerned);
        if !unknown.is_empty() {
            return Err(attempt.forbidden(&format!(
                "status unknown for quota: {name}, resources: {}",
                unknown.join(",")
            )));
        }
        let mut exceeded = Vec::new();
        for key in concerned {
            let charge = Charge {
                requested: usage[key],
                used: quantity::amount(&quota_object["status"]["used"][key]),
                limit: quantity::amount(&hard[key]),
            };
            quota_object["status"]["used"][key] = json!(charge.sum().to_string());
            if charge.sum() > charge.limit {
                exceeded.push((key, charge));
            }
        }
        if !exceeded.is_empty() {
            return Err(attempt.forbidden(&excess(&name, &exceeded)));
        }
        charged.push((name, quota_object));
    }
    if !dry_run {
        for (name, quota) in charged {
            write_charged(
                state,
                Key::new("resourcequotas", attempt.namespace, &name),
                quota,
            );
        }
    }
    Ok(())
}

/// Writes a charged quota as the server's own change of its status.
fn write_charged(state: &mut State, key: Key, mut quota: Value) {
    let before = state.get(&key.resource, &key.namespace, &key.name).cloned();
    if let (Some(before), Some(resource)) = (before, built_in().of_kind("v1", "ResourceQuota")) {
        let now = now();
        let tracker = Tracker::new(resource, "status", &now);
        tracker.update(Some(&before), &mut quota, OWN_MANAGER);
    }
    state.put(key, quota);
}

/// What an object takes of one amount of a quota.
struct Charge {
    requested: Amount,
    used: Amount,
    limit: Amount,
}

impl Charge {
    fn sum(&self) -> Amount {
        self.used + self.requested
    }
}

/// Returns the amounts that a quota bounds but does not know the use of yet.
fn unknown_amounts<'k>(quota: &Value, concerned: &[&'k String]) -> Vec<&'k str> {
    concerned
        .iter()
        .filter(|key| quota["status"]["hard"].get(key.as_str()).is_none())
        .map(|key| key.as_str())
        .collect()
}

/// Returns the message about the amounts of a quota that would be exceeded.
fn excess(name: &str, exceeded: &[(&String, Charge)]) -> String {
    let list = |amount: fn(&Charge) -> Amount| {
        let parts: Vec<String> = exceeded
            .iter()
            .map(|(key, charge)| format!("{key}={}", amount(charge)))
            .collect();
        parts.join(",")
    };
    format!(
        "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
        list(|charge| charge.requested),
        list(|charge| charge.used),
        list(|charge| charge.limit)
    )
}
