//! Streams of moments at which a controller must look again.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};

use futures::{Stream, StreamExt, future, stream};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

/// Objects that a resource of `kind` owns: any change of them, down to their status.
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
    moments(watcher(api, config).default_backoff(), state)
}

/// One object by name, or several by selector, whoever owns them.
pub(super) fn any<K>(
    api: Api<PartialObjectMeta<K>>,
    config: watcher::Config,
) -> impl Stream<Item = ()> + Send + 'static
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    moments(
        watcher(api, config).default_backoff(),
        |object: &PartialObjectMeta<K>| Some(hash(&object.metadata.resource_version)),
    )
}

/// Nodes that come, go or change their labels.
pub(super) fn node_labels(client: &Client) -> impl Stream<Item = ()> + Send + 'static {
    let watch = watcher(
        Api::<PartialObjectMeta<Node>>::all(client.clone()),
        watcher::Config::default(),
    )
    .default_backoff();
    moments(watch, |node: &PartialObjectMeta<Node>| {
        Some(hash(&node.metadata.labels))
    })
}

/// Nodes that come, go, change their labels, or whose kubelet may have been started anew.
pub(super) fn kubelets(client: &Client) -> impl Stream<Item = ()> + Send + 'static {
    let watch =
        watcher(Api::<Node>::all(client.clone()), watcher::Config::default()).default_backoff();
    moments(watch, |node: &Node| {
        let mut hasher = DefaultHasher::new();
        node.metadata.labels.hash(&mut hasher);
        if let Some(status) = &node.status {
            let ready = status
                .conditions
                .iter()
                .flatten()
                .find(|condition| condition.type_ == "Ready");
            if let Some(ready) = ready {
                ready.status.hash(&mut hasher);
                ready
                    .last_transition_time
                    .as_ref()
                    .map(|time| time.0)
                    .hash(&mut hasher);
            }
            if let Some(info) = &status.node_info {
                (&info.boot_id, &info.kubelet_version).hash(&mut hasher);
            }
            let quantities = |list: &Option<std::collections::BTreeMap<String, _>>| {
                list.iter()
                    .flatten()
                    .map(
                        |(name, quantity): (
                            &String,
                            &k8s_openapi::apimachinery::pkg::api::resource::Quantity,
                        )| (name.clone(), quantity.0.clone()),
                    )
                    .collect::<Vec<_>>()
            };
            quantities(&status.allocatable).hash(&mut hasher);
        }
        Some(hasher.finish())
    })
}

fn hash<T: Hash>(value: &T) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// A moment for every object whose state changes, appears or disappears. Objects without a state are not looked at.
fn moments<K, S, F>(events: S, state: F) -> impl Stream<Item = ()> + Send + 'static
where
    K: Resource<DynamicType = ()> + Send + 'static,
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
        let count = moments(events, |node: &Node| Some(hash(&node.metadata.labels)))
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
        assert_eq!(moments(events, ours).count().await, 2);
    }
}
