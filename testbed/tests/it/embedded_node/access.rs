//! Access to the endpoint of a node.

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::harness::TestNode;

async fn make<K>(api: &Api<K>, object: Value)
where
    K: Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

/// Grants a subject the verb `get` on a subresource of nodes.
async fn allow(setup: &TestNode, subresource: &str, subject: Value) {
    let roles: Api<ClusterRole> = Api::all(setup.client());
    let rules = json!([{"apiGroups": [""], "resources": [format!("nodes/{subresource}")], "verbs": ["get"]}]);
    make(
        &roles,
        json!({"metadata": {"name": subresource}, "rules": rules}),
    )
    .await;
    let bindings: Api<ClusterRoleBinding> = Api::all(setup.client());
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": subresource});
    make(
        &bindings,
        json!({"metadata": {"name": subresource}, "roleRef": role, "subjects": [subject]}),
    )
    .await;
}

fn refusal(user: &str, subresources: &str) -> (u16, String) {
    let text = format!(
        "Forbidden (user={user}, verb=get, resource=nodes, subresource(s)=[{subresources}])\n"
    );
    (403, text)
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_unknown_is_answered() {
    let setup = TestNode::up().await;
    let unauthorized = (401, "Unauthorized".to_owned());
    for path in ["configz", "pods", "healthz", "no/such/path"] {
        assert_eq!(setup.ask(path, None, None).await.unwrap(), unauthorized);
    }
    let of_nobody = setup.ask("configz", None, Some("a-token-of-nobody")).await;
    assert_eq!(of_nobody.unwrap(), unauthorized);
    // The authority of another server has the same name, but the node does not trust it.
    let other = apiserver::Server::start(apiserver::Options::default())
        .await
        .unwrap();
    let (certificate, key) = other
        .client_certificate("admin", &["system:masters"])
        .unwrap();
    let foreign = setup.ask("configz", Some((&certificate, &key)), None).await;
    assert!(foreign.is_err(), "{foreign:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_opens_what_its_user_may_get_and_nothing_else() {
    let setup = TestNode::up().await;
    let (certificate, key) = setup.server.client_certificate("somebody", &[]).unwrap();
    let ask = async |path: &str| {
        let answer = setup.ask(path, Some((&certificate, &key)), None).await;
        answer.unwrap()
    };
    assert_eq!(ask("configz").await, refusal("somebody", "configz proxy"));
    let somebody =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "somebody"});
    allow(&setup, "configz", somebody).await;
    assert_eq!(ask("configz").await.0, 200);
    assert_eq!(ask("pods").await, refusal("somebody", "pods proxy"));
    assert_eq!(ask("metrics").await, refusal("somebody", "metrics"));
}

#[tokio::test(flavor = "multi_thread")]
async fn token_of_an_account_opens_what_the_account_may_get() {
    let setup = TestNode::up().await;
    let accounts: Api<ServiceAccount> = Api::default_namespaced(setup.client());
    let request = serde_json::from_value(json!({"spec": {"audiences": []}})).unwrap();
    let token = accounts
        .create_token_request("default", &PostParams::default(), &request)
        .await
        .unwrap();
    let token = token.status.unwrap().token;
    let ask = async |path: &str| setup.ask(path, None, Some(&token)).await.unwrap();
    let user = "system:serviceaccount:default:default";
    assert_eq!(ask("metrics").await, refusal(user, "metrics"));
    let account = json!({"kind": "ServiceAccount", "name": "default", "namespace": "default"});
    allow(&setup, "metrics", account).await;
    let (status, text) = ask("metrics").await;
    assert_eq!(status, 200);
    assert!(text.contains("kubelet_running_pods 0"), "{text}");
    assert_eq!(ask("configz").await, refusal(user, "configz proxy"));
}
