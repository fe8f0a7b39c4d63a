//! A fingerprint that includes a pod claims that the zones account for it. It must not be published while the kubelet is still assigning
//! resources to the pod.

use std::fs;

use podresources::v1;
use serde_json::{Value, json};

use crate::api_server::NRTS;
use crate::scene::{Scene, cpus, terminate};

/// The fingerprint of `default/pod-1` (rte.md 6.3: vector 2).
const FINGERPRINT: &str = "pfp0v0010c5658d8bde5056f";

/// Returns the pod `pod-1` as the kubelet lists it: two containers with these CPUs.
fn listed(first: &[i64], second: &[i64]) -> Vec<v1::PodResources> {
    let container = |name: &str, cpus: &[i64]| v1::ContainerResources {
        name: name.to_owned(),
        cpu_ids: cpus.to_vec(),
        ..Default::default()
    };
    vec![v1::PodResources {
        name: "pod-1".to_owned(),
        namespace: "default".to_owned(),
        containers: vec![container("a", first), container("b", second)],
    }]
}

/// Returns the same pod as in the API server: each container requests one CPU.
fn requesting_pod() -> Value {
    let container =
        |name| json!({"name": name, "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}});
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "default", "name": "pod-1", "uid": "u"},
        "spec": {"containers": [container("a"), container("b")]},
        "status": {"phase": "Pending", "qosClass": "Guaranteed"},
    })
}

/// Returns the available CPUs of each published object whose fingerprint includes the pod.
fn published(scene: &Scene) -> Vec<Vec<String>> {
    let history = scene.server.history(&format!("{NRTS}/worker-0"));
    let with_pod = history
        .iter()
        .filter(|nrt| nrt["attributes"][0]["value"] == FINGERPRINT);
    with_pod
        .map(|nrt| cpus(nrt).into_iter().map(str::to_owned).collect())
        .collect()
}

#[tokio::test]
async fn fingerprint_comes_with_all_that_the_pod_asks_for() {
    let scene = Scene::new().await;
    scene.serve_kubelet().await;
    let child = scene.start(&["--sleep-interval=0"]);
    scene.nrt(|nrt| cpus(nrt) == ["3", "4"]).await;

    scene.kubelet.set_pods(Some(listed(&[4], &[])));
    scene.server.send_pod_event(&requesting_pod()).await;
    scene.kubelet.listed(4).await;
    assert_eq!(
        published(&scene),
        Vec::<Vec<String>>::new(),
        "one container has nothing yet"
    );
    scene.kubelet.set_pods(Some(listed(&[4], &[5])));
    scene.nrt(|nrt| cpus(nrt) == ["3", "2"]).await;
    assert_eq!(published(&scene), [["3", "2"]]);
    terminate(child).await;
}

#[tokio::test]
async fn fingerprint_of_a_pod_that_gets_less_comes_nevertheless() {
    let scene = Scene::new().await;
    scene.serve_kubelet().await;
    let child = scene.start(&["--sleep-interval=0"]);
    scene.nrt(|nrt| cpus(nrt) == ["3", "4"]).await;
    scene.kubelet.set_pods(Some(listed(&[4], &[])));
    scene.server.send_pod_event(&requesting_pod()).await;
    scene.nrt(|nrt| cpus(nrt) == ["3", "3"]).await;
    assert_eq!(published(&scene), [["3", "3"]]);
    terminate(child).await;
}

#[tokio::test]
async fn without_rights_to_watch_pods_a_new_one_is_looked_at_twice() {
    let scene = Scene::new().await;
    scene.serve_kubelet().await;
    scene.server.refuse_watches();
    let notify = scene.path("run/notify");
    let flag = format!("--notify-file={}", notify.display());
    let child = scene.start(&[&flag, "--sleep-interval=1h"]);
    scene.nrt(|nrt| cpus(nrt) == ["3", "4"]).await;

    scene
        .kubelet
        .set_pods_after(listed(&[4], &[]), listed(&[4], &[5]));
    fs::write(&notify, "").unwrap();
    scene.nrt(|nrt| cpus(nrt) == ["3", "2"]).await;
    assert_eq!(published(&scene), [["3", "2"]]);
    terminate(child).await;
}
