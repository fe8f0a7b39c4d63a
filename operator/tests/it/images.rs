//! Tests which images the operands get, and how they are pulled (operator.md 2.3).

use api::operator::v1::NumaResourcesOperator;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use rstest::rstest;
use serde_json::json;
use testbed::lane::Lane;

use crate::cluster::Cluster;
use crate::exporters::{DS_A, cr};

const POD: &str = "operator-0";

#[rstest]
#[case::own(&[], "registry.example/own:1")]
#[case::of_the_flag(&["-image-exporter=registry.example/given:2"], "registry.example/given:2")]
#[tokio::test(flavor = "multi_thread")]
async fn exporters_are_pulled_as_the_operator_itself_is(
    #[case] arguments: &[&str],
    #[case] image: &str,
) {
    let lane = Lane::from_environment().unwrap();
    let mut cluster = Cluster::without_operator(lane, None).await;
    let pods: Api<Pod> = cluster.namespaced();
    let own = json!({"metadata": {"name": POD}, "spec": {"containers": [
        {"name": "manager", "image": "registry.example/own:1", "imagePullPolicy": "Never"},
    ]}});
    let own = serde_json::from_value(own).unwrap();
    pods.create(&PostParams::default(), &own).await.unwrap();
    let crs: Api<NumaResourcesOperator> = Api::all(cluster.client.clone());
    let groups = json!({"nodeGroups": [{"poolName": "numa-a"}]});
    crs.create(&PostParams::default(), &cr(&groups))
        .await
        .unwrap();
    cluster.start_operator_in(POD, arguments);
    let sets: Api<DaemonSet> = cluster.namespaced();
    let set = cluster.appears(&sets, DS_A).await;
    for container in set.spec.unwrap().template.spec.unwrap().containers {
        assert_eq!(container.image.as_deref(), Some(image));
        assert_eq!(container.image_pull_policy.as_deref(), Some("Never"));
    }
}
