//! Filters on the node as a whole: cordons, taints, affinity, ports, amounts (scheduler.md 7.3, 7.4).

use std::borrow::Cow;
use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{NodeAffinity, Taint, Toleration};
use topology::resource::ResourceName;

use super::{Plugin, Rejection, selector};
use crate::state::cluster::{Cluster, Node, NodeState};
use crate::state::pod::Pod;

/// Effect that keeps new pods away.
const NO_SCHEDULE: &str = "NoSchedule";
/// Effect that also evicts running pods.
const NO_EXECUTE: &str = "NoExecute";
/// Taint of a cordoned node.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Returns whether a toleration covers a taint. An empty key with `Exists` covers all keys, an absent effect every effect.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref().unwrap_or_default();
    if !(effect.is_empty() || effect == taint.effect) || !(key.is_empty() || key == taint.key) {
        return false;
    }
    match toleration.operator.as_deref().unwrap_or_default() {
        "Exists" => true,
        "" | "Equal" => {
            !key.is_empty()
                && toleration.value.as_deref().unwrap_or_default()
                    == taint.value.as_deref().unwrap_or_default()
        }
        _ => false,
    }
}

fn tolerated(pod: &Pod, taint: &Taint) -> bool {
    pod.constraints
        .tolerations
        .iter()
        .any(|toleration| tolerates(toleration, taint))
}

/// Rejects a cordoned node unless the pod tolerates it.
pub fn unschedulable(pod: &Pod, node: &Node) -> Result<(), Rejection> {
    if !node.unschedulable {
        return Ok(());
    }
    let taint = Taint {
        key: UNSCHEDULABLE.to_owned(),
        effect: NO_SCHEDULE.to_owned(),
        ..Taint::default()
    };
    if tolerated(pod, &taint) {
        return Ok(());
    }
    Err(Rejection::unresolvable(
        Plugin::NodeUnschedulable,
        "node(s) were unschedulable",
    ))
}

/// Rejects a node with a taint that keeps the pod away and that it does not tolerate.
pub fn taints(pod: &Pod, node: &Node) -> Result<(), Rejection> {
    let keeps_away = |taint: &&Taint| matches!(taint.effect.as_str(), NO_SCHEDULE | NO_EXECUTE);
    match node
        .taints
        .iter()
        .filter(keeps_away)
        .find(|taint| !tolerated(pod, taint))
    {
        None => Ok(()),
        Some(taint) => Err(Rejection {
            detail: Some(format!("taint {}:{}", taint.key, taint.effect)),
            ..Rejection::unresolvable(Plugin::TaintToleration, "node(s) had untolerated taint(s)")
        }),
    }
}

/// Returns the number of `PreferNoSchedule` taints that the pod does not tolerate.
pub fn soft_taints(pod: &Pod, node: &Node) -> i64 {
    node.taints
        .iter()
        .filter(|taint| taint.effect == "PreferNoSchedule" && !tolerated(pod, taint))
        .count() as i64
}

/// Returns whether the node selector and the required terms select the node.
pub fn selected(pod: &Pod, node: &Node) -> bool {
    let required = pod.constraints.node_affinity.as_ref().and_then(|affinity| {
        affinity
            .required_during_scheduling_ignored_during_execution
            .as_ref()
    });
    pod.constraints
        .node_selector
        .iter()
        .all(|(key, value)| node.labels.get(key) == Some(value))
        && required.is_none_or(|required| selector::any_term(&required.node_selector_terms, node))
}

/// Returns the sum of the weights of the preferred terms, of the pod and of the profile, that select the node.
pub fn selected_weight(pod: &Pod, node: &Node, added: Option<&NodeAffinity>) -> i64 {
    let preferred = [pod.constraints.node_affinity.as_ref(), added]
        .into_iter()
        .flatten()
        .filter_map(|affinity| {
            affinity
                .preferred_during_scheduling_ignored_during_execution
                .as_deref()
        });
    preferred
        .flatten()
        .filter(|term| selector::term(&term.preference, node))
        .map(|term| i64::from(term.weight))
        .sum()
}

/// Returns the nodes to which the required terms limit the search by name; `None` if any term allows other nodes (scheduler.md 7.3,
/// PreFilter).
pub fn named(pod: &Pod) -> Option<BTreeSet<&str>> {
    let affinity = pod.constraints.node_affinity.as_ref()?;
    let required = affinity
        .required_during_scheduling_ignored_during_execution
        .as_ref()?;
    let terms = &required.node_selector_terms;
    if terms.is_empty() {
        return None;
    }
    let mut named = BTreeSet::new();
    for term in terms {
        let lists = term
            .match_fields
            .iter()
            .flatten()
            .filter(|field| field.key == "metadata.name" && field.operator == "In")
            .map(|field| field.values.iter().flatten().map(String::as_str));
        let in_term = lists
            .map(Iterator::collect::<BTreeSet<&str>>)
            .reduce(|some, more| &some & &more)?;
        named.extend(in_term);
    }
    Some(named)
}

/// Rejects every node if [`named`] leaves none.
pub fn conflict(named: Option<&BTreeSet<&str>>) -> Option<Rejection> {
    named.is_some_and(BTreeSet::is_empty).then(|| Rejection {
        everywhere: true,
        ..Rejection::unresolvable(Plugin::NodeAffinity, "pod affinity terms conflict")
    })
}

/// Rejects nodes that [`named`] leaves out.
pub fn restrict_to_named(named: Option<&BTreeSet<&str>>, node: &Node) -> Result<(), Rejection> {
    match named {
        Some(named) if !named.contains(node.name.as_str()) => Err(Rejection::unresolvable(
            Plugin::NodeAffinity,
            "node(s) didn't satisfy plugin(s) [NodeAffinity]",
        )),
        _ => Ok(()),
    }
}

/// Checks the affinity that the profile requires, then node selector and required terms of the pod.
pub fn affinity(pod: &Pod, node: &Node, added: Option<&NodeAffinity>) -> Result<(), Rejection> {
    let added = added.and_then(|affinity| {
        affinity
            .required_during_scheduling_ignored_during_execution
            .as_ref()
    });
    if added.is_some_and(|added| !selector::any_term(&added.node_selector_terms, node)) {
        return Err(Rejection::unresolvable(
            Plugin::NodeAffinity,
            "node(s) didn't match scheduler-enforced node affinity",
        ));
    }
    if selected(pod, node) {
        return Ok(());
    }
    Err(Rejection::unresolvable(
        Plugin::NodeAffinity,
        "node(s) didn't match Pod's node affinity/selector",
    ))
}

/// Rejects a node if one of its pods uses a host port of the pod.
pub fn ports(pod: &Pod, state: &NodeState, cluster: &Cluster) -> Result<(), Rejection> {
    if pod.host_ports.is_empty() {
        return Ok(());
    }
    let taken = state
        .pods
        .iter()
        .filter_map(|key| cluster.pod(key))
        .flat_map(|other| &other.host_ports)
        .find(|taken| pod.host_ports.iter().any(|wanted| wanted.clashes(taken)));
    match taken {
        None => Ok(()),
        Some(port) => Err(Rejection {
            detail: Some(format!(
                "{} {}:{} is taken",
                port.protocol, port.ip, port.port
            )),
            ..Rejection::new(
                Plugin::NodePorts,
                "node(s) didn't have free ports for the requested pod ports",
            )
        }),
    }
}

/// Returns what a pod requests of a node as a whole, for the resources that count. It is the same for every node.
pub fn wanted(pod: &Pod, counts: impl Fn(&ResourceName) -> bool) -> Vec<(&ResourceName, i64)> {
    pod.node_request
        .iter()
        .filter(|(name, wanted)| *wanted > 0 && counts(name))
        .collect()
}

/// Checks that the node as a whole has enough left of everything that is [`wanted`].
pub fn resources(
    wanted: &[(&ResourceName, i64)],
    node: &Node,
    state: &NodeState,
) -> Result<(), Rejection> {
    let mut reasons: Vec<Cow<'static, str>> = Vec::new();
    let mut details = Vec::new();
    let mut lacks = None;
    let mut unresolvable = false;
    if state.pods.len() as i64 >= node.allocatable.amount("pods") {
        reasons.push("Too many pods".into());
    }
    for (name, wanted) in wanted.iter().copied() {
        let (total, used) = (
            node.allocatable.amount(name.as_str()),
            state.used.amount(name.as_str()),
        );
        if wanted > total - used {
            reasons.push(format!("Insufficient {name}").into());
            lacks.get_or_insert_with(|| name.clone());
            unresolvable |= wanted > total;
            details.push(format!("{name} wanted {wanted}, {used} of {total} used"));
        }
    }
    if reasons.is_empty() {
        return Ok(());
    }
    let detail = (!details.is_empty()).then(|| details.join("; "));
    Err(Rejection {
        plugin: Plugin::NodeResourcesFit,
        reasons,
        detail,
        lacks,
        unresolvable,
        everywhere: false,
    })
}

/// Returns whether nodes as a whole account for a resource (scheduler.md 7.4).
pub fn is_node_resource(name: &ResourceName) -> bool {
    name.is_affine()
        || name.as_str() == "ephemeral-storage"
        || name.as_str().starts_with("attachable-volumes-")
        || name.as_str().contains('/')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{mk_node, mk_pod};
    use rstest::rstest;
    use serde_json::json;

    fn reason(result: Result<(), Rejection>) -> Option<String> {
        result.err().map(|rejection| rejection.reasons.join(", "))
    }

    #[rstest]
    #[case::exact("k", "Equal", "v", "NoSchedule", true)]
    #[case::default_operator("k", "", "v", "NoSchedule", true)]
    #[case::other_value("k", "Equal", "w", "NoSchedule", false)]
    #[case::exists("k", "Exists", "", "NoSchedule", true)]
    #[case::any_effect("k", "Exists", "", "", true)]
    #[case::other_effect("k", "Exists", "", "NoExecute", false)]
    #[case::everything("", "Exists", "", "", true)]
    #[case::empty_key("", "Equal", "v", "", false)]
    #[case::other_key("l", "Exists", "", "", false)]
    fn tolerations_cover_taints(
        #[case] key: &str,
        #[case] operator: &str,
        #[case] value: &str,
        #[case] effect: &str,
        #[case] expected: bool,
    ) {
        let toleration = serde_json::from_value(
            json!({"key": key, "operator": operator, "value": value, "effect": effect}),
        );
        let taint =
            serde_json::from_value(json!({"key": "k", "value": "v", "effect": "NoSchedule"}));
        assert_eq!(
            tolerates(&toleration.expect("toleration"), &taint.expect("taint")),
            expected
        );
    }

    #[test]
    fn a_cordoned_node_is_refused_unless_tolerated() {
        let node = Node {
            unschedulable: true,
            ..mk_node("n", "cpu=4")
        };
        let mut pod = mk_pod("p", "cpu=1");
        assert_eq!(
            reason(unschedulable(&pod, &node)).as_deref(),
            Some("node(s) were unschedulable")
        );
        pod.constraints.tolerations = vec![Toleration {
            operator: Some("Exists".to_owned()),
            ..Toleration::default()
        }];
        assert_eq!(unschedulable(&pod, &node), Ok(()));
    }

    #[test]
    fn soft_taints_do_not_keep_away_but_count() {
        let taint = |effect: &str| Taint {
            key: "k".to_owned(),
            effect: effect.to_owned(),
            ..Taint::default()
        };
        let mut node = Node {
            taints: vec![taint("PreferNoSchedule")],
            ..mk_node("n", "cpu=4")
        };
        let pod = mk_pod("p", "cpu=1");
        assert_eq!((taints(&pod, &node), soft_taints(&pod, &node)), (Ok(()), 1));
        node.taints.push(taint("NoExecute"));
        assert_eq!(
            reason(taints(&pod, &node)).as_deref(),
            Some("node(s) had untolerated taint(s)")
        );
    }

    #[rstest]
    #[case::fits("cpu=2 memory=1Gi", None)]
    #[case::exactly("cpu=3 memory=4Gi", None)]
    #[case::cpu("cpu=3100m", Some("Insufficient cpu"))]
    #[case::both("cpu=4 memory=5Gi", Some("Insufficient cpu, Insufficient memory"))]
    #[case::scratch("cpu=1 ephemeral-storage=1Gi", Some("Insufficient ephemeral-storage"))]
    #[case::device("v/nic=3", Some("Insufficient v/nic"))]
    #[case::absent_zero("v/other=0", None)]
    #[case::not_counted("storage=5", None)]
    fn amounts_are_compared_for_the_whole_node(
        #[case] requests: &str,
        #[case] expected: Option<&str>,
    ) {
        let mut cluster = Cluster::new();
        cluster.apply_node(mk_node("n", "cpu=4 memory=4Gi v/nic=2"));
        cluster.apply_pod(Pod {
            node: Some("n".to_owned()),
            ..mk_pod("other", "cpu=1")
        });
        let (node, state) = cluster.nodes().next().expect("one node");
        assert_eq!(
            reason(resources(
                &wanted(&mk_pod("p", requests), is_node_resource),
                node,
                state
            ))
            .as_deref(),
            expected
        );
    }

    #[test]
    fn pods_are_counted_even_without_requests() {
        let mut cluster = Cluster::new();
        cluster.apply_node(mk_node("n", "cpu=4 pods=1"));
        cluster.apply_pod(Pod {
            node: Some("n".to_owned()),
            ..mk_pod("other", "")
        });
        let (node, state) = cluster.nodes().next().expect("one node");
        assert_eq!(
            reason(resources(&[], node, state)).as_deref(),
            Some("Too many pods")
        );
    }

    #[test]
    fn selector_and_required_terms_must_both_select() {
        let node = Node {
            labels: [("zone".to_owned(), "a".to_owned())].into(),
            ..mk_node("n", "cpu=4")
        };
        let mut pod = mk_pod("p", "cpu=1");
        pod.constraints.node_selector = [("zone".to_owned(), "a".to_owned())].into();
        assert!(selected(&pod, &node));
        pod.constraints.node_affinity = serde_json::from_value(json!({
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]},
            ]},
        }))
        .expect("affinity");
        assert!(!selected(&pod, &node));
        assert_eq!(
            reason(affinity(&pod, &node, None)).as_deref(),
            Some("node(s) didn't match Pod's node affinity/selector")
        );
    }

    #[test]
    fn what_the_profile_requires_of_nodes_comes_before_what_the_pod_does() {
        let node = Node {
            labels: [("zone".to_owned(), "a".to_owned())].into(),
            ..mk_node("n", "cpu=4")
        };
        let added = |zone: &str| {
            let term =
                json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]});
            serde_json::from_value::<NodeAffinity>(json!({
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]},
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "preference": term}],
            }))
            .expect("affinity")
        };
        let pod = mk_pod("p", "cpu=1");
        assert_eq!(affinity(&pod, &node, Some(&added("a"))), Ok(()));
        assert_eq!(
            reason(affinity(&pod, &node, Some(&added("b")))).as_deref(),
            Some("node(s) didn't match scheduler-enforced node affinity")
        );
        assert_eq!(
            ["a", "b"].map(|zone| selected_weight(&pod, &node, Some(&added(zone)))),
            [7, 0]
        );
    }

    #[rstest]
    #[case::named(&["v/nic"], &[])]
    #[case::grouped(&[], &["v"])]
    fn extended_resources_can_be_left_out(#[case] resources_: &[&str], #[case] groups: &[&str]) {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let filters = crate::filter::Filters {
            ignored_resources: owned(resources_),
            ignored_resource_groups: owned(groups),
            ..crate::filter::Filters::default()
        };
        let mut cluster = Cluster::new();
        cluster.apply_node(mk_node("n", "cpu=4"));
        let (node, state) = cluster.nodes().next().expect("one node");
        let rejected = |requests| {
            let pod = mk_pod("p", requests);
            reason(resources(
                &wanted(&pod, |name| filters.compares(name)),
                node,
                state,
            ))
        };
        assert_eq!(rejected("v/nic=1"), None);
        assert_eq!(rejected("w/nic=1").as_deref(), Some("Insufficient w/nic"));
        assert_eq!(rejected("cpu=5").as_deref(), Some("Insufficient cpu"));
    }

    #[test]
    fn a_taken_port_is_named_in_the_detail() {
        let mut cluster = Cluster::new();
        cluster.apply_node(mk_node("n", "cpu=4"));
        let port = crate::state::pod::HostPort {
            protocol: "TCP".to_owned(),
            ip: "0.0.0.0".to_owned(),
            port: 80,
        };
        let holder = Pod {
            node: Some("n".to_owned()),
            host_ports: vec![port.clone()],
            ..mk_pod("other", "")
        };
        cluster.apply_pod(holder);
        let (_, state) = cluster.nodes().next().expect("one node");
        let pod = Pod {
            host_ports: vec![port],
            ..mk_pod("p", "")
        };
        let rejection = ports(&pod, state, &cluster).expect_err("taken");
        assert_eq!(rejection.detail.as_deref(), Some("TCP 0.0.0.0:80 is taken"));
        assert_eq!(ports(&mk_pod("q", ""), state, &cluster), Ok(()));
    }
}
