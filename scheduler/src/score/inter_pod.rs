//! InterPodAffinity, preferred terms: near pods that the pod prefers, and near pods that prefer it (scheduler.md 7.5).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodAffinityTerm;
use scheduler_config::default_plugins::InterPodAffinityArgs;

use super::MAX;
use crate::filter::inter_pod::{self, selects};
use crate::state::cluster::{Cluster, Node};
use crate::state::pod::{Phase, Pod};

/// Returns the scores of `nodes`, in order; `None` if no preference applies.
pub fn scores<'a>(
    cluster: &Cluster,
    pod: &Pod,
    nodes: impl Iterator<Item = &'a Node>,
    args: InterPodAffinityArgs,
) -> Option<Vec<i64>> {
    let own = pod.constraints.preferences.as_deref();
    if own.is_none() && args.ignore_preferred_terms_of_existing_pods {
        return None;
    }
    let others: Vec<&Pod> = if own.is_some() {
        cluster.pods().collect()
    } else {
        cluster.pods_with_affinity().collect()
    };
    let mut domains: BTreeMap<(&str, &str), i64> = BTreeMap::new();
    for other in others {
        if other.phase == Phase::Terminal || other.key == pod.key {
            continue;
        }
        let Some(node) = inter_pod::node_of(cluster, other) else {
            continue;
        };
        let mut add = |term: &PodAffinityTerm, weight: i64, owner: &Pod, target: &Pod| {
            let Some((key, value)) = node.labels.get_key_value(&term.topology_key) else {
                return;
            };
            if selects(cluster, term, owner, target) {
                *domains.entry((key, value)).or_default() += weight;
            }
        };
        if let Some(own) = own {
            for term in &own.near {
                add(&term.pod_affinity_term, term.weight.into(), pod, other);
            }
            for term in &own.apart {
                add(&term.pod_affinity_term, -i64::from(term.weight), pod, other);
            }
        }
        if args.hard_pod_affinity_weight > 0 {
            for term in &other.constraints.affinity {
                add(term, args.hard_pod_affinity_weight, other, pod);
            }
        }
        if let Some(theirs) = other.constraints.preferences.as_deref() {
            for term in &theirs.near {
                add(&term.pod_affinity_term, term.weight.into(), other, pod);
            }
            for term in &theirs.apart {
                add(&term.pod_affinity_term, -i64::from(term.weight), other, pod);
            }
        }
    }
    if domains.is_empty() {
        return None;
    }
    let raw = nodes.map(|node| {
        let domains = domains.iter();
        let here = domains
            .filter(|((key, value), _)| node.labels.get(*key).is_some_and(|label| label == value));
        here.map(|(_, weight)| weight).sum()
    });
    Some(normalize(&raw.collect::<Vec<i64>>()))
}

/// Scales scores so that the lowest becomes 0 and the highest [`MAX`]. If all are equal, all become 0.
fn normalize(raw: &[i64]) -> Vec<i64> {
    let (least, most) = (
        raw.iter().copied().min().unwrap_or(0),
        raw.iter().copied().max().unwrap_or(0),
    );
    let stretched = |score: i64| {
        if most == least {
            0
        } else {
            (MAX as f64 * ((score - least) as f64 / (most - least) as f64)) as i64
        }
    };
    raw.iter().copied().map(stretched).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::pod::Preferences;
    use crate::testing::{mk_node, mk_pod};
    use k8s_openapi::api::core::v1::WeightedPodAffinityTerm;
    use serde_json::json;

    fn mk_term(app: &str) -> PodAffinityTerm {
        serde_json::from_value(json!({
            "labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname",
        }))
        .expect("term")
    }

    fn mk_preferences(near: &[(&str, i32)], apart: &[(&str, i32)]) -> Preferences {
        let terms = |list: &[(&str, i32)]| {
            let term = |(app, weight): &(&str, i32)| WeightedPodAffinityTerm {
                pod_affinity_term: mk_term(app),
                weight: *weight,
            };
            list.iter().map(term).collect()
        };
        Preferences {
            near: terms(near),
            apart: terms(apart),
        }
    }

    /// Builds nodes `a`, `b` and `c` with these pods on them.
    fn mk_cluster(guests: Vec<(&str, Pod)>) -> Cluster {
        let mut cluster = Cluster::new();
        for name in ["a", "b", "c"] {
            cluster.apply_node(mk_node(name, "cpu=4"));
        }
        for (node, guest) in guests {
            cluster.apply_pod(Pod {
                node: Some(node.to_owned()),
                ..guest
            });
        }
        cluster
    }

    fn score_nodes(cluster: &Cluster, pod: &Pod, args: InterPodAffinityArgs) -> Option<Vec<i64>> {
        let nodes = cluster.nodes().map(|(node, _)| node);
        scores(cluster, pod, nodes, args)
    }

    #[test]
    fn preferences_of_the_pod_draw_it_near_and_away() {
        let cluster = mk_cluster(vec![("a", mk_pod("db", "")), ("b", mk_pod("noise", ""))]);
        let mut pod = mk_pod("p", "");
        pod.constraints.preferences =
            Some(Box::new(mk_preferences(&[("db", 10)], &[("noise", 30)])));
        // raw 10, -30, 0
        assert_eq!(
            score_nodes(&cluster, &pod, InterPodAffinityArgs::default()),
            Some(vec![100, 0, 75])
        );
        assert_eq!(
            score_nodes(&cluster, &mk_pod("p", ""), InterPodAffinityArgs::default()),
            None
        );
    }

    #[test]
    fn preferences_of_others_count_unless_ignored() {
        let mut fan = mk_pod("fan", "");
        fan.constraints.preferences = Some(Box::new(mk_preferences(&[("p", 20)], &[])));
        let mut needy = mk_pod("needy", "");
        needy.constraints.affinity = vec![mk_term("p")];
        let cluster = mk_cluster(vec![("a", fan), ("b", needy)]);
        let pod = mk_pod("p", "");
        let score_nodes = |args| score_nodes(&cluster, &pod, args);
        assert_eq!(
            score_nodes(InterPodAffinityArgs::default()),
            Some(vec![100, 5, 0])
        );
        assert_eq!(
            score_nodes(InterPodAffinityArgs {
                hard_pod_affinity_weight: 0,
                ..InterPodAffinityArgs::default()
            }),
            Some(vec![100, 0, 0])
        );
        assert_eq!(
            score_nodes(InterPodAffinityArgs {
                ignore_preferred_terms_of_existing_pods: true,
                ..InterPodAffinityArgs::default()
            }),
            None
        );
    }
}
