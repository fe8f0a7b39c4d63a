//! One attempt to place a pod: filter, score, choose. Pure; the caller carries out the result.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::framework::default_preemption::{self, Candidate};
use crate::framework::extension_points::Attempt;
use crate::framework::memo::Memo;
use crate::framework::profile::Profile;
use crate::numa::cache::Cache;
use crate::plugins::node_info::NodeInfo;
use crate::plugins::rejection::{Rejection, RuledOut};
use crate::state::cluster::Cluster;
use crate::state::pod::Pod;

mod verdict;

pub use verdict::Verdict;
pub(crate) use verdict::verdict;

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The pod may be bound.
    Placed {
        /// The chosen node.
        node: String,
        /// How many nodes were feasible.
        feasible: usize,
    },
    /// No node fits.
    Rejected(Verdict),
    /// No node fits now, but one does once these pods are gone.
    Preempting {
        /// Why no node fits now.
        verdict: Verdict,
        /// The node and its victims.
        candidate: Candidate,
    },
}

/// An attempt with its timing.
#[derive(Clone, Debug)]
pub struct Attempted {
    /// How it ended.
    pub outcome: Outcome,
    /// The time that its parts took.
    pub timings: Timings,
}

/// The time that the parts of an attempt took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timings {
    /// Filters, and the part of the scores that considers each node alone.
    pub filter: Duration,
    /// Comparison of the feasible nodes.
    pub score: Duration,
    /// Search for victims, if there was one.
    pub post_filter: Option<Duration>,
}

/// Looks for a node, or for pods to preempt. In a large cluster the search ends when enough nodes are feasible
/// ([`Profile::feasible_nodes_to_find`]). `turn` selects where it begins and which of several nodes of equal score is chosen, so
/// that they are used in turn. The cluster is unchanged afterwards. The memo makes the attempt faster and has no effect on its result.
pub fn attempt(
    profile: &Profile,
    (cluster, cache): (&mut Cluster, &mut Cache),
    memo: &mut Memo,
    pod: &Pod,
    turn: usize,
) -> Attempted {
    let mut timings = Timings::default();
    let among = (&mut *cluster, &mut *cache);
    let outcome = match place(profile, among, memo, pod, turn, &mut timings) {
        Ok(placed) => placed,
        Err(rejected) => {
            let started = Instant::now();
            let outcome = post_filter(profile, cluster, cache, pod, rejected, turn);
            timings.post_filter = Some(started.elapsed());
            outcome
        }
    };
    Attempted { outcome, timings }
}

fn post_filter(
    profile: &Profile,
    cluster: &mut Cluster,
    cache: &Cache,
    pod: &Pod,
    rejected: Vec<RuledOut>,
    turn: usize,
) -> Outcome {
    let mut verdict = verdict(rejected);
    if verdict.nodes.is_empty() {
        verdict.clears_nomination = true;
        return Outcome::Rejected(verdict);
    }
    let Some(args) = profile.preemption else {
        return Outcome::Rejected(verdict);
    };
    let nodes = &verdict.nodes;
    match default_preemption::preempt(&profile.filters, args, cluster, cache, pod, nodes, turn) {
        Ok(candidate) => Outcome::Preempting { verdict, candidate },
        Err(refusal) => {
            verdict.message = format!("{} preemption: {}", verdict.message, refusal.message);
            verdict.clears_nomination = refusal.clears_nomination;
            Outcome::Rejected(verdict)
        }
    }
}

/// Returns the chosen node, or why each node was ruled out.
fn place(
    profile: &Profile,
    (cluster, cache): (&mut Cluster, &mut Cache),
    memo: &mut Memo,
    pod: &Pod,
    turn: usize,
    timings: &mut Timings,
) -> Result<Outcome, Vec<RuledOut>> {
    let started = Instant::now();
    let blocked = blocked_by_nominations(profile, cluster, cache, pod);
    memo.update(cluster, cache);
    let (cluster, cache) = (&*cluster, &*cache);
    let attempt = Attempt::new(&profile.filters, cluster, pod);
    let examine = |info: &NodeInfo<'_>| match blocked.get(&info.node.name) {
        Some(rejection) => Err(rejection.clone()),
        None => attempt.examine(info),
    };
    let nominated = cluster
        .nomination(&pod.key)
        .and_then(|name| NodeInfo::named(name, cluster, cache));
    if let Some(info) = nominated
        && examine(&info).is_ok()
    {
        timings.filter = started.elapsed();
        return Ok(Outcome::Placed {
            node: info.node.name.clone(),
            feasible: 1,
        });
    }
    let is_pod_specific = !blocked.is_empty() || attempt.is_pod_specific();
    let nodes: Vec<_> = if memo.switch_to(profile, pod, is_pod_specific) {
        Vec::new()
    } else {
        // every node has to be examined: one walk is faster than a lookup for each
        cluster.nodes().collect()
    };
    let len = memo.len();
    let enough = profile.feasible_nodes_to_find(len);
    let begin = if enough < len {
        turn.wrapping_mul(enough) % len
    } else {
        0
    };
    let mut feasible = Vec::new();
    for index in (begin..len).chain(0..begin) {
        if feasible.len() == enough {
            break;
        }
        let find_node = |name: &str| match nodes.get(index) {
            Some((node, state)) => Some(NodeInfo::new(node, state, cache)),
            None => NodeInfo::named(name, cluster, cache),
        };
        let score = |plugin: usize, info: &NodeInfo<'_>| {
            let plugin = &profile.scores[plugin].plugin;
            plugin.raw_score(pod, info, cluster, len)
        };
        if memo.is_feasible(index, find_node, examine, score) {
            feasible.push(index);
        }
    }
    timings.filter = started.elapsed();
    let count = feasible.len();
    if count == 0 {
        return Err(memo.rejections());
    }
    let totals = if count == 1 {
        vec![0]
    } else {
        memo.totals(profile, pod, &feasible, cluster)
    };
    let best = totals.iter().copied().max().unwrap_or(0);
    let equals: Vec<usize> = (0..count).filter(|index| totals[*index] == best).collect();
    let chosen = feasible[equals[turn % equals.len()]];
    timings.score = started.elapsed().saturating_sub(timings.filter);
    Ok(Outcome::Placed {
        node: memo.name(chosen).to_owned(),
        feasible: count,
    })
}

/// Returns the nodes on which the pod does not fit if the pods of at least its priority that are nominated there take their place.
pub(crate) fn blocked_by_nominations(
    profile: &Profile,
    cluster: &mut Cluster,
    cache: &Cache,
    pod: &Pod,
) -> BTreeMap<String, Rejection> {
    let nodes: BTreeSet<String> = cluster
        .nominations()
        .filter(|(other, _)| other.priority >= pod.priority && other.key != pod.key)
        .map(|(_, node)| node.to_owned())
        .collect();
    let mut blocked = BTreeMap::new();
    for node in nodes {
        if let Err(rejection) =
            default_preemption::fits(&profile.filters, cluster, cache, pod, &node, &[])
        {
            blocked.insert(node, rejection);
        }
    }
    blocked
}

#[cfg(test)]
mod tests;
