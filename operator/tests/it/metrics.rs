//! Who may read the operator's metrics. The API server of the lane decides.

use apply::Applier;
use kube::client::Body;
use kube::{Client, Config};
use manifests::operator::users;
use manifests::to_value;
use serde_json::json;
use testbed::lane::Lane;

use crate::cluster::{Cluster, NAMESPACE};

const READER: &str = "reader";
const OTHER: &str = "other";

/// Creates two accounts, of which one may read metrics.
async fn create_accounts(cluster: &Cluster) {
    let group = "rbac.authorization.k8s.io";
    let account = |name: &str| json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": NAMESPACE}});
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": READER},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": READER},
        "subjects": [{"kind": "ServiceAccount", "name": READER, "namespace": NAMESPACE}],
    });
    let applier = Applier::new(cluster.client.clone());
    for object in [
        account(READER),
        account(OTHER),
        to_value(&users::metrics_reader(READER)),
        binding,
    ] {
        applier.apply(&object).await.unwrap();
    }
}

/// Asks for the metrics. Returns the status of the answer.
async fn status(cluster: &Cluster, token: Option<&str>) -> Result<u16, String> {
    let mut config = Config::new(format!("https://{}", cluster.metrics()).parse().unwrap());
    config.accept_invalid_certs = true;
    config.auth_info.token = token.map(Into::into);
    let client = Client::try_from(config).unwrap();
    let request = http::Request::get("/metrics").body(Body::empty()).unwrap();
    let answer = client.send(request).await;
    let answer = answer.map_err(|error| error.to_string())?;
    Ok(answer.status().as_u16())
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_for_those_whom_the_api_server_lets_read_them() {
    let lane = Lane::from_environment().unwrap();
    let mut cluster = Cluster::without_operator(lane, None).await;
    create_accounts(&cluster).await;
    let [reader, other] = [cluster.token(READER).await, cluster.token(OTHER).await];
    let address = format!("-metrics-bind-address={}", cluster.metrics());
    cluster.start_operator(&["-enable-metrics=true", "-metrics-auth", &address]);
    let nobody = cluster.eventually(async || status(&cluster, None).await);
    assert_eq!(nobody.await, 401);
    for (token, expected) in [("guessed", 401), (&other, 403), (&reader, 200)] {
        assert_eq!(status(&cluster, Some(token)).await, Ok(expected));
    }
    cluster.kill();
    cluster.start_operator(&["-enable-metrics=true", &address]);
    let open = cluster.eventually(async || status(&cluster, None).await);
    assert_eq!(open.await, 200, "as with the original, without the flag");
}
