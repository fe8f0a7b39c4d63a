//! Tests of the embedded API server with kube-rs, an unmodified client.

use std::collections::HashMap;
use std::time::Duration;

use apiserver::{Options, Running, Server, User};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent,
    WatchParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Config};
use serde_json::json;

const NOBODY: &str = "nobody-token";

pub(crate) async fn start() -> Running {
    let user = User {
        name: "nobody".into(),
        ..User::default()
    };
    let options = Options {
        tokens: HashMap::from([(NOBODY.to_owned(), user)]),
        proxies_to_loopback: true,
        ..Options::default()
    };
    Server::start(options).await.unwrap()
}

pub(crate) async fn client(server: &Running, token: &str) -> Client {
    let config = Kubeconfig::from_yaml(&server.kubeconfig(token)).unwrap();
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .unwrap();
    Client::try_from(config).unwrap()
}

/// Returns a client without retries, so that tests see the refusals.
pub(crate) async fn impatient(server: &Running, token: &str) -> Client {
    let config = Kubeconfig::from_yaml(&server.kubeconfig(token)).unwrap();
    let mut config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

pub(crate) fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(
        json!({"metadata": {"name": name, "labels": {"app": name}}, "data": {"a": "b"}}),
    )
    .unwrap()
}

/// Returns the status code of a refusal; 0 for an error that is not an answer of the API.
pub(crate) fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        _ => 0,
    }
}

#[tokio::test]
async fn objects_are_created_read_patched_and_deleted() {
    let server = start().await;
    let api: Api<ConfigMap> =
        Api::namespaced(client(&server, &server.admin_token).await, "default");
    let made = api
        .create(&PostParams::default(), &config_map("one"))
        .await
        .unwrap();
    assert!(made.metadata.uid.is_some());
    let taken = api
        .create(&PostParams::default(), &config_map("one"))
        .await
        .unwrap_err();
    assert_eq!(code(&taken), 409);

    let patch = json!({"data": {"a": null, "c": "d"}});
    let patched = api
        .patch("one", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    assert_eq!(
        patched.data.unwrap().into_iter().collect::<Vec<_>>(),
        [("c".to_owned(), "d".to_owned())]
    );

    let stale = api
        .replace("one", &PostParams::default(), &made)
        .await
        .unwrap_err();
    assert_eq!(code(&stale), 409);
    let list = api
        .list(&ListParams::default().labels("app=one"))
        .await
        .unwrap();
    assert_eq!(list.items.len(), 1);

    api.delete("one", &DeleteParams::default()).await.unwrap();
    assert_eq!(code(&api.get("one").await.unwrap_err()), 404);
}

#[tokio::test]
async fn pages_follow_each_other() {
    let server = start().await;
    let api: Api<ConfigMap> =
        Api::namespaced(client(&server, &server.admin_token).await, "kube-public");
    for name in ["a", "b", "c"] {
        api.create(&PostParams::default(), &config_map(name))
            .await
            .unwrap();
    }
    let first = api.list(&ListParams::default().limit(2)).await.unwrap();
    assert_eq!(
        (first.items.len(), first.metadata.remaining_item_count),
        (2, Some(1))
    );
    let token = first.metadata.continue_.unwrap();
    let second = api
        .list(&ListParams::default().limit(2).continue_token(&token))
        .await
        .unwrap();
    assert_eq!(second.items.len(), 1);
    assert_eq!(second.items[0].metadata.name.as_deref(), Some("c"));
}

#[tokio::test]
async fn a_watch_tells_changes_in_order_and_expires_after_compaction() {
    let server = start().await;
    let api: Api<ConfigMap> =
        Api::namespaced(client(&server, &server.admin_token).await, "default");
    let version = api
        .list(&ListParams::default())
        .await
        .unwrap()
        .metadata
        .resource_version
        .unwrap();
    let events = api
        .watch(&WatchParams::default().labels("app=one"), &version)
        .await
        .unwrap();
    api.create(&PostParams::default(), &config_map("other"))
        .await
        .unwrap();
    api.create(&PostParams::default(), &config_map("one"))
        .await
        .unwrap();
    let out = json!({"metadata": {"labels": {"app": "moved"}}});
    api.patch("one", &PatchParams::default(), &Patch::Merge(out))
        .await
        .unwrap();
    let seen: Vec<&str> = tokio::time::timeout(
        Duration::from_mins(1),
        events
            .map_ok(|event| match event {
                WatchEvent::Added(_) => "added",
                WatchEvent::Modified(_) => "modified",
                WatchEvent::Deleted(_) => "deleted",
                WatchEvent::Bookmark(_) => "bookmark",
                WatchEvent::Error(_) => "error",
            })
            .take(2)
            .try_collect(),
    )
    .await
    .unwrap()
    .unwrap();
    assert_eq!(seen, ["added", "deleted"]);

    server.compact();
    let mut expired = api
        .watch(&WatchParams::default(), &version)
        .await
        .unwrap()
        .boxed();
    let event = tokio::time::timeout(Duration::from_mins(1), expired.next()).await;
    match event.unwrap().unwrap().unwrap() {
        WatchEvent::Error(status) => assert_eq!(status.code, 410),
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn finalizers_hold_an_object_until_they_are_gone() {
    let server = start().await;
    let api: Api<ConfigMap> =
        Api::namespaced(client(&server, &server.admin_token).await, "default");
    let mut held = config_map("held");
    held.metadata.finalizers = Some(vec!["example.com/hold".into()]);
    api.create(&PostParams::default(), &held).await.unwrap();
    api.delete("held", &DeleteParams::default()).await.unwrap();
    assert!(
        api.get("held")
            .await
            .unwrap()
            .metadata
            .deletion_timestamp
            .is_some()
    );
    let free = json!({"metadata": {"finalizers": null}});
    api.patch("held", &PatchParams::default(), &Patch::Merge(free))
        .await
        .unwrap();
    assert_eq!(code(&api.get("held").await.unwrap_err()), 404);
}

#[tokio::test]
async fn rights_are_enforced_as_the_roles_say() {
    let server = start().await;
    let admin = client(&server, &server.admin_token).await;
    let api: Api<ConfigMap> = Api::namespaced(client(&server, NOBODY).await, "default");
    let refused = api.get("one").await.unwrap_err();
    let expected = "configmaps \"one\" is forbidden: User \"nobody\" cannot get resource \"configmaps\" in API group \"\" in the namespace \"default\"";
    assert!(refused.to_string().contains(expected), "{refused}");
    let bindings: Api<k8s_openapi::api::rbac::v1::RoleBinding> = Api::namespaced(admin, "default");
    let binding = serde_json::from_value(json!({
        "metadata": {"name": "view"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:aggregate-to-view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "nobody"}],
    }))
    .unwrap();
    bindings
        .create(&PostParams::default(), &binding)
        .await
        .unwrap();
    assert_eq!(code(&api.get("one").await.unwrap_err()), 404);
    let write = api
        .create(&PostParams::default(), &config_map("one"))
        .await
        .unwrap_err();
    assert_eq!(code(&write), 403);
    let stranger = client(&server, "unknown")
        .await
        .list_core_api_versions()
        .await
        .unwrap_err();
    assert_eq!(code(&stranger), 401);
}

#[tokio::test]
async fn custom_resources_are_discovered_defaulted_and_validated() {
    let server = start().await;
    let admin = client(&server, &server.admin_token).await;
    let definitions: Api<DynamicObject> = Api::all_with(
        admin.clone(),
        &ApiResource::from_gvk(&GroupVersionKind::gvk(
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
        )),
    );
    let definition: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Cluster", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "required": ["size"], "properties": {
                        "size": {"type": "integer"}, "color": {"type": "string", "default": "red"}}},
                    "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}}}}}}],
        },
    }))
    .unwrap();
    definitions
        .create(&PostParams::default(), &definition)
        .await
        .unwrap();

    let kind = GroupVersionKind::gvk("example.com", "v1", "Widget");
    let (resource, _) = kube::discovery::pinned_kind(&admin, &kind).await.unwrap();
    let widgets: Api<DynamicObject> = Api::all_with(admin, &resource);
    let widget =
        |spec: serde_json::Value| DynamicObject::new("w", &resource).data(json!({"spec": spec}));
    let missing = widgets
        .create(&PostParams::default(), &widget(json!({})))
        .await
        .unwrap_err();
    assert_eq!(code(&missing), 422);
    let made = widgets
        .create(
            &PostParams::default(),
            &widget(json!({"size": 3, "unknown": true})),
        )
        .await
        .unwrap();
    assert_eq!(made.data["spec"], json!({"size": 3, "color": "red"}));

    let status = json!({"spec": {"size": 9}, "status": {"ready": true}});
    let written = widgets
        .patch_status("w", &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
    assert_eq!(written.data["status"]["ready"], true);
    assert_eq!(written.data["spec"]["size"], 3);
    assert_eq!(written.metadata.generation, Some(1));
}

#[tokio::test]
async fn a_namespace_has_to_exist() {
    let server = start().await;
    let admin = client(&server, &server.admin_token).await;
    let api: Api<ConfigMap> = Api::namespaced(admin.clone(), "new");
    let missing = api
        .create(&PostParams::default(), &config_map("one"))
        .await
        .unwrap_err();
    assert_eq!(code(&missing), 404);
    let namespace = serde_json::from_value(json!({"metadata": {"name": "new"}})).unwrap();
    let namespaces: Api<Namespace> = Api::all(admin);
    let made = namespaces
        .create(&PostParams::default(), &namespace)
        .await
        .unwrap();
    assert_eq!(made.status.unwrap().phase.as_deref(), Some("Active"));
    api.create(&PostParams::default(), &config_map("one"))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_body_in_a_format_that_is_not_read_is_refused() {
    let server = start().await;
    let request = http::Request::post("/api/v1/namespaces")
        .header("content-type", "application/cbor")
        .body(b"k8s".to_vec())
        .unwrap();
    let admin = client(&server, &server.admin_token).await;
    let refused = admin.request_text(request).await.unwrap_err();
    assert_eq!(code(&refused), 415);
}
