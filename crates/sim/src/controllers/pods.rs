//! Creation, deletion and adoption of pods for their controllers.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::Resource;
use kube::api::DeleteParams;
use serde_json::json;

use super::events::Recorder;
use super::mirror::{Kind, Mirror};
use super::{objects, selectors};

/// Largest number of concurrent requests for one owner.
const MAX_CONCURRENT: usize = 8;

/// Returns a pod made from a template and controlled by its owner.
pub(crate) fn from_template<K: Resource<DynamicType = ()>>(
    template: &PodTemplateSpec,
    owner: &K,
) -> Pod {
    let wanted = template.metadata.clone().unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", objects::name(owner))),
            namespace: owner.meta().namespace.clone(),
            labels: wanted.labels,
            annotations: wanted.annotations.filter(|map| !map.is_empty()),
            finalizers: wanted.finalizers.filter(|list| !list.is_empty()),
            owner_references: Some(vec![objects::control(owner)]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

/// Creates pods in batches that double as long as all creations succeed. The first failure ends it.
pub(crate) async fn create<K: Resource<DynamicType = ()>>(
    pods: &Mirror<Pod>,
    events: &Recorder,
    owner: &K,
    mut wanted: Vec<Pod>,
) -> Result<(), kube::Error> {
    let mut batch = 1;
    while !wanted.is_empty() {
        let rest = wanted.split_off(batch.min(wanted.len()));
        let results: Vec<_> = futures::stream::iter(wanted)
            .map(|pod| async move { pods.create(objects::namespace(owner), &pod).await })
            .buffer_unordered(MAX_CONCURRENT)
            .collect()
            .await;
        for result in results {
            match result {
                Ok(made) => events.normal(
                    owner,
                    "SuccessfulCreate",
                    format!("Created pod: {}", objects::name(&*made)),
                ),
                Err(error) if objects::namespace_terminating(&error) => return Ok(()),
                Err(error) => {
                    let why = format!("Error creating: {}", objects::message(&error));
                    events.warning(owner, "FailedCreate", why);
                    return Err(error);
                }
            }
        }
        wanted = rest;
        batch *= 2;
    }
    Ok(())
}

/// Deletes pods of an owner. Tries all of them and then returns the first error.
pub(crate) async fn delete<K: Resource<DynamicType = ()>>(
    pods: &Mirror<Pod>,
    events: &Recorder,
    owner: &K,
    unwanted: Vec<Arc<Pod>>,
) -> Result<(), kube::Error> {
    let results: Vec<_> = futures::stream::iter(unwanted)
        .map(|pod| async move {
            let result = pods.delete(&pod, &DeleteParams::default()).await;
            (pod, result)
        })
        .buffer_unordered(MAX_CONCURRENT)
        .collect()
        .await;
    let mut first = Ok(());
    for (pod, result) in results {
        match result {
            Ok(()) => events.normal(
                owner,
                "SuccessfulDelete",
                format!("Deleted pod: {}", objects::name(&*pod)),
            ),
            Err(error) => {
                let why = format!("Error deleting: {}", objects::message(&error));
                events.warning(owner, "FailedDelete", why);
                first = first.and(Err(error));
            }
        }
    }
    first
}

/// Returns the objects that an owner controls and selects. Releases controlled objects that it does not select, and adopts orphans that it
/// selects.
pub(crate) async fn claim<K, O>(
    mirror: &Mirror<K>,
    owner: &O,
    selector: &LabelSelector,
    may_adopt: impl Fn(&K) -> bool,
) -> Result<Vec<Arc<K>>, kube::Error>
where
    K: Kind + Resource<Scope = NamespaceResourceScope>,
    O: Kind,
{
    claim_marked(mirror, owner, selector, may_adopt, None).await
}

/// Does what [`claim`] does. Objects have the finalizer as long as the owner has them.
pub(crate) async fn claim_marked<K, O>(
    mirror: &Mirror<K>,
    owner: &O,
    selector: &LabelSelector,
    may_adopt: impl Fn(&K) -> bool,
    finalizer: Option<&str>,
) -> Result<Vec<Arc<K>>, kube::Error>
where
    K: Kind + Resource<Scope = NamespaceResourceScope>,
    O: Kind,
{
    let mut claimed = Vec::new();
    for object in mirror.indexed(objects::uid(owner)) {
        if selectors::selects(selector, objects::labels(&*object)) {
            claimed.push(object);
        } else if !objects::deleting(owner) {
            release(mirror, owner, &object, finalizer).await?;
        }
    }
    if objects::deleting(owner) || selectors::is_empty(selector) {
        return Ok(claimed);
    }
    for orphan in mirror.indexed(&objects::orphans(objects::namespace(owner))) {
        if objects::deleting(&*orphan)
            || !selectors::selects(selector, objects::labels(&*orphan))
            || !may_adopt(&orphan)
        {
            continue;
        }
        let mut owners = orphan.meta().owner_references.clone().unwrap_or_default();
        owners.push(objects::control(owner));
        let mut patch = owners_patch(&*orphan, &owners);
        if let Some(finalizer) = finalizer {
            let mut marks = without(&*orphan, finalizer);
            marks.push(finalizer);
            patch["metadata"]["finalizers"] = json!(marks);
        }
        match mirror.patch(&orphan, &patch).await {
            Ok(adopted) => claimed.push(adopted),
            Err(error) if objects::code(&error) == 404 => {}
            Err(error) => return Err(error),
        }
    }
    Ok(claimed)
}

async fn release<K, O>(
    mirror: &Mirror<K>,
    owner: &O,
    object: &Arc<K>,
    finalizer: Option<&str>,
) -> Result<(), kube::Error>
where
    K: Kind + Resource<Scope = NamespaceResourceScope>,
    O: Kind,
{
    let mut owners = object.meta().owner_references.clone().unwrap_or_default();
    owners.retain(|reference| reference.uid != objects::uid(owner));
    let mut patch = owners_patch(&**object, &owners);
    if let Some(finalizer) = finalizer {
        patch["metadata"]["finalizers"] = json!(without(&**object, finalizer));
    }
    match mirror.patch(object, &patch).await {
        Err(error) if objects::code(&error) != 404 => Err(error),
        _ => Ok(()),
    }
}

/// Returns the finalizers of an object but one.
fn without<'a, K: Resource>(object: &'a K, finalizer: &str) -> Vec<&'a str> {
    let held = object.meta().finalizers.iter().flatten();
    held.map(String::as_str)
        .filter(|held| *held != finalizer)
        .collect()
}

fn owners_patch<K: Resource>(
    object: &K,
    owners: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference],
) -> serde_json::Value {
    let owners = if owners.is_empty() {
        serde_json::Value::Null
    } else {
        json!(owners)
    };
    json!({"metadata": {
        "uid": objects::uid(object),
        "resourceVersion": object.meta().resource_version,
        "ownerReferences": owners,
    }})
}

/// Sorts pods into the order of deletion: the least useful first.
pub(crate) fn rank_for_deletion(pods: &mut [Arc<Pod>]) {
    let mut on_node: HashMap<String, usize> = HashMap::new();
    for pod in pods.iter() {
        *on_node
            .entry(objects::node_of(pod).unwrap_or_default().to_owned())
            .or_default() += 1;
    }
    let order = |pod: &Arc<Pod>| {
        let ready_at = objects::pod_condition(pod, "Ready")
            .filter(|condition| condition.status == "True")
            .and_then(|condition| condition.last_transition_time.as_ref())
            .map_or(Timestamp::MIN, |time| time.0);
        let phase = match objects::phase(pod) {
            "Pending" => 0,
            "Unknown" => 1,
            _ => 2,
        };
        let cost: i32 = pod
            .metadata
            .annotations
            .as_ref()
            .and_then(|map| map.get("controller.kubernetes.io/pod-deletion-cost"))
            .and_then(|cost| cost.parse().ok())
            .unwrap_or(0);
        let restarts = pod
            .status
            .iter()
            .flat_map(|status| status.container_statuses.iter().flatten())
            .map(|status| status.restart_count)
            .max()
            .unwrap_or(0);
        let created = pod
            .metadata
            .creation_timestamp
            .as_ref()
            .map_or(Timestamp::MAX, |time| time.0);
        let node = objects::node_of(pod);
        (
            node.is_some(),
            phase,
            objects::ready(pod),
            cost,
            Reverse(on_node.get(node.unwrap_or_default()).copied()),
            Reverse(ready_at),
            Reverse(restarts),
            Reverse(created),
        )
    };
    pods.sort_by_cached_key(order);
}
