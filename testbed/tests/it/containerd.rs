//! Images on nodes with containerd: real pulls from the cluster's own registry.

use std::time::Duration;

use cluster_spec::images::Published;
use cluster_spec::plan::ClusterSpec;
use cluster_spec::runtime::Runtime;
use k8s_openapi::api::core::v1::{ContainerStateWaiting, ContainerStatus, Event, Pod};
use kube::Api;
use kube::api::{ListParams, PostParams};
use local_cluster::{LocalCluster, NodeHandle};
use podresources::cri::v1::ListImagesRequest;
use podresources::cri::v1::image_service_client::ImageServiceClient;
use podresources::socket::Socket;
use programs::containers;
use serde_json::json;
use testbed::eventually;

use crate::cluster::harness::{small, state_root};

const DEADLINE: Duration = Duration::from_mins(1);
/// A digest that no image has.
const UNKNOWN: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: root, the Kubernetes programs and containerd"]
async fn nodes_pull_what_pods_ask_for_when_they_ask_for_it() {
    let state_root = state_root();
    let programs = containers::locate(None, &|_| {}).unwrap();
    let spec = ClusterSpec {
        runtime: Runtime::Containerd(programs),
        ..small(&state_root, "images", 1)
    };
    let cluster = LocalCluster::up(spec, &|_| {}).await.unwrap();
    let published = Published::beside(&cluster.kubeconfig()).unwrap();
    let stack = published.by_digest(api::names::STACK_IMAGE).unwrap();
    let tests = published.by_digest(api::names::TESTS_IMAGE).unwrap();
    assert_ne!(digest(stack), digest(tests));
    let (worker, other) = (&cluster.nodes()[1], &cluster.nodes()[0]);
    for node in cluster.nodes() {
        assert!(images(node).await.is_empty(), "{node:?} has images");
    }

    let pods = Pods {
        api: Api::default_namespaced(cluster.client()),
        events: Api::default_namespaced(cluster.client()),
        node: worker.name(),
    };
    // What is absent stays absent for a pod that must not pull.
    pods.create("never", tests, "Never").await;
    pods.waits("never", "ErrImageNeverPull", "is not present")
        .await;
    assert!(!images(worker).await.contains(&tests.to_owned()));
    // The registry knows no such digest, and the message names it.
    let wrong = format!("{}@{UNKNOWN}", api::names::STACK_REPOSITORY);
    pods.create("wrong", &wrong, "IfNotPresent").await;
    pods.waits("wrong", "ErrImagePull", "not found").await;
    // One pod asks for the image: it comes by its digest, to this node only, and the other pod finds it.
    pods.create("asks", tests, "IfNotPresent").await;
    assert_eq!(digest(&pods.runs("asks").await.image_id), digest(tests));
    assert!(images(worker).await.contains(&tests.to_owned()));
    assert!(images(other).await.is_empty(), "{other:?} has images");
    // A pod that always pulls asks the registry for an image that is there.
    pods.create("always", api::names::TESTS_IMAGE, "Always")
        .await;
    assert_eq!(digest(&pods.runs("always").await.image_id), digest(tests));
    pods.reports("always", "Pulled", "Successfully pulled image")
        .await;
    cluster.down().unwrap();
}

fn digest(reference: &str) -> &str {
    reference.split_once('@').map_or("", |(_, digest)| digest)
}

/// Returns the references by digest of the images that a node has.
async fn images(node: &NodeHandle) -> Vec<String> {
    let socket = Socket::new(node.dir().join("cri.sock")).unwrap();
    let mut client = ImageServiceClient::new(socket.channel());
    let answer = client.list_images(ListImagesRequest::default()).await;
    let images = answer.unwrap().into_inner().images;
    images
        .into_iter()
        .flat_map(|image| image.repo_digests)
        .collect()
}

/// Pods of one node.
struct Pods<'a> {
    api: Api<Pod>,
    events: Api<Event>,
    node: &'a str,
}

impl Pods<'_> {
    async fn create(&self, name: &str, image: &str, policy: &str) {
        let pod = serde_json::from_value(json!({
            "metadata": { "name": name },
            "spec": {
                "nodeName": self.node,
                "terminationGracePeriodSeconds": 0,
                "containers": [{ "name": "main", "image": image, "imagePullPolicy": policy, "command": ["/pause"] }],
            },
        }))
        .unwrap();
        self.api.create(&PostParams::default(), &pod).await.unwrap();
    }

    /// Waits until the status of a pod's container satisfies a condition.
    async fn until(
        &self,
        name: &str,
        wanted: impl Fn(&ContainerStatus) -> bool,
    ) -> ContainerStatus {
        let found = eventually(DEADLINE, async || {
            let status = self.api.get(name).await.unwrap().status;
            let containers = status.and_then(|status| status.container_statuses);
            let found = containers.iter().flatten().find(|one| wanted(one));
            let seen = || format!("pod {name} has the containers {containers:?}");
            found.cloned().ok_or_else(seen)
        });
        found.await.unwrap()
    }

    async fn runs(&self, name: &str) -> ContainerStatus {
        let runs = |container: &ContainerStatus| {
            container
                .state
                .as_ref()
                .is_some_and(|state| state.running.is_some())
        };
        self.until(name, runs).await
    }

    /// Waits until a pod's container waits for this reason, or once did: the kubelet goes on to `ImagePullBackOff`, whose message has the first
    /// reason.
    async fn waits(&self, name: &str, reason: &str, text: &str) {
        let is_it = |waiting: &ContainerStateWaiting| {
            let words =
                [&waiting.reason, &waiting.message].map(|word| word.as_deref().unwrap_or_default());
            words.iter().any(|word| word.contains(reason)) && words[1].contains(text)
        };
        let waits = |container: &ContainerStatus| {
            let waiting = container
                .state
                .as_ref()
                .and_then(|state| state.waiting.as_ref());
            waiting.is_some_and(is_it)
        };
        self.until(name, waits).await;
    }

    /// Waits until an event of a pod has this reason and text.
    async fn reports(&self, name: &str, reason: &str, text: &str) {
        let of_pod = ListParams::default().fields(&format!("involvedObject.name={name}"));
        let found = eventually(DEADLINE, async || {
            let events = self.events.list(&of_pod).await.unwrap().items;
            let is_it = |event: &Event| {
                event.reason.as_deref() == Some(reason)
                    && event
                        .message
                        .as_deref()
                        .is_some_and(|message| message.contains(text))
            };
            if events.iter().any(is_it) {
                return Ok(());
            }
            Err(format!("no event {reason} {text} among {events:?}"))
        });
        found.await.unwrap();
    }
}
