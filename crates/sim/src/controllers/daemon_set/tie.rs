//! What ties a pod of a DaemonSet to its node: affinity, tolerations and the taints of the node.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{
    Affinity, Node, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod,
    PodSpec, Toleration,
};

use crate::controllers::objects;
use crate::controllers::placement::{self, NO_EXECUTE, NO_SCHEDULE};

/// Taints that pods of every DaemonSet tolerate.
const TOLERATED: &[(&str, &str)] = &[
    ("node.kubernetes.io/not-ready", NO_EXECUTE),
    ("node.kubernetes.io/unreachable", NO_EXECUTE),
    ("node.kubernetes.io/disk-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/memory-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/pid-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/unschedulable", NO_SCHEDULE),
];
/// Taint that pods in the host network tolerate as well.
const NETWORK_UNAVAILABLE: &str = "node.kubernetes.io/network-unavailable";

/// Returns the node that a pod is bound to; for an unbound pod, the node that its affinity names.
pub(super) fn target(pod: &Pod) -> Option<String> {
    if let Some(node) = objects::node_of(pod) {
        return Some(node.to_owned());
    }
    let affinity = pod
        .spec
        .as_ref()?
        .affinity
        .as_ref()?
        .node_affinity
        .as_ref()?;
    let terms = affinity
        .required_during_scheduling_ignored_during_execution
        .as_ref()?;
    terms
        .node_selector_terms
        .iter()
        .flat_map(|term| term.match_fields.iter().flatten())
        .filter(|field| field.key == "metadata.name" && field.operator == "In")
        .find_map(|field| match field.values.as_deref() {
            Some([node]) => Some(node.clone()),
            _ => None,
        })
}

fn toleration(key: &str, effect: &str) -> Toleration {
    Toleration {
        key: Some(key.to_owned()),
        operator: Some("Exists".to_owned()),
        effect: Some(effect.to_owned()),
        ..Toleration::default()
    }
}

/// Adds the tolerations that every pod of a DaemonSet has.
fn add_tolerations(spec: &mut PodSpec) {
    let network = spec.host_network == Some(true);
    let list = spec.tolerations.get_or_insert_default();
    let network = network.then_some((NETWORK_UNAVAILABLE, NO_SCHEDULE));
    for (key, effect) in TOLERATED.iter().copied().chain(network) {
        let wanted = toleration(key, effect);
        if !list.contains(&wanted) {
            list.push(wanted);
        }
    }
}

/// Returns whether a new pod belongs on a node, and whether an existing pod may stay there.
pub(super) fn should_run_on(set: &DaemonSet, node: &Node) -> (bool, bool) {
    let mut spec = set
        .spec
        .as_ref()
        .and_then(|spec| spec.template.spec.clone())
        .unwrap_or_default();
    let named = spec.node_name.as_deref().filter(|name| !name.is_empty());
    if named.is_some_and(|name| name != objects::name(node)) || !placement::selected(&spec, node) {
        return (false, false);
    }
    add_tolerations(&mut spec);
    let tolerations = spec.tolerations.unwrap_or_default();
    let all_tolerated = |effect| {
        placement::taints(node, effect).all(|taint| placement::tolerated(&tolerations, taint))
    };
    let stay = all_tolerated(NO_EXECUTE);
    (stay && all_tolerated(NO_SCHEDULE), stay)
}

/// Ties a new pod to a node, and adds the tolerations of every DaemonSet. The scheduler still places the pod.
pub(super) fn to_node(spec: &mut PodSpec, node: &str) {
    add_tolerations(spec);
    let affinity = spec.affinity.get_or_insert_with(Affinity::default);
    let affinity = affinity
        .node_affinity
        .get_or_insert_with(NodeAffinity::default);
    affinity.required_during_scheduling_ignored_during_execution = Some(NodeSelector {
        node_selector_terms: vec![NodeSelectorTerm {
            match_fields: Some(vec![NodeSelectorRequirement {
                key: "metadata.name".to_owned(),
                operator: "In".to_owned(),
                values: Some(vec![node.to_owned()]),
            }]),
            match_expressions: None,
        }],
    });
}
