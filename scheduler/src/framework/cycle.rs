//! One attempt to place a pod: filter, score, choose. Pure; the caller carries out the result.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::framework::extension_points::Attempt;
use crate::framework::memo::Memo;
use crate::framework::plugin::Plugins;
use crate::framework::profile::Profile;
use crate::framework::rejection::Rejection;
use crate::plugins::default_preemption::{self, Candidate};
use crate::state::cache::Cache;
use crate::state::cluster::Cluster;
use crate::state::node_info::NodeInfo;
use crate::state::pod::Pod;

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

/// Why no node fits.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Message for the event and the condition (scheduler.md 7.7).
    pub message: String,
    /// Plugins that ruled out any node. The pod is tried again when something changes for one of them.
    pub rejected_by: Plugins,
    /// Every node with the reason why it was ruled out.
    pub nodes: Vec<(String, Rejection)>,
    /// Whether an earlier nomination of the pod is void.
    pub clears_nomination: bool,
}

impl Verdict {
    /// Returns what each node lacked, for nodes with details: `worker-0: cannot align pod: cpu wanted 4000m, zone 0 has 2000m`.
    pub fn details(&self) -> String {
        let mut parts = Vec::new();
        for (node, rejection) in &self.nodes {
            if let Some(detail) = &rejection.detail {
                parts.push(format!("{node}: {detail}"));
            }
        }
        parts.join("; ")
    }
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
    rejected: Vec<(String, Rejection)>,
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
) -> Result<Outcome, Vec<(String, Rejection)>> {
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

pub(crate) fn verdict(nodes: Vec<(String, Rejection)>) -> Verdict {
    let rejected_by = if nodes.is_empty() {
        Plugins::ALL
    } else {
        nodes
            .iter()
            .map(|(_, rejection)| rejection.plugin)
            .collect()
    };
    Verdict {
        message: if nodes.is_empty() {
            "no nodes available to schedule pods".to_owned()
        } else {
            let reasons = nodes.iter().flat_map(|(_, rejection)| &rejection.reasons);
            let mut first = reasons.clone();
            match first.next() {
                Some(reason) if nodes.iter().all(|(_, rejection)| rejection.everywhere) => {
                    format!("0/{} nodes are available: {reason}.", nodes.len())
                }
                _ => message(nodes.len(), reasons.map(AsRef::as_ref)),
            }
        },
        rejected_by,
        nodes,
        clears_nomination: false,
    }
}

/// Formats `0/3 nodes are available: 1 cannot align pod, 2 Insufficient cpu.` Parts are sorted as text, including the numbers, as
/// kube-scheduler prints them.
pub(crate) fn message<'a>(nodes: usize, reasons: impl Iterator<Item = &'a str>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for reason in reasons {
        *counts.entry(reason).or_default() += 1;
    }
    let mut parts: Vec<String> = counts
        .iter()
        .map(|(reason, count)| format!("{count} {reason}"))
        .collect();
    parts.sort();
    format!("0/{nodes} nodes are available: {}.", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framework::extension_points::{Filters, ScorePlugin, Weighted};
    use crate::framework::plugin::Plugin;
    use crate::state::cluster::Node;
    use crate::testing::{mk_cache, mk_node, mk_nrt, mk_pod};
    use k8s_openapi::api::core::v1::Taint;
    use scheduler_config::args::NodeResourceTopologyMatchArgs;
    use scheduler_config::default_plugins::ScoringStrategy;

    fn mk_profile() -> Profile {
        Profile {
            name: "topo".to_owned(),
            filters: Filters::from(
                &[
                    Plugin::NodeUnschedulable,
                    Plugin::TaintToleration,
                    Plugin::NodeAffinity,
                    Plugin::NodeResourcesFit,
                    Plugin::NodeResourceTopologyMatch,
                    Plugin::VolumeBinding,
                ][..],
            ),
            scores: vec![
                Weighted {
                    plugin: ScorePlugin::NodeResourcesFit(ScoringStrategy::default()),
                    weight: 1,
                },
                Weighted {
                    plugin: ScorePlugin::NodeResourceTopologyMatch(
                        NodeResourceTopologyMatchArgs::default().scoring_strategy,
                    ),
                    weight: 1,
                },
            ],
            preemption: None,
            percentage_of_nodes_to_score: 0,
            volume_timeout: std::time::Duration::ZERO,
        }
    }

    fn try_once(cluster: &mut Cluster, cache: &mut Cache, pod: &Pod) -> Outcome {
        attempt(
            &mk_profile(),
            (cluster, cache),
            &mut Memo::default(),
            pod,
            0,
        )
        .outcome
    }

    #[test]
    fn the_only_node_with_a_fitting_zone_is_chosen() {
        let (mut cluster, mut cache) = (Cluster::new(), mk_cache(true));
        for name in ["a", "b", "c"] {
            cluster.apply_node(mk_node(name, "cpu=8 memory=8Gi"));
        }
        let split = "cpu=4 memory=4Gi";
        cache.apply_nrt("a", mk_nrt(&[split, split]));
        cache.apply_nrt("b", mk_nrt(&["cpu=6 memory=4Gi", "cpu=2 memory=4Gi"]));
        cache.apply_nrt("c", mk_nrt(&[split, split]));
        let pod = mk_pod("p", "cpu=5 memory=1Gi");
        let outcome = try_once(&mut cluster, &mut cache, &pod);
        assert_eq!(
            outcome,
            Outcome::Placed {
                node: "b".to_owned(),
                feasible: 1
            }
        );
    }

    #[test]
    fn the_message_counts_every_reason_in_text_order() {
        let (mut cluster, mut cache) = (Cluster::new(), mk_cache(true));
        let taint = Taint {
            key: "k".to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        };
        cluster.apply_node(Node {
            taints: vec![taint],
            ..mk_node("control-plane-0", "cpu=64 memory=64Gi")
        });
        cluster.apply_node(mk_node("worker-0", "cpu=8 memory=8Gi"));
        cache.apply_nrt(
            "worker-0",
            mk_nrt(&["cpu=4 memory=4Gi", "cpu=4 memory=4Gi"]),
        );
        for index in 1..4 {
            cluster.apply_node(mk_node(&format!("worker-{index}"), "cpu=2 memory=1Gi"));
        }
        let pod = mk_pod("p", "cpu=5 memory=1Gi");
        let Outcome::Rejected(verdict) = try_once(&mut cluster, &mut cache, &pod) else {
            panic!("no node fits");
        };
        assert_eq!(
            verdict.message,
            "0/5 nodes are available: 1 cannot align container, 1 node(s) had untolerated taint(s), 3 Insufficient cpu."
        );
        assert!(
            verdict
                .rejected_by
                .intersects([Plugin::NodeResourceTopologyMatch].into_iter().collect())
        );
        assert!(
            !verdict
                .rejected_by
                .intersects([Plugin::NodeAffinity].into_iter().collect())
        );
        assert_eq!(verdict.nodes.len(), 5);
    }

    #[test]
    fn terms_that_contradict_each_other_are_told_once() {
        let mut cluster = Cluster::new();
        for name in ["a", "b"] {
            cluster.apply_node(mk_node(name, "cpu=8"));
        }
        let named = |name: &str| serde_json::json!({"key": "metadata.name", "operator": "In", "values": [name]});
        let mut pod = mk_pod("p", "cpu=1");
        let mut message = |fields: &[serde_json::Value]| {
            pod.constraints.node_affinity = serde_json::from_value(serde_json::json!({
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": fields}]},
            }))
            .ok();
            match try_once(&mut cluster, &mut mk_cache(true), &pod) {
                Outcome::Rejected(verdict) => verdict.message,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(
            message(&[named("a"), named("b")]),
            "0/2 nodes are available: pod affinity terms conflict."
        );
        assert_eq!(
            message(&[named("c")]),
            "0/2 nodes are available: 2 node(s) didn't satisfy plugin(s) [NodeAffinity]."
        );
    }

    #[test]
    fn an_empty_cluster_has_its_own_message() {
        let Outcome::Rejected(verdict) =
            try_once(&mut Cluster::new(), &mut mk_cache(true), &mk_pod("p", ""))
        else {
            panic!("no node");
        };
        assert_eq!(verdict.message, "no nodes available to schedule pods");
    }

    #[test]
    fn equal_nodes_are_used_in_turn() {
        let (mut cluster, mut cache) = (Cluster::new(), mk_cache(true));
        let mut memo = Memo::default();
        for name in ["a", "b"] {
            cluster.apply_node(mk_node(name, "cpu=8 memory=8Gi"));
        }
        let chosen: Vec<_> = (0..3)
            .map(|turn| {
                attempt(
                    &mk_profile(),
                    (&mut cluster, &mut cache),
                    &mut memo,
                    &mk_pod("p", "cpu=1 memory=1Gi"),
                    turn,
                )
                .outcome
            })
            .map(|outcome| match outcome {
                Outcome::Placed { node, .. } => node,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(chosen, ["a", "b", "a"]);
    }

    #[test]
    fn the_emptier_node_is_preferred() {
        let (mut cluster, mut cache) = (Cluster::new(), mk_cache(true));
        let mut memo = Memo::default();
        for name in ["a", "b"] {
            cluster.apply_node(mk_node(name, "cpu=8 memory=8Gi"));
        }
        cluster.apply_pod(Pod {
            node: Some("a".to_owned()),
            ..mk_pod("other", "cpu=4 memory=4Gi")
        });
        for turn in 0..2 {
            let outcome = attempt(
                &mk_profile(),
                (&mut cluster, &mut cache),
                &mut memo,
                &mk_pod("p", "cpu=1 memory=1Gi"),
                turn,
            )
            .outcome;
            assert_eq!(
                outcome,
                Outcome::Placed {
                    node: "b".to_owned(),
                    feasible: 2
                }
            );
        }
    }

    #[test]
    fn a_large_cluster_is_searched_in_parts_that_follow_each_other() {
        let (mut cluster, mut cache) = (Cluster::new(), mk_cache(true));
        let mut memo = Memo::default();
        let name = |number: usize| format!("n{number:04}");
        for number in 0..500 {
            cluster.apply_node(mk_node(&name(number), "cpu=8 memory=8Gi"));
        }
        let pod = mk_pod("p", "cpu=1 memory=1Gi");
        // 46 percent of 500 nodes
        for (turn, (first, equal)) in [(0, 0), (230, 1), (460, 2), (190, 3)]
            .into_iter()
            .enumerate()
        {
            let expected = Outcome::Placed {
                node: name((first + equal) % 500),
                feasible: 230,
            };
            assert_eq!(
                attempt(
                    &mk_profile(),
                    (&mut cluster, &mut cache),
                    &mut memo,
                    &pod,
                    turn
                )
                .outcome,
                expected
            );
        }
    }

    #[test]
    fn the_only_node_of_a_large_cluster_is_found_from_wherever_the_search_begins() {
        let (mut cluster, mut cache) = (Cluster::new(), mk_cache(true));
        let mut memo = Memo::default();
        for number in 0..300 {
            let cpu = if number == 7 { 8 } else { 1 };
            cluster.apply_node(mk_node(
                &format!("n{number:04}"),
                &format!("cpu={cpu} memory=8Gi"),
            ));
        }
        let pod = mk_pod("p", "cpu=4 memory=1Gi");
        for turn in 0..4 {
            let expected = Outcome::Placed {
                node: "n0007".to_owned(),
                feasible: 1,
            };
            assert_eq!(
                attempt(
                    &mk_profile(),
                    (&mut cluster, &mut cache),
                    &mut memo,
                    &pod,
                    turn
                )
                .outcome,
                expected
            );
        }
    }
}
