//! Streams whose items each trigger a reconciliation.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};

use api::openshift::SECURITY_GROUP;
use api::openshift::machine_config::MachineConfigPool;
use api::operator::KIND;
use futures::{Stream, StreamExt, future, stream};
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, Resource, ResourceExt};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::context::Context;

/// Page size when nodes are listed. It limits memory, because nodes are large and a whole page is held at once.
const NODE_PAGE_SIZE: u32 = 20;

/// Triggers on every change, status included, of an object in the operator's namespace that a resource of `kind` owns.
pub(super) fn owned_here<K>(
    context: &Context,
    kind: &'static str,
) -> impl Stream<Item = ()> + Send + 'static + use<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    let api = Api::<PartialObjectMeta<K>>::namespaced(
        context.client.clone(),
        &context.installation.namespace,
    );
    owned(api, watcher::Config::default(), kind)
}

/// Triggers on changes of the cluster-wide object with that name, as long as a resource of `kind` owns it.
pub(super) fn owned_named<K>(
    context: &Context,
    name: &str,
    kind: &'static str,
) -> impl Stream<Item = ()> + Send + 'static + use<K>
where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    owned(
        Api::<PartialObjectMeta<K>>::all(context.client.clone()),
        config,
        kind,
    )
}

/// Triggers on changes of objects that a resource of `kind` owns.
pub(super) fn owned<K>(
    api: Api<PartialObjectMeta<K>>,
    config: watcher::Config,
    kind: &'static str,
) -> impl Stream<Item = ()> + Send + 'static
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let owned = move |metadata: &ObjectMeta| {
        metadata
            .owner_references
            .iter()
            .flatten()
            .any(|owner| owner.kind == kind)
    };
    let state = move |object: &PartialObjectMeta<K>| {
        owned(&object.metadata).then(|| hash(&object.metadata.resource_version))
    };
    state_changes(watcher(api, config).default_backoff(), state)
}

/// Triggers on changes of one object by name or several by selector, whatever their owner.
pub(super) fn any_owner<K>(
    api: Api<PartialObjectMeta<K>>,
    config: watcher::Config,
) -> impl Stream<Item = ()> + Send + 'static
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    state_changes(
        watcher(api, config).default_backoff(),
        |object: &PartialObjectMeta<K>| Some(hash(&object.metadata.resource_version)),
    )
}

/// Triggers on machine config pools that appear, disappear, or change their labels, spec, conditions or configuration.
pub(super) fn machine_config_pools(client: &Client) -> impl Stream<Item = ()> + Send + 'static {
    let watch = watcher(
        Api::<MachineConfigPool>::all(client.clone()),
        watcher::Config::default(),
    )
    .default_backoff();
    state_changes(watch, |pool: &MachineConfigPool| {
        let status = pool.status.as_ref();
        let text = serde_json::json!([
            pool.metadata.labels,
            pool.spec,
            status.map(|status| &status.conditions),
            status.map(|status| &status.configuration),
        ])
        .to_string();
        Some(hash(&text))
    })
}

/// Triggers on changes of security context constraints that an operator resource owns.
pub(super) fn constraints(client: &Client) -> impl Stream<Item = ()> + Send + 'static {
    let resource = ApiResource {
        group: SECURITY_GROUP.into(),
        version: "v1".into(),
        api_version: format!("{SECURITY_GROUP}/v1"),
        kind: "SecurityContextConstraints".into(),
        plural: "securitycontextconstraints".into(),
    };
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    state_changes(
        watcher(api, watcher::Config::default()).default_backoff(),
        |object: &DynamicObject| {
            let mut owners = object.owner_references().iter();
            owners
                .any(|owner| owner.kind == KIND)
                .then(|| hash(&object.metadata.resource_version))
        },
    )
}

/// Triggers on nodes that appear, disappear or change their labels.
pub(super) fn node_labels(client: &Client) -> impl Stream<Item = ()> + Send + 'static {
    let watch = watcher(
        Api::<PartialObjectMeta<Node>>::all(client.clone()),
        watcher::Config::default().page_size(NODE_PAGE_SIZE),
    )
    .default_backoff();
    state_changes(watch, |node: &PartialObjectMeta<Node>| {
        Some(hash(&node.metadata.labels))
    })
}

/// A node with only the fields that may show a restart of its kubelet. The images are the largest part of a node, so they are dropped while
/// it is parsed.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = Node)]
struct KubeletNode {
    metadata: ObjectMeta,
    #[serde(default)]
    status: KubeletStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct KubeletStatus {
    conditions: Vec<NodeCondition>,
    node_info: KubeletInfo,
    allocatable: BTreeMap<String, Quantity>,
}

#[derive(Clone, Debug, Default, Deserialize, Hash)]
#[serde(default, rename_all = "camelCase")]
struct KubeletInfo {
    #[serde(rename = "bootID")]
    boot_id: String,
    kubelet_version: String,
}

/// Triggers on nodes that appear, disappear or change their labels, or whose kubelet may have restarted.
pub(super) fn kubelets(client: &Client) -> impl Stream<Item = ()> + Send + 'static {
    let config = watcher::Config::default().page_size(NODE_PAGE_SIZE);
    let watch = watcher(Api::<KubeletNode>::all(client.clone()), config).default_backoff();
    state_changes(watch, |node: &KubeletNode| {
        let mut hasher = DefaultHasher::new();
        node.metadata.labels.hash(&mut hasher);
        let mut conditions = node.status.conditions.iter();
        if let Some(ready) = conditions.find(|condition| condition.type_ == "Ready") {
            let since = ready.last_transition_time.as_ref().map(|time| time.0);
            (&ready.status, since).hash(&mut hasher);
        }
        node.status.node_info.hash(&mut hasher);
        for (name, quantity) in &node.status.allocatable {
            (name, &quantity.0).hash(&mut hasher);
        }
        Some(hasher.finish())
    })
}

fn hash<T: Hash>(value: &T) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Triggers once for every object that appears or disappears, or whose state changes. Objects without a state are ignored.
fn state_changes<K, S, F>(events: S, state: F) -> impl Stream<Item = ()> + Send + 'static
where
    K: Resource + Send + 'static,
    S: Stream<Item = Result<Event<K>, watcher::Error>> + Send + 'static,
    F: Fn(&K) -> Option<u64> + Send + 'static,
{
    let mut known: HashMap<(Option<String>, String), u64> = HashMap::new();
    events.flat_map(move |event| {
        let key = |object: &K| (object.namespace(), object.name_any());
        let changed = match event {
            Ok(Event::Apply(object) | Event::InitApply(object)) => match state(&object) {
                Some(state) => known.insert(key(&object), state) != Some(state),
                None => known.remove(&key(&object)).is_some(),
            },
            Ok(Event::Delete(object)) => known.remove(&key(&object)).is_some(),
            Ok(Event::Init | Event::InitDone) => false,
            Err(error) => {
                tracing::debug!(error = %daemon::log::chain(&error), "Watch interrupted");
                false
            }
        };
        stream::once(future::ready(changed))
            .filter_map(|changed| future::ready(changed.then_some(())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, label: &str) -> Node {
        let labels = Some([("l".to_owned(), label.to_owned())].into());
        Node {
            metadata: ObjectMeta {
                name: Some(name.into()),
                labels,
                ..ObjectMeta::default()
            },
            ..Node::default()
        }
    }

    #[test]
    fn a_node_is_read_without_what_is_not_looked_at() {
        let whole = serde_json::json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "labels": {"l": "1"}}, "spec": {"podCIDR": "10.0.0.0/24"},
            "status": {
                "images": [{"names": ["x"], "sizeBytes": 5}], "allocatable": {"cpu": "4"},
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                "nodeInfo": {"bootID": "b", "kubeletVersion": "v1", "machineID": "m"},
            },
        });
        let node: KubeletNode = serde_json::from_value(whole).unwrap();
        assert_eq!(node.status.node_info.boot_id, "b");
        assert_eq!(node.status.conditions.len(), 1);
        assert_eq!(node.status.allocatable["cpu"].0, "4");
        let fresh: KubeletNode =
            serde_json::from_value(serde_json::json!({"metadata": {"name": "a"}})).unwrap();
        assert!(fresh.status.conditions.is_empty());
    }

    #[tokio::test]
    async fn only_changes_of_the_state_count() {
        let events = stream::iter([
            Ok(Event::Init),
            Ok(Event::InitApply(node("a", "1"))),
            Ok(Event::InitDone),
            Ok(Event::Apply(node("a", "1"))),
            Ok(Event::Apply(node("a", "2"))),
            Ok(Event::Delete(node("a", "2"))),
            Ok(Event::Delete(node("b", "1"))),
        ]);
        let count = state_changes(events, |node: &Node| Some(hash(&node.metadata.labels)))
            .count()
            .await;
        assert_eq!(count, 3);
    }

    #[tokio::test]
    async fn objects_of_others_do_not_count_until_they_become_ours() {
        let events = stream::iter([
            Ok(Event::Apply(node("a", "theirs"))),
            Ok(Event::Apply(node("a", "ours"))),
            Ok(Event::Apply(node("a", "theirs"))),
        ]);
        let ours = |node: &Node| (node.labels()["l"] == "ours").then_some(1);
        assert_eq!(state_changes(events, ours).count().await, 2);
    }
}
