//! Topology spread with hard constraints: the number of pods in a domain may exceed the lowest number by at most the maximum skew.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, TopologySpreadConstraint};

use crate::controllers::{objects, placement, selectors};
use crate::default_scheduler::filter::{self, Rejection};
use crate::default_scheduler::ledger::Ledger;
use crate::default_scheduler::pod::Task;

/// Number of matching pods by domain, for each constraint.
pub(super) struct Spread(Vec<Constraint>);

struct Constraint {
    key: String,
    max_skew: i64,
    /// 1 if the pod itself matches the constraint, otherwise 0.
    own: i64,
    domains: BTreeMap<String, i64>,
    lowest: i64,
}

impl Spread {
    /// Counts the matching pods; the result is empty without hard constraints.
    pub(super) fn new(ledger: &Ledger, task: &Task) -> Self {
        let hard: Vec<&TopologySpreadConstraint> = task
            .spec()
            .topology_spread_constraints
            .iter()
            .flatten()
            .filter(|constraint| constraint.when_unsatisfiable == "DoNotSchedule")
            .collect();
        let keys: Vec<&String> = hard
            .iter()
            .map(|constraint| &constraint.topology_key)
            .collect();
        Self(
            hard.iter()
                .map(|constraint| count(ledger, task, constraint, &keys))
                .collect(),
        )
    }

    /// Checks whether the node's domains may take one more pod.
    pub(super) fn check(&self, node: &Node) -> Result<(), Rejection> {
        for constraint in &self.0 {
            let Some(value) = objects::labels(node).get(&constraint.key) else {
                return Err(Rejection::unresolvable(
                    "node(s) didn't match pod topology spread constraints (missing required label)",
                ));
            };
            let present = constraint.domains.get(value).copied().unwrap_or(0);
            if present + constraint.own - constraint.lowest > constraint.max_skew {
                let reason = "node(s) didn't match pod topology spread constraints";
                return Err(Rejection::resolvable(reason).depends_on_other_pods());
            }
        }
        Ok(())
    }
}

fn count(
    ledger: &Ledger,
    task: &Task,
    constraint: &TopologySpreadConstraint,
    keys: &[&String],
) -> Constraint {
    let honoured = |policy: &Option<String>, default: bool| {
        policy
            .as_deref()
            .map_or(default, |policy| policy == "Honor")
    };
    let by_affinity = honoured(&constraint.node_affinity_policy, true);
    let by_taints = honoured(&constraint.node_taints_policy, false);
    let own = objects::labels(&*task.pod);
    let matches = |other: &Task| {
        let labels = objects::labels(&*other.pod);
        other.key.namespace == task.key.namespace
            && constraint
                .label_selector
                .as_ref()
                .is_some_and(|selector| selectors::selects(selector, labels))
            && constraint.match_label_keys.iter().flatten().all(|key| {
                own.get(key)
                    .is_none_or(|value| labels.get(key) == Some(value))
            })
    };
    let mut domains: BTreeMap<String, i64> = BTreeMap::new();
    for (node, state) in ledger.nodes() {
        let labels = objects::labels(&**node);
        let left_out = keys.iter().any(|key| !labels.contains_key(*key))
            || by_affinity && !placement::selected(task.spec(), node)
            || by_taints && filter::tainted(task, node).is_err();
        let Some(value) = labels.get(&constraint.topology_key).filter(|_| !left_out) else {
            continue;
        };
        let present = ledger
            .on(state)
            .filter(|other| !objects::deleting(&*other.pod) && matches(other))
            .count();
        *domains.entry(value.clone()).or_default() += present as i64;
    }
    let enough = domains.len() as i64 >= i64::from(constraint.min_domains.unwrap_or(1));
    Constraint {
        key: constraint.topology_key.clone(),
        max_skew: i64::from(constraint.max_skew),
        own: i64::from(matches(task)),
        lowest: if enough {
            domains.values().copied().min().unwrap_or(0)
        } else {
            0
        },
        domains,
    }
}
