//! Tests with many objects and with clients that read slowly.

use std::collections::HashMap;
use std::time::Duration;

use apiserver::{Options, Running, Server};
use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

const TIMEOUT: Duration = Duration::from_mins(1);

async fn start(history: usize) -> (Running, Client) {
    let options = Options {
        tokens: HashMap::new(),
        history,
        ..Options::default()
    };
    let server = Server::start(options).await.unwrap();
    let config = Kubeconfig::from_yaml(&server.kubeconfig(&server.admin_token)).unwrap();
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .unwrap();
    (server, Client::try_from(config).unwrap())
}

fn config_map(name: &str, text: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": {"a": text}})
}

#[tokio::test]
async fn a_watch_that_is_read_too_slowly_expires() {
    const HISTORY: usize = 50;
    let (server, client) = start(HISTORY).await;
    let path = "/api/v1/namespaces/default/configmaps?watch=true&labelSelector=!none";
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    let mut lines = client.request_stream(request).await.unwrap().lines();
    // larger than the buffers of the connection, and much longer than the history
    let text = "x".repeat(100_000);
    for round in 0..500 {
        assert!(server.seed(config_map("big", &format!("{round}{text}"))));
        tokio::task::yield_now().await;
    }
    let mut last = Value::Null;
    let mut lines_read = 0;
    let read = async {
        while let Some(line) = lines.try_next().await.unwrap() {
            last = serde_json::from_str(&line).unwrap();
            lines_read += 1;
        }
    };
    tokio::time::timeout(TIMEOUT, read).await.unwrap();
    assert_eq!(last["type"], "ERROR");
    assert_eq!(last["object"]["code"], 410);
    assert!(lines_read < 500, "the whole history was kept: {lines_read}");
}

#[tokio::test]
async fn a_long_list_is_whole_and_in_order() {
    let (server, client) = start(10_000).await;
    let text = "y".repeat(500);
    for number in 0..2_000 {
        server.seed(config_map(&format!("map-{number:04}"), &text));
    }
    let path = "/api/v1/namespaces/default/configmaps";
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    let list: Value = client.request(request).await.unwrap();
    let items = list["items"].as_array().unwrap();
    assert_eq!(items.len(), 2_000);
    assert_eq!(items[1234]["metadata"]["name"], "map-1234");
    assert_eq!(items[0]["kind"], Value::Null);
    assert_eq!(list["kind"], "ConfigMapList");
}
