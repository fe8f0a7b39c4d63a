//! `/configz`: the kubelet's configuration with all defaults, as kubelet 1.35 shows it.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::Facts;

/// Returns the configuration of a node.
pub(super) fn configz(facts: &Facts) -> Value {
    let socket = Path::new("/run/numaresources.sock");
    let rendered = facts.settings.configuration(&facts.machine, socket, &[]);
    let mut fields = defaults();
    if let Value::Object(rendered) = rendered {
        for (name, value) in rendered {
            merge(&mut fields, name, value);
        }
    }
    for name in [
        "apiVersion",
        "kind",
        "registerWithTaints",
        "enforceNodeAllocatable",
    ] {
        fields.remove(name);
    }
    name_reservation(&mut fields);
    json!({ "kubeletconfig": fields })
}

fn merge(fields: &mut Map<String, Value>, name: String, value: Value) {
    match (fields.get_mut(&name), value) {
        (Some(Value::Object(known)), Value::Object(given)) => {
            for (name, value) in given {
                merge(known, name, value);
            }
        }
        (_, value) => {
            fields.insert(name, value);
        }
    }
}

/// Applies `reservedSystemCPUs`: the number of these CPUs replaces the CPUs in `systemReserved` and `kubeReserved`.
fn name_reservation(fields: &mut Map<String, Value>) {
    let named = fields.get("reservedSystemCPUs").and_then(Value::as_str);
    let Some(named) = named.filter(|list| !list.is_empty()) else {
        return;
    };
    let count: u32 = named
        .split(',')
        .map(|part| match part.split_once('-') {
            Some((first, last)) => {
                let number = |text: &str| text.trim().parse::<u32>().unwrap_or_default();
                number(last).saturating_sub(number(first)) + 1
            }
            None => 1,
        })
        .sum();
    if let Some(Value::Object(system)) = fields.get_mut("systemReserved") {
        system.insert("cpu".to_owned(), json!(count.to_string()));
    }
    if let Some(Value::Object(kube)) = fields.get_mut("kubeReserved") {
        kube.remove("cpu");
    }
}

/// Returns the defaults of kubelet 1.35.
fn defaults() -> Map<String, Value> {
    // A test ensures that the file can be parsed.
    serde_json::from_str(include_str!("configz.json")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_there() {
        assert_eq!(defaults()["cpuManagerReconcilePeriod"], "10s");
    }

    #[test]
    fn named_cpus_are_counted() {
        let mut fields = Map::new();
        fields.insert("reservedSystemCPUs".to_owned(), json!("0,12,24-25"));
        fields.insert("systemReserved".to_owned(), json!({"memory": "1Gi"}));
        fields.insert("kubeReserved".to_owned(), json!({"cpu": "1"}));
        name_reservation(&mut fields);
        assert_eq!(fields["systemReserved"]["cpu"], "4");
        assert_eq!(fields["kubeReserved"], json!({}));
    }
}
