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
pub fn apply(settings: &KubeletSettings, payload: &Value) -> Result<KubeletSettings, Error> {
    let payload = payload.as_object().ok_or(Error::NotAnObject)?;
    let mut fields: Map<String, Value> = serde_json::from_value(serde_json::to_value(settings)?)?;
    let mut extra = settings.extra.clone();
    for (key, value) in payload {
        if SAME.contains(&key.as_str()) {
            fields.insert(key.clone(), value.clone());
        } else if key == RESERVED_CPUS {
            let text = value.as_str().unwrap_or_default();
            let cpus = cpus(text).ok_or_else(|| Error::Cpus(text.to_owned()))?;
            fields.insert("reservedCpus".to_owned(), serde_json::to_value(cpus)?);
        } else if !TYPE.contains(&key.as_str()) {
            extra.insert(key.clone(), value.clone());
        }
    }
    fields.insert("extra".to_owned(), serde_json::to_value(extra)?);
    Ok(serde_json::from_value(Value::Object(fields))?)
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

    #[rstest]
    #[case::no_object(json!([]))]
    #[case::policy(json!({"topologyManagerPolicy": "strict"}))]
    #[case::cpus(json!({"reservedSystemCPUs": "a-b"}))]
    fn what_no_kubelet_knows_is_refused(#[case] payload: Value) {
        assert!(apply(&KubeletSettings::default(), &payload).is_err());
    }
}
