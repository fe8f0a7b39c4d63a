//! The same way on every kind of cluster: deploy, a pod is placed, nothing is found, a node with another policy is named, and after `remove` every
//! object is as before.

use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use rstest::rstest;
use testbed::lane::Lane;

use crate::cluster::{TestCluster, all_objects, assert_same};
use crate::deployment::{DEPLOY, gone, misconfigured_node_is_named, placed, run};
use crate::policies;

const PASSED: &str = "PASSED>>: the cluster configuration looks ok!\n";

async fn whole_way(cluster: &TestCluster, platform: &str) {
    let before = all_objects(&cluster.client()).await;
    let detected = run(cluster, "detect").await.stdout();
    assert!(detected.starts_with(&format!("{platform}:")), "{detected}");
    let log = run(cluster, DEPLOY).await.log();
    let done = "SCD: deployed topology-aware-scheduling scheduler plugin";
    assert!(log.contains(&done.to_owned()), "{log:#?}");
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    placed(&pods, "aligned").await;
    let found = testbed::eventually(crate::deployment::WITHIN, async || {
        // an exporter publishes a moment after it is ready
        match run(cluster, "validate --strict").await {
            ran if ran.stdout == PASSED => Ok(()),
            ran => Err(format!("{ran:?}")),
        }
    });
    found.await.expect("nothing is found");
    misconfigured_node_is_named(cluster).await;
    if cluster.inner.local().is_some() {
        policies::hold(cluster).await;
    }
    gone(&pods, "aligned").await;
    run(cluster, "remove --wait --wait-interval=200ms")
        .await
        .log();
    assert_same(&before, &all_objects(&cluster.client()).await);
}

#[rstest]
#[case::openshift("openshift", "OpenShift")]
#[case::hypershift("hypershift", "HyperShift")]
#[tokio::test(flavor = "multi_thread")]
async fn on_each_flavour_remove_leaves_the_cluster_as_before(
    #[case] flavour: &str,
    #[case] platform: &str,
) {
    let cluster = TestCluster::up_on(Lane::Embedded, &["--flavour", flavour]).await;
    whole_way(&cluster, platform).await;
    cluster.inner.down().unwrap();
}

#[rstest]
#[case::own_runtime("builtin")]
#[case::containerd("containerd")]
#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: root, the Kubernetes programs, containerd and nftables"]
async fn on_real_parts_remove_leaves_the_cluster_as_before(#[case] runtime: &str) {
    let cluster = TestCluster::up_on(Lane::Local, &["--runtime", runtime]).await;
    whole_way(&cluster, "Kubernetes").await;
    cluster.inner.down().unwrap();
}

mod long {
    use super::*;

    #[rstest]
    #[case::openshift("builtin", "openshift", "OpenShift")]
    #[case::hypershift("builtin", "hypershift", "HyperShift")]
    #[case::openshift_with_containerd("containerd", "openshift", "OpenShift")]
    #[case::hypershift_with_containerd("containerd", "hypershift", "HyperShift")]
    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "long: root, the Kubernetes programs, containerd and nftables"]
    async fn on_real_parts_of_each_flavour_remove_leaves_the_cluster_as_before(
        #[case] runtime: &str,
        #[case] flavour: &str,
        #[case] platform: &str,
    ) {
        let flags = ["--runtime", runtime, "--flavour", flavour];
        let cluster = TestCluster::up_on(Lane::Local, &flags).await;
        whole_way(&cluster, platform).await;
        cluster.inner.down().unwrap();
    }
}
