//! Creation of the objects of a case.

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::Client;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use serde_json::{Value, json};

use super::case::Case;

/// Creates the objects of a case, and copies the API server's changes to them as far as filters consider them.
pub(super) async fn create(client: Client, mut case: Case) -> anyhow::Result<Case> {
    let id = case.id.clone();
    let failed = || format!("cannot make the objects of {id}");
    let (post, patch) = (PostParams::default(), PatchParams::default());
    for namespace in &case.namespaces {
        let api: Api<Namespace> = Api::all(client.clone());
        let namespace = serde_json::from_value(namespace.clone())?;
        api.create(&post, &namespace).await.with_context(failed)?;
    }
    for node in &case.nodes {
        let api: Api<Node> = Api::all(client.clone());
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        api.create(&post, &serde_json::from_value(node.clone())?)
            .await
            .with_context(failed)?;
        let amounts = &node["status"]["allocatable"];
        let images = &node["status"]["images"];
        let status =
            json!({"status": {"capacity": amounts, "allocatable": amounts, "images": images}});
        api.patch_status(name, &patch, &Patch::Merge(status))
            .await
            .with_context(failed)?;
        // admission adds a taint to nodes that are not ready
        let taints = json!({"spec": {"taints": node["spec"]["taints"]}});
        api.patch(name, &patch, &Patch::Merge(taints))
            .await
            .with_context(failed)?;
    }
    let is_owned = |object: &&Value| object["metadata"].get("ownerReferences").is_some();
    let (of_pod, others): (Vec<_>, Vec<_>) = case.storage.iter().partition(is_owned);
    for object in others {
        create_stored(&client, object, "")
            .await
            .with_context(failed)?;
    }
    for pod in &mut case.pods {
        create_pod(&client, pod).await.with_context(failed)?;
    }
    let uid = create_pod(&client, &mut case.pod)
        .await
        .with_context(failed)?;
    for object in of_pod {
        create_stored(&client, object, &uid)
            .await
            .with_context(failed)?;
    }
    Ok(case)
}

/// Creates a volume, a claim or an object that they depend on. Owners with uid `pod` get the uid of the pod.
async fn create_stored(client: &Client, object: &Value, pod: &str) -> anyhow::Result<()> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    let (name, kind) = (text(&metadata["name"]), text(&object["kind"]));
    let version = text(&object["apiVersion"]);
    let (group, version) = version.rsplit_once('/').unwrap_or(("", &version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
    let api: Api<DynamicObject> = match metadata["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let mut wire = object.clone();
    let status = wire.as_object_mut().and_then(|wire| wire.remove("status"));
    let metadata = wire["metadata"].as_object_mut();
    let deleted = metadata.and_then(|metadata| metadata.remove("deletionTimestamp"));
    let owners = wire["metadata"].get_mut("ownerReferences");
    for owner in owners.and_then(Value::as_array_mut).into_iter().flatten() {
        if owner["uid"] == "pod" {
            owner["uid"] = json!(pod);
        }
    }
    api.create(&PostParams::default(), &serde_json::from_value(wire)?)
        .await?;
    if let Some(status) = status {
        let patch = Patch::Merge(json!({"status": status}));
        api.patch_status(&name, &PatchParams::default(), &patch)
            .await?;
    }
    if deleted.is_some() {
        api.delete(&name, &DeleteParams::default()).await?;
    }
    Ok(())
}

/// Creates a pod. Returns its uid.
async fn create_pod(client: &Client, pod: &mut Value) -> anyhow::Result<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (
        text(&pod["metadata"]["namespace"]),
        text(&pod["metadata"]["name"]),
    );
    let api: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let mut wire = pod.clone();
    let status = wire.as_object_mut().and_then(|wire| wire.remove("status"));
    let metadata = wire["metadata"].as_object_mut();
    let deleted = metadata.and_then(|metadata| metadata.remove("deletionTimestamp"));
    let made = api
        .create(&PostParams::default(), &serde_json::from_value(wire)?)
        .await?;
    let uid = made.metadata.uid.clone().unwrap_or_default();
    let made = serde_json::to_value(&made)?;
    for field in ["affinity", "topologySpreadConstraints"] {
        if pod["spec"].get(field).is_some() {
            pod["spec"][field] = made["spec"][field].clone();
        }
    }
    if let Some(status) = status {
        let patch = Patch::Merge(json!({"status": status}));
        api.patch_status(&name, &PatchParams::default(), &patch)
            .await?;
    }
    if deleted.is_some() {
        let at_once = DeleteParams::default().grace_period(0);
        api.delete(&name, &at_once).await?;
    }
    Ok(uid)
}
