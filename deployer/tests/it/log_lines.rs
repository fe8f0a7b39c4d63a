//! The lines of the log, by the table of the original (deployer.md 2): each message with its keys, from a run that has reason to say it.

use cluster_faults::{Fault, Rule, Selector};
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::api::{Api, DeleteParams};

use crate::cluster::{TestCluster, USER, all_objects, assert_same};
use crate::deployment::run;

const DEFINITION: &str = "noderesourcetopologies.topology.node.k8s.io";
const NAMESPACE: &str = "tas-topology-updater";
const EXPORTER: &str = "resource-topology-exporter";
const WAITING: &str = "--wait --wait-interval=100ms --wait-timeout=45s";

/// Returns the lines of the log without time and quotes.
fn lines(stderr: &str) -> Vec<String> {
    let short = |line: &str| {
        let line: String = line.chars().skip("2026/01/02 03:04:05 ".len()).collect();
        line.replace("\"msg\"=", "").replace('"', "")
    };
    stderr.lines().map(short).collect()
}

/// Asserts that the log has a line that begins so.
fn assert_line(log: &[String], start: &str) {
    let has = log.iter().any(|line| line.starts_with(start));
    assert!(has, "{start} in {log:#?}");
}

/// Strikes one request of the deployer for an object of the exporters, after some of its requests that pass.
fn fails(verb: &str, group: &str, resource: &str, name: &str, pass: u64) -> Rule {
    let request = Selector {
        name: (!name.is_empty()).then(|| name.to_owned()),
        subresource: Some(String::new()),
        ..Selector::resource(group, resource)
            .verbs(&[verb])
            .user(USER)
    };
    Rule::new(request, Fault::InternalError).skip(pass).times(1)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_message_of_the_table_is_told_with_its_keys() {
    let cluster = TestCluster::up().await;
    let before = all_objects(&cluster.client()).await;
    let faults = cluster.inner.faults();
    let faults = faults.api().unwrap();

    let log = lines(
        &run(&cluster, &format!("-v 3 deploy {WAITING}"))
            .await
            .stderr,
    );
    for line in [
        "level=3 detection platform=Kubernetes reason=autodetected from cluster version=v",
        "API: level=0 deploying topology-aware-scheduling API",
        "API: level=3 API manifests loaded",
        format!("API: level=0 created kind=CustomResourceDefinition name={DEFINITION}").as_str(),
        format!("API: level=0 CRD available key=/{DEFINITION}").as_str(),
        "API: level=0 deployed topology-aware-scheduling API",
        "RTE: level=0 deploying topology-aware-scheduling topology updater",
        "RTE: level=3 manifests loaded",
        "RTE: level=0 created kind=Namespace name=tas-topology-updater",
        "RTE: level=0 daemonset not ready key=tas-topology-updater/resource-topology-exporter desired=",
        "RTE: level=0 daemonset ready key=tas-topology-updater/resource-topology-exporter desired=2 current=2 ready=2",
        "RTE: level=0 deployed topology-aware-scheduling topology updater!",
        "SCD: level=0 deploying topology-aware-scheduling scheduler plugin",
        "SCD: level=3 manifests loaded",
        "SCD: level=0 deployment not complete key=tas-scheduler/topology-aware-scheduler replicas=",
        "SCD: level=0 deployment complete key=tas-scheduler/topology-aware-scheduler replicas=1 updated=1 available=1",
        "SCD: level=0 deployed topology-aware-scheduling scheduler plugin",
    ] {
        assert_line(&log, line);
    }
    assert!(
        !log.contains(
            &"SCD: level=0 deployed topology-aware-scheduling scheduler plugin!".to_owned()
        )
    );

    // an object that cannot be written, and one that cannot be looked at while it gets ready
    let sets: Api<DaemonSet> = Api::namespaced(cluster.client(), NAMESPACE);
    sets.delete(EXPORTER, &DeleteParams::default())
        .await
        .unwrap();
    let gone = testbed::eventually(crate::deployment::WITHIN, async || {
        match sets.get_opt(EXPORTER).await.unwrap() {
            None => Ok(()),
            Some(_) => Err("it is still there".to_owned()),
        }
    });
    gone.await.unwrap();
    faults.add(fails("create", "apps", "daemonsets", "", 0));
    let ran = run(&cluster, "deploy topology-updater").await;
    assert_line(
        &lines(&ran.stderr()),
        &format!("RTE: level=0 error creating kind=DaemonSet name={EXPORTER} error="),
    );
    // two looks pass: what is there, before it is written
    faults.add(fails("get", "apps", "daemonsets", EXPORTER, 2));
    let ran = run(&cluster, &format!("deploy topology-updater {WAITING}")).await;
    assert_line(
        &lines(&ran.stderr()),
        &format!("RTE: level=0 failed to get the daemonset key={NAMESPACE}/{EXPORTER} error="),
    );

    // one that cannot be deleted, and one that cannot be looked at while it goes; the exit code is 0
    faults.add(fails(
        "delete",
        "rbac.authorization.k8s.io",
        "clusterroles",
        "rte",
        0,
    ));
    faults.add(fails("get", "apps", "daemonsets", EXPORTER, 1));
    let ran = run(&cluster, &format!("-v 3 remove {WAITING}")).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let log = lines(&ran.stderr);
    for line in [
        "SCD: level=0 removing topology-aware-scheduling scheduler plugin",
        "SCD: level=0 deleted kind=Namespace name=tas-scheduler",
        "SCD: level=0 wait for the namespace to be gone namespace=tas-scheduler",
        "SCD: level=0 object still present kind=Namespace key=/tas-scheduler",
        "SCD: level=0 object is gone kind=Namespace key=/tas-scheduler",
        "SCD: level=0 removed topology-aware-scheduling scheduler plugin",
        "RTE: level=3 manifests loaded",
        format!(
            "RTE: level=0 failed to get object kind=DaemonSet key={NAMESPACE}/{EXPORTER} error="
        )
        .as_str(),
        "RTE: level=0 failed to wait for removal error=",
        "RTE: level=0 error deleting kind=ClusterRole name=rte error=",
        "RTE: level=0 removed topology-aware-scheduling topology updater!",
        "API: level=0 removed topology-aware-scheduling API!",
        "level=0 while removing error=",
    ] {
        assert_line(&log, line);
    }
    run(&cluster, &format!("remove {WAITING}")).await.log();
    assert_same(&before, &all_objects(&cluster.client()).await);
    cluster.inner.down().unwrap();
}
