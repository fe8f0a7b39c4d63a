//! Maps node groups to the machine config pools of OpenShift (operator.md 4.2).

use std::collections::{BTreeMap, BTreeSet};

use api::annotations::{CUSTOM, SELINUX_POLICY};
use api::openshift::machine_config::MachineConfigPool;
use api::operator::v1::NodeGroup;
use kube::ResourceExt as _;
use manifests::rte::NodeSelection;

use super::{Pool, joined, selectors};

/// The pools that node groups select.
#[derive(Clone, Debug, PartialEq)]
pub struct Selected {
    /// The pools, in the order of the groups.
    pub pools: Vec<Pool>,
    /// A message that names the groups which select more than one pool, if any. All their pools still get exporters.
    pub multiple_pools_message: Option<String>,
}

/// Validates the selectors of machine config pools. The first failing check ends the validation.
pub fn validate(groups: &[NodeGroup]) -> Result<(), String> {
    let all = groups
        .iter()
        .filter_map(|group| group.machine_config_pool_selector.as_ref());
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for selector in all.clone() {
        *seen.entry(selectors::text(selector)).or_default() += 1;
    }
    joined(
        seen.into_iter()
            .filter(|(_, count)| *count > 1)
            .map(|(text, _)| {
                format!("the node group with the machineConfigPoolSelector {text:?} has duplicates")
            }),
    )?;
    joined(all.flat_map(selectors::problems))
}

/// Returns the pools of valid node groups.
pub fn select(groups: &[NodeGroup], all: &[MachineConfigPool]) -> Result<Selected, String> {
    let mut pools = Vec::new();
    let mut messages = Vec::new();
    for group in groups {
        let found: Vec<&MachineConfigPool> =
            all.iter().filter(|pool| selects(group, pool)).collect();
        if found.is_empty() {
            return Err(format!(
                "failed to find MachineConfigPool for the node group {}",
                display_name(group)
            ));
        }
        if found.len() > 1 {
            let names: Vec<String> = found.iter().map(|pool| pool.name_any()).collect();
            messages.push(format!(
                "found multiple pools matches for node group {} but expected one. Pools found [{}]",
                display_name(group),
                names.join(" ")
            ));
        }
        pools.extend(
            found
                .into_iter()
                .map(|pool| from_machine_config_pool(group, pool)),
        );
    }
    let mut seen = BTreeSet::new();
    let twice: BTreeSet<&str> = pools
        .iter()
        .map(|pool| pool.name.as_str())
        .filter(|name| !seen.insert(*name))
        .collect();
    joined(twice.into_iter().map(|name| {
        format!("the MachineConfigPool {name:?} selected by at least two node groups")
    }))?;
    Ok(Selected {
        pools,
        multiple_pools_message: (!messages.is_empty()).then(|| messages.join("\n")),
    })
}

/// Returns whether a group selects a pool, by name or by labels.
fn selects(group: &NodeGroup, pool: &MachineConfigPool) -> bool {
    match (&group.pool_name, &group.machine_config_pool_selector) {
        (Some(name), _) => *name == pool.name_any(),
        (None, Some(selector)) => selectors::matches(selector, pool.labels()),
        (None, None) => false,
    }
}

fn from_machine_config_pool(group: &NodeGroup, pool: &MachineConfigPool) -> Pool {
    let annotation = group.annotations.get(SELINUX_POLICY);
    Pool {
        name: pool.name_any(),
        nodes: NodeSelection::Selector(pool.spec.node_selector.clone().unwrap_or_default()),
        config: group.normalized_config(),
        custom_selinux_policy: annotation.is_some_and(|value| value == CUSTOM),
        machine_config_pool: Some(pool.clone()),
    }
}

/// Returns the name of a group in messages (operator.md 1.4).
fn display_name(group: &NodeGroup) -> String {
    match (&group.pool_name, &group.machine_config_pool_selector) {
        (Some(name), _) => name.clone(),
        (None, Some(selector)) => selectors::text(selector),
        (None, None) => "<missingName>".into(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn groups(value: Value) -> Vec<NodeGroup> {
        serde_json::from_value(value).unwrap()
    }

    fn pool(name: &str) -> MachineConfigPool {
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"pool": name, "kind": "numa"}},
            "spec": {"nodeSelector": {"matchLabels": {format!("node-role.kubernetes.io/{name}"): ""}}},
        }))
        .unwrap()
    }

    fn by(label: &str, value: &str) -> Value {
        json!({"machineConfigPoolSelector": {"matchLabels": {label: value}}})
    }

    #[rstest]
    #[case::duplicates(
        json!([by("a", "1"), by("b", "1"), by("a", "1")]),
        "the node group with the machineConfigPoolSelector \"&LabelSelector{MatchLabels:map[string]string{a: 1,},\
         MatchExpressions:[]LabelSelectorRequirement{},}\" has duplicates"
    )]
    #[case::operator(
        json!([{"machineConfigPoolSelector": {"matchExpressions": [{"key": "k", "operator": "Near"}]}}]),
        "\"Near\" is not a valid label selector operator"
    )]
    fn broken_selectors_are_named(#[case] value: Value, #[case] message: &str) {
        assert_eq!(validate(&groups(value)).unwrap_err(), message);
    }

    #[rstest]
    #[case::no_such_name(json!([{"poolName": "c"}]), "failed to find MachineConfigPool for the node group c")]
    #[case::no_such_label(
        json!([by("pool", "c")]),
        "failed to find MachineConfigPool for the node group &LabelSelector{MatchLabels:map[string]string{pool: c,},\
         MatchExpressions:[]LabelSelectorRequirement{},}"
    )]
    #[case::twice(
        json!([{"poolName": "a"}, by("kind", "numa")]),
        "the MachineConfigPool \"a\" selected by at least two node groups"
    )]
    fn groups_without_a_pool_of_their_own_are_named(#[case] value: Value, #[case] message: &str) {
        let error = select(&groups(value), &[pool("a"), pool("b")]).unwrap_err();
        assert_eq!(error, message);
    }

    #[test]
    fn names_and_labels_select_pools_with_their_nodes() {
        let groups = groups(json!([
            {"poolName": "b", "annotations": {SELINUX_POLICY: "custom"}},
            by("pool", "a"),
        ]));
        let selected = select(&groups, &[pool("a"), pool("b")]).unwrap();
        assert_eq!(selected.multiple_pools_message, None);
        let [b, a] = &selected.pools[..] else {
            panic!("two pools")
        };
        assert_eq!((b.name.as_str(), a.name.as_str()), ("b", "a"));
        assert!(b.custom_selinux_policy && !a.custom_selinux_policy);
        let role = json!({"matchLabels": {"node-role.kubernetes.io/a": ""}});
        assert_eq!(
            a.nodes,
            NodeSelection::Selector(serde_json::from_value(role).unwrap())
        );
    }

    #[test]
    fn group_with_several_pools_is_served_and_told() {
        let selected = select(
            &groups(json!([by("kind", "numa")])),
            &[pool("a"), pool("b")],
        )
        .unwrap();
        assert_eq!(selected.pools.len(), 2);
        assert_eq!(
            selected.multiple_pools_message.as_deref(),
            Some(
                "found multiple pools matches for node group &LabelSelector{MatchLabels:map[string]string{kind: numa,},\
                 MatchExpressions:[]LabelSelectorRequirement{},} but expected one. Pools found [a b]"
            )
        );
    }
}
