//! Totals of a pod's specification: its requests and limits, and its quality of service class.

use std::collections::BTreeMap;

use api::quantity::Amount;
use serde_json::Value;

use super::quantity;
use crate::values::fields::{elements, members};

/// The lists of a pod's specification that hold containers.
pub(crate) const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Amounts by resource.
pub(crate) type Quantities = BTreeMap<String, Amount>;

fn amounts(list: &Value) -> Quantities {
    let fields = members(list);
    fields
        .map(|(name, amount)| (name.clone(), quantity::amount(amount)))
        .collect()
}

fn add(to: &mut Quantities, other: &Quantities) {
    for (name, amount) in other {
        let sum = to.get(name).copied().unwrap_or_default() + *amount;
        to.insert(name.clone(), sum);
    }
}

fn raise(to: &mut Quantities, other: &Quantities) {
    for (name, amount) in other {
        if to.get(name).is_none_or(|known| known < amount) {
            to.insert(name.clone(), *amount);
        }
    }
}

fn list<'a>(spec: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    elements(&spec[field])
}

/// Returns all containers.
pub(crate) fn all_containers(spec: &Value) -> impl Iterator<Item = &Value> {
    CONTAINERS.into_iter().flat_map(|field| list(spec, field))
}

/// Returns the init containers and the containers.
pub(crate) fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    list(spec, "initContainers").chain(list(spec, "containers"))
}

/// Returns what the containers need together: the sum of those that run at the same time, or the largest of those that run one after
/// another. `what` is `requests` or `limits`.
pub(crate) fn of_containers(spec: &Value, what: &str) -> Quantities {
    let mut together = Quantities::new();
    for container in list(spec, "containers") {
        add(&mut together, &amounts(&container["resources"][what]));
    }
    let mut sidecars = Quantities::new();
    let mut peak = Quantities::new();
    for container in list(spec, "initContainers") {
        let own = amounts(&container["resources"][what]);
        if container["restartPolicy"] == "Always" {
            add(&mut together, &own);
            add(&mut sidecars, &own);
            raise(&mut peak, &sidecars);
        } else {
            let mut now = own;
            add(&mut now, &sidecars);
            raise(&mut peak, &now);
        }
    }
    raise(&mut together, &peak);
    together
}

/// Returns the total of a pod: the amounts of the pod as a whole where given, otherwise those of its containers, plus its overhead. `what`
/// is `requests` or `limits`.
pub(crate) fn total(spec: &Value, what: &str) -> Quantities {
    let mut total = of_containers(spec, what);
    for (name, amount) in amounts(&spec["resources"][what]) {
        total.insert(name, amount);
    }
    let overhead = amounts(&spec["overhead"]);
    for (name, amount) in &overhead {
        // the overhead raises only limits that exist
        if what == "requests" || total.contains_key(name) {
            let sum = total.get(name).copied().unwrap_or_default() + *amount;
            total.insert(name.clone(), sum);
        }
    }
    total
}

/// Returns the quality of service class.
pub(crate) fn qos_class(spec: &Value) -> &'static str {
    const COUNTED: [&str; 2] = ["cpu", "memory"];
    let pick = |list: &Value| -> Quantities {
        amounts(list)
            .into_iter()
            .filter(|(name, amount)| COUNTED.contains(&name.as_str()) && !amount.is_zero())
            .collect()
    };
    let mut requests = Quantities::new();
    let mut limits = Quantities::new();
    let mut bounded = true;
    let as_a_whole = &spec["resources"];
    if as_a_whole["requests"].is_object() || as_a_whole["limits"].is_object() {
        requests = pick(&as_a_whole["requests"]);
        limits = pick(&as_a_whole["limits"]);
        bounded = limits.len() == COUNTED.len();
    } else {
        for container in containers(spec) {
            add(&mut requests, &pick(&container["resources"]["requests"]));
            let own = pick(&container["resources"]["limits"]);
            bounded &= own.len() == COUNTED.len();
            add(&mut limits, &own);
        }
    }
    if requests.is_empty() && limits.is_empty() {
        return "BestEffort";
    }
    let equal = requests
        .iter()
        .all(|(name, amount)| limits.get(name) == Some(amount));
    if bounded && equal && requests.len() == limits.len() {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

/// Sets a condition of a pod as the server does: the time of an unchanged status stays.
pub(crate) fn set_condition(status: &mut Value, mut condition: Value, now: &str) {
    condition["lastProbeTime"] = Value::Null;
    condition["lastTransitionTime"] = Value::String(now.to_owned());
    if !status["conditions"].is_array() {
        status["conditions"] = Value::Array(Vec::new());
    }
    let Some(list) = status["conditions"].as_array_mut() else {
        return;
    };
    match list
        .iter_mut()
        .find(|known| known["type"] == condition["type"])
    {
        Some(known) => {
            if known["status"] == condition["status"] {
                condition["lastTransitionTime"] = known["lastTransitionTime"].clone();
            }
            *known = condition;
        }
        None => list.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::nothing(json!({}), "BestEffort")]
    #[case::devices_only(json!({"limits": {"example.com/d": "1"}, "requests": {"example.com/d": "1"}}), "BestEffort")]
    #[case::one_of_two(json!({"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}), "Burstable")]
    #[case::less_than_limits(json!({"limits": {"cpu": "1", "memory": "1"}, "requests": {"cpu": "500m", "memory": "1"}}), "Burstable")]
    #[case::equal(json!({"limits": {"cpu": "1000m", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1024Mi"}}), "Guaranteed")]
    fn quality_follows_cpu_and_memory(#[case] resources: Value, #[case] class: &str) {
        let spec = json!({"containers": [{"resources": resources}]});
        assert_eq!(qos_class(&spec), class);
    }

    #[test]
    fn a_sidecar_counts_beside_what_runs_later() {
        let spec = json!({
            "initContainers": [
                {"restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
                {"resources": {"requests": {"cpu": "3"}}}],
            "containers": [{"resources": {"requests": {"cpu": "2"}}}],
            "overhead": {"cpu": "100m"}});
        assert_eq!(total(&spec, "requests")["cpu"].to_string(), "4100m");
    }
}
