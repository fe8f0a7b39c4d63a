//! The image of the tests, as the Job of `config/tests` starts it: with arguments and without a command.

use api::names::TESTS_IMAGE;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, LogParams, PostParams};
use local_cluster::LocalCluster;
use serde_json::json;

use super::network::{LIMIT, delete};
use crate::harness::eventually;

const NAME: &str = "tests";

/// Checks that its pod runs the tests, and removes it.
pub(super) async fn runs_the_tests(cluster: &LocalCluster) {
    let pods = Api::<Pod>::default_namespaced(cluster.client());
    let pod = json!({"metadata": {"name": NAME}, "spec": {
        "restartPolicy": "Never",
        "containers": [{"name": "tests", "image": TESTS_IMAGE, "args": ["--version"]}],
    }});
    let pod = serde_json::from_value(pod).expect("a pod");
    let created = pods.create(&PostParams::default(), &pod).await;
    created.expect("the pod is accepted");
    eventually("the pod of the tests has ended well", LIMIT, async || {
        let pod = pods.get(NAME).await.map_err(|error| error.to_string())?;
        let status = pod.status.unwrap_or_default();
        match status.phase.as_deref() {
            Some("Succeeded") => Ok(()),
            _ => Err(format!("{status:?}")),
        }
    })
    .await;
    let log = pods.logs(NAME, &LogParams::default()).await;
    let log = log.expect("the log is there");
    assert!(log.starts_with("numaresources-tests "), "{log}");
    delete(&pods, NAME).await;
}
