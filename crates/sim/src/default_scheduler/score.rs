//! Scores the nodes that fit (scheduler.md 7.4, 7.5): free resources, balance, taints and preferred node affinity.
//!
//! Not scored: images, preferred inter-pod affinity and soft spread constraints.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;

use super::ledger::NodeState;
use super::pod::Task;
use crate::controllers::placement::{self, PREFER_NO_SCHEDULE};

/// Highest score of one plugin.
const MAX: i64 = 100;
/// Weight of `PreferNoSchedule` taints.
const TAINTS: i64 = 3;
/// Weight of preferred node affinity.
const AFFINITY: i64 = 2;

/// Returns the index of the best node; among equals the first.
pub(super) fn best(task: &Task, nodes: &[(&Arc<Node>, &NodeState)]) -> Option<usize> {
    let taints: Vec<i64> = nodes
        .iter()
        .map(|(node, _)| soft_taints(task, node))
        .collect();
    let preferences: Vec<i64> = nodes
        .iter()
        .map(|(node, _)| preferred(task, node))
        .collect();
    let most_taints = taints.iter().copied().max().unwrap_or(0);
    let most_preferred = preferences.iter().copied().max().unwrap_or(0);
    let share = |value: i64, most: i64| if most == 0 { 0 } else { value * MAX / most };
    let mut best: Option<(i64, usize)> = None;
    for (place, (_, state)) in nodes.iter().enumerate() {
        let total = least_allocated(task, state)
            + balanced_allocation(task, state)
            + TAINTS * (MAX - share(taints[place], most_taints))
            + AFFINITY * share(preferences[place], most_preferred);
        if best.is_none_or(|(highest, _)| total > highest) {
            best = Some((total, place));
        }
    }
    best.map(|(_, place)| place)
}

fn soft_taints(task: &Task, node: &Node) -> i64 {
    placement::taints(node, PREFER_NO_SCHEDULE)
        .filter(|taint| !placement::tolerated(task.tolerations(), taint))
        .count() as i64
}

fn preferred(task: &Task, node: &Node) -> i64 {
    task.spec()
        .affinity
        .iter()
        .filter_map(|affinity| affinity.node_affinity.as_ref())
        .flat_map(|affinity| {
            affinity
                .preferred_during_scheduling_ignored_during_execution
                .iter()
                .flatten()
        })
        .filter(|term| placement::term_selects(&term.preference, node))
        .map(|term| i64::from(term.weight))
        .sum()
}

fn amount(of: &super::pod::Amounts, name: &str) -> i64 {
    of.get(name).copied().unwrap_or(0)
}

/// Scores free CPU and memory after the placement: the more, the better.
fn least_allocated(task: &Task, state: &NodeState) -> i64 {
    let part = |total: i64, used: i64, wanted: i64| {
        (total > 0).then(|| (total - used - wanted).max(0) * MAX / total)
    };
    let cpu = amount(&state.allocatable, "cpu");
    let memory = amount(&state.allocatable, "memory");
    let parts = [
        part(cpu, state.scored.0, task.scored.0),
        part(memory, state.scored.1, task.scored.1),
    ];
    let known: Vec<i64> = parts.into_iter().flatten().collect();
    if known.is_empty() {
        return 0;
    }
    known.iter().sum::<i64>() / known.len() as i64
}

/// Scores how evenly CPU and memory are used; 0 for pods that request neither.
fn balanced_allocation(task: &Task, state: &NodeState) -> i64 {
    if amount(&task.requests, "cpu") == 0 && amount(&task.requests, "memory") == 0 {
        return 0;
    }
    let fraction = |name: &str| {
        let total = amount(&state.allocatable, name);
        let used = amount(&state.used, name) + amount(&task.requests, name);
        if total == 0 {
            1.0
        } else {
            (used as f64 / total as f64).min(1.0)
        }
    };
    let deviation = f64::abs(fraction("cpu") - fraction("memory")) / 2.0;
    ((1.0 - deviation) * MAX as f64) as i64
}
