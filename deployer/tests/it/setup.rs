//! `setup`: tells into the log what is wrong with the cluster, then deploys everything, whatever was found (deployer.md 1.2).

use cluster_spec::kubelet::{KubeletSettings, TopologyPolicy, TopologyScope};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams};

use crate::cluster::{TestCluster, all_objects, assert_same};
use crate::deployment::{gone, placed, run};
use crate::parts::published;
use crate::process::deployer;

const NOTHING: &str = "cluster configuration issue=none";
const WRONG_POLICY: &str = "cluster configuration issue=0 description=Incorrect configuration of node \\worker-1\\ area \\kubelet\\ \
                            component \\topology manager\\ setting \\policy\\: expected \\single-numa-node\\ detected \\best-effort\\ fix=";
const FIRST: &str = "API: deploying topology-aware-scheduling API";
const LAST: &str = "SCD: deployed topology-aware-scheduling scheduler plugin";

/// Returns the place of the only line that begins so.
fn place(log: &[String], start: &str) -> usize {
    let places: Vec<usize> = (0..log.len())
        .filter(|place| log[*place].starts_with(start))
        .collect();
    assert_eq!(places.len(), 1, "{start} in {log:#?}");
    places[0]
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_found_is_told_first_and_everything_is_deployed_all_the_same() {
    let cluster = TestCluster::up().await;
    let before = all_objects(&cluster.client()).await;
    let wrong = KubeletSettings {
        topology_manager_policy: TopologyPolicy::BestEffort,
        ..KubeletSettings::with_scope(TopologyScope::Pod)
    };
    let machines = cluster.inner.machines();
    machines.restart_kubelet("worker-1", &wrong).await.unwrap();

    let ran = run(&cluster, "setup").await;
    assert_eq!(ran.stdout, "", "what is found goes into the log");
    let log = ran.log();
    let [told, first, last] = [WRONG_POLICY, FIRST, LAST].map(|line| place(&log, line));
    assert!(told < first && first < last, "{log:#?}");
    // of what gets ready some time later only the definition is waited for
    place(&log, "API: CRD available");
    for late in ["daemonset ready", "daemonset not ready", "deployment"] {
        assert!(!log.iter().any(|line| line.contains(late)), "{log:#?}");
    }
    published(&cluster).await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    placed(&pods, "aligned").await;

    // a node that is mended is not told any more, once its exporter has read the kubelet's file again
    let right = machines.base("worker-1").unwrap();
    machines.restart_kubelet("worker-1", &right).await.unwrap();
    let exporters: Api<Pod> = Api::namespaced(cluster.client(), "tas-topology-updater");
    let every = ListParams::default();
    exporters
        .delete_collection(&DeleteParams::default(), &every)
        .await
        .unwrap();
    let mended = testbed::eventually(crate::deployment::WITHIN, async || {
        let log = run(&cluster, "setup").await.log();
        if log.iter().any(|line| line == NOTHING) {
            Ok(log)
        } else {
            Err(format!("{log:#?}"))
        }
    });
    let log = mended.await.unwrap();
    assert!(place(&log, NOTHING) < place(&log, LAST));
    gone(&pods, "aligned").await;

    run(&cluster, "remove --wait --wait-interval=200ms")
        .await
        .log();
    assert_same(&before, &all_objects(&cluster.client()).await);
    cluster.inner.down().unwrap();
}

#[test]
fn it_waits_for_nothing_and_has_no_parts() {
    for arguments in ["setup --wait", "setup -W", "setup api"] {
        let stderr = deployer(arguments).stderr();
        assert!(
            stderr.contains("unexpected argument") || stderr.contains("unrecognized"),
            "{stderr}"
        );
    }
}
