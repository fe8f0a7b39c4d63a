//! The network policies that the deployer installs, on a cluster that enforces them.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, AttachParams, ListParams, PostParams};
use serde_json::json;

use crate::cluster::TestCluster;
use crate::deployment::{WITHIN, gone};

/// Port at which the scheduler serves health and metrics.
const SCHEDULER: &str = "10259";

/// Checks that scheduler and exporter reach the API server, and that another pod does not reach the scheduler.
pub(crate) async fn hold(cluster: &TestCluster) {
    let all: Api<Pod> = Api::all(cluster.client());
    let server = cluster.client();
    let services: Api<k8s_openapi::api::core::v1::Service> = Api::namespaced(server, "default");
    let service = services.get("kubernetes").await.unwrap();
    let host = service.spec.unwrap().cluster_ip.unwrap();
    let first = async |labels: &str| {
        let found = all
            .list(&ListParams::default().labels(labels))
            .await
            .unwrap();
        found.items.into_iter().next().unwrap()
    };
    let scheduler = first("component=scheduler").await;
    let exporter = first("name=resource-topology").await;
    for pod in [&scheduler, &exporter] {
        assert!(
            connects(cluster, pod, &host, "443").await,
            "{}",
            pod.name_any()
        );
    }
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let stranger = json!({"metadata": {"name": "stranger"}, "spec": {"terminationGracePeriodSeconds": 1, "containers": [
        {"name": "main", "image": api::names::STACK_IMAGE, "command": ["/bin/sleep", "1h"]},
    ]}});
    let stranger = serde_json::from_value(stranger).unwrap();
    let stranger = pods
        .create(&PostParams::default(), &stranger)
        .await
        .unwrap();
    let runs = testbed::eventually(WITHIN, async || {
        let status = pods
            .get("stranger")
            .await
            .unwrap()
            .status
            .unwrap_or_default();
        match status.phase.as_deref() {
            Some("Running") => Ok(()),
            phase => Err(format!("{phase:?}")),
        }
    });
    runs.await.unwrap();
    assert!(
        connects(cluster, &stranger, &host, "443").await,
        "the stranger has a network"
    );
    let address = scheduler.status.and_then(|status| status.pod_ip).unwrap();
    assert!(!connects(cluster, &stranger, &address, SCHEDULER).await);
    gone(&pods, "stranger").await;
}

/// Returns whether a pod can open a connection.
async fn connects(cluster: &TestCluster, from: &Pod, host: &str, port: &str) -> bool {
    let pods: Api<Pod> = Api::namespaced(cluster.client(), &from.namespace().unwrap());
    let command = ["/bin/connect", host, port, "5"];
    let container = from.spec.as_ref().unwrap().containers[0].name.clone();
    let params = AttachParams::default()
        .container(container)
        .stdout(false)
        .stderr(true);
    let mut process = pods.exec(&from.name_any(), command, &params).await.unwrap();
    let status = process.take_status().unwrap().await.unwrap();
    status.status.as_deref() == Some("Success")
}
