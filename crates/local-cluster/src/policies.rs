//! The process of a local cluster that enforces network policies: it sends every node the rules of its pods.
//!
//! A pod is open until its rules are applied, a moment after it gets its address.

pub mod rules;

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::hash::Hash;
use std::net::Ipv4Addr;
use std::time::Duration;

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

use self::rules::ClusterObjects;
use super::enclosing::Args;
use super::net::pod_gateway;

/// Pause before rules that a node did not accept are sent again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Enforces policies; returns only on an error.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let cluster = args.cluster().await?;
    let nodes = cluster.nodes().iter().enumerate();
    let mut enforcer = Enforcer {
        nodes: nodes
            .map(|(index, node)| (node.name().to_owned(), (pod_gateway(index), node.runtime())))
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
                kubernetes: KUBERNETES_SERVICE,
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

struct Enforcer {
    /// By name of the node: the node's address in the pod network, and its runtime.
    nodes: HashMap<String, (Ipv4Addr, control::Client)>,
    applied: HashMap<Key, String>,
}

impl Enforcer {
    /// Sends the nodes the changed rules of their pods; returns false if a node did not accept some.
    async fn enforce(&mut self, objects: &ClusterObjects<'_>) -> bool {
        let mut all_accepted = true;
        let mut present = HashSet::new();
        for pod in objects.pods {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
            let node = node.and_then(|name| self.nodes.get(name));
            let (Some((gateway, runtime)), Some(address), Some(uid)) =
                (node, rules::address_of(pod), pod.uid())
            else {
                continue;
            };
            let key = (uid.clone(), address);
            present.insert(key.clone());
            let rules = rules::of_pod(objects, pod, *gateway);
            let known = self.applied.get(&key).map_or(rules::OPEN, String::as_str);
            if known == rules {
                continue;
            }
            let (runtime, sent) = (runtime.clone(), rules.clone());
            let accepted = tokio::task::spawn_blocking(move || runtime.filter(&uid, &sent)).await;
            match accepted {
                Ok(Ok(())) => {
                    self.applied.insert(key, rules);
                }
                Ok(Err(error)) => {
                    tracing::warn!(pod = %pod.name_any(), %error, "Cannot apply the policies of a pod");
                    all_accepted = false;
                }
                Err(_) => all_accepted = false,
            }
        }
        self.applied.retain(|key, _| present.contains(key));
        all_accepted
    }
}
