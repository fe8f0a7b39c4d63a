//! What a pod's specification says as a whole: how much it asks for, and its quality of service.

use std::collections::BTreeMap;

use serde_json::Value;

use super::quantity::Amount;

/// Amounts by resource.
pub(crate) type Amounts = BTreeMap<String, Amount>;

fn amounts(list: &Value) -> Amounts {
    let fields = list.as_object().into_iter().flatten();
    fields
        .map(|(name, amount)| (name.clone(), Amount::of(amount)))
        .collect()
}

fn add(to: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let sum = to.get(name).copied().unwrap_or(Amount::ZERO) + *amount;
        to.insert(name.clone(), sum);
    }
}

fn raise(to: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        if to.get(name).is_none_or(|known| known < amount) {
            to.insert(name.clone(), *amount);
        }
    }
}

fn list<'a>(spec: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    spec[field].as_array().into_iter().flatten()
}

/// All containers that share the pod's life, and those before it.
pub(crate) fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    list(spec, "initContainers").chain(list(spec, "containers"))
}

/// What the containers need together: side by side those that run side by side, the largest of those that run one after another.
fn of_containers(spec: &Value, what: &str) -> Amounts {
    let mut together = Amounts::new();
    for container in list(spec, "containers") {
        add(&mut together, &amounts(&container["resources"][what]));
    }
    let mut sidecars = Amounts::new();
    let mut peak = Amounts::new();
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

/// The requests of the containers together.
pub(crate) fn requests_of_containers(spec: &Value) -> Amounts {
    of_containers(spec, "requests")
}

/// What a pod counts for: requests or limits of the pod as a whole where given, those of its containers otherwise, and its overhead.
pub(crate) fn total(spec: &Value, what: &str) -> Amounts {
    let mut total = of_containers(spec, what);
    for (name, amount) in amounts(&spec["resources"][what]) {
        total.insert(name, amount);
    }
    let overhead = amounts(&spec["overhead"]);
    for (name, amount) in &overhead {
        // a limit is only raised where there is one
        if what == "requests" || total.contains_key(name) {
            let sum = total.get(name).copied().unwrap_or(Amount::ZERO) + *amount;
            total.insert(name.clone(), sum);
        }
    }
    total
}

/// The quality of service class.
pub(crate) fn quality(spec: &Value) -> &'static str {
    const COUNTED: [&str; 2] = ["cpu", "memory"];
    let pick = |list: &Value| -> Amounts {
        amounts(list)
            .into_iter()
            .filter(|(name, amount)| COUNTED.contains(&name.as_str()) && !amount.is_zero())
            .collect()
    };
    let mut requests = Amounts::new();
    let mut limits = Amounts::new();
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

/// Sets a condition of a pod as the server itself does: an unchanged status keeps its time.
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
        assert_eq!(quality(&spec), class);
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
