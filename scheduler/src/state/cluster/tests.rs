use super::*;
use crate::testing::{mk_node, mk_pod};

fn used(cluster: &Cluster, node: &str) -> (usize, i128) {
    cluster
        .node(node)
        .map_or((0, 0), |state| (state.pods.len(), state.used.amount("cpu")))
}

#[test]
fn an_assumed_pod_counts_until_seen_or_forgotten() {
    let mut cluster = Cluster::new();
    cluster.apply_node(mk_node("n", "cpu=4"));
    let pod = mk_pod("p", "cpu=1");
    cluster.apply_pod(pod.clone());
    assert_eq!(used(&cluster, "n"), (0, 0));
    assert!(cluster.assume(&pod.key, "n"));
    assert_eq!(
        (used(&cluster, "n"), cluster.assumed_count()),
        ((1, 1000), 1)
    );
    // A stale update without a node does not free it.
    assert_eq!(cluster.apply_pod(pod.clone()), PodEffect::default());
    assert_eq!(used(&cluster, "n"), (1, 1000));
    assert!(cluster.forget(&pod.key, &pod.uid));
    assert_eq!(used(&cluster, "n"), (0, 0));
    assert!(cluster.assume(&pod.key, "n"));
    let bound = Pod {
        node: Some("n".to_owned()),
        ..pod.clone()
    };
    cluster.apply_pod(bound);
    assert_eq!(
        (used(&cluster, "n"), cluster.assumed_count()),
        ((1, 1000), 0)
    );
    assert!(!cluster.forget(&pod.key, &pod.uid));
}

#[test]
fn an_assumption_ends_with_the_pod_it_was_made_for() {
    let mut cluster = Cluster::new();
    let pod = mk_pod("p", "cpu=1");
    cluster.apply_pod(pod.clone());
    cluster.assume(&pod.key, "n");
    let successor = Pod {
        uid: "other".to_owned(),
        ..pod.clone()
    };
    assert!(cluster.apply_pod(successor).freed);
    assert_eq!((used(&cluster, "n"), cluster.assumed_count()), ((0, 0), 0));
}

#[test]
fn finished_and_deleted_pods_free_what_they_held() {
    let mut cluster = Cluster::new();
    cluster.apply_node(mk_node("n", "cpu=4"));
    let bound = |name| Pod {
        node: Some("n".to_owned()),
        ..mk_pod(name, "cpu=1")
    };
    assert_eq!(
        cluster.apply_pod(bound("a")),
        PodEffect {
            freed: false,
            placed: true
        }
    );
    assert_eq!(cluster.apply_pod(bound("a")), PodEffect::default());
    cluster.apply_pod(bound("b"));
    let done = Pod {
        phase: Phase::Terminal,
        ..bound("a")
    };
    assert!(cluster.apply_pod(done).freed);
    assert_eq!(used(&cluster, "n"), (1, 1000));
    cluster.delete_pod(&bound("b").key);
    assert_eq!(used(&cluster, "n"), (0, 0));
}

#[test]
fn a_node_that_vanishes_and_returns_keeps_its_pods() {
    let mut cluster = Cluster::new();
    let pod = Pod {
        node: Some("n".to_owned()),
        ..mk_pod("a", "cpu=1")
    };
    cluster.apply_pod(pod.clone());
    assert_eq!(cluster.nodes().count(), 0);
    assert!(cluster.apply_node(mk_node("n", "cpu=4")));
    assert!(!cluster.apply_node(mk_node("n", "cpu=4")));
    cluster.delete_node("n");
    cluster.apply_node(mk_node("n", "cpu=4"));
    assert_eq!(used(&cluster, "n"), (1, 1000));
    cluster.delete_node("n");
    cluster.delete_pod(&pod.key);
    assert!(cluster.node("n").is_none());
}

#[test]
fn a_pod_that_no_node_can_hold_leaves_what_the_others_use_when_it_ends() {
    let mut cluster = Cluster::new();
    cluster.apply_node(mk_node("n", "cpu=4 memory=8Gi"));
    let on_node = |name: &str, requests: &str| Pod {
        node: Some("n".to_owned()),
        ..mk_pod(name, requests)
    };
    cluster.apply_pod(on_node("small", "memory=6Gi"));
    // with `nodeName`, no scheduler is asked
    let huge = ["huge-1", "huge-2"].map(|name| on_node(name, "memory=7Ei"));
    for pod in huge.clone() {
        cluster.apply_pod(pod);
    }
    for pod in huge {
        cluster.apply_pod(Pod {
            phase: Phase::Terminal,
            ..pod
        });
    }
    let used = cluster.node("n").map(|state| state.used.amount("memory"));
    assert_eq!(used, Some(6 << 30));
}
