//! PodTopologySpread, soft constraints: prefers domains with few pods of the same kind (scheduler.md 7.5).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::TopologySpreadConstraint;

use super::MAX;
use crate::filter::spread::{constraints, counts_node, has_all_keys, matching_pods};
use crate::state::cluster::{Cluster, Node, NodeState};
use crate::state::pod::Pod;

/// Label that makes every node a domain of its own, which simplifies counting.
const HOST: &str = "kubernetes.io/hostname";

/// Spread constraints of pods that have none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Defaults {
    /// The constraints.
    pub constraints: Vec<TopologySpreadConstraint>,
    /// Whether they are the built-in ones of Kubernetes, which do not leave out nodes without their labels.
    pub are_system: bool,
}

/// Returns the scores of `nodes`, in order; `None` if the pod has no soft constraints.
pub fn scores<'a>(
    cluster: &Cluster,
    pod: &Pod,
    nodes: impl Iterator<Item = (&'a Node, &'a NodeState)> + Clone,
    defaults: &Defaults,
) -> Option<Vec<i64>> {
    let constraints = constraints(cluster, pod, &defaults.constraints, "ScheduleAnyway");
    if constraints.is_empty() {
        return None;
    }
    let needs_all = !pod.constraints.spread.is_empty() || !defaults.are_system;
    let is_left_out = |node: &Node| needs_all && !has_all_keys(node, &constraints);
    let scored = nodes.clone().filter(|(node, _)| !is_left_out(node)).count();
    let mut rules: Vec<Rule> = Vec::new();
    for constraint in &constraints {
        let mut domains = BTreeMap::new();
        if constraint.topology_key != HOST {
            let considered = nodes.clone().filter(|(node, _)| !is_left_out(node));
            domains.extend(considered.map(|(node, _)| (domain(node, constraint), 0)));
            for (node, state) in cluster.nodes() {
                if is_left_out(node) || !counts_node(pod, constraint, node) {
                    continue;
                }
                if let Some(count) = domains.get_mut(domain(node, constraint)) {
                    *count += matching_pods(cluster, pod, constraint, state);
                }
            }
        }
        let size = if constraint.topology_key == HOST {
            scored
        } else {
            domains.len()
        };
        rules.push(Rule {
            constraint,
            weight: ((size + 2) as f64).ln(),
            domains,
        });
    }
    let raw = nodes.map(|(node, state)| {
        let sum: f64 = rules
            .iter()
            .filter_map(|rule| rule.score(cluster, pod, node, state))
            .sum();
        (!is_left_out(node)).then_some(sum.round() as i64)
    });
    Some(normalize(&raw.collect::<Vec<_>>()))
}

struct Rule<'a> {
    constraint: &'a TopologySpreadConstraint,
    /// Compensates for fewer pods in each domain when there are many domains.
    weight: f64,
    /// Pods of the same kind by domain.
    domains: BTreeMap<&'a str, i64>,
}

impl Rule<'_> {
    fn score(&self, cluster: &Cluster, pod: &Pod, node: &Node, state: &NodeState) -> Option<f64> {
        let value = node.labels.get(&self.constraint.topology_key)?;
        let count = if self.constraint.topology_key == HOST {
            matching_pods(cluster, pod, self.constraint, state)
        } else {
            *self.domains.get(value.as_str())?
        };
        Some(count as f64 * self.weight + f64::from(self.constraint.max_skew - 1))
    }
}

/// Returns the domain of a node. All nodes without the label share one domain.
fn domain<'a>(node: &'a Node, constraint: &TopologySpreadConstraint) -> &'a str {
    let value = node.labels.get(&constraint.topology_key);
    value.map(String::as_str).unwrap_or_default()
}

/// Turns counts into scores: the lowest count gets the best score, nodes that are left out get 0.
fn normalize(raw: &[Option<i64>]) -> Vec<i64> {
    let known = raw.iter().flatten().copied();
    let (least, most) = (known.clone().min().unwrap_or(0), known.max().unwrap_or(0));
    let turned = |score| {
        if most == 0 {
            MAX
        } else {
            MAX * (most + least - score) / most
        }
    };
    raw.iter().map(|score| score.map_or(0, turned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::cluster::GroupKind;
    use crate::state::pod::PodKey;
    use crate::testing::{mk_node, mk_pod};
    use scheduler_config::default_plugins::PodTopologySpreadArgs;
    use serde_json::json;

    const ZONE: &str = "topology.kubernetes.io/zone";

    /// Builds nodes `a` and `b` in zone x, `c` in zone y, `d` in none, with this many pods of the kind on each.
    fn mk_cluster(matching_pods: [usize; 4]) -> Cluster {
        let mut cluster = Cluster::new();
        for ((name, zone), count) in [("a", "x"), ("b", "x"), ("c", "y"), ("d", "")]
            .into_iter()
            .zip(matching_pods)
        {
            let mut node = mk_node(name, "cpu=4");
            if !zone.is_empty() {
                node.labels.insert(ZONE.to_owned(), zone.to_owned());
            }
            cluster.apply_node(node);
            for number in 0..count {
                cluster.apply_pod(Pod {
                    node: Some(name.to_owned()),
                    labels: [("app".to_owned(), "web".to_owned())].into(),
                    ..mk_pod(&format!("{name}-{number}"), "")
                });
            }
        }
        cluster
    }

    fn mk_web(constraints: &[(&str, i32)]) -> Pod {
        let mut pod = mk_pod("p", "");
        pod.labels = [("app".to_owned(), "web".to_owned())].into();
        let constraint = |(key, max_skew): &(&str, i32)| {
            serde_json::from_value(json!({
                "topologyKey": key, "maxSkew": max_skew, "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app": "web"}},
            }))
        };
        pod.constraints.spread = constraints
            .iter()
            .map(|it| constraint(it).expect("constraint"))
            .collect();
        pod
    }

    fn score_nodes(cluster: &Cluster, pod: &Pod, defaults: &Defaults) -> Option<Vec<i64>> {
        scores(cluster, pod, cluster.nodes(), defaults)
    }

    #[test]
    fn the_zone_with_fewer_pods_is_better() {
        // weight ln(2 + 2) = 1.386: raw 3 * 1.386 = 4 in zone x, 1 in zone y; d has no zone
        let cluster = mk_cluster([2, 1, 1, 0]);
        assert_eq!(
            score_nodes(&cluster, &mk_web(&[(ZONE, 1)]), &Defaults::default()),
            Some(vec![25, 25, 100, 0])
        );
    }

    #[test]
    fn nodes_are_domains_of_their_own() {
        // weight ln(4 + 2) = 1.79 and maxSkew 3: raw 2 + {3.58, 1.79, 0, 0} = 6, 4, 2, 2
        let cluster = mk_cluster([2, 1, 0, 0]);
        assert_eq!(
            score_nodes(&cluster, &mk_web(&[(HOST, 3)]), &Defaults::default()),
            Some(vec![33, 66, 100, 100])
        );
    }

    #[test]
    fn without_pods_all_are_equally_good() {
        let cluster = mk_cluster([0; 4]);
        assert_eq!(
            score_nodes(&cluster, &mk_web(&[(HOST, 1)]), &Defaults::default()),
            Some(vec![100; 4])
        );
        assert_eq!(
            score_nodes(&cluster, &mk_web(&[]), &Defaults::default()),
            None
        );
    }

    #[test]
    fn hard_constraints_are_not_scored_and_stand_for_the_defaults() {
        let mut pod = mk_web(&[(ZONE, 1)]);
        pod.constraints.spread[0].when_unsatisfiable = "DoNotSchedule".to_owned();
        let mut cluster = mk_cluster([2, 1, 0, 0]);
        cluster.apply_group(GroupKind::Service, key("s"), selector("web"));
        assert_eq!(score_nodes(&cluster, &pod, &system()), None);
    }

    fn system() -> Defaults {
        Defaults {
            constraints: PodTopologySpreadArgs::default().constraints(),
            are_system: true,
        }
    }

    fn key(name: &str) -> PodKey {
        PodKey {
            namespace: "ns".to_owned(),
            name: name.to_owned(),
        }
    }

    fn selector(app: &str) -> k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector {
        serde_json::from_value(json!({"matchLabels": {"app": app}})).expect("selector")
    }

    #[test]
    fn a_pod_of_a_service_or_a_controller_is_spread_by_default() {
        let mut cluster = mk_cluster([2, 1, 1, 0]);
        let mut pod = mk_web(&[]);
        assert_eq!(
            score_nodes(&cluster, &pod, &system()),
            None,
            "it has no siblings"
        );
        cluster.apply_group(GroupKind::Service, key("other"), selector("db"));
        assert_eq!(
            score_nodes(&cluster, &pod, &system()),
            None,
            "the service is another's"
        );
        cluster.apply_group(GroupKind::ReplicaSet, key("rs"), selector("web"));
        pod.constraints.controller = Some((GroupKind::ReplicaSet, "rs".to_owned()));
        // host: 2 + ln(6) * {2, 1, 1, 0}; zone, where d is the third domain: 4 + ln(5) * {3, 3, 1}, 0 for d
        // raw 14.4, 12.6, 9.4, 2 = 14, 13, 9, 2
        assert_eq!(
            score_nodes(&cluster, &pod, &system()),
            Some(vec![14, 21, 50, 100])
        );
        cluster.delete_group(GroupKind::ReplicaSet, &key("rs"));
        assert_eq!(score_nodes(&cluster, &pod, &system()), None);
        cluster.apply_group(GroupKind::Service, key("s"), selector("web"));
        assert!(score_nodes(&cluster, &pod, &system()).is_some());
        cluster.retain_groups(GroupKind::Service, &[key("other")].into());
        assert_eq!(score_nodes(&cluster, &pod, &system()), None);
    }
}
