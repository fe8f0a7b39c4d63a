//! What a kubelet checks after its resource managers (kubelet-node.md 4): the node's amounts, and whether the pod belongs to this node.
//!
//! Admission handlers that do not depend on resources or the node's properties (pressure, sysctls, `AppArmor`, shutdown) are not
//! modelled.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ContainerPort, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Taint, Toleration,
};

use super::workload::{Amounts, Workload};

/// Operating system of every node here.
const OS: &str = "linux";
/// Label with the operating system.
const OS_LABEL: &str = "kubernetes.io/os";
/// The address that stands for all addresses of a host.
const ANY_ADDRESS: &str = "0.0.0.0";

/// Properties of the node besides its amounts.
#[derive(Clone, Debug, Default)]
pub struct NodeProperties {
    /// Name of the node.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// Whether its runtime supports a policy that ignores the groups of the image (`status.features.supplementalGroupsPolicy`).
    pub supplemental_groups_policy: bool,
}

/// A reason why a pod does not fit the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Too little is left of a resource.
    Short {
        /// Resource.
        resource: String,
        /// Requested by the pod.
        requested: i64,
        /// Used by other pods.
        used: i64,
        /// Allocatable of the node.
        capacity: i64,
    },
    /// Any other check failed.
    Failed {
        /// Name of the check.
        predicate: &'static str,
        /// Why.
        why: &'static str,
    },
}

impl Obstacle {
    /// Returns the reason and text of the refusal.
    pub fn refusal(&self) -> (String, String) {
        match self {
            Self::Short {
                resource,
                requested,
                used,
                capacity,
            } => (
                format!("OutOf{resource}"),
                format!(
                    "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
                ),
            ),
            Self::Failed { predicate, why } => (
                (*predicate).to_owned(),
                format!("Predicate {predicate} failed: {why}"),
            ),
        }
    }
}

/// Returns the reason and text of a refusal that the kubelet checks first, because preemption would not help.
pub fn unsupported(
    pod: &Workload,
    properties: &NodeProperties,
) -> Option<(&'static str, &'static str)> {
    let labels = pod.pod.metadata.labels.as_ref();
    let spec = pod.pod.spec.as_ref();
    if labels
        .and_then(|labels| labels.get(OS_LABEL))
        .is_some_and(|os| os != OS)
    {
        return Some((
            "PodOSSelectorNodeLabelDoesNotMatch",
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
        ));
    }
    if spec
        .and_then(|spec| spec.os.as_ref())
        .is_some_and(|os| os.name != OS)
    {
        return Some((
            "PodOSNotSupported",
            "Failed to admit pod as the OS field doesn't match node OS",
        ));
    }
    let groups = spec
        .and_then(|spec| spec.security_context.as_ref())
        .and_then(|context| context.supplemental_groups_policy.as_deref());
    (groups == Some("Strict") && !properties.supplemental_groups_policy).then_some((
        "SupplementalGroupsPolicyNotSupported",
        "SupplementalGroupsPolicy=Strict is not supported in this node",
    ))
}

/// Returns all obstacles in the kubelet's order; the kubelet reports the first.
pub fn obstacles<'a>(
    pod: &Workload,
    allocatable: &Amounts,
    others: impl Iterator<Item = &'a Workload> + Clone,
    properties: &NodeProperties,
) -> Vec<Obstacle> {
    let mut found = shortages(pod, allocatable, others.clone());
    let mut fail = |predicate, why| found.push(Obstacle::Failed { predicate, why });
    if !is_selected(&pod.pod, properties) {
        fail(
            "NodeAffinity",
            "node(s) didn't match Pod's node affinity/selector",
        );
    }
    let spec = pod.pod.spec.as_ref();
    let node = spec.and_then(|spec| spec.node_name.as_deref());
    if node.is_some_and(|node| !node.is_empty() && node != properties.name)
        && !properties.name.is_empty()
    {
        fail("NodeName", "node(s) didn't match the requested node name");
    }
    let taken: Vec<&ContainerPort> = others.flat_map(host_ports).collect();
    if host_ports(pod).any(|port| taken.iter().any(|other| collide(port, other))) {
        fail(
            "NodePorts",
            "node(s) didn't have free ports for the requested pod ports",
        );
    }
    let tolerations = spec.and_then(|spec| spec.tolerations.as_deref());
    let tolerated =
        |taint: &Taint| tolerations.is_some_and(|list| list.iter().any(|one| accepts(one, taint)));
    let evicted = properties
        .taints
        .iter()
        .any(|taint| taint.effect == "NoExecute" && !tolerated(taint));
    if evicted && !pod.is_static() {
        fail(
            "TaintToleration",
            "node(s) had taints that the pod didn't tolerate",
        );
    }
    found
}

fn shortages<'a>(
    pod: &Workload,
    allocatable: &Amounts,
    others: impl Iterator<Item = &'a Workload>,
) -> Vec<Obstacle> {
    let mut used = Amounts::new();
    let mut count = 0;
    for other in others {
        count += 1;
        for (name, amount) in other.node_request() {
            *used.entry(name).or_default() += amount;
        }
    }
    let mut found = Vec::new();
    let request = pod.node_request();
    let all = allocatable.get("pods").copied().unwrap_or_default();
    if count + 1 > all {
        found.push(Obstacle::Short {
            resource: "pods".to_owned(),
            requested: 1,
            used: count,
            capacity: all,
        });
    }
    let first = ["cpu", "memory", "ephemeral-storage"];
    let names = first.into_iter().chain(
        request
            .keys()
            .map(String::as_str)
            .filter(|name| !first.contains(name)),
    );
    for name in names {
        let wanted = request.get(name).copied().unwrap_or_default();
        let all = match allocatable.get(name).copied() {
            Some(all) => all,
            // The kubelet does not check an extended resource that the node lacks, because another component may manage it. Storage is not
            // modelled.
            None if is_extended(name) || first.contains(&name) => continue,
            None => 0,
        };
        let held = used.get(name).copied().unwrap_or_default();
        if wanted > 0 && wanted > all - held {
            found.push(Obstacle::Short {
                resource: name.to_owned(),
                requested: wanted,
                used: held,
                capacity: all,
            });
        }
    }
    found
}

/// Returns whether a resource is not defined by Kubernetes itself.
fn is_extended(resource: &str) -> bool {
    resource.contains('/') && !resource.contains("kubernetes.io/")
}

/// Returns the host ports that a pod uses while it runs.
fn host_ports(pod: &Workload) -> impl Iterator<Item = &ContainerPort> {
    let spec = pod.pod.spec.as_ref();
    let sidecars = spec
        .and_then(|spec| spec.init_containers.as_deref())
        .into_iter()
        .flatten()
        .filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let apps = spec.map_or(&[][..], |spec: &PodSpec| &spec.containers);
    sidecars
        .chain(apps)
        .flat_map(|container| container.ports.iter().flatten())
        .filter(|port| port.host_port.is_some_and(|port| port > 0))
}

fn collide(one: &ContainerPort, other: &ContainerPort) -> bool {
    fn address(port: &ContainerPort) -> &str {
        port.host_ip
            .as_deref()
            .filter(|address| !address.is_empty())
            .unwrap_or(ANY_ADDRESS)
    }
    let protocol = |port: &ContainerPort| port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
    one.host_port == other.host_port
        && protocol(one) == protocol(other)
        && (address(one) == address(other)
            || address(one) == ANY_ADDRESS
            || address(other) == ANY_ADDRESS)
}

fn accepts(toleration: &Toleration, taint: &Taint) -> bool {
    let fits = |wanted: Option<&str>, value: &str| {
        wanted.is_none_or(|wanted| wanted.is_empty() || wanted == value)
    };
    let value = match toleration.operator.as_deref() {
        Some("Exists") => true,
        None | Some("" | "Equal") => {
            toleration.value.as_deref().unwrap_or_default()
                == taint.value.as_deref().unwrap_or_default()
        }
        Some(_) => false,
    };
    fits(toleration.effect.as_deref(), &taint.effect)
        && fits(toleration.key.as_deref(), &taint.key)
        && value
}

/// Returns whether the node matches the pod's node selector and required affinity.
fn is_selected(pod: &Pod, properties: &NodeProperties) -> bool {
    let Some(spec) = &pod.spec else {
        return true;
    };
    let selected = spec
        .node_selector
        .iter()
        .flatten()
        .all(|(name, value)| properties.labels.get(name) == Some(value));
    let required = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| {
            affinity
                .required_during_scheduling_ignored_during_execution
                .as_ref()
        });
    let matched = required.is_none_or(|selector| {
        let mut terms = selector.node_selector_terms.iter();
        terms.any(|term| is_term_met(term, properties))
    });
    selected && matched
}

/// Returns whether a term matches; one without any rule matches nothing.
fn is_term_met(term: &NodeSelectorTerm, properties: &NodeProperties) -> bool {
    let by_label = term.match_expressions.as_deref().unwrap_or_default();
    let by_field = term.match_fields.as_deref().unwrap_or_default();
    let fields = BTreeMap::from([("metadata.name".to_owned(), properties.name.clone())]);
    !(by_label.is_empty() && by_field.is_empty())
        && by_label.iter().all(|rule| is_met(rule, &properties.labels))
        && by_field.iter().all(|rule| is_met(rule, &fields))
}

fn is_met(rule: &NodeSelectorRequirement, labels: &BTreeMap<String, String>) -> bool {
    let value = labels.get(&rule.key);
    let values = rule.values.as_deref().unwrap_or_default();
    let number = |text: Option<&String>| text.and_then(|text| text.parse::<i64>().ok());
    match rule.operator.as_str() {
        "In" => value.is_some_and(|value| values.contains(value)),
        "NotIn" => value.is_none_or(|value| !values.contains(value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => number(value)
            .zip(number(values.first()))
            .is_some_and(|(value, limit)| value > limit),
        "Lt" => number(value)
            .zip(number(values.first()))
            .is_some_and(|(value, limit)| value < limit),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn workload(spec: &Value) -> Workload {
        let pod = json!({ "metadata": { "name": "p", "uid": "p" }, "spec": spec });
        Workload::new(&serde_json::from_value(pod).unwrap()).unwrap()
    }

    fn container(extra: &Value) -> Value {
        let mut container = json!({ "name": "c" });
        for (field, value) in extra.as_object().unwrap() {
            container[field] = value.clone();
        }
        json!({ "containers": [container] })
    }

    fn properties() -> NodeProperties {
        let taint = |key: &str, effect: &str| Taint {
            key: key.to_owned(),
            value: Some("v".to_owned()),
            effect: effect.to_owned(),
            time_added: None,
        };
        NodeProperties {
            name: "here".to_owned(),
            labels: BTreeMap::from([("size".to_owned(), "7".to_owned())]),
            taints: vec![taint("soft", "NoSchedule"), taint("hard", "NoExecute")],
            supplemental_groups_policy: true,
        }
    }

    fn first(spec: &Value, others: &[Workload]) -> Option<String> {
        let mut spec = spec.clone();
        if spec.get("tolerations").is_none() {
            spec["tolerations"] = json!([{ "operator": "Exists" }]);
        }
        let allocatable = Amounts::from([("pods".to_owned(), 3), ("cpu".to_owned(), 4000)]);
        obstacles(&workload(&spec), &allocatable, others.iter(), &properties())
            .first()
            .map(|obstacle| obstacle.refusal().0)
    }

    fn with(mut spec: Value, field: &str, value: Value) -> Value {
        spec[field] = value;
        spec
    }

    #[rstest]
    #[case::everything_fits(json!({}), None)]
    #[case::cpu(json!({"resources": {"requests": {"cpu": "4001m"}}}), Some("OutOfcpu"))]
    #[case::unknown_extended_resource(json!({"resources": {"limits": {"a.b/c": "9"}}}), None)]
    #[case::unknown_page_size(json!({"resources": {"limits": {"hugepages-32Mi": "32Mi"}}}), Some("OutOfhugepages-32Mi"))]
    fn amounts_are_checked(#[case] extra: Value, #[case] reason: Option<&str>) {
        assert_eq!(first(&container(&extra), &[]).as_deref(), reason);
    }

    #[rstest]
    #[case::this_node("nodeName", json!("here"), None)]
    #[case::another_node("nodeName", json!("there"), Some("NodeName"))]
    #[case::missing_label("nodeSelector", json!({"a": "b"}), Some("NodeAffinity"))]
    #[case::untolerated("tolerations", json!([]), Some("TaintToleration"))]
    #[case::other_value("tolerations", json!([{"key": "hard", "value": "w"}]), Some("TaintToleration"))]
    #[case::tolerated_for_a_time("tolerations", json!([{"key": "hard", "value": "v", "effect": "NoExecute", "tolerationSeconds": 3}]), None)]
    fn place_is_checked(#[case] field: &str, #[case] value: Value, #[case] reason: Option<&str>) {
        let spec = with(container(&json!({})), field, value);
        assert_eq!(first(&spec, &[]).as_deref(), reason);
    }

    #[rstest]
    #[case::label_larger(json!({"matchExpressions": [{"key": "size", "operator": "Gt", "values": ["6"]}]}), None)]
    #[case::name(json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["here"]}]}), None)]
    #[case::other_name(json!({"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["here"]}]}), Some("NodeAffinity"))]
    #[case::no_rule(json!({}), Some("NodeAffinity"))]
    fn affinity_is_checked(#[case] term: Value, #[case] reason: Option<&str>) {
        let terms = json!({ "nodeSelectorTerms": [term] });
        let affinity =
            json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": terms } });
        let spec = with(container(&json!({})), "affinity", affinity);
        assert_eq!(first(&spec, &[]).as_deref(), reason);
    }

    #[rstest]
    #[case::same(json!({"hostPort": 80, "containerPort": 1}), Some("NodePorts"))]
    #[case::one_address(json!({"hostPort": 80, "hostIP": "10.0.0.1", "containerPort": 1}), Some("NodePorts"))]
    #[case::other_protocol(json!({"hostPort": 80, "protocol": "UDP", "containerPort": 1}), None)]
    #[case::port_of_the_pod(json!({"containerPort": 80}), None)]
    fn host_ports_collide(#[case] port: Value, #[case] reason: Option<&str>) {
        let other = container(&json!({"ports": [{"hostPort": 80, "containerPort": 2}]}));
        let spec = container(&json!({ "ports": [port] }));
        assert_eq!(first(&spec, &[workload(&other)]).as_deref(), reason);
    }

    #[test]
    fn shortage_comes_before_everything_else_and_tells_numbers() {
        let others = [(); 3].map(|()| workload(&container(&json!({}))));
        let spec = with(container(&json!({})), "nodeSelector", json!({"a": "b"}));
        let found = obstacles(
            &workload(&spec),
            &Amounts::new(),
            others.iter(),
            &properties(),
        );
        let text = "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 0";
        assert_eq!(
            found[0].refusal(),
            ("OutOfpods".to_owned(), text.to_owned())
        );
        assert_eq!(found.len(), 3);
        assert_eq!(
            found[2].refusal().1,
            "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"
        );
    }

    #[rstest]
    #[case("os", json!({"name": "windows"}), Some("PodOSNotSupported"))]
    #[case("os", json!({"name": "linux"}), None)]
    #[case("securityContext", json!({"supplementalGroupsPolicy": "Strict"}), Some("SupplementalGroupsPolicyNotSupported"))]
    fn unsupported_pods_are_told_first(
        #[case] field: &str,
        #[case] value: Value,
        #[case] reason: Option<&str>,
    ) {
        let pod = workload(&with(container(&json!({})), field, value));
        let found = unsupported(&pod, &NodeProperties::default());
        assert_eq!(found.map(|(reason, _)| reason), reason);
    }
}
