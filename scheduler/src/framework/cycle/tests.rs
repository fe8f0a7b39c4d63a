use k8s_openapi::api::core::v1::Taint;
use scheduler_config::args::NodeResourceTopologyMatchArgs;
use scheduler_config::default_plugins::ScoringStrategy;

use super::*;
use crate::framework::extension_points::{Filters, ScorePlugin, Weighted};
use crate::plugins::plugin::Plugin;
use crate::state::node::Node;
use crate::testing::{mk_cache, mk_node, mk_nrt, mk_pod};

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
