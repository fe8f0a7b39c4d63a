//! The process of a local cluster that enforces network policies: it sends every node the rules of its pods.
//!
//! The builtin runtime applies them in the network of each pod; with containerd they apply in that of the node. A pod is open until its rules
//! are applied, a moment after it gets its address.

pub mod rules;

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::hash::Hash;
use std::net::Ipv4Addr;
use std::time::Duration;

use cluster_spec::runtime::Runtime;
use cluster_spec::subnet::KUBERNETES_SERVICE;
use cri_runtime::control;
use futures::stream::{self, BoxStream};
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::reflector::{self, Store};
use kube::runtime::watcher::{Config, watcher};
use kube::{Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

use self::rules::{ClusterObjects, Place};
use super::enclosing::Args;
use super::net::pod_gateway;

/// Pause before rules that a node did not accept are sent again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Enforces policies; returns only on an error.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let cluster = args.cluster().await?;
    let is_builtin = cluster.spec().runtime == Runtime::Builtin;
    let place = |index| {
        if is_builtin {
            Place::Pod {
                node: pod_gateway(index),
            }
        } else {
            Place::Node
        }
    };
    // Rules of a pod see the address of the service, those of a node the server's own, to which kube-proxy has translated it.
    let kubernetes = if is_builtin {
        KUBERNETES_SERVICE
    } else {
        cluster.subnet().gateway()
    };
    let nodes = cluster.nodes().iter().enumerate();
    let mut enforcer = Enforcer {
        nodes: nodes
            .map(|(index, node)| (node.name().to_owned(), (place(index), node.runtime())))
            .collect(),
        applied: HashMap::new(),
    };
    let client = cluster.client();
    let (policies, policy_changes) = watch::<NetworkPolicy>(&client);
    let (namespaces, namespace_changes) = watch::<Namespace>(&client);
    let (pods, pod_changes) = watch::<Pod>(&client);
    let mut changes = stream::select_all([policy_changes, namespace_changes, pod_changes]);
    let mut retry = false;
    while let Some(()) = next(&mut changes, retry).await {
        let is_known = policies.wait_until_ready().now_or_never().is_some()
            && namespaces.wait_until_ready().now_or_never().is_some()
            && pods.wait_until_ready().now_or_never().is_some();
        if is_known {
            let all = (owned(&policies), owned(&namespaces), owned(&pods));
            let objects = ClusterObjects {
                policies: &all.0,
                namespaces: &all.1,
                pods: &all.2,
                kubernetes,
            };
            retry = !enforcer.enforce(&objects).await;
        }
    }
    anyhow::bail!("the watches of the API server ended")
}

/// Waits for the next change and takes all others that have arrived by then; with `retry` it also returns after a pause.
async fn next(changes: &mut (impl futures::Stream<Item = ()> + Unpin), retry: bool) -> Option<()> {
    let first = if retry {
        match tokio::time::timeout(RETRY_PAUSE, changes.next()).await {
            Ok(first) => first,
            Err(_) => Some(()),
        }
    } else {
        changes.next().await
    };
    while let Some(Some(())) = changes.next().now_or_never() {}
    first
}

/// Returns a store with all objects of a kind, and a stream with one item for every change of them.
fn watch<K>(client: &Client) -> (Store<K>, BoxStream<'static, ()>)
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Default + Clone + Debug + Eq + Hash + Send + Sync,
{
    let (store, writer) = reflector::store();
    let events = watcher(Api::<K>::all(client.clone()), Config::default())
        .default_backoff()
        .reflect(writer)
        // an interrupted watch restarts by itself
        .map(drop);
    (store, events.boxed())
}

fn owned<K>(store: &Store<K>) -> Vec<K>
where
    K: Resource + Clone + 'static,
    K::DynamicType: Clone + Eq + Hash,
{
    store
        .state()
        .iter()
        .map(|object| K::clone(object))
        .collect()
}

/// UID and address of a pod: a pod with a new sandbox has a new address, and its new network has no rules yet.
type Key = (String, Ipv4Addr);

/// The rules of a pod that its node has.
struct Applied {
    node: String,
    rules: String,
}

struct Enforcer {
    /// By name of the node: where the rules of its pods apply, and its runtime.
    nodes: HashMap<String, (Place, control::Client)>,
    applied: HashMap<Key, Applied>,
}

impl Enforcer {
    /// Sends the nodes the changed rules of their pods; returns false if a node did not accept some.
    async fn enforce(&mut self, objects: &ClusterObjects<'_>) -> bool {
        let mut wanted = Vec::new();
        for pod in objects.pods {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
            if let (Some(node), Some(address), Some(uid)) =
                (node, rules::address_of(pod), pod.uid())
            {
                wanted.push(((uid, address), node, pod));
            }
        }
        let present: HashSet<Key> = wanted.iter().map(|(key, ..)| key.clone()).collect();
        let mut all_accepted = self.remove_all_but(&present).await;
        for (key, node, pod) in wanted {
            let Some((place, runtime)) = self.nodes.get(node) else {
                continue;
            };
            let rules = rules::of_pod(objects, pod, key.1, *place);
            let is_known = match self.applied.get(&key) {
                Some(applied) => applied.rules == rules,
                None => rules == place.open(key.1),
            };
            if is_known {
                continue;
            }
            if send(runtime, &key, &rules).await {
                let node = node.clone();
                self.applied.insert(key, Applied { node, rules });
            } else {
                all_accepted = false;
            }
        }
        all_accepted
    }

    /// Forgets pods that are gone. What a node has for them goes before another pod gets the address; their own networks are gone with them.
    async fn remove_all_but(&mut self, present: &HashSet<Key>) -> bool {
        let is_gone = |key: &&Key| !present.contains(*key);
        let gone: Vec<Key> = self.applied.keys().filter(is_gone).cloned().collect();
        let mut all_accepted = true;
        for key in gone {
            let applied = self.applied.get(&key);
            let node = applied.and_then(|applied| self.nodes.get(&applied.node));
            let removed = match node {
                Some((Place::Node, runtime)) => send(runtime, &key, &Place::Node.open(key.1)).await,
                _ => true,
            };
            if removed {
                self.applied.remove(&key);
            } else {
                all_accepted = false;
            }
        }
        all_accepted
    }
}

/// Sends a node rules for a pod; returns whether it accepted them.
async fn send(runtime: &control::Client, (uid, address): &Key, rules: &str) -> bool {
    let (runtime, pod, rules) = (runtime.clone(), uid.clone(), rules.to_owned());
    let sent = tokio::task::spawn_blocking(move || runtime.filter(&pod, &rules)).await;
    let Ok(Err(error)) = &sent else {
        return sent.is_ok();
    };
    tracing::warn!(pod = uid, %address, %error, "Cannot apply the policies of a pod");
    false
}
