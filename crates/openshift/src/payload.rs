//! Applies the payload of a `KubeletConfig` to the settings of a kubelet.

use cluster_spec::kubelet::KubeletSettings;
use serde_json::{Map, Value};

/// Fields with the same name in the settings of a testbed's kubelets.
const SAME: [&str; 6] = [
    "topologyManagerPolicy",
    "topologyManagerScope",
    "topologyManagerPolicyOptions",
    "cpuManagerPolicy",
    "cpuManagerPolicyOptions",
    "memoryManagerPolicy",
];
const RESERVED_CPUS: &str = "reservedSystemCPUs";
/// What Go encodes a duration of nothing as.
const ZERO_DURATION: &str = "0s";
/// Fields that identify the kind of the object and have no effect on the kubelet.
const TYPE: [&str; 2] = ["apiVersion", "kind"];

/// Why a payload is invalid.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The payload is not an object.
    #[error("the kubelet configuration is not an object")]
    NotAnObject,
    /// A list of CPUs cannot be parsed.
    #[error("{RESERVED_CPUS} {0:?} is not a list of CPUs")]
    Cpus(String),
    /// A field has a value that kubelets do not accept.
    #[error("the kubelet configuration cannot be used")]
    Value(#[from] serde_json::Error),
}

/// Returns the settings with every field of the payload applied.
///
/// An empty value replaces nothing that the node has, and options are added to those of the node. The real operator merges so, and the payload
/// of a client that encodes a whole `KubeletConfiguration` is full of empty values.
pub fn apply(settings: &KubeletSettings, payload: &Value) -> Result<KubeletSettings, Error> {
    let payload = payload.as_object().ok_or(Error::NotAnObject)?;
    let mut fields: Map<String, Value> = serde_json::from_value(serde_json::to_value(settings)?)?;
    let mut extra = settings.extra.clone();
    for (key, given) in payload {
        let before = fields.get(key).or_else(|| extra.get(key));
        let Some(value) = merged(before, given) else {
            continue;
        };
        if SAME.contains(&key.as_str()) {
            fields.insert(key.clone(), value);
        } else if key == RESERVED_CPUS {
            let text = value.as_str().unwrap_or_default();
            let cpus = cpus(text).ok_or_else(|| Error::Cpus(text.to_owned()))?;
            fields.insert("reservedCpus".to_owned(), serde_json::to_value(cpus)?);
        } else if !TYPE.contains(&key.as_str()) {
            extra.insert(key.clone(), value);
        }
    }
    fields.insert("extra".to_owned(), serde_json::to_value(extra)?);
    Ok(serde_json::from_value(Value::Object(fields))?)
}

/// Returns a value over the one before it; `None` if it is empty, so that the one before stays. A switch that is off and a number 0 are a value
/// where there was none: many fields are on or not 0 by default.
fn merged(before: Option<&Value>, given: &Value) -> Option<Value> {
    match given {
        Value::Null => None,
        Value::Bool(false) => before.is_none().then(|| given.clone()),
        Value::Number(number) if number.as_f64() == Some(0.0) => {
            before.is_none().then(|| given.clone())
        }
        Value::String(text) => (!text.is_empty() && text != ZERO_DURATION).then(|| given.clone()),
        Value::Array(items) => (!items.is_empty()).then(|| given.clone()),
        Value::Object(entries) => {
            let old = before.and_then(Value::as_object);
            let new: Map<String, Value> = entries
                .iter()
                .filter_map(|(key, value)| {
                    let old = old.and_then(|old| old.get(key));
                    Some((key.clone(), merged(old, value)?))
                })
                .collect();
            if new.is_empty() {
                return None;
            }
            let mut all = old.cloned().unwrap_or_default();
            all.extend(new);
            Some(Value::Object(all))
        }
        Value::Bool(true) | Value::Number(_) => Some(given.clone()),
    }
}

/// Parses a list such as `0,4-7`.
fn cpus(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.split(',').map(str::trim) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use cluster_spec::kubelet::{CpuPolicy, TopologyPolicy, TopologyScope};

    #[test]
    fn what_is_given_wins_and_the_rest_stays() {
        let payload = json!({
            "kind": "KubeletConfiguration", "topologyManagerPolicy": "restricted", "reservedSystemCPUs": "0,4-6", "maxPods": 7,
        });
        let before = KubeletSettings::with_scope(TopologyScope::Pod);
        let after = apply(&before, &payload).unwrap();
        assert_eq!(after.topology_manager_policy, TopologyPolicy::Restricted);
        assert_eq!(after.topology_manager_scope, TopologyScope::Pod);
        assert_eq!(after.cpu_manager_policy, CpuPolicy::Static);
        assert_eq!(after.reserved_cpus, Some(vec![0, 4, 5, 6]));
        assert_eq!(after.extra, [("maxPods".to_owned(), json!(7))].into());
        assert_eq!(apply(&before, &json!({})).unwrap(), before);
    }

    /// What `encoding/json` makes of a Go value in which only the scope is set (47585, 75354).
    #[test]
    fn empty_values_replace_nothing_that_the_node_has() {
        let payload = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "topologyManagerScope": "pod",
            "topologyManagerPolicy": "", "cpuManagerPolicyOptions": {}, "reservedSystemCPUs": "", "containerRuntimeEndpoint": "",
            "syncFrequency": "0s", "nodeStatusUpdateFrequency": "0s", "evictionHard": null, "clusterDNS": [], "maxPods": 0,
            "authentication": {"x509": {}, "webhook": {"cacheTTL": "0s"}, "anonymous": {}}, "protectKernelDefaults": false,
        });
        let extra = [
            ("maxPods", json!(50)),
            ("protectKernelDefaults", json!(true)),
        ];
        let before = KubeletSettings {
            reserved_cpus: Some(vec![0]),
            cpu_manager_policy_options: [("a".to_owned(), "b".to_owned())].into(),
            extra: extra.map(|(key, value)| (key.to_owned(), value)).into(),
            ..KubeletSettings::default()
        };
        let after = apply(&before, &payload).unwrap();
        let expected = KubeletSettings {
            topology_manager_scope: TopologyScope::Pod,
            ..before
        };
        assert_eq!(after, expected);
    }

    #[rstest]
    #[case::off(json!({"enableServer": false}), json!(false))]
    #[case::zero(json!({"registryPullQPS": 0}), json!(0))]
    #[case::nested(json!({"logging": {"format": "json", "flushFrequency": "0s"}}), json!({"format": "json"}))]
    fn what_is_off_counts_where_the_node_says_nothing(
        #[case] payload: Value,
        #[case] expected: Value,
    ) {
        let after = apply(&KubeletSettings::default(), &payload).unwrap();
        let found: Vec<&Value> = after.extra.values().collect();
        assert_eq!(found, [&expected]);
    }

    #[test]
    fn options_are_added_to_those_of_the_node() {
        let options = |all: &[(&str, &str)]| {
            let all = all.iter();
            all.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect()
        };
        let before = KubeletSettings {
            cpu_manager_policy_options: options(&[("a", "1"), ("b", "1")]),
            ..KubeletSettings::default()
        };
        let payload = json!({"cpuManagerPolicyOptions": {"b": "2", "c": "2"}});
        let after = apply(&before, &payload).unwrap().cpu_manager_policy_options;
        assert_eq!(after, options(&[("a", "1"), ("b", "2"), ("c", "2")]));
    }

    #[rstest]
    #[case::no_object(json!([]))]
    #[case::policy(json!({"topologyManagerPolicy": "strict"}))]
    #[case::cpus(json!({"reservedSystemCPUs": "a-b"}))]
    fn what_no_kubelet_knows_is_refused(#[case] payload: Value) {
        assert!(apply(&KubeletSettings::default(), &payload).is_err());
    }
}
