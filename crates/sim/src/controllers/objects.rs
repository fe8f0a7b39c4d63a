//! Helpers for objects that several controllers use.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodCondition, PodSpec, PodTemplateSpec};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::Resource;
use serde::Serialize;

/// Label of slices with the name of their service.
pub(crate) const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Returns the status code of an API error; 0 for any other error.
pub(crate) fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        _ => 0,
    }
}

/// Returns the message of the API server, or the text of any other error.
pub(crate) fn message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// Returns whether a creation failed because its namespace is being deleted.
pub(crate) fn namespace_terminating(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status)
        if status.code == 403 && status.message.contains("because it is being terminated"))
}

/// Returns the current time in whole seconds, as the API stores times.
pub(crate) fn now() -> Time {
    let now = Timestamp::now();
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

/// Returns a pod's conditions with `DisruptionTarget`: the cluster removes the pod, not its owner.
pub(crate) fn disrupted(pod: &Pod, reason: &str, message: &str) -> Vec<PodCondition> {
    const TYPE: &str = "DisruptionTarget";
    let status = pod.status.clone().unwrap_or_default();
    let mut conditions = status.conditions.unwrap_or_default();
    conditions.retain(|held| held.type_ != TYPE);
    conditions.push(PodCondition {
        type_: TYPE.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_transition_time: Some(now()),
        observed_generation: pod.metadata.generation,
        last_probe_time: None,
    });
    conditions
}

/// Returns the time since `time`; zero if it is in the future.
pub(crate) fn since(time: &Time) -> Duration {
    Duration::try_from(Timestamp::now().duration_since(time.0)).unwrap_or_default()
}

/// Returns the owner that controls an object.
pub(crate) fn controller(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references
        .iter()
        .flatten()
        .find(|owner| owner.controller == Some(true))
}

/// Returns whether the object with this UID controls an object.
pub(crate) fn controlled_by(meta: &ObjectMeta, uid: &str) -> bool {
    controller(meta).is_some_and(|owner| owner.uid == uid)
}

/// Returns the owner reference with which an object controls what it creates.
pub(crate) fn control<K: Resource<DynamicType = ()>>(owner: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: owner.meta().name.clone().unwrap_or_default(),
        uid: owner.meta().uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

pub(crate) fn uid<K: Resource>(object: &K) -> &str {
    object.meta().uid.as_deref().unwrap_or_default()
}

pub(crate) fn name<K: Resource>(object: &K) -> &str {
    object.meta().name.as_deref().unwrap_or_default()
}

/// Returns the namespace of an object; empty for cluster-scoped objects.
pub(crate) fn namespace<K: Resource>(object: &K) -> &str {
    object.meta().namespace.as_deref().unwrap_or_default()
}

pub(crate) fn deleting<K: Resource>(object: &K) -> bool {
    object.meta().deletion_timestamp.is_some()
}

pub(crate) fn labels<K: Resource>(object: &K) -> &BTreeMap<String, String> {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    object.meta().labels.as_ref().unwrap_or(&NONE)
}

/// Returns the words by which pods are looked up: their node, and their controller or that they have none.
pub(crate) fn pod_index(pod: &Pod) -> Vec<String> {
    let mut words = owner_index(pod);
    if let Some(node) = node_of(pod) {
        words.push(format!("node:{node}"));
    }
    words
}

/// Returns the word by which objects are looked up: their controller, or that they have none.
pub(crate) fn owner_index<K: Resource>(object: &K) -> Vec<String> {
    match controller(object.meta()) {
        Some(owner) => vec![owner.uid.clone()],
        None => vec![orphans(namespace(object))],
    }
}

/// Returns the word by which slices are looked up: namespace and name of their service.
pub(crate) fn service_index(slice: &EndpointSlice) -> Vec<String> {
    let service = labels(slice).get(SERVICE_NAME);
    let key = service.map(|service| format!("{}/{service}", namespace(slice)));
    key.into_iter().collect()
}

/// Returns the index word of all objects of a namespace without a controller.
pub(crate) fn orphans(namespace: &str) -> String {
    format!("orphan:{namespace}")
}

/// Returns all containers of a pod, those that initialise it first.
pub(crate) fn containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    let init = spec.init_containers.iter().flatten();
    init.chain(&spec.containers)
}

/// Returns the node that a pod is bound to.
pub(crate) fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec
        .as_ref()?
        .node_name
        .as_deref()
        .filter(|node| !node.is_empty())
}

/// Returns the phase of a pod; `Pending` if it is not set yet.
pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or("Pending")
}

/// Returns whether all containers of a pod have ended for good.
pub(crate) fn terminal(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Returns whether a pod counts as a replica.
pub(crate) fn active(pod: &Pod) -> bool {
    !terminal(pod) && !deleting(pod)
}

/// Returns a condition of a pod.
pub(crate) fn pod_condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status
        .as_ref()?
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == kind)
}

pub(crate) fn ready(pod: &Pod) -> bool {
    pod_condition(pod, "Ready").is_some_and(|condition| condition.status == "True")
}

/// Returns `Ok` if a pod has been ready for `min_ready` seconds. Otherwise returns the remaining time, or `None` if the pod is not ready.
pub(crate) fn available(pod: &Pod, min_ready: i32) -> Result<(), Option<Duration>> {
    let Some(condition) = pod_condition(pod, "Ready").filter(|found| found.status == "True") else {
        return Err(None);
    };
    if min_ready <= 0 {
        return Ok(());
    }
    let wanted = Duration::from_secs(min_ready.unsigned_abs().into());
    let Some(time) = &condition.last_transition_time else {
        return Err(Some(wanted));
    };
    match wanted.checked_sub(since(time)) {
        Some(rest) if !rest.is_zero() => Err(Some(rest)),
        _ => Ok(()),
    }
}

/// Returns a number, or a percentage as a share of `total`.
pub(crate) fn scaled(value: &IntOrString, total: i32, round_up: bool) -> i32 {
    match value {
        IntOrString::Int(number) => *number,
        IntOrString::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
            let product = percent * i64::from(total);
            let share = if round_up {
                product.div_euclid(100) + i64::from(product.rem_euclid(100) != 0)
            } else {
                product.div_euclid(100)
            };
            i32::try_from(share).unwrap_or(i32::MAX)
        }
    }
}

/// Returns a short hash of a pod template, in the alphabet of generated names. Equal templates have equal hashes. The hashes differ from
/// those of the Go implementation, which hashes a printed form of Go's types.
pub(crate) fn template_hash(template: &PodTemplateSpec, collisions: Option<i32>) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut hash = 0x811c_9dc5_u32;
    let mut feed = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    };
    feed(canonical(template).as_bytes());
    if let Some(collisions) = collisions {
        feed(&collisions.to_le_bytes());
    }
    hash.to_string()
        .bytes()
        .map(|digit| char::from(LETTERS[usize::from(digit) % LETTERS.len()]))
        .collect()
}

/// Returns JSON with sorted keys: equal values have equal texts.
pub(crate) fn canonical<T: Serialize>(value: &T) -> String {
    // The maps of serde_json are sorted. The conversion cannot fail for types with string keys and derived serializers.
    serde_json::to_value(value)
        .map(|value| value.to_string())
        .unwrap_or_default()
}
