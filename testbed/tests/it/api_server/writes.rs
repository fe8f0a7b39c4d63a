//! Tests of the effects of writes: defaults, admission, the life of a pod, tokens.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authentication::v1::{SelfSubjectReview, TokenRequest};
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{
    Api, DeleteParams, EvictParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

use super::clients::{code, impatient, start};

fn parse<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

async fn with_account() -> (apiserver::Running, Client) {
    let server = start().await;
    let admin = impatient(&server, &server.admin_token).await;
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), "default");
    accounts
        .create(
            &PostParams::default(),
            &parse(json!({"metadata": {"name": "default"}})),
        )
        .await
        .unwrap();
    (server, admin)
}

fn pod(name: &str, node: &str) -> Pod {
    let mut pod = json!({"metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "image": "web", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}]}});
    if !node.is_empty() {
        pod["spec"]["nodeName"] = json!(node);
    }
    parse(pod)
}

async fn ready(pods: &Api<Pod>, name: &str) {
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_pod_gets_its_defaults_its_account_and_its_class() {
    let (_server, admin) = with_account().await;
    let pods: Api<Pod> = Api::namespaced(admin, "default");
    let made = pods
        .create(&PostParams::default(), &pod("web", ""))
        .await
        .unwrap();
    let spec = made.spec.unwrap();
    assert_eq!(spec.service_account_name.as_deref(), Some("default"));
    assert_eq!(spec.priority, Some(0));
    assert_eq!(spec.tolerations.unwrap().len(), 2);
    let volume = &spec.volumes.unwrap()[0];
    assert!(volume.name.starts_with("kube-api-access-"));
    let container = &spec.containers[0];
    assert_eq!(container.image_pull_policy.as_deref(), Some("Always"));
    let requests = container
        .resources
        .as_ref()
        .unwrap()
        .requests
        .clone()
        .unwrap();
    assert_eq!(requests["cpu"].0, "2");
    assert_eq!(
        made.status.unwrap().qos_class.as_deref(),
        Some("Guaranteed")
    );
    assert_eq!(made.metadata.generation, Some(1));
}

#[tokio::test]
async fn a_pod_waits_a_moment_for_the_default_account() {
    let server = start().await;
    let admin = impatient(&server, &server.admin_token).await;
    let pods: Api<Pod> = Api::namespaced(admin.clone(), "default");
    let accounts: Api<ServiceAccount> = Api::namespaced(admin, "default");
    let account = parse(json!({"metadata": {"name": "default"}}));
    let (params, web) = (PostParams::default(), pod("web", ""));
    let (made, account) = tokio::join!(
        pods.create(&params, &web),
        accounts.create(&params, &account)
    );
    account.unwrap();
    made.unwrap();
}

#[tokio::test]
async fn a_running_pod_ends_in_its_time_and_a_waiting_one_at_once() {
    let (_server, admin) = with_account().await;
    let pods: Api<Pod> = Api::namespaced(admin, "default");
    for (name, node) in [("runs", "worker"), ("waits", "")] {
        pods.create(&PostParams::default(), &pod(name, node))
            .await
            .unwrap();
    }
    pods.delete("waits", &DeleteParams::default())
        .await
        .unwrap();
    assert_eq!(code(&pods.get("waits").await.unwrap_err()), 404);
    pods.delete("runs", &DeleteParams::default()).await.unwrap();
    let marked = pods.get("runs").await.unwrap().metadata;
    assert_eq!(marked.deletion_grace_period_seconds, Some(30));
    assert_eq!(marked.generation, Some(2));

    let version = marked.resource_version.unwrap();
    let mut events = pods
        .watch(&WatchParams::default(), &version)
        .await
        .unwrap()
        .boxed();
    pods.delete("runs", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    let mut kinds = Vec::new();
    while kinds.len() < 2 {
        let event = tokio::time::timeout(Duration::from_mins(1), events.next())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        match event {
            WatchEvent::Modified(pod) => {
                kinds.push(("modified", pod.metadata.deletion_grace_period_seconds));
            }
            WatchEvent::Deleted(pod) => {
                kinds.push(("deleted", pod.metadata.deletion_grace_period_seconds));
            }
            _ => {}
        }
    }
    assert_eq!(kinds, [("modified", Some(0)), ("deleted", Some(0))]);
}

#[tokio::test]
async fn a_pod_is_bound_once() {
    let (_server, admin) = with_account().await;
    let pods: Api<Pod> = Api::namespaced(admin.clone(), "default");
    pods.create(&PostParams::default(), &pod("web", ""))
        .await
        .unwrap();
    let bind = || async {
        let body = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "web", "annotations": {"a": "b"}},
            "target": {"kind": "Node", "name": "worker"}});
        let request = http::Request::post("/api/v1/namespaces/default/pods/web/binding")
            .header("content-type", "application/json")
            .body(serde_json::to_vec(&body).unwrap())
            .unwrap();
        admin.request_text(request).await
    };
    bind().await.unwrap();
    let bound = pods.get("web").await.unwrap();
    assert_eq!(bound.spec.unwrap().node_name.as_deref(), Some("worker"));
    assert_eq!(bound.metadata.annotations.unwrap()["a"], "b");
    let condition = &bound.status.unwrap().conditions.unwrap()[0];
    assert_eq!(
        (condition.type_.as_str(), condition.status.as_str()),
        ("PodScheduled", "True")
    );
    let again = bind().await.unwrap_err();
    assert_eq!(code(&again), 409);
    assert!(
        again
            .to_string()
            .contains("pod web is already assigned to node \"worker\"")
    );
}

#[tokio::test]
async fn an_eviction_takes_from_the_budget_until_nothing_is_left() {
    let (_server, admin) = with_account().await;
    let pods: Api<Pod> = Api::namespaced(admin.clone(), "default");
    for name in ["one", "two"] {
        let mut pod = pod(name, "worker");
        pod.metadata.labels = Some(BTreeMap::from([("app".into(), "web".into())]));
        pods.create(&PostParams::default(), &pod).await.unwrap();
        ready(&pods, name).await;
    }
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(admin, "default");
    let budget = json!({"metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}});
    budgets
        .create(&PostParams::default(), &parse(budget))
        .await
        .unwrap();
    let unobserved = pods
        .evict("one", &EvictParams::default())
        .await
        .unwrap_err();
    assert_eq!(code(&unobserved), 429);
    let status = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2,
        "desiredHealthy": 1, "expectedPods": 2}});
    budgets
        .patch_status("web", &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
    pods.evict("one", &EvictParams::default()).await.unwrap();
    let evicted = pods.get("one").await.unwrap();
    assert!(evicted.metadata.deletion_timestamp.is_some());
    let status = budgets.get("web").await.unwrap().status.unwrap();
    assert_eq!(status.disruptions_allowed, 0);
    assert!(status.disrupted_pods.unwrap().contains_key("one"));
    let refused = pods
        .evict("two", &EvictParams::default())
        .await
        .unwrap_err();
    assert_eq!(code(&refused), 429);
}

#[tokio::test]
async fn tokens_of_an_account_end_with_it() {
    let (server, admin) = with_account().await;
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), "default");
    let answer = accounts
        .create_token_request("default", &PostParams::default(), &TokenRequest::default())
        .await
        .unwrap();
    let token = answer.status.unwrap().token;
    let own = impatient(&server, &token).await;
    let reviews: Api<SelfSubjectReview> = Api::all(own.clone());
    let who = reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await
        .unwrap();
    let user = who.status.unwrap().user_info.unwrap();
    assert_eq!(
        user.username.as_deref(),
        Some("system:serviceaccount:default:default")
    );
    assert_eq!(
        user.groups.unwrap(),
        [
            "system:serviceaccounts",
            "system:serviceaccounts:default",
            "system:authenticated"
        ]
    );
    accounts
        .delete("default", &DeleteParams::default())
        .await
        .unwrap();
    let refused = reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await
        .unwrap_err();
    assert_eq!(code(&refused), 401);
}

#[tokio::test]
async fn a_client_certificate_says_who_somebody_is() {
    let server = start().await;
    let text = server
        .kubeconfig_for_certificate("carla", &["system:masters"])
        .unwrap();
    let config = Kubeconfig::from_yaml(&text).unwrap();
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .unwrap();
    let reviews: Api<SelfSubjectReview> = Api::all(Client::try_from(config).unwrap());
    let who = reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await
        .unwrap();
    let user = who.status.unwrap().user_info.unwrap();
    assert_eq!(user.username.as_deref(), Some("carla"));
    assert_eq!(
        user.groups.unwrap(),
        ["system:masters", "system:authenticated"]
    );
}

#[tokio::test]
async fn a_service_gets_an_address_of_its_own_and_keeps_it() {
    let server = start().await;
    let admin = impatient(&server, &server.admin_token).await;
    let services: Api<Service> = Api::namespaced(admin, "default");
    let first = services.get("kubernetes").await.unwrap().spec.unwrap();
    assert_eq!(first.cluster_ip.as_deref(), Some("10.96.0.1"));
    let given = json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    let made = services
        .create(&PostParams::default(), &parse(given.clone()))
        .await
        .unwrap();
    let address = made.spec.unwrap().cluster_ip.unwrap();
    assert!(address.starts_with("10.96."));
    let mut again: Service = parse(given);
    again.metadata.labels = Some(BTreeMap::from([("a".into(), "b".into())]));
    let kept = services
        .replace("web", &PostParams::default(), &again)
        .await
        .unwrap();
    assert_eq!(kept.spec.unwrap().cluster_ip, Some(address));
}

#[tokio::test]
async fn scaling_changes_the_number_and_counts_a_generation() {
    let server = start().await;
    let admin = impatient(&server, &server.admin_token).await;
    let deployments: Api<Deployment> = Api::namespaced(admin, "default");
    let given = json!({"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "web:1"}]}}}});
    deployments
        .create(&PostParams::default(), &parse(given))
        .await
        .unwrap();
    let scale: Scale = deployments
        .patch_scale(
            "web",
            &PatchParams::default(),
            &Patch::Merge(json!({"spec": {"replicas": 3}})),
        )
        .await
        .unwrap();
    assert_eq!(scale.spec.unwrap().replicas, Some(3));
    assert_eq!(scale.status.unwrap().selector.as_deref(), Some("app=web"));
    let scaled = deployments.get("web").await.unwrap();
    assert_eq!(scaled.metadata.generation, Some(2));
    assert_eq!(scaled.spec.unwrap().replicas, Some(3));
}

#[tokio::test]
async fn a_namespace_ends_when_its_finalizer_is_gone() {
    let server = start().await;
    let admin = impatient(&server, &server.admin_token).await;
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    namespaces
        .create(
            &PostParams::default(),
            &parse(json!({"metadata": {"name": "new"}})),
        )
        .await
        .unwrap();
    namespaces
        .delete("new", &DeleteParams::default())
        .await
        .unwrap();
    let mut ending = namespaces.get("new").await.unwrap();
    assert_eq!(
        ending.status.as_ref().unwrap().phase.as_deref(),
        Some("Terminating")
    );
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), "new");
    let late = accounts
        .create(
            &PostParams::default(),
            &parse(json!({"metadata": {"name": "late"}})),
        )
        .await
        .unwrap_err();
    assert_eq!(code(&late), 403);
    ending.spec.as_mut().unwrap().finalizers = None;
    let request = http::Request::put("/api/v1/namespaces/new/finalize")
        .header("content-type", "application/json")
        .body(serde_json::to_vec(&ending).unwrap())
        .unwrap();
    admin.request_text(request).await.unwrap();
    assert_eq!(code(&namespaces.get("new").await.unwrap_err()), 404);
}

#[tokio::test]
async fn a_new_node_is_tainted_until_it_is_ready() {
    let server = start().await;
    let admin = impatient(&server, &server.admin_token).await;
    let nodes: Api<Node> = Api::all(admin);
    let made = nodes
        .create(
            &PostParams::default(),
            &parse(json!({"metadata": {"name": "worker"}})),
        )
        .await
        .unwrap();
    let taint = &made.spec.unwrap().taints.unwrap()[0];
    assert_eq!(
        (taint.key.as_str(), taint.effect.as_str()),
        ("node.kubernetes.io/not-ready", "NoSchedule")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nothing_acts_on_is_told_or_refused_as_the_server_was_asked_to() {
    let scaler = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "s"}, "spec": {
        "maxReplicas": 2, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}});
    for (ignored, expected) in [
        (apiserver::Ignored::Stored, (201, None)),
        (
            apiserver::Ignored::Warned,
            (
                201,
                Some(
                    "299 - \"the embedded cluster ignores horizontalpodautoscalers.autoscaling: no controller scales\"",
                ),
            ),
        ),
        (apiserver::Ignored::Refused, (403, None)),
    ] {
        let options = apiserver::Options {
            ignored,
            ..apiserver::Options::default()
        };
        let server = apiserver::Server::start(options).await.unwrap();
        let admin = impatient(&server, &server.admin_token).await;
        let request =
            http::Request::post("/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers")
                .header("content-type", "application/json")
                .body(scaler.to_string().into_bytes().into())
                .unwrap();
        let answer = admin.send(request).await.unwrap();
        let warning = answer.headers().get("warning");
        let told = (
            answer.status().as_u16(),
            warning.map(|warning| warning.to_str().unwrap()),
        );
        assert_eq!(told, expected, "{ignored:?}");
    }
}
