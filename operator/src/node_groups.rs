//! Derives the pools of nodes from the node groups of the operator resource (operator.md 4.2).

use std::collections::{BTreeMap, BTreeSet};

use api::labels::{self, HYPERSHIFT_NODE_POOL};
use api::openshift::machine_config::MachineConfigPool;
use api::operator::v1::{MAX_ANNOTATIONS, NodeGroup, NodeGroupConfig};
use goflags::GoDuration;
use manifests::platform::Platform;
use manifests::rte::NodeSelection;

pub mod machine_pools;
pub mod selectors;

/// The pool that every cluster has, even if no node is labelled for it.
const WORKER_POOL: &str = "worker";

/// A pool of nodes with the exporter's effective configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// Name of the pool.
    pub name: String,
    /// The nodes of the pool.
    pub nodes: NodeSelection,
    /// Effective configuration.
    pub config: NodeGroupConfig,
    /// Whether the exporters use the legacy SELinux policy (OpenShift only).
    pub custom_selinux_policy: bool,
    /// The corresponding machine config pool (OpenShift only).
    pub machine_config_pool: Option<MachineConfigPool>,
}

/// Validates the node groups. The first failing check ends the validation; the error has the messages of all groups that fail it.
pub fn validate(groups: &[NodeGroup], platform: Platform) -> Result<(), String> {
    check_specifiers(groups)?;
    check_names(groups)?;
    check_annotations(groups)?;
    match platform {
        Platform::OpenShift => machine_pools::validate(groups)?,
        Platform::HyperShift => refuse_selectors(groups, "Hypershift")?,
        Platform::Kubernetes => refuse_selectors(groups, "Kubernetes")?,
    }
    check_periods(groups)
}

/// Checks that each group has exactly one specifier of its pool.
fn check_specifiers(groups: &[NodeGroup]) -> Result<(), String> {
    for (index, group) in groups.iter().enumerate() {
        match (&group.machine_config_pool_selector, &group.pool_name) {
            (None, None) => return Err(format!("node group {index} missing any pool specifier")),
            (Some(_), Some(_)) => {
                return Err(format!(
                    "node group {index} must have only a single specifier set: either PoolName or MachineConfigPoolSelector"
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_names(groups: &[NodeGroup]) -> Result<(), String> {
    let empty = groups
        .iter()
        .enumerate()
        .filter(|(_, group)| group.pool_name.as_deref() == Some(""));
    joined(empty.map(|(index, _)| format!("pool name for pool #{index} cannot be empty")))?;
    let mut seen = BTreeSet::new();
    let names = groups.iter().filter_map(|group| group.pool_name.as_deref());
    joined(
        names
            .filter(|name| !seen.insert(*name))
            .map(|name| format!("the pool name \"{name}\" has duplicates")),
    )
}

fn check_annotations(groups: &[NodeGroup]) -> Result<(), String> {
    let over_annotated = groups
        .iter()
        .enumerate()
        .filter(|(_, group)| group.annotations.len() > MAX_ANNOTATIONS);
    joined(over_annotated.map(|(index, group)| {
        format!(
            "pool #{index} has too many annotations {} max {MAX_ANNOTATIONS}",
            group.annotations.len()
        )
    }))
}

/// Refuses selectors of machine config pools on a platform that has no such pools.
fn refuse_selectors(groups: &[NodeGroup], platform: &str) -> Result<(), String> {
    let first = groups
        .iter()
        .position(|group| group.machine_config_pool_selector.is_some());
    first.map_or(Ok(()), |index| {
        Err(format!(
            "node group {index} specifies MachineConfigPoolSelector on {platform} platform; Should specify PoolName only"
        ))
    })
}

fn check_periods(groups: &[NodeGroup]) -> Result<(), String> {
    for (index, group) in groups.iter().enumerate() {
        let period = group
            .config
            .as_ref()
            .and_then(|config| config.info_refresh_period.as_deref());
        if let Some(Err(error)) = period.map(str::parse::<GoDuration>) {
            return Err(format!(
                "node group {index} has an invalid infoRefreshPeriod: {error}"
            ));
        }
    }
    Ok(())
}

fn joined(messages: impl Iterator<Item = String>) -> Result<(), String> {
    let messages: Vec<String> = messages.collect();
    if messages.is_empty() {
        Ok(())
    } else {
        Err(messages.join("\n"))
    }
}

/// Returns the pools of valid node groups in order, for platforms without machine config pools. `workers_are_labelled` says whether any
/// node has the role of the pool `worker`.
pub fn pools(groups: &[NodeGroup], platform: Platform, workers_are_labelled: bool) -> Vec<Pool> {
    let named = groups
        .iter()
        .filter_map(|group| group.pool_name.as_deref().map(|name| (name, group)));
    named
        .map(|(name, group)| Pool {
            name: name.into(),
            nodes: selection(name, platform, workers_are_labelled),
            config: group.normalized_config(),
            custom_selinux_policy: false,
            machine_config_pool: None,
        })
        .collect()
}

fn selection(pool: &str, platform: Platform, workers_are_labelled: bool) -> NodeSelection {
    if platform == Platform::HyperShift {
        return NodeSelection::Labels(BTreeMap::from([(
            HYPERSHIFT_NODE_POOL.to_owned(),
            pool.to_owned(),
        )]));
    }
    if pool == WORKER_POOL && !workers_are_labelled {
        return NodeSelection::NotControlPlane;
    }
    NodeSelection::Labels(BTreeMap::from([(labels::node_role(pool), String::new())]))
}

/// Returns whether a node with these labels belongs to a pool.
pub fn selects(selection: &NodeSelection, present: &BTreeMap<String, String>) -> bool {
    match selection {
        NodeSelection::Labels(wanted) => wanted
            .iter()
            .all(|(key, value)| present.get(key) == Some(value)),
        NodeSelection::Selector(selector) => selectors::matches(selector, present),
        NodeSelection::NotControlPlane => !present.contains_key(labels::CONTROL_PLANE),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
    use rstest::rstest;

    use super::*;

    fn pool(name: &str) -> NodeGroup {
        NodeGroup {
            pool_name: Some(name.into()),
            ..NodeGroup::default()
        }
    }

    fn selector() -> NodeGroup {
        NodeGroup {
            machine_config_pool_selector: Some(LabelSelector::default()),
            ..NodeGroup::default()
        }
    }

    fn annotated(count: usize) -> NodeGroup {
        NodeGroup {
            annotations: (0..count).map(|n| (n.to_string(), String::new())).collect(),
            ..pool("a")
        }
    }

    fn period(text: &str) -> NodeGroup {
        let config = NodeGroupConfig {
            info_refresh_period: Some(text.into()),
            ..NodeGroupConfig::default()
        };
        NodeGroup {
            config: Some(config),
            ..pool("a")
        }
    }

    #[rstest]
    #[case::no_specifier(vec![pool("a"), NodeGroup::default()], "node group 1 missing any pool specifier")]
    #[case::both(
        vec![NodeGroup { pool_name: Some("a".into()), ..selector() }],
        "node group 0 must have only a single specifier set: either PoolName or MachineConfigPoolSelector"
    )]
    #[case::empty_names(vec![pool(""), pool("")], "pool name for pool #0 cannot be empty\npool name for pool #1 cannot be empty")]
    #[case::duplicates(vec![pool("a"), pool("b"), pool("a")], "the pool name \"a\" has duplicates")]
    #[case::annotations(vec![annotated(9)], "pool #0 has too many annotations 9 max 8")]
    #[case::selector(
        vec![pool("a"), selector()],
        "node group 1 specifies MachineConfigPoolSelector on Kubernetes platform; Should specify PoolName only"
    )]
    #[case::period(vec![period("soon")], "node group 0 has an invalid infoRefreshPeriod: invalid duration \"soon\"")]
    fn broken_groups_are_named(#[case] groups: Vec<NodeGroup>, #[case] message: &str) {
        assert_eq!(
            validate(&groups, Platform::Kubernetes).unwrap_err(),
            message
        );
    }

    #[rstest]
    #[case::none(vec![])]
    #[case::two(vec![pool("a"), pool("b")])]
    #[case::eight_annotations(vec![annotated(8)])]
    #[case::period(vec![period("1m")])]
    fn sound_groups_pass(#[case] groups: Vec<NodeGroup>) {
        assert_eq!(validate(&groups, Platform::Kubernetes), Ok(()));
    }

    #[test]
    fn pools_select_by_role_and_unlabelled_workers_by_absence() {
        let groups = [pool("numa"), pool("worker")];
        let found = pools(&groups, Platform::Kubernetes, false);
        let role = BTreeMap::from([("node-role.kubernetes.io/numa".to_owned(), String::new())]);
        assert_eq!(found[0].nodes, NodeSelection::Labels(role));
        assert_eq!(found[1].nodes, NodeSelection::NotControlPlane);
        let labelled = pools(&groups, Platform::Kubernetes, true);
        assert!(
            matches!(&labelled[1].nodes, NodeSelection::Labels(labels) if labels.contains_key(labels::WORKER))
        );
        assert_eq!(found[0].config, NodeGroupConfig::defaults());
    }

    #[test]
    fn nodes_are_members_by_all_labels_or_by_not_being_control_plane() {
        let node = |keys: &[&str]| -> BTreeMap<String, String> {
            let keys = keys.iter();
            keys.map(|key| ((*key).to_owned(), String::new())).collect()
        };
        let role =
            NodeSelection::Labels(BTreeMap::from([(labels::WORKER.to_owned(), String::new())]));
        assert!(selects(&role, &node(&[labels::WORKER])));
        assert!(!selects(&role, &node(&[])));
        assert!(selects(&NodeSelection::NotControlPlane, &node(&[])));
        assert!(!selects(
            &NodeSelection::NotControlPlane,
            &node(&[labels::CONTROL_PLANE])
        ));
    }
}
