//! Requests to the embedded API server: whatever a client sends gets an answer, and the server lives.

use ::fuzz::{Result, Unstructured};
use apiserver::{Options, Server};
use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
/// A pod is admitted when its account is there.
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/fuzz.example.com/v1/namespaces/default/widgets";

/// Kinds of bodies.
const TYPES: &[&str] = &[
    "application/json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/json-patch+json",
    "application/apply-patch+yaml",
    "application/vnd.kubernetes.protobuf",
    "text/plain",
    "",
];
const QUERIES: &[&str] = &[
    "",
    "dryRun=All",
    "fieldValidation=Strict",
    "fieldManager=f&force=true",
    "limit=1&continue=x",
    "labelSelector=a%20in%20(b",
    "fieldSelector=status.phase!%3D",
    "resourceVersion=0&resourceVersionMatch=Exact",
    "resourceVersion=99999999999999999999",
    "pretty=true",
    "propagationPolicy=Foreground",
    "gracePeriodSeconds=-1",
    "timeoutSeconds=0&watch=1",
];

#[test]
fn no_request_goes_without_an_answer() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let (server, client) = runtime.block_on(async {
        let server = Server::start(Options::default()).await.expect("a server");
        let client = client(&server.kubeconfig(&server.admin_token)).await;
        for (path, object) in [
            (DEFINITIONS, definition()),
            (ACCOUNTS, account()),
            (PODS, pod()),
            (WIDGETS, widget()),
        ] {
            create(&client, path, &object).await;
        }
        (server, client)
    });
    let client = &client;
    let seeds = [
        (PODS, "a", pod()),
        (DEFINITIONS, "widgets.fuzz.example.com", definition()),
        (WIDGETS, "w", widget()),
    ];
    ::fuzz::run(file!(), |input| {
        let request = request(&seeds, input)?;
        let (alive, answered) = runtime.block_on(async move {
            let limit = std::time::Duration::from_secs(20);
            let answered = match request {
                Some(request) => tokio::time::timeout(limit, client.send(request))
                    .await
                    .is_ok(),
                None => true,
            };
            (client.apiserver_version().await.is_ok(), answered)
        });
        assert!(answered, "no answer");
        assert!(alive, "the server is gone");
        Ok(())
    });
    drop(server);
}

/// Draws a request; `None` if no client could send it.
fn request(
    seeds: &[(&str, &str, Value)],
    input: &mut Unstructured<'_>,
) -> Result<Option<Request<Body>>> {
    let (path, name, seed) = input.choose(seeds)?;
    let method = input
        .choose(&[
            Method::POST,
            Method::PUT,
            Method::PATCH,
            Method::GET,
            Method::DELETE,
        ])?
        .clone();
    let mut body = seed.clone();
    ::fuzz::mutate::document(&mut body, input)?;
    let mut text = body.to_string();
    let kind = *input.choose(TYPES)?;
    if kind.contains("json-patch") {
        text = json!([{"op": "replace", "path": "/spec", "value": body["spec"]}, {"op": "test", "path": "/metadata/name", "value": name}]).to_string();
    }
    let mut bytes = ::fuzz::mutate::text(&text, input)?.into_bytes();
    if kind.contains("protobuf") {
        let mut message = b"k8s\0".to_vec();
        message.append(&mut bytes);
        bytes = message;
    }
    let below = match method {
        Method::POST => String::new(),
        _ => format!(
            "/{name}{}",
            input.choose(&[
                "",
                "/status",
                "/scale",
                "/log",
                "/binding",
                "/eviction",
                "/ephemeralcontainers",
                "/nothing"
            ])?
        ),
    };
    let query = ::fuzz::mutate::text(input.choose(QUERIES)?, input)?;
    let request = Request::builder()
        .method(method)
        .uri(format!("{path}{below}?{query}"))
        .header("Content-Type", kind)
        .header(
            "Accept",
            *input.choose(&[
                "application/json",
                "application/json;as=Table;v=v1;g=meta.k8s.io",
                "application/vnd.kubernetes.protobuf",
                "*/*;q=x",
            ])?,
        );
    Ok(request.body(Body::from(bytes)).ok())
}

async fn client(kubeconfig: &str) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.expect("a configuration");
    // an answer of 429 or 503 is an answer
    config.default_retry = false;
    Client::try_from(config).expect("a client")
}

async fn create(client: &Client, path: &str, object: &Value) {
    let request = Request::post(path).header("Content-Type", "application/json");
    let request = request
        .body(Body::from(object.to_string().into_bytes()))
        .expect("a request");
    let answer = client.send(request).await.expect("an answer");
    assert!(answer.status().is_success(), "{path}: {}", answer.status());
}

fn account() -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "default"}})
}

fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default", "labels": {"a": "b"}, "finalizers": ["fuzz.example.com/f"]},
        "spec": {
            "containers": [{"name": "app", "image": "i", "command": ["c"], "ports": [{"containerPort": 80}], "env": [{"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}], "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}, "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
            "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}], "tolerations": [{"operator": "Exists"}], "terminationGracePeriodSeconds": 0,
        },
        "status": {"phase": "Running"},
    })
}

fn definition() -> Value {
    let spec = json!({
        "type": "object", "x-kubernetes-validations": [{"rule": "self.low <= self.high", "message": "m", "messageExpression": "string(self.low)", "fieldPath": ".low", "reason": "FieldValueInvalid"}],
        "properties": {"low": {"type": "integer", "minimum": 0}, "high": {"type": "integer", "default": 7}, "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 9}, "list": {"type": "array", "maxItems": 9, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string", "maxLength": 9}}}}},
    });
    let version = json!({
        "name": "v1", "served": true, "storage": true, "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.low", "statusReplicasPath": ".status.low"}},
        "additionalPrinterColumns": [{"name": "Low", "type": "integer", "jsonPath": ".spec.low"}], "selectableFields": [{"jsonPath": ".spec.name"}],
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}},
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.fuzz.example.com"},
        "spec": {"group": "fuzz.example.com", "scope": "Namespaced", "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"}, "versions": [version]},
    })
}

fn widget() -> Value {
    json!({
        "apiVersion": "fuzz.example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "default"},
        "spec": {"low": 1, "high": 2, "name": "abc", "list": [{"k": "a"}, {"k": "b"}]},
    })
}
