//! Who may read the metrics. The API server of the lane knows the accounts and their rights, and decides.

use api::names;
use futures::future::join_all;
use kube::config::Kubeconfig;
use manifests::operator::users;
use manifests::platform::Platform;
use manifests::rte::{Options, Set};
use manifests::to_value;
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::api_server::{self, ApiServer};
use testbed::lane::Lane;
use tokio::process::Child;

use crate::kubelet::Kubelet;
use crate::scene::{Metrics, exporter, kubelet, node, terminate, with_nrts};

const NAMESPACE: &str = names::NAMESPACE;
const READER: &str = "reader";
const OTHER: &str = "other";

/// An API server with the exporters' objects, and two accounts of which one may read metrics.
async fn mk_server() -> ApiServer {
    let server = ApiServer::start(Lane::from_environment().unwrap())
        .await
        .unwrap();
    let admin = server.client().await.unwrap();
    let applier = with_nrts(&admin).await;
    let account = |name: &str| json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": NAMESPACE}});
    let mut objects =
        vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})];
    objects.extend(Set::new(&Options::new(NAMESPACE, Platform::Kubernetes, "i"), &[]).objects());
    objects.extend([
        account(READER),
        account(OTHER),
        to_value(&users::metrics_reader("metrics-reader")),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "metrics-reader"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "metrics-reader"},
            "subjects": [{"kind": "ServiceAccount", "name": READER, "namespace": NAMESPACE}],
        }),
    ]);
    for object in &objects {
        applier.apply(object).await.unwrap();
    }
    server
}

async fn kubeconfig(server: &ApiServer, account: &str) -> Kubeconfig {
    let made = server.account_kubeconfig(NAMESPACE, account).await;
    made.unwrap()
}

async fn token(server: &ApiServer, account: &str) -> String {
    let kubeconfig: Value = serde_json::to_value(kubeconfig(server, account).await).unwrap();
    kubeconfig["users"][0]["user"]["token"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// A running exporter that writes nothing, with the rights of its account.
struct Exporter {
    server: ApiServer,
    metrics: Metrics,
    child: Child,
    _kubelet: Kubelet,
    _dir: TempDir,
}

impl Exporter {
    async fn start() -> Self {
        let (server, dir, kubelet, metrics) =
            (mk_server().await, node(), kubelet(), Metrics::claim());
        let path = |name: &str| dir.path().join(name);
        kubelet.serve(&path("kubelet.sock")).await;
        let account = kubeconfig(&server, names::RTE).await;
        api_server::write(&account, &path("kubeconfig")).unwrap();
        let flags = ["--no-publish", "--podreadiness=false", "--metrics-auth"];
        let child = exporter(dir.path(), &flags)
            .args(metrics.flags())
            .spawn()
            .unwrap();
        metrics
            .answers("/livez", |answer| answer.starts_with("HTTP/1.0 200"))
            .await;
        Self {
            server,
            metrics,
            child,
            _kubelet: kubelet,
            _dir: dir,
        }
    }

    async fn ask(&self, token: Option<&str>) -> String {
        let head = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
        self.metrics
            .ask_with("/metrics", &head.unwrap_or_default())
            .await
    }

    /// Returns the status code of the answer.
    async fn status(&self, token: Option<&str>) -> String {
        let answer = self.ask(token).await;
        let code = answer.split(' ').nth(1);
        code.unwrap_or_default().to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_for_those_whom_the_api_server_lets_read_them() {
    let exporter = Exporter::start().await;
    let reader = token(&exporter.server, READER).await;
    let other = token(&exporter.server, OTHER).await;
    assert_eq!(exporter.status(None).await, "401");
    assert_eq!(exporter.status(Some("guessed")).await, "401");
    assert_eq!(exporter.status(Some(&other)).await, "403");
    assert_eq!(exporter.status(Some(&reader)).await, "200");
    terminate(exporter.child).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_requests_with_one_token_cost_the_api_server_two() {
    let exporter = Exporter::start().await;
    let reader = token(&exporter.server, READER).await;
    // as many at the same time as there is room for
    for _ in 0..10 {
        let answers = join_all((0..100).map(|_| exporter.status(Some(&reader)))).await;
        assert!(answers.iter().all(|status| status == "200"), "{answers:?}");
    }
    let metrics = exporter.ask(Some(&reader)).await;
    let posts: Vec<&str> = metrics
        .lines()
        .filter(|line| line.starts_with("rest_client_requests_total{") && line.contains("\"POST\""))
        .collect();
    // who has the token, and whether that user may
    assert!(
        matches!(posts[..], [line] if line.ends_with(" 2")),
        "{posts:?}"
    );
    terminate(exporter.child).await;
}
