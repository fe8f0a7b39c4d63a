//! Resource quotas: limits on the number of objects and on their total amounts in a namespace.

use std::collections::BTreeMap;

use api::quantity::{Amount, Format};
use serde_json::{Value, json};

use crate::admission::attempt::Attempt;
use crate::failure::Failure;
use crate::storage::{Key, State};
use crate::values::pods;
use crate::values::quantity;

/// Returns the amounts that an object counts for in quotas, by name.
fn usage(attempt: &Attempt<'_>, object: &Value) -> BTreeMap<String, Amount> {
    let one = Amount::from_units(1, Format::DecimalSi);
    let mut usage = BTreeMap::new();
    let resource = attempt.resource;
    if attempt.resource.group.is_empty() {
        usage.insert(resource.plural.clone(), one);
        usage.insert(format!("count/{}", resource.plural), one);
    } else {
        usage.insert(format!("count/{}.{}", resource.plural, resource.group), one);
    }
    if resource.storage == "pods" {
        let spec = &object["spec"];
        for (name, amount) in pods::total(spec, "requests") {
            if ["cpu", "memory", "ephemeral-storage"].contains(&name.as_str()) {
                usage.insert(name.clone(), amount);
            }
            usage.insert(format!("requests.{name}"), amount);
        }
        for (name, amount) in pods::total(spec, "limits") {
            if ["cpu", "memory", "ephemeral-storage"].contains(&name.as_str()) {
                usage.insert(format!("limits.{name}"), amount);
            }
        }
    }
    usage
}

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

/// Adds a new object to the use of its namespace's quotas, unless it exceeds one of them.
pub(super) fn charge(
    state: &mut State,
    attempt: &Attempt<'_>,
    object: &Value,
    dry_run: bool,
) -> Result<(), Failure> {
    if attempt.namespace.is_empty() || attempt.resource.storage == "resourcequotas" {
        return Ok(());
    }
    let quotas: Vec<Value> = state
        .list("resourcequotas", attempt.namespace)
        .map(|(_, quota)| Value::clone(quota))
        .filter(|quota| {
            quota["spec"]["scopes"].is_null() && quota["spec"]["scopeSelector"].is_null()
        })
        .collect();
    if quotas.is_empty() {
        return Ok(());
    }
    let usage = usage(attempt, object);
    let mut charged = Vec::new();
    for mut quota in quotas {
        let name = quota["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let Some(hard) = quota["spec"]["hard"].as_object().cloned() else {
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
        let concerned: Vec<&String> = hard.keys().filter(|key| usage.contains_key(*key)).collect();
        if concerned.is_empty() {
            continue;
        }
        let unknown = unknown_amounts(&quota, &concerned);
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
                used: quantity::amount(&quota["status"]["used"][key]),
                limit: quantity::amount(&hard[key]),
            };
            quota["status"]["used"][key] = json!(charge.sum().to_string());
            if charge.sum() > charge.limit {
                exceeded.push((key, charge));
            }
        }
        if !exceeded.is_empty() {
            return Err(attempt.forbidden(&excess(&name, &exceeded)));
        }
        charged.push((name, quota));
    }
    if !dry_run {
        for (name, quota) in charged {
            state.put(Key::new("resourcequotas", attempt.namespace, &name), quota);
        }
    }
    Ok(())
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
