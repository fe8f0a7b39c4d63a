//! Checks that the operator loses no work while the API server has faults. Runs on the embedded server, which injects them.

use std::time::Duration;

use api::operator::v1::NumaResourcesOperator;
use cluster_faults::{Disturbance, Fault, Rule, Selector, WatchEnd};
use k8s_openapi::api::rbac::v1::Role;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::json;
use testbed::lane::Lane;

use crate::cluster::{Cluster, NAMESPACE, its, within};
use crate::exporters::{CR, DS_A, DS_B, conditions, cr, make_ready};

async fn create(cluster: &Cluster) -> Api<NumaResourcesOperator> {
    let crs: Api<NumaResourcesOperator> = Api::all(cluster.client.clone());
    let pools = json!({"nodeGroups": [{"poolName": "numa-a"}, {"poolName": "numa-b"}]});
    crs.create(&PostParams::default(), &cr(&pools))
        .await
        .unwrap();
    crs
}

async fn becomes_available(cluster: &Cluster, crs: &Api<NumaResourcesOperator>) {
    make_ready(cluster, DS_A).await;
    make_ready(cluster, DS_B).await;
    cluster
        .condition(crs, CR, conditions, ("Available", "Available", ""))
        .await;
}

/// Deletes an object that the operator maintains and waits until it exists again.
async fn is_mended(cluster: &Cluster) {
    let roles: Api<Role> = cluster.namespaced();
    let old = cluster.appears(&roles, "rte").await.uid();
    roles.delete("rte", &DeleteParams::default()).await.unwrap();
    cluster
        .eventually(|| async {
            let found = roles.get_opt("rte").await.unwrap();
            let found = found.and_then(|role| role.uid());
            if found.is_some() && found != old {
                Ok(())
            } else {
                Err(format!("{found:?}"))
            }
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conflicts_refusals_and_lost_answers_lose_no_work() {
    let mut cluster = Cluster::without_operator(Lane::Embedded, None).await;
    // it ends if it cannot read the server's version, or when its lease is struck so often that it loses it, and no kubelet restarts it here
    cluster.start_operator(&["-leader-elect=false"]);
    let faults = cluster.faults().await;
    let faults = faults.api().unwrap();
    cluster
        .eventually(async || match faults.open_watches(&its(&[])) {
            0 => Err("the operator watches nothing".to_owned()),
            _ => Ok(()),
        })
        .await;
    let writes = ["create", "update", "patch", "delete"];
    let rules = [
        (its(&["update", "patch"]), Fault::Conflict),
        (
            its(&writes),
            Fault::TooManyRequests {
                retry_after_seconds: 1,
            },
        ),
        (its(&writes), Fault::InternalError),
        (its(&writes), Fault::LoseAnswer),
        (its(&writes), Fault::TimeOutAfterCommit),
        (its(&["get", "list"]), Fault::Unavailable),
        (its(&[]), Fault::Disconnect),
    ];
    let rules = (1..).zip(rules).map(|(seed, (which, fault))| {
        // the first requests alone would use up the faults without a probability
        faults.add(Rule::new(which, fault).probability(0.3, seed).times(4))
    });
    let rules: Vec<_> = rules.collect();
    let crs = create(&cluster).await;
    becomes_available(&cluster, &crs).await;
    for rule in rules {
        let status = faults.remove(rule).unwrap();
        assert!(status.hits > 0, "nothing was struck by {status:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_watches_and_forgotten_history_hide_nothing() {
    let cluster = Cluster::start_on(Lane::Embedded).await;
    let crs = create(&cluster).await;
    becomes_available(&cluster, &crs).await;
    let faults = cluster.faults().await;
    for how in [WatchEnd::Closed, WatchEnd::Broken, WatchEnd::Expired] {
        let select = its(&[]);
        let end = Disturbance::EndWatches { select, how };
        cluster
            .eventually(|| async {
                match faults.inject(&end, Duration::ZERO).await.unwrap() {
                    0 => Err("nobody watches".to_owned()),
                    _ => Ok(()),
                }
            })
            .await;
        is_mended(&cluster).await;
    }

    // a change while the watch is refused, which is compacted away before the watch resumes
    let api = faults.api().unwrap();
    let deaf = api.add(Rule::new(its(&["watch"]), Fault::Unavailable));
    api.end_watches(&its(&[]), WatchEnd::Broken);
    let roles: Api<Role> = cluster.namespaced();
    let old = roles.get("rte").await.unwrap().uid();
    roles.delete("rte", &DeleteParams::default()).await.unwrap();
    within("the operator watches again", api.wait_for_hits(deaf, 1)).await;
    api.compact();
    api.remove(deaf);
    cluster
        .eventually(|| async {
            let found = roles.get_opt("rte").await.unwrap();
            let found = found.and_then(|role| role.uid());
            if found.is_some() && found != old {
                Ok(())
            } else {
                Err(format!("{found:?}"))
            }
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_loses_its_lease_ends_and_the_next_goes_on() {
    let mut cluster = Cluster::start_on(Lane::Embedded).await;
    let crs = create(&cluster).await;
    becomes_available(&cluster, &crs).await;
    let lost = Disturbance::LoseLease {
        namespace: NAMESPACE.to_owned(),
        name: api::names::OPERATOR_LEASE.to_owned(),
    };
    let faults = cluster.faults().await;
    faults.inject(&lost, Duration::ZERO).await.unwrap();
    assert_eq!(cluster.restarted(), Some(1));
    // the other holder's lease must expire first
    is_mended(&cluster).await;
    assert_eq!(cluster.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_is_told_to_end_before_it_has_seen_its_resources_ends() {
    let mut cluster = Cluster::without_operator(Lane::Embedded, None).await;
    let faults = cluster.faults().await;
    let faults = faults.api().unwrap();
    let its_resources =
        Selector::resource(api::operator::GROUP, "numaresourcesoperators").verbs(&["list"]);
    let silence = faults.add(Rule::new(its_resources, Fault::Hang { milliseconds: None }));
    cluster.start_operator(&[]);
    within(
        "the operator asks for its resources",
        faults.wait_for_hits(silence, 1),
    )
    .await;
    assert_eq!(cluster.stop(), Some(0));
}
