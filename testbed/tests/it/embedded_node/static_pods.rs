//! Static pods: pods from files in a directory of the node, with mirror pods in the API.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cluster_spec::kubelet::KubeletSettings;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams};
use serde_json::json;

use super::harness::{self, TestNode};

const MANIFESTS: &str = "/etc/kubernetes/manifests";
const HASH: &str = "kubernetes.io/config.hash";
const MIRROR: &str = "kubernetes.io/config.mirror";

fn settings() -> KubeletSettings {
    let mut settings = KubeletSettings::default();
    let path = ("staticPodPath".to_owned(), json!(MANIFESTS));
    settings.extra.extend([path]);
    settings
}

fn manifest(setup: &TestNode) -> PathBuf {
    setup.node.host_path(Path::new(MANIFESTS)).join("web.yaml")
}

fn write(setup: &TestNode, seconds: u32) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "c", "image": api::names::STACK_IMAGE, "command": ["/bin/sleep", seconds.to_string()],
                "resources": {"limits": {"cpu": "2", "memory": "64Mi"}},
            }],
        },
    });
    fs_err::write(manifest(setup), pod.to_string()).unwrap();
}

fn annotation(pod: &Pod, name: &str) -> Option<String> {
    pod.metadata.annotations.as_ref()?.get(name).cloned()
}

/// Waits until the mirror pod is ready and is another object than `not`.
async fn mirror(setup: &TestNode, not: Option<&Pod>) -> Pod {
    let name = "web-worker-0";
    harness::appears(setup, name, |pod| {
        harness::condition(pod, "Ready") == "True"
            && not.is_none_or(|not| not.metadata.uid != pod.metadata.uid)
    })
    .await
}

async fn listed(setup: &TestNode) -> Vec<(String, usize)> {
    let path = "/var/lib/kubelet/pod-resources/kubelet.sock";
    let socket = podresources::socket::Socket::new(setup.node.host_path(Path::new(path))).unwrap();
    let client = podresources::client::PodResources::new(&socket, Duration::from_secs(5));
    let pods = client.list().await.unwrap().pod_resources.into_iter();
    pods.map(|pod| (pod.name, pod.containers[0].cpu_ids.len()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_of_a_file_runs_and_is_mirrored() {
    let setup = TestNode::up_with(settings()).await;
    write(&setup, 1000);
    let pod = mirror(&setup, None).await;
    let hash = annotation(&pod, HASH).unwrap();
    assert_eq!(annotation(&pod, MIRROR), Some(hash.clone()));
    assert_eq!(
        annotation(&pod, "kubernetes.io/config.source").as_deref(),
        Some("file")
    );
    assert_ne!(pod.metadata.uid.as_ref(), Some(&hash));
    let node: Node = Api::all(setup.client()).get("worker-0").await.unwrap();
    let owner = pod.metadata.owner_references.unwrap().remove(0);
    assert_eq!(
        (owner.kind.as_str(), Some(owner.uid)),
        ("Node", node.metadata.uid)
    );
    assert_eq!(owner.controller, Some(true));
    let status = pod.status.unwrap();
    assert_eq!(status.phase.as_deref(), Some("Running"));
    assert_eq!(status.qos_class.as_deref(), Some("Guaranteed"));
    assert_eq!(listed(&setup).await, [("web-worker-0".to_owned(), 2)]);
    let state = setup.node.state_file("cpu_manager_state").unwrap();
    assert!(state.contains(&hash), "{state}");
    let log = setup.get("containerLogs/default/web-worker-0/c").await;
    assert_eq!(log, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_mirror_comes_back_and_the_containers_do_not_notice() {
    let setup = TestNode::up_with(settings()).await;
    write(&setup, 1000);
    let first = mirror(&setup, None).await;
    let process = setup.node.containers()[0].pid;
    let deletion = setup
        .pods()
        .delete("web-worker-0", &DeleteParams::default())
        .await;
    deletion.unwrap();
    let second = mirror(&setup, Some(&first)).await;
    assert_eq!(annotation(&first, HASH), annotation(&second, HASH));
    assert_eq!(setup.node.containers()[0].pid, process);
    assert_eq!(
        second.status.unwrap().container_statuses.unwrap()[0].restart_count,
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_file_replaces_the_pod_and_a_removed_one_ends_it() {
    let setup = TestNode::up_with(settings()).await;
    write(&setup, 1000);
    let first = mirror(&setup, None).await;
    write(&setup, 2000);
    let second = mirror(&setup, Some(&first)).await;
    assert_ne!(annotation(&first, HASH), annotation(&second, HASH));
    let command = second.spec.unwrap().containers.remove(0).command.unwrap();
    assert_eq!(command[1], "2000");
    assert_eq!(setup.node.containers().len(), 1);
    fs_err::remove_file(manifest(&setup)).unwrap();
    setup.until_gone("web-worker-0").await;
    harness::eventually("its containers are gone", || {
        setup.node.containers().is_empty()
    })
    .await;
    assert_eq!(listed(&setup).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_of_a_file_survives_its_kubelet_and_what_it_left_in_the_api_is_removed() {
    let setup = TestNode::up_with(settings()).await;
    write(&setup, 1000);
    let before = mirror(&setup, None).await;
    let process = setup.node.containers()[0].pid;
    setup.node.stop_kubelet();
    setup.node.start_kubelet().await.unwrap();
    let after = mirror(&setup, None).await;
    assert_eq!(before.metadata.uid, after.metadata.uid);
    assert_eq!(setup.node.containers()[0].pid, process);
    // Without a directory there are no static pods.
    setup
        .node
        .restart_kubelet(&KubeletSettings::default())
        .await
        .unwrap();
    setup.until_gone("web-worker-0").await;
}
