//! An embedded API server with controllers and scheduler, and a kubelet that the test simulates.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use apiserver::{Running, Server};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::watcher::{Config as WatchConfig, watcher};
use kube::runtime::{WatchStreamExt as _, wait};
use kube::{Client, Config, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sim::{controllers, default_scheduler};
use tokio::task::JoinSet;

/// Time limit for anything that a test awaits.
const PATIENCE: Duration = Duration::from_mins(1);

/// The cluster.
pub(super) struct Cluster {
    pub(super) client: Client,
    pub(super) server: Running,
    _controllers: controllers::Controllers,
    _scheduler: default_scheduler::DefaultScheduler,
    _kubelet: JoinSet<()>,
}

/// Returns a client of a server with the administrator's rights.
pub(super) async fn client_of(server: &Running) -> Client {
    Client::try_from(config_of(server).await).unwrap()
}

async fn config_of(server: &Running) -> Config {
    let config = Kubeconfig::from_yaml(&server.kubeconfig(&server.admin_token)).unwrap();
    Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .unwrap()
}

impl Cluster {
    /// Starts a cluster with nodes of 4 CPUs and 8 GiB.
    pub(super) async fn start(nodes: &[&str]) -> Self {
        Self::with(nodes, controllers::Options::default()).await
    }

    /// Starts a cluster whose controllers have other options.
    pub(super) async fn with(nodes: &[&str], options: controllers::Options) -> Self {
        let server = Server::start(apiserver::Options::default()).await.unwrap();
        let client = client_of(&server).await;
        let options = controllers::Options {
            root_ca: server.ca.clone(),
            signer: Some(server.signer()),
            ..options
        };
        let controllers = controllers::start(client.clone(), options);
        for name in nodes {
            add_node(&client, name).await;
        }
        // The scheduler starts after the nodes exist, so that its first list has all of them.
        let scheduler =
            default_scheduler::start(client.clone(), default_scheduler::Options::default());
        let cluster = Self {
            _controllers: controllers,
            _scheduler: scheduler,
            _kubelet: kubelet(&client),
            client,
            server,
        };
        let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
            Api::namespaced(cluster.client.clone(), "default");
        until(&accounts, "default", |found| found.is_some()).await;
        cluster
    }

    /// Returns a client that returns every refusal and never retries.
    pub(super) async fn client_without_retries(&self) -> Client {
        let mut config = config_of(&self.server).await;
        config.default_retry = false;
        Client::try_from(config).unwrap()
    }

    /// Adds a node that is ready.
    pub(super) async fn add_node(&self, name: &str) {
        add_node(&self.client, name).await;
    }

    /// Returns an API handle for objects of a kind in the namespace of the tests.
    pub(super) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Returns the messages of the events about an object with a reason. Waits for the first one, because events are written after what
    /// they report.
    pub(super) async fn event_messages(&self, name: &str, reason: &str) -> Vec<String> {
        let ours = |event: &&Event| {
            event.involved_object.name.as_deref() == Some(name)
                && event.reason.as_deref() == Some(reason)
        };
        let events = until_all(&self.api::<Event>(), "", |events| {
            events.iter().any(|event| ours(&event))
        })
        .await;
        let messages = events.iter().filter(ours);
        messages.filter_map(|event| event.message.clone()).collect()
    }
}

async fn add_node(client: &Client, name: &str) {
    let api: Api<Node> = Api::all(client.clone());
    let node = json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}});
    make(&api, node).await;
    let amounts = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status",
        "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let status =
        json!({"status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}});
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
    // A new node may have a taint, which the node lifecycle controller removes.
    until(&api, name, |node| {
        let spec = node.and_then(|node| node.spec.as_ref());
        spec.and_then(|spec| spec.taints.as_ref())
            .is_none_or(Vec::is_empty)
    })
    .await;
}

/// Creates an object from JSON.
pub(super) async fn make<K>(api: &Api<K>, object: Value) -> K
where
    K: Clone + DeserializeOwned + Serialize + Debug,
{
    let object: K = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap()
}

/// Waits until an object satisfies a condition; `None` means that the object does not exist.
pub(super) async fn until<K>(
    api: &Api<K>,
    name: &str,
    wanted: impl Fn(Option<&K>) -> bool,
) -> Option<K>
where
    K: Clone + DeserializeOwned + Debug + Send + Resource<DynamicType = ()> + 'static,
{
    let waiting = wait::await_condition(api.clone(), name, |object: Option<&K>| wanted(object));
    let outcome = tokio::time::timeout(PATIENCE, waiting).await;
    if let Ok(found) = outcome {
        return found.unwrap();
    }
    let found = api.get_opt(name).await.unwrap();
    assert!(
        outcome.is_ok(),
        "{name} did not become as wanted: {found:#?}"
    );
    found
}

/// Waits until the selected objects satisfy a condition.
pub(super) async fn until_all<K>(
    api: &Api<K>,
    labels: &str,
    wanted: impl Fn(&[K]) -> bool,
) -> Vec<K>
where
    K: Clone + DeserializeOwned + Debug + Send + Resource<DynamicType = ()> + 'static,
{
    let mut objects: BTreeMap<String, K> = BTreeMap::new();
    let mut events = watcher(api.clone(), WatchConfig::default().labels(labels)).boxed();
    let mut listed = false;
    let watching = async {
        use kube::runtime::watcher::Event;
        while let Some(event) = events.next().await {
            match event.unwrap() {
                Event::Init => objects.clear(),
                Event::InitApply(object) | Event::Apply(object) => {
                    objects.insert(object.name_any(), object);
                }
                Event::Delete(object) => {
                    objects.remove(&object.name_any());
                }
                Event::InitDone => listed = true,
            }
            let all: Vec<K> = objects.values().cloned().collect();
            if listed && wanted(&all) {
                return;
            }
        }
    };
    let outcome = tokio::time::timeout(PATIENCE, watching).await;
    assert!(
        outcome.is_ok(),
        "{labels}: did not become as wanted: {objects:#?}"
    );
    objects.into_values().collect()
}

/// Simulates the kubelet of pods that have a node: they are Ready at once, Failed or Succeeded if the annotation `play` says so, and gone
/// when they are deleted.
fn kubelet(client: &Client) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let client = client.clone();
    tasks.spawn(async move {
        let all: Api<Pod> = Api::all(client.clone());
        // Without a backoff the watch would spin after its server is gone, and the test's runtime could not end.
        let mut pods = watcher(all, WatchConfig::default())
            .default_backoff()
            .applied_objects()
            .boxed();
        while let Some(pod) = pods.next().await {
            let Ok(pod) = pod else { continue };
            let spec = pod.spec.clone().unwrap_or_default();
            if spec.node_name.is_none() {
                continue;
            }
            let api: Api<Pod> =
                Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
            if pod.metadata.deletion_timestamp.is_some() {
                let now = DeleteParams {
                    grace_period_seconds: Some(0),
                    ..DeleteParams::default()
                };
                // The pod may be gone already.
                let _ = api.delete(&pod.name_any(), &now).await;
                continue;
            }
            let status = pod.status.clone().unwrap_or_default();
            if status.phase.as_deref() != Some("Pending") {
                continue;
            }
            let play = pod
                .annotations()
                .get("play")
                .map_or("Running", String::as_str);
            if play == "Pending" {
                continue;
            }
            let mut conditions = json!(status.conditions.unwrap_or_default());
            if play == "Running" {
                let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
                conditions.as_array_mut().unwrap().push(ready);
            }
            let status = json!({"status": {
                "phase": play, "conditions": conditions, "podIP": "127.0.0.9", "podIPs": [{"ip": "127.0.0.9"}],
                "startTime": "2026-01-01T00:00:00Z",
            }});
            // The pod may be gone already.
            let _ = api
                .patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(status))
                .await;
        }
    });
    tasks
}

/// Returns a pod template with a label.
pub(super) fn template(app: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"containers": [{"name": "main", "image": "pause"}]},
    })
}

pub(super) fn deployment(name: &str, replicas: i32) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template(name),
        },
    })
}
