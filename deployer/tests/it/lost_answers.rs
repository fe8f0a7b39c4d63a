//! Clusters whose API server does what it is asked for, and does not get its answer through.

use cluster_faults::{Fault, Rule, Selector};
use rstest::rstest;

use crate::cluster::{TestCluster, USER, all_objects, assert_same};
use crate::deployment::run;

const ROLES: &str = "rbac.authorization.k8s.io";
const REVIEWS: &str = "authorization.k8s.io";
const DEFINITIONS: &str = "apiextensions.k8s.io";
/// Resources whose answers get lost while something is deployed: group and name, and how many requests to create one pass before, which are those by
/// which `deploy` only tries what would be.
const CREATED: [(&str, &str, u64); 5] = [
    (REVIEWS, "selfsubjectaccessreviews", 0),
    (DEFINITIONS, "customresourcedefinitions", 1),
    ("", "namespaces", 2),
    (ROLES, "roles", 0),
    ("apps", "daemonsets", 0),
];
/// The same while it is removed.
const DELETED: [(&str, &str); 3] = [
    ("apps", "daemonsets"),
    (ROLES, "clusterroles"),
    (DEFINITIONS, "customresourcedefinitions"),
];

#[rstest]
#[case::of_a_proxy_that_gave_up(Fault::TimeOutAfterCommit)]
#[case::of_a_broken_connection(Fault::LoseAnswer)]
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_answered_is_done_and_told_all_the_same(#[case] fault: Fault) {
    let cluster = TestCluster::up().await;
    let before = all_objects(&cluster.client()).await;
    let faults = cluster.inner.faults();
    let faults = faults.api().unwrap();
    let lost = |verb: &str, group: &str, resource: &str, skip: u64| {
        let request = Selector {
            subresource: Some(String::new()),
            ..Selector::resource(group, resource)
                .verbs(&[verb])
                .user(USER)
        };
        let rule = Rule::new(request, fault.clone()).times(1).skip(skip);
        (faults.add(rule), format!("{verb} {resource}"))
    };

    let rules = CREATED.map(|(group, resource, tried)| lost("create", group, resource, tried));
    let log = run(&cluster, "deploy").await.log();
    for (rule, what) in &rules {
        assert_eq!(faults.hits(*rule), 1, "{what}");
    }
    for line in [
        "API: created kind=CustomResourceDefinition name=noderesourcetopologies.topology.node.k8s.io",
        "RTE: created kind=Namespace name=tas-topology-updater",
        "RTE: created kind=Role name=rte",
        "RTE: created kind=DaemonSet name=resource-topology-exporter",
    ] {
        assert!(log.contains(&line.to_owned()), "{line} in {log:#?}");
    }

    let rules = DELETED.map(|(group, resource)| lost("delete", group, resource, 0));
    let log = run(&cluster, "remove --wait --wait-interval=200ms")
        .await
        .log();
    for (rule, what) in &rules {
        assert_eq!(faults.hits(*rule), 1, "{what}");
    }
    for line in [
        "SCD: deleted kind=ClusterRole name=topology-aware-scheduler",
        "RTE: deleted kind=DaemonSet name=resource-topology-exporter",
        "API: deleted kind=CustomResourceDefinition name=noderesourcetopologies.topology.node.k8s.io",
    ] {
        assert!(log.contains(&line.to_owned()), "{line} in {log:#?}");
    }
    assert_same(&before, &all_objects(&cluster.client()).await);
    cluster.inner.down().unwrap();
}
