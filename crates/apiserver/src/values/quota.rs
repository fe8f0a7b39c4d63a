//! What objects count for in resource quotas: for admission, which charges new objects, and for the controller, which counts all.

use std::collections::BTreeMap;

use api::quantity::{Amount, Format};
use serde_json::Value;

use super::{pods, quantity};
use crate::values::fields::elements;

/// Amounts by their names in quotas.
pub type Usage = BTreeMap<String, Amount>;

/// Resources of which pods count what they request under its own name, too.
const PLAIN: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// Returns what an object counts for; `plural` and `group` name its resource, the group is empty for the core group. A pod that has ended
/// counts as an object only.
pub fn usage(group: &str, plural: &str, object: &Value) -> Usage {
    let one = Amount::from_units(1, Format::DecimalSi);
    let count = if group.is_empty() {
        format!("count/{plural}")
    } else {
        format!("count/{plural}.{group}")
    };
    let mut usage = Usage::from([(count, one)]);
    if !group.is_empty() {
        return usage;
    }
    match plural {
        "pods" if has_ended(object) => {}
        "pods" => {
            usage.insert(plural.into(), one);
            of_pod(&object["spec"], &mut usage);
        }
        "services" => {
            usage.insert(plural.into(), one);
            of_service(&object["spec"], &mut usage);
        }
        "persistentvolumeclaims" => {
            usage.insert(plural.into(), one);
            of_claim(object, &mut usage);
        }
        _ => {
            usage.insert(plural.into(), one);
        }
    }
    usage
}

fn has_ended(pod: &Value) -> bool {
    ["Succeeded", "Failed"].contains(&pod["status"]["phase"].as_str().unwrap_or_default())
}

fn of_pod(spec: &Value, usage: &mut Usage) {
    for (name, amount) in pods::total(spec, "requests") {
        if PLAIN.contains(&name.as_str()) || name.starts_with("hugepages-") {
            usage.insert(name.clone(), amount);
        }
        usage.insert(format!("requests.{name}"), amount);
    }
    for (name, amount) in pods::total(spec, "limits") {
        if PLAIN.contains(&name.as_str()) {
            usage.insert(format!("limits.{name}"), amount);
        }
    }
}

fn of_service(spec: &Value, usage: &mut Usage) {
    let number = |count: usize| {
        Amount::from_units(i64::try_from(count).unwrap_or(i64::MAX), Format::DecimalSi)
    };
    let ports = spec["ports"].as_array().map_or(0, Vec::len);
    let is_balanced = spec["type"] == "LoadBalancer";
    let has_node_ports =
        spec["type"] == "NodePort" || is_balanced && spec["allocateLoadBalancerNodePorts"] != false;
    let node_ports = if has_node_ports { ports } else { 0 };
    usage.insert("services.nodeports".into(), number(node_ports));
    usage.insert(
        "services.loadbalancers".into(),
        number(usize::from(is_balanced)),
    );
}

fn of_claim(claim: &Value, usage: &mut Usage) {
    let one = Amount::from_units(1, Format::DecimalSi);
    let spec = &claim["spec"];
    let storage = spec["resources"]["requests"].get("storage");
    let class = spec["storageClassName"].as_str().unwrap_or_default();
    let prefix = format!("{class}.storageclass.storage.k8s.io");
    if !class.is_empty() {
        usage.insert(format!("{prefix}/persistentvolumeclaims"), one);
    }
    if let Some(storage) = storage.map(quantity::amount) {
        usage.insert("requests.storage".into(), storage);
        if !class.is_empty() {
            usage.insert(format!("{prefix}/requests.storage"), storage);
        }
    }
}

/// Returns plural and group of the resource that a name in a quota counts.
pub fn counted(name: &str) -> (&str, &str) {
    if let Some(resource) = name.strip_prefix("count/") {
        return resource.split_once('.').unwrap_or((resource, ""));
    }
    let is_of_claims = name == "persistentvolumeclaims"
        || name == "requests.storage"
        || name.contains(".storageclass.storage.k8s.io/");
    match name {
        _ if is_of_claims => ("persistentvolumeclaims", ""),
        "services" | "services.nodeports" | "services.loadbalancers" => ("services", ""),
        "configmaps" | "replicationcontrollers" | "resourcequotas" | "secrets" => (name, ""),
        _ => ("pods", ""),
    }
}

/// Returns whether the scopes of a quota include an object. Only pods have scopes.
pub fn is_in_scope(quota: &Value, group: &str, plural: &str, object: &Value) -> bool {
    let spec = &quota["spec"];
    let scopes = elements(&spec["scopes"]);
    let named = scopes.map(|scope| (scope.as_str().unwrap_or_default(), &Value::Null));
    let selected = elements(&spec["scopeSelector"]["matchExpressions"])
        .map(|selector| (selector["scopeName"].as_str().unwrap_or_default(), selector));
    let is_pod = group.is_empty() && plural == "pods";
    named
        .chain(selected)
        .all(|(scope, selector)| is_pod && has_scope(scope, selector, object))
}

fn has_scope(scope: &str, selector: &Value, pod: &Value) -> bool {
    let spec = &pod["spec"];
    let is_terminating = spec["activeDeadlineSeconds"].is_i64();
    let is_best_effort = pods::qos_class(spec) == "BestEffort";
    match scope {
        "Terminating" => is_terminating,
        "NotTerminating" => !is_terminating,
        "BestEffort" => is_best_effort,
        "NotBestEffort" => !is_best_effort,
        "PriorityClass" => has_priority(selector, spec),
        "CrossNamespacePodAffinity" => looks_elsewhere(&spec["affinity"]),
        _ => false,
    }
}

fn has_priority(selector: &Value, spec: &Value) -> bool {
    let class = spec["priorityClassName"].as_str().unwrap_or_default();
    let listed = || {
        let mut values = elements(&selector["values"]);
        values.any(|value| value == class)
    };
    match selector["operator"].as_str().unwrap_or("Exists") {
        "In" => listed(),
        "NotIn" => !listed(),
        "DoesNotExist" => class.is_empty(),
        _ => !class.is_empty(),
    }
}

/// Returns whether an affinity looks at pods of other namespaces.
fn looks_elsewhere(affinity: &Value) -> bool {
    ["podAffinity", "podAntiAffinity"].into_iter().any(|kind| {
        let terms = |list: &str| {
            elements(&affinity[kind][format!("{list}DuringSchedulingIgnoredDuringExecution")])
        };
        let required = terms("required");
        let preferred = terms("preferred").map(|term| &term["podAffinityTerm"]);
        required.chain(preferred).any(|term| {
            !term["namespaceSelector"].is_null()
                || term["namespaces"]
                    .as_array()
                    .is_some_and(|list| !list.is_empty())
        })
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn shown(group: &str, plural: &str, object: &Value) -> Vec<String> {
        let usage = usage(group, plural, object);
        usage
            .iter()
            .map(|(name, amount)| format!("{name}={amount}"))
            .collect()
    }

    #[rstest]
    #[case::a_pod("", "pods", json!({"spec": {"containers": [{"resources": {"requests": {"cpu": "1", "hugepages-2Mi": "4Mi", "a.b/c": "2"}, "limits": {"cpu": "2"}}}]}}),
        &["count/pods=1", "cpu=1", "hugepages-2Mi=4Mi", "limits.cpu=2", "pods=1", "requests.a.b/c=2", "requests.cpu=1", "requests.hugepages-2Mi=4Mi"])]
    #[case::a_pod_that_has_ended("", "pods", json!({"spec": {}, "status": {"phase": "Failed"}}), &["count/pods=1"])]
    #[case::a_service("", "services", json!({"spec": {"type": "NodePort", "ports": [{}, {}]}}),
        &["count/services=1", "services=1", "services.loadbalancers=0", "services.nodeports=2"])]
    #[case::a_balanced_service("", "services", json!({"spec": {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": [{}]}}),
        &["count/services=1", "services=1", "services.loadbalancers=1", "services.nodeports=0"])]
    #[case::a_claim("", "persistentvolumeclaims", json!({"spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}}}),
        &["count/persistentvolumeclaims=1", "fast.storageclass.storage.k8s.io/persistentvolumeclaims=1",
            "fast.storageclass.storage.k8s.io/requests.storage=1Gi", "persistentvolumeclaims=1", "requests.storage=1Gi"])]
    #[case::a_deployment("apps", "deployments", json!({}), &["count/deployments.apps=1"])]
    fn an_object_counts_under_all_its_names(
        #[case] group: &str,
        #[case] plural: &str,
        #[case] object: Value,
        #[case] expected: &[&str],
    ) {
        assert_eq!(shown(group, plural, &object), expected);
        for name in usage(group, plural, &object).keys() {
            assert_eq!(counted(name), (plural, group), "{name}");
        }
    }

    #[rstest]
    #[case(json!({"scopes": ["BestEffort"]}), true)]
    #[case(json!({"scopes": ["BestEffort", "Terminating"]}), false)]
    #[case(json!({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}}), true)]
    #[case(json!({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "NotIn", "values": ["high"]}]}}), false)]
    #[case(json!({"scopes": ["CrossNamespacePodAffinity"]}), true)]
    #[case(json!({}), true)]
    fn a_pod_is_in_all_scopes_of_a_quota_or_not_counted(
        #[case] spec: Value,
        #[case] expected: bool,
    ) {
        let pod = json!({"spec": {"priorityClassName": "high", "containers": [{}], "affinity": {"podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"podAffinityTerm": {"namespaces": ["a"]}}]}}}});
        let quota = json!({"spec": spec});
        assert_eq!(is_in_scope(&quota, "", "pods", &pod), expected);
        let has_scopes = spec != json!({});
        assert_eq!(is_in_scope(&quota, "", "secrets", &pod), !has_scopes);
    }
}
