//! Dependents follow their owners, and every namespace gets its default objects.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
    PropagationPolicy,
};
use serde_json::json;

use super::harness::{Cluster, deployment, make, until, until_all};

fn policy(policy: PropagationPolicy) -> DeleteParams {
    DeleteParams {
        propagation_policy: Some(policy),
        ..DeleteParams::default()
    }
}

async fn rolled_out(cluster: &Cluster) -> Api<Deployment> {
    let deployments: Api<Deployment> = cluster.api();
    make(&deployments, deployment("web", 2)).await;
    until(&deployments, "web", |found| {
        found.and_then(|found| found.status.as_ref()?.available_replicas) == Some(2)
    })
    .await;
    deployments
}

#[tokio::test(flavor = "multi_thread")]
async fn dependents_go_after_their_owner() {
    let cluster = Cluster::start(&["a"]).await;
    let deployments = rolled_out(&cluster).await;
    deployments
        .delete("web", &policy(PropagationPolicy::Background))
        .await
        .unwrap();
    until_all(&cluster.api::<ReplicaSet>(), "app=web", <[_]>::is_empty).await;
    until_all(&cluster.api::<Pod>(), "app=web", <[_]>::is_empty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_in_the_foreground_goes_last() {
    let cluster = Cluster::start(&["a"]).await;
    let deployments = rolled_out(&cluster).await;
    deployments
        .delete("web", &policy(PropagationPolicy::Foreground))
        .await
        .unwrap();
    until(&deployments, "web", |found| found.is_none()).await;
    let pods = cluster
        .api::<Pod>()
        .list(&kube::api::ListParams::default().labels("app=web"))
        .await
        .unwrap();
    assert!(pods.items.is_empty(), "{pods:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn orphans_stay_and_are_taken_in_again() {
    let cluster = Cluster::start(&["a"]).await;
    let deployments = rolled_out(&cluster).await;
    deployments
        .delete("web", &policy(PropagationPolicy::Orphan))
        .await
        .unwrap();
    until(&deployments, "web", |found| found.is_none()).await;
    let sets: Api<ReplicaSet> = cluster.api();
    let free = until_all(&sets, "app=web", |sets| {
        sets.len() == 1 && sets[0].owner_references().is_empty()
    })
    .await;
    let made = make(&deployments, deployment("web", 2)).await;
    let taken = until_all(&sets, "app=web", |sets| {
        sets.iter().any(|set| {
            set.owner_references()
                .iter()
                .any(|owner| Some(&owner.uid) == made.uid().as_ref())
        })
    })
    .await;
    assert_eq!((taken.len(), taken[0].uid()), (1, free[0].uid()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_names_an_owner_that_never_was_goes() {
    let cluster = Cluster::start(&[]).await;
    let api: Api<ConfigMap> = cluster.api();
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "ghost", "uid": "5e1f6a70-0000-4000-8000-000000000000"});
    make(
        &api,
        json!({"metadata": {"name": "one", "ownerReferences": [owner]}}),
    )
    .await;
    until(&api, "one", |found| found.is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_owners_one_is_enough() {
    let cluster = Cluster::start(&[]).await;
    let api: Api<ConfigMap> = cluster.api();
    let mut owners = Vec::new();
    for name in ["first", "second"] {
        let owner = make(&api, json!({"metadata": {"name": name}})).await;
        owners.push(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": owner.uid()}),
        );
    }
    make(
        &api,
        json!({"metadata": {"name": "one", "ownerReferences": owners}}),
    )
    .await;
    api.delete("first", &DeleteParams::default()).await.unwrap();
    until(&api, "one", |found| {
        found.is_some_and(|found| found.owner_references().len() == 1)
    })
    .await;
    api.delete("second", &DeleteParams::default())
        .await
        .unwrap();
    until(&api, "one", |found| found.is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_resources_own_and_are_owned() {
    let cluster = Cluster::start(&[]).await;
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    let definition = json!({
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    });
    make(&definitions, definition).await;
    until(&definitions, "things.example.com", |found| {
        found
            .and_then(|found| found.status.as_ref())
            .is_some_and(|status| {
                status
                    .conditions
                    .iter()
                    .flatten()
                    .any(|held| held.type_ == "Established" && held.status == "True")
            })
    })
    .await;
    let resource = ApiResource {
        group: "example.com".into(),
        version: "v1".into(),
        api_version: "example.com/v1".into(),
        kind: "Thing".into(),
        plural: "things".into(),
    };
    let things: Api<DynamicObject> =
        Api::namespaced_with(cluster.client.clone(), "default", &resource);
    let owner = things
        .create(
            &PostParams::default(),
            &DynamicObject::new("owner", &resource),
        )
        .await
        .unwrap();
    let maps: Api<ConfigMap> = cluster.api();
    let reference = json!({"apiVersion": "example.com/v1", "kind": "Thing", "name": "owner", "uid": owner.uid()});
    make(
        &maps,
        json!({"metadata": {"name": "one", "ownerReferences": [reference]}}),
    )
    .await;
    things
        .delete("owner", &DeleteParams::default())
        .await
        .unwrap();
    until(&maps, "one", |found| found.is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_gets_its_account_and_the_authority_and_they_come_back() {
    let cluster = Cluster::start(&[]).await;
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    make(&namespaces, json!({"metadata": {"name": "fresh"}})).await;
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), "fresh");
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "fresh");
    let account = until(&accounts, "default", |found| found.is_some())
        .await
        .unwrap();
    let authority = |map: Option<&ConfigMap>| {
        map.and_then(|map| map.data.as_ref()?.get("ca.crt").cloned())
            == Some(cluster.server.ca.clone())
    };
    until(&maps, "kube-root-ca.crt", authority).await;
    accounts
        .delete("default", &DeleteParams::default())
        .await
        .unwrap();
    until(&accounts, "default", |found| {
        found.is_some_and(|found| found.uid() != account.uid())
    })
    .await;
    maps.patch(
        "kube-root-ca.crt",
        &PatchParams::default(),
        &Patch::Merge(json!({"data": {"ca.crt": "wrong"}})),
    )
    .await
    .unwrap();
    until(&maps, "kube-root-ca.crt", authority).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_is_deleted_says_what_holds_it_and_goes_with_the_last() {
    let cluster = Cluster::start(&["a"]).await;
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    make(&namespaces, json!({"metadata": {"name": "doomed"}})).await;
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), "doomed");
    until(&accounts, "default", |found| found.is_some()).await;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "doomed");
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    make(&maps, held).await;
    make(&maps, json!({"metadata": {"name": "free"}})).await;
    let deployments: Api<Deployment> = Api::namespaced(cluster.client.clone(), "doomed");
    make(&deployments, deployment("web", 2)).await;
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "doomed");
    until_all(&pods, "app=web", |pods| pods.len() == 2).await;
    namespaces
        .delete("doomed", &DeleteParams::default())
        .await
        .unwrap();
    let condition_text = |namespace: Option<&Namespace>, kind: &str| -> Option<(String, String)> {
        let conditions = namespace?.status.clone()?.conditions?;
        let held = conditions.into_iter().find(|held| held.type_ == kind)?;
        Some((held.status, held.message.unwrap_or_default()))
    };
    let wanted = (
        "True".to_owned(),
        "Some resources are remaining: configmaps. has 1 resource instances".to_owned(),
    );
    let found = until(&namespaces, "doomed", |found| {
        condition_text(found, "NamespaceContentRemaining").as_ref() == Some(&wanted)
    })
    .await;
    assert_eq!(
        condition_text(found.as_ref(), "NamespaceFinalizersRemaining")
            .unwrap()
            .1,
        "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
    );
    assert!(
        pods.list(&ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    maps.patch("held", &PatchParams::default(), &free)
        .await
        .unwrap();
    until(&namespaces, "doomed", |found| found.is_none()).await;
    assert!(
        accounts
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
}
