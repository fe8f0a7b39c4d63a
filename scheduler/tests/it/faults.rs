//! The scheduler on a faulty API server: every pod gets its node, and no zone is given away twice. These tests use the embedded server,
//! which can inject faults.

use std::time::Duration;

use cluster_faults::{Disturbance, Fault, Rule, Selector, WatchEnd};
use serde_json::{Value, json};
use testbed::lane::Lane;

use crate::cluster::{Cluster, NAMESPACE, PROFILE, within};

/// Selects requests of the scheduler.
fn its(verbs: &[&str]) -> Selector {
    let user = format!(
        "system:serviceaccount:{NAMESPACE}:{}",
        api::names::SCHEDULER
    );
    Selector::default().user(&user).verbs(verbs)
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_placed_and_no_zone_is_given_away_twice_whatever_is_answered() {
    let cluster = Cluster::start_on(Lane::Embedded).await;
    let nodes = ["worker-0", "worker-1"];
    for node in nodes {
        cluster.node(node, "16", "32Gi").await;
        cluster.topology(node, &[(8, 16), (8, 16)], &[]).await;
    }
    let faults = cluster.faults().await;
    let faults = faults.api().unwrap();
    let rules = [
        Fault::Conflict,
        Fault::TooManyRequests {
            retry_after_seconds: 1,
        },
        Fault::InternalError,
        Fault::Disconnect,
    ];
    let bindings = Selector {
        subresource: Some("binding".to_owned()),
        ..its(&["create"])
    };
    let mut rules: Vec<_> = rules
        .into_iter()
        .map(|fault| faults.add(Rule::new(bindings.clone(), fault).times(1)))
        .collect();
    let statuses = its(&["update", "patch"]);
    let lost = Rule::new(statuses, Fault::LoseAnswer).times(1);
    let mut scheduler = cluster.scheduler("first", |_| {});
    for pod in ["a", "b"] {
        cluster.pod(pod, PROFILE, None, "5").await;
    }
    // a pod is charged to every zone that it may have taken, until an exporter publishes which one it is
    let mut on = [cluster.placed("a").await, cluster.placed("b").await];
    on.sort();
    assert_eq!(on, nodes);
    rules.push(faults.add(lost));
    cluster.pod("c", PROFILE, None, "5").await;
    let none = "0/2 nodes are available: 2 cannot align container.";
    cluster.rejected("c", none, 1).await;
    let node = cluster.placed("a").await;
    cluster.topology(&node, &[(3, 15), (8, 16)], &["a"]).await;
    assert_eq!(cluster.placed("c").await, node);
    for rule in rules {
        let status = faults.remove(rule).unwrap();
        assert_eq!(status.hits, 1, "{status:?}");
    }
    assert_eq!(scheduler.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_binding_whose_answer_was_lost_counts_once() {
    let cluster = Cluster::start_on(Lane::Embedded).await;
    cluster.node("worker-0", "16", "32Gi").await;
    cluster.topology("worker-0", &[(8, 16), (2, 16)], &[]).await;
    let faults = cluster.faults().await;
    let faults = faults.api().unwrap();
    let bindings = Selector {
        subresource: Some("binding".to_owned()),
        ..its(&["create"])
    };
    let lost = faults.add(Rule::new(bindings, Fault::LoseAnswer).times(1));
    let events = Selector {
        resource: Some("events".to_owned()),
        ..its(&["create"])
    };
    let unwritten = faults.add(Rule::new(events.clone(), Fault::InternalError).times(4));
    let unanswered = faults.add(Rule::new(events, Fault::LoseAnswer).times(1));
    let _scheduler = cluster.scheduler("first", |_| {});
    cluster.pod("first", PROFILE, None, "5").await;
    assert_eq!(cluster.placed("first").await, "worker-0");
    assert_eq!(faults.remove(lost).unwrap().hits, 1);
    // the event is written once, however long that takes
    within("the event is written", faults.wait_for_hits(unanswered, 1)).await;
    let scheduled = cluster
        .eventually(async || match cluster.events("first", "Scheduled").await {
            events if events.is_empty() => Err("no Scheduled event".to_owned()),
            events => Ok(events),
        })
        .await;
    assert_eq!(scheduled.len(), 1);
    assert_eq!(faults.remove(unwritten).unwrap().hits, 4);
    assert_eq!(
        cluster.events("first", "FailedScheduling").await,
        Vec::new(),
        "nothing failed"
    );
    // the pod's zone is taken, although no answer confirmed the binding
    cluster.pod("second", PROFILE, None, "5").await;
    let none = "0/1 nodes are available: 1 cannot align container.";
    cluster.rejected("second", none, 1).await;
    // and the zone is free again when the pod is gone
    cluster.delete("first").await;
    assert_eq!(cluster.placed("second").await, "worker-0");
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_watches_forgotten_history_and_an_outage_hide_no_pod() {
    let cluster = Cluster::start_on(Lane::Embedded).await;
    cluster.node("worker-0", "16", "32Gi").await;
    let mut scheduler = cluster.scheduler("first", |_| {});
    cluster.pod("before", PROFILE, None, "1").await;
    cluster.placed("before").await;
    let faults = cluster.faults().await;
    for (name, how) in [
        ("closed", WatchEnd::Closed),
        ("broken", WatchEnd::Broken),
        ("expired", WatchEnd::Expired),
    ] {
        let select = its(&[]);
        let end = Disturbance::EndWatches { select, how };
        cluster
            .eventually(
                async || match faults.inject(&end, Duration::ZERO).await.unwrap() {
                    0 => Err("nobody watches".to_owned()),
                    _ => Ok(()),
                },
            )
            .await;
        cluster.pod(name, PROFILE, None, "1").await;
        cluster.placed(name).await;
    }
    // an event that happens while no watch works, and that is compacted away before one does
    let api = faults.api().unwrap();
    let no_watches = api.add(Rule::new(its(&["watch"]), Fault::Unavailable));
    api.end_watches(&its(&[]), WatchEnd::Broken);
    cluster.pod("forgotten", PROFILE, None, "1").await;
    within(
        "the scheduler watches again",
        api.wait_for_hits(no_watches, 1),
    )
    .await;
    api.compact();
    api.remove(no_watches);
    cluster.placed("forgotten").await;

    let outage = Disturbance::Outage;
    let length = Duration::from_millis(500);
    faults.inject(&outage, length).await.unwrap();
    cluster.pod("after", PROFILE, None, "1").await;
    cluster.placed("after").await;
    assert_eq!(scheduler.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scheduler_that_loses_its_lease_ends_and_the_other_goes_on() {
    let cluster = Cluster::start_on(Lane::Embedded).await;
    cluster.node("worker-0", "16", "32Gi").await;
    let elect = |config: &mut Value| {
        let election = &mut config["leaderElection"];
        election["leaderElect"] = json!(true);
        // the stolen lease expires when the leader's would have; a leader without CPU time for seconds keeps its lease
        election["leaseDuration"] = json!("6s");
        election["renewDeadline"] = json!("5s");
        election["retryPeriod"] = json!("200ms");
    };
    let mut first = cluster.scheduler("first", elect);
    cluster.pod("one", PROFILE, None, "1").await;
    cluster.placed("one").await;
    let mut second = cluster.scheduler("second", elect);
    let lost = Disturbance::LoseLease {
        namespace: NAMESPACE.to_owned(),
        name: api::names::SCHEDULER_LEASE.to_owned(),
    };
    let faults = cluster.faults().await;
    faults.inject(&lost, Duration::ZERO).await.unwrap();
    assert_eq!(first.ended(), Some(1));
    cluster.pod("two", PROFILE, None, "1").await;
    cluster.placed("two").await;
    cluster.has_bound(&second).await;
    assert_eq!(second.stop(), Some(0));
}
