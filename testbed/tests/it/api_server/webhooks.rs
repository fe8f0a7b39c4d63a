//! Tests of admission webhooks that recordings cannot show: what happens while one does not answer.

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::clients::{config_map, impatient, start};

fn parse<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// Returns a configuration about ConfigMaps of the namespace `slow`.
fn configuration(url: &str, seconds: u32) -> ValidatingWebhookConfiguration {
    parse(json!({"metadata": {"name": "slow"}, "webhooks": [{
        "name": "slow.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": seconds,
        "clientConfig": {"url": url},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "slow"}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}],
    }]}))
}

#[tokio::test]
async fn a_webhook_that_hangs_delays_only_the_writes_that_it_is_asked_about() {
    let server = start().await;
    let client = impatient(&server, &server.admin_token).await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", silent.local_addr().unwrap());
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let slow = parse(json!({"metadata": {"name": "slow"}}));
    namespaces
        .create(&PostParams::default(), &slow)
        .await
        .unwrap();
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    configurations
        .create(&PostParams::default(), &configuration(&url, 30))
        .await
        .unwrap();
    let waiting = tokio::spawn({
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "slow");
        async move { maps.create(&PostParams::default(), &config_map("a")).await }
    });
    // the webhook has been asked, and never says a word
    let asked = silent.accept().await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    maps.create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap();
    assert!(!waiting.is_finished());
    drop(asked);
    let refused = waiting.await.unwrap().unwrap_err().to_string();
    assert!(
        refused
            .contains("failed calling webhook \"slow.example.com\": failed to call webhook: Post"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_webhook_that_is_asked_about_nothing_is_not_called() {
    let server = start().await;
    let client = impatient(&server, &server.admin_token).await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", silent.local_addr().unwrap());
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    configurations
        .create(&PostParams::default(), &configuration(&url, 1))
        .await
        .unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    maps.create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap();
    let called = futures::FutureExt::now_or_never(silent.accept());
    assert!(called.is_none());
}
