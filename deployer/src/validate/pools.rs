//! Kubelets of one pool that differ. Pods of a pool's workload go to any of its nodes, so what fits one must fit the others.

use std::collections::BTreeMap;

use serde::Deserialize as _;

use super::finding::{Finding, KUBELET};
use super::kubelets::Settings;
use super::observe::Observed;
use crate::cluster::node_pool;

/// Compares the kubelets of each pool with what most of them have.
pub(super) fn check(observed: &Observed) -> Vec<Finding> {
    let mut pools: BTreeMap<String, Vec<(&str, [String; 4])>> = BTreeMap::new();
    for kubelet in &observed.kubelets {
        let config = kubelet.config.as_ref().ok();
        let Some(settings) = config.and_then(|config| Settings::deserialize(config).ok()) else {
            continue;
        };
        let values = [
            settings.topology_manager_policy,
            settings.topology_manager_scope,
            settings.cpu_manager_policy,
            settings.memory_manager_policy,
        ];
        let pool = observed.node(&kubelet.node).and_then(node_pool);
        let pool = pool.map_or_else(|| "worker".to_owned(), |pool| pool.name);
        pools.entry(pool).or_default().push((&kubelet.node, values));
    }
    let settings = [
        ("topology manager", "policy"),
        ("topology manager", "scope"),
        ("CPU manager", "policy"),
        ("memory manager", "policy"),
    ];
    let mut findings = Vec::new();
    for (pool, nodes) in &pools {
        for (index, (component, setting)) in settings.into_iter().enumerate() {
            let usual = usual(nodes.iter().map(|(_, values)| values[index].as_str()));
            let others = nodes.iter().filter(|(_, values)| values[index] != usual);
            findings.extend(others.map(|(node, values)| {
                Finding::warning(node, KUBELET, component, setting)
                    .expected(format!("{usual}, as most nodes of pool {pool}"))
                    .detected(&values[index])
                    .fix("give all nodes of the pool the same setting, or give this node a role of its own")
            }));
        }
    }
    findings
}

/// Returns the most frequent value; of several the one that comes first.
fn usual<'a>(values: impl Iterator<Item = &'a str>) -> &'a str {
    let values: Vec<&str> = values.collect();
    let count = |value: &str| values.iter().filter(|other| **other == value).count();
    let most = values.iter().map(|value| count(value)).max();
    let mut candidates = values.iter().filter(|value| Some(count(value)) == most);
    candidates.next().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use api::labels;
    use serde_json::json;

    use super::super::observe::Kubelet;
    use super::*;

    fn cluster(nodes: &[(&str, &str, &str)]) -> Observed {
        Observed {
            nodes: nodes
                .iter()
                .map(|(name, role, _)| {
                    let labels = json!({labels::WORKER: "", labels::node_role(role): ""});
                    serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}}))
                        .unwrap()
                })
                .collect(),
            kubelets: nodes
                .iter()
                .map(|(name, _, scope)| Kubelet {
                    node: (*name).to_owned(),
                    config: Ok(json!({"topologyManagerScope": scope})),
                })
                .collect(),
            ..Observed::default()
        }
    }

    #[test]
    fn the_node_that_differs_from_its_pool_is_named() {
        let mixed = cluster(&[
            ("a", "x", "pod"),
            ("b", "x", "container"),
            ("c", "x", "pod"),
        ]);
        let findings = check(&mixed);
        assert_eq!(findings.len(), 1);
        assert_eq!(
            (findings[0].node.as_str(), findings[0].setting.as_str()),
            ("b", "scope")
        );
        assert_eq!(findings[0].expected, "pod, as most nodes of pool x");
    }

    #[test]
    fn pools_may_differ_from_each_other() {
        let two = cluster(&[("a", "x", "pod"), ("b", "y", "container")]);
        assert_eq!(check(&two), []);
    }
}
