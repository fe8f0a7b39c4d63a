//! DefaultPreemption: which pods of lower priority are preempted for a pod that found no node (scheduler.md 7.8). Pure; the caller
//! carries out the result.
//!
//! Every node is tried in the [`Cluster`] itself: pods are taken out, the filters run, and everything is put back before the next node.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::sync::Arc;

use jiff::Timestamp;
use scheduler_config::default_plugins::DefaultPreemptionArgs;

use crate::framework::extension_points::{Attempt, Filters};
use crate::framework::message;
use crate::numa::cache::Cache;
use crate::plugins::node_info::NodeInfo;
use crate::plugins::rejection::{Rejection, RuledOut};
use crate::state::cluster::{Budget, Cluster};
use crate::state::pod::{Pod, PodKey};
use crate::state::selector;

/// A node on which the pod fits once the victims are gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The node.
    pub node: String,
    /// The pods to evict, the most important first; at least one.
    pub victims: Vec<Victim>,
    /// How many of them a disruption budget protects.
    pub violations: usize,
}

/// A pod to evict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    /// Namespace and name.
    pub key: PodKey,
    /// Its uid.
    pub uid: String,
    /// Its priority.
    pub priority: i32,
    started: Option<Timestamp>,
}

impl From<&Pod> for Victim {
    fn from(pod: &Pod) -> Self {
        Self {
            key: pod.key.clone(),
            uid: pod.uid.clone(),
            priority: pod.priority,
            started: pod.started,
        }
    }
}

impl Victim {
    /// Returns the sort key of importance: higher priority first, then the earlier start. A pod that has not started counts as the latest.
    fn importance(&self) -> (Reverse<i32>, Timestamp) {
        (Reverse(self.priority), self.started())
    }

    fn started(&self) -> Timestamp {
        self.started.unwrap_or(Timestamp::MAX)
    }
}

/// Why no pod is preempted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Message for the event and the condition.
    pub message: String,
    /// Whether an earlier nomination of the pod is void.
    pub clears_nomination: bool,
}

/// Looks for pods to evict. `rejected` says why each node was ruled out; `turn` selects the node that is tried first.
///
/// # Errors
/// When the pod may not preempt, or no eviction helps.
pub fn preempt(
    filters: &Filters,
    args: DefaultPreemptionArgs,
    cluster: &mut Cluster,
    cache: &Cache,
    pod: &Pod,
    rejected: &[RuledOut],
    turn: usize,
) -> Result<Candidate, Refusal> {
    if let Err(message) = eligible(cluster, cache, pod, rejected) {
        return Err(Refusal {
            message: message.to_owned(),
            clears_nomination: false,
        });
    }
    let potential: Vec<&str> = rejected
        .iter()
        .filter(|(_, rejection)| !rejection.unresolvable)
        .map(|(node, _)| &**node)
        .collect();
    let wanted = candidates_to_find(args, potential.len());
    let (mut without_violation, mut with_violation) = (Vec::new(), Vec::new());
    let mut reasons: Vec<String> = Vec::new();
    let start = if potential.is_empty() {
        0
    } else {
        turn % potential.len()
    };
    for node in potential.iter().cycle().skip(start).take(potential.len()) {
        match victims(filters, cluster, cache, pod, node) {
            Ok(candidate) if candidate.violations == 0 => without_violation.push(candidate),
            Ok(candidate) => with_violation.push(candidate),
            Err(reason) => reasons.extend(reason),
        }
        if !without_violation.is_empty() && without_violation.len() + with_violation.len() >= wanted
        {
            break;
        }
    }
    without_violation.append(&mut with_violation);
    without_violation
        .into_iter()
        .min_by_key(cost)
        .ok_or_else(|| {
            let hopeless = rejected.len() - potential.len();
            let rest =
                (hopeless > 0).then_some(("Preemption is not helpful for scheduling", hopeless));
            let reasons = reasons
                .iter()
                .map(|reason| (reason.as_str(), 1))
                .chain(rest);
            Refusal {
                message: message::message(rejected.len(), reasons),
                clears_nomination: true,
            }
        })
}

fn eligible(
    cluster: &Cluster,
    cache: &Cache,
    pod: &Pod,
    rejected: &[RuledOut],
) -> Result<(), &'static str> {
    if !pod.preempts {
        return Err("not eligible due to preemptionPolicy=Never.");
    }
    let Some(nominated) = cluster.nomination(&pod.key) else {
        return Ok(());
    };
    let is_unresolvable = rejected
        .iter()
        .any(|(node, rejection)| **node == *nominated && rejection.unresolvable);
    let pods = cluster.node(nominated).map(|state| &state.pods);
    let is_terminating_victim =
        |other: &Pod| other.priority < pod.priority && other.deleting && other.is_victim;
    let mut pods = pods
        .into_iter()
        .flatten()
        .filter_map(|key| cluster.pod(key));
    // A pod is not gone until its zones are seen to be free. Until then no further pod may be evicted in its place.
    if !is_unresolvable && (pods.any(is_terminating_victim) || cache.awaits_release(nominated)) {
        return Err("not eligible due to a terminating pod on the nominated node.");
    }
    Ok(())
}

/// Returns how many candidates are enough to choose from.
fn candidates_to_find(args: DefaultPreemptionArgs, nodes: usize) -> usize {
    let share = nodes * args.min_candidate_nodes_percentage / 100;
    share.max(args.min_candidate_nodes_absolute).min(nodes)
}

/// Returns the sort key of a candidate; the smallest is best. It compares budget violations, the highest priority, the sum of
/// priorities, the number of victims, and the earliest start among the victims of highest priority, where a later one is better.
fn cost(candidate: &Candidate) -> (usize, i32, i64, usize, Reverse<Timestamp>) {
    let victims = &candidate.victims;
    let highest = victims
        .iter()
        .map(|victim| victim.priority)
        .max()
        .unwrap_or(i32::MIN);
    let sum = victims
        .iter()
        .map(|victim| i64::from(victim.priority) + (1 << 31))
        .sum();
    let oldest = victims
        .iter()
        .filter(|victim| victim.priority == highest)
        .map(Victim::started)
        .min()
        .unwrap_or(Timestamp::MAX);
    (
        candidate.violations,
        highest,
        sum,
        victims.len(),
        Reverse(oldest),
    )
}

/// Returns the fewest pods of a node that have to be evicted, or why no eviction there helps.
fn victims(
    filters: &Filters,
    cluster: &mut Cluster,
    cache: &Cache,
    pod: &Pod,
    node: &str,
) -> Result<Candidate, Vec<String>> {
    let lower: Vec<PodKey> = match cluster.node(node) {
        Some(state) if state.priorities.range(..pod.priority).next().is_some() => state
            .pods
            .iter()
            .filter_map(|key| cluster.pod(key))
            .filter(|other| other.priority < pod.priority)
            .map(|other| other.key.clone())
            .collect(),
        _ => {
            return Err(vec![
                "No preemption victims found for incoming pod".to_owned(),
            ]);
        }
    };
    let mut out: Vec<Pod> = lower
        .iter()
        .filter_map(|key| cluster.take_out(key))
        .collect();
    out.sort_by_key(|pod| Victim::from(pod).importance());
    let outcome = reprieve(filters, cluster, cache, pod, node, &mut out);
    for gone in out {
        cluster.put_back(gone);
    }
    outcome
}

/// Puts back as many of the pods that were taken `out` as possible while the pod still fits, those protected by budgets first.
fn reprieve(
    filters: &Filters,
    cluster: &mut Cluster,
    cache: &Cache,
    pod: &Pod,
    node: &str,
    out: &mut Vec<Pod>,
) -> Result<Candidate, Vec<String>> {
    fits(filters, cluster, cache, pod, node, out).map_err(|rejection| {
        let reasons = rejection.reasons.into_iter();
        reasons.map(Cow::into_owned).collect::<Vec<_>>()
    })?;
    let protected = violated(cluster, out);
    let order = out
        .iter()
        .map(|pod| (pod.key.clone(), protected.contains(&pod.key)));
    let (first, then): (Vec<_>, Vec<_>) = order.partition(|(_, is_protected)| *is_protected);
    let mut violations = 0;
    for (key, is_protected) in first.into_iter().chain(then) {
        let Some(index) = out.iter().position(|other| other.key == key) else {
            continue;
        };
        cluster.put_back(out.remove(index));
        if fits(filters, cluster, cache, pod, node, out).is_err()
            && let Some(victim) = cluster.take_out(&key)
        {
            out.insert(index, victim);
            violations += usize::from(is_protected);
        }
    }
    if out.is_empty() {
        return Err(vec![format!(
            "expected at least one victim pod on node {node:?}"
        )]);
    }
    Ok(Candidate {
        node: node.to_owned(),
        victims: out.iter().map(Victim::from).collect(),
        violations,
    })
}

/// Returns those of `pods`, in order, whose eviction in addition to the earlier ones violates a disruption budget.
fn violated(cluster: &Cluster, pods: &[Pod]) -> Vec<PodKey> {
    let mut budgets: Vec<(&PodKey, &Budget, i32)> = cluster
        .budgets()
        .map(|(key, budget)| (key, budget, budget.allowed))
        .collect();
    let mut violated = Vec::new();
    for pod in pods.iter().filter(|pod| !pod.labels.is_empty()) {
        let mut is_violated = false;
        for (key, budget, allowed) in &mut budgets {
            let covered = key.namespace == pod.key.namespace
                && !selector::is_empty(budget.selector.as_ref())
                && selector::labels(budget.selector.as_ref(), &pod.labels)
                && !budget.disrupted.contains(&pod.key.name);
            if covered {
                *allowed -= 1;
                is_violated |= *allowed < 0;
            }
        }
        if is_violated {
            violated.push(pod.key.clone());
        }
    }
    violated
}

/// Checks whether the filters accept the pod on the node, from which `victims` were taken out, both with and without the pods of at
/// least its priority that are nominated there.
pub(crate) fn fits(
    filters: &Filters,
    cluster: &mut Cluster,
    cache: &Cache,
    pod: &Pod,
    node: &str,
    victims: &[Pod],
) -> Result<(), Rejection> {
    let victims: Vec<&Pod> = victims.iter().collect();
    let examine = |cluster: &Cluster, nominated: &[Arc<_>]| {
        let Some(info) = NodeInfo::named(node, cluster, cache) else {
            return Ok(());
        };
        let mut attempt = Attempt::new(filters, cluster, pod);
        if !(victims.is_empty() && nominated.is_empty()) {
            attempt = attempt.with_view(cache.simulate(node, &victims, nominated));
        }
        attempt.examine(&info)
    };
    let nominated = nominated_pods(cluster, pod, node);
    if !nominated.is_empty() {
        let mut requests = Vec::new();
        for key in &nominated {
            if let Some(mut other) = cluster.take_out(key) {
                requests.push(Arc::clone(&other.request));
                other.node = Some(node.to_owned());
                cluster.put_back(other);
            }
        }
        let outcome = examine(cluster, &requests);
        for key in &nominated {
            if let Some(mut other) = cluster.take_out(key) {
                other.node = None;
                cluster.put_back(other);
            }
        }
        outcome?;
    }
    examine(cluster, &[])
}

/// Returns the other pods of at least the pod's priority that are nominated to a node.
fn nominated_pods(cluster: &Cluster, pod: &Pod, node: &str) -> Vec<PodKey> {
    cluster
        .nominations()
        .filter(|(other, nominated)| {
            *nominated == node && other.priority >= pod.priority && other.key != pod.key
        })
        .map(|(other, _)| other.key.clone())
        .collect()
}

/// Returns the waiting pods of lower priority that lose their nomination to this node.
pub fn displaced(cluster: &Cluster, pod: &Pod, node: &str) -> Vec<PodKey> {
    cluster
        .nominations()
        .filter(|(other, nominated)| *nominated == node && other.priority < pod.priority)
        .map(|(other, _)| other.key.clone())
        .collect()
}

#[cfg(test)]
mod tests;
