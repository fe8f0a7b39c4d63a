//! Uses the embedded API server, which enforces the rules of a real one, instead of the tests' own server.

use apiserver::{Options, Running, Server, User};
use serde_json::{Value, json};

use crate::api_server::{NRTS, PATIENCE};
use crate::scene::{Scene, condition, cpus};

/// A scene with the embedded API server, and an administrator's client for it.
pub(crate) struct Cluster {
    pub(crate) scene: Scene,
    pub(crate) server: Running,
    admin: kube::Client,
}

const PODS: &str = "/api/v1/namespaces/numaresources/pods";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Token and name of a user without permissions.
pub(crate) const STRANGER: &str = "stranger";

impl Cluster {
    /// Creates a cluster with the exporter's pod and without our definitions. The exporter runs with `token`, or as the administrator.
    pub(crate) async fn new(token: Option<&str>) -> Self {
        daemon::client::install_crypto_provider();
        let scene = Scene::new().await;
        scene.serve_kubelet().await;
        let stranger = User {
            name: STRANGER.to_owned(),
            uid: String::new(),
            groups: Vec::new(),
        };
        let options = Options {
            tokens: [(STRANGER.to_owned(), stranger)].into(),
            ..Options::default()
        };
        let server = Server::start(options).await.unwrap();
        let kubeconfig = scene.path("kubeconfig");
        std::fs::write(&kubeconfig, server.kubeconfig(&server.admin_token)).unwrap();
        let admin = daemon::client::client(Some(&kubeconfig)).await.unwrap();
        if let Some(token) = token {
            std::fs::write(&kubeconfig, server.kubeconfig(token)).unwrap();
        }
        let cluster = Self {
            scene,
            server,
            admin,
        };
        let named = |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
        let namespace = named("Namespace", "numaresources");
        cluster.create("/api/v1/namespaces", &namespace).await;
        let accounts = "/api/v1/namespaces/numaresources/serviceaccounts";
        let account = named("ServiceAccount", "default");
        cluster.create(accounts, &account).await;
        let mut own = named("Pod", "rte-x");
        own["spec"] = json!({"nodeName": "worker-0", "containers": [{"name": "c", "image": "i"}]});
        cluster.create(PODS, &own).await;
        cluster
    }

    pub(crate) async fn define(&self) {
        for definition in api::crd::all() {
            self.create(DEFINITIONS, &json!(definition)).await;
        }
    }

    pub(crate) async fn create(&self, path: &str, object: &Value) {
        let request = http::Request::post(path).header("content-type", "application/json");
        let request = request.body(object.to_string().into_bytes()).unwrap();
        self.admin.request::<Value>(request).await.unwrap();
    }

    async fn get(&self, path: &str) -> Option<Value> {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        self.admin.request(request).await.ok()
    }

    async fn wait_for(&self, path: &str, what: impl Fn(&Value) -> bool) {
        let found = testbed::eventually(PATIENCE, async || {
            let object = self.get(path).await;
            let is_right = object.as_ref().is_some_and(&what);
            is_right
                .then_some(())
                .ok_or_else(|| format!("{path} is {object:#?}"))
        });
        found.await.unwrap();
    }

    /// Waits until the condition about writes has this status.
    pub(crate) async fn updated(&self, status: &str) {
        let path = format!("{PODS}/rte-x");
        let has = |pod: &Value| {
            pod["status"]["conditions"].is_array()
                && condition(pod, "NodeTopologyUpdated").as_deref() == Some(status)
        };
        self.wait_for(&path, has).await;
    }

    /// Waits until the object has the expected content.
    pub(crate) async fn published(&self) {
        let path = format!("{NRTS}/worker-0");
        self.wait_for(&path, |nrt| cpus(nrt) == ["3", "3"]).await;
    }

    /// Checks that the object was never written.
    pub(crate) async fn assert_nothing_published(&self) {
        assert_eq!(self.get(&format!("{NRTS}/worker-0")).await, None);
    }
}
