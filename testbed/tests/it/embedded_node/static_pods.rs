//! Static pods: pods from files in a directory of the node, with mirror pods in the API.

use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams};
use serde_json::json;
use testbed::local::KubeletSettings;

use super::harness::{self, Place};

const MANIFESTS: &str = "/etc/kubernetes/manifests";
const HASH: &str = "kubernetes.io/config.hash";
const MIRROR: &str = "kubernetes.io/config.mirror";

fn settings() -> KubeletSettings {
    let mut settings = KubeletSettings::default();
    let path = ("staticPodPath".to_owned(), json!(MANIFESTS));
    settings.extra.extend([path]);
    settings
}

fn manifest(place: &Place) -> PathBuf {
    place.node.host_path(Path::new(MANIFESTS)).join("web.yaml")
}

fn write(place: &Place, seconds: u32) {
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
    fs_err::write(manifest(place), pod.to_string()).unwrap();
}

fn annotation(pod: &Pod, name: &str) -> Option<String> {
    pod.metadata.annotations.as_ref()?.get(name).cloned()
}

/// Waits until the mirror pod is ready and is another object than `not`.
async fn mirror(place: &Place, not: Option<&Pod>) -> Pod {
    let name = "web-worker-0";
    harness::appears(place, name, |pod| {
        harness::condition(pod, "Ready") == "True"
            && not.is_none_or(|not| not.metadata.uid != pod.metadata.uid)
    })
    .await
}

async fn listed(place: &Place) -> Vec<(String, usize)> {
    let path = "/var/lib/kubelet/pod-resources/kubelet.sock";
    let socket = podresources::socket::Socket::new(place.node.host_path(Path::new(path))).unwrap();
    let client = podresources::client::PodResources::new(&socket, Duration::from_secs(5));
    let pods = client.list().await.unwrap().pod_resources.into_iter();
    pods.map(|pod| (pod.name, pod.containers[0].cpu_ids.len()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_of_a_file_runs_and_is_mirrored() {
    let place = Place::up_with(settings()).await;
    write(&place, 1000);
    let pod = mirror(&place, None).await;
    let hash = annotation(&pod, HASH).unwrap();
    assert_eq!(annotation(&pod, MIRROR), Some(hash.clone()));
    assert_eq!(
        annotation(&pod, "kubernetes.io/config.source").as_deref(),
        Some("file")
    );
    assert_ne!(pod.metadata.uid.as_ref(), Some(&hash));
    let node: Node = Api::all(place.client()).get("worker-0").await.unwrap();
    let owner = pod.metadata.owner_references.unwrap().remove(0);
    assert_eq!(
        (owner.kind.as_str(), Some(owner.uid)),
        ("Node", node.metadata.uid)
    );
    assert_eq!(owner.controller, Some(true));
    let status = pod.status.unwrap();
    assert_eq!(status.phase.as_deref(), Some("Running"));
    assert_eq!(status.qos_class.as_deref(), Some("Guaranteed"));
    assert_eq!(listed(&place).await, [("web-worker-0".to_owned(), 2)]);
    let state = place.node.state_file("cpu_manager_state").unwrap();
    assert!(state.contains(&hash), "{state}");
    let log = place.get("containerLogs/default/web-worker-0/c").await;
    assert_eq!(log, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_mirror_comes_back_and_the_containers_do_not_notice() {
    let place = Place::up_with(settings()).await;
    write(&place, 1000);
    let first = mirror(&place, None).await;
    let process = place.node.containers()[0].pid;
    let deletion = place
        .pods()
        .delete("web-worker-0", &DeleteParams::default())
        .await;
    deletion.unwrap();
    let second = mirror(&place, Some(&first)).await;
    assert_eq!(annotation(&first, HASH), annotation(&second, HASH));
    assert_eq!(place.node.containers()[0].pid, process);
    assert_eq!(
        second.status.unwrap().container_statuses.unwrap()[0].restart_count,
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_file_replaces_the_pod_and_a_removed_one_ends_it() {
    let place = Place::up_with(settings()).await;
    write(&place, 1000);
    let first = mirror(&place, None).await;
    write(&place, 2000);
    let second = mirror(&place, Some(&first)).await;
    assert_ne!(annotation(&first, HASH), annotation(&second, HASH));
    let command = second.spec.unwrap().containers.remove(0).command.unwrap();
    assert_eq!(command[1], "2000");
    assert_eq!(place.node.containers().len(), 1);
    fs_err::remove_file(manifest(&place)).unwrap();
    place.gone("web-worker-0").await;
    harness::eventually("its containers are gone", || {
        place.node.containers().is_empty()
    })
    .await;
    assert_eq!(listed(&place).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_of_a_file_survives_its_kubelet_and_what_it_left_in_the_api_is_removed() {
    let place = Place::up_with(settings()).await;
    write(&place, 1000);
    let before = mirror(&place, None).await;
    let process = place.node.containers()[0].pid;
    place.node.stop_kubelet();
    place.node.start_kubelet().await.unwrap();
    let after = mirror(&place, None).await;
    assert_eq!(before.metadata.uid, after.metadata.uid);
    assert_eq!(place.node.containers()[0].pid, process);
    // Without a directory there are no static pods.
    place
        .node
        .restart_kubelet(&KubeletSettings::default())
        .await
        .unwrap();
    place.gone("web-worker-0").await;
}
