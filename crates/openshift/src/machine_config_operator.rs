//! A stand-in for the Machine Config Operator: configures the kubelets of a pool according to its `KubeletConfig`, and reports on the pool.
//!
//! Like the real operator, it turns the newest `KubeletConfig` of a pool into a machine configuration `99-<pool>-generated-kubelet`,
//! renders all machine configurations that the pool selects into one, and applies it to the nodes one after another: cordon, change,
//! restart the kubelet, uncordon. The TLS profile of the `APIServer` object is part of what is rendered, as it is of every real kubelet's
//! configuration, so a change of it reaches all nodes of all pools (88383). The progress of a node is stored in its annotations, so a restarted stand-in continues where the last one
//! ended. It does not drain nodes, and it ignores all parts of machine configurations but those of kubelets.

mod generate;
mod progress;
mod render;
mod status;
mod tls;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::openshift::config::{ApiServer, CLUSTER};
use api::openshift::machine_config::{KubeletConfig, MachineConfig, MachineConfigPool};
use futures::{Stream, StreamExt as _, stream};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::{Api, ListParams};
use kube::core::{Selector, SelectorExt as _};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, watcher};
use kube::{Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

use self::progress::{has, is_degraded};
use self::render::render;
use super::machines::Machines;

/// The pool of the nodes that are in no other pool.
const WORKER: &str = "worker";
/// Interval of the checks without events, because nodes may join.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Runs until the returned future is dropped.
pub async fn run(client: Client, machines: Arc<dyn Machines>) {
    let operator = Operator {
        machines,
        client: client.clone(),
    };
    let mut changes = stream::select_all([
        changes::<MachineConfigPool>(&client),
        changes::<MachineConfig>(&client),
        changes::<KubeletConfig>(&client),
        changes::<ApiServer>(&client),
    ]);
    loop {
        match operator.step().await {
            // One step at a time, because the desired state may have changed meanwhile.
            Ok(true) => continue,
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "Machines are not configured yet"),
        }
        // A timeout is also a reason to check again.
        let _ = tokio::time::timeout(CHECK_INTERVAL, changes.next()).await;
    }
}

fn changes<K>(client: &Client) -> stream::BoxStream<'static, ()>
where
    K: Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    let events = watcher(Api::<K>::all(client.clone()), Config::default());
    unit(events.default_backoff().touched_objects()).boxed()
}

fn unit<T>(events: impl Stream<Item = T>) -> impl Stream<Item = ()> {
    events.map(|_| ())
}

struct Operator {
    client: Client,
    machines: Arc<dyn Machines>,
}

/// The objects that were read.
struct Objects {
    pools: Vec<MachineConfigPool>,
    configs: Vec<MachineConfig>,
    /// Sorted, the newest first.
    kubelet_configs: Vec<KubeletConfig>,
    nodes: Vec<Node>,
    /// The smallest TLS version and the suites of all servers, unless they are those that a cluster comes with.
    tls: Option<tls::Settings>,
}

impl Operator {
    /// Takes the next step; returns `false` if nothing is left to do.
    async fn step(&self) -> kube::Result<bool> {
        let objects = self.read_objects().await?;
        for pool in &objects.pools {
            if self.generate(pool, &objects).await? {
                return Ok(true);
            }
            let rendered = render(pool, &objects);
            let members = members(pool, &objects);
            self.report(pool, &rendered, &members).await?;
            if pool.spec.paused {
                continue;
            }
            // If one machine is degraded, no other machine of the pool is changed.
            if members.iter().any(|node| is_degraded(node, &rendered.name)) {
                continue;
            }
            let next = members.iter().find(|node| !has(node, &rendered.name));
            if let Some(node) = next {
                self.update(node, &rendered).await?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn read_objects(&self) -> kube::Result<Objects> {
        let mut kubelet_configs = self.list::<KubeletConfig>().await?;
        kubelet_configs.sort_by_key(|config| {
            std::cmp::Reverse((config.creation_timestamp(), config.name_any()))
        });
        let servers: Api<ApiServer> = Api::all(self.client.clone());
        let server = servers.get_opt(CLUSTER).await?;
        let profile = server.and_then(|server| server.spec.tls_security_profile);
        Ok(Objects {
            tls: profile.and_then(|profile| tls::Settings::of(&profile)),
            pools: self.list().await?,
            configs: self.list().await?,
            kubelet_configs,
            nodes: self.list().await?,
        })
    }

    /// Returns all objects of a kind, sorted by name.
    async fn list<K>(&self) -> kube::Result<Vec<K>>
    where
        K: Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        let api: Api<K> = Api::all(self.client.clone());
        let mut items = api.list(&ListParams::default()).await?.items;
        items.sort_by_key(kube::ResourceExt::name_any);
        Ok(items)
    }
}

fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    Selector::try_from(selector.clone()).is_ok_and(|selector| selector.matches(labels))
}

/// Returns the nodes of a pool. A worker that another pool selects belongs to that pool.
fn members<'a>(pool: &MachineConfigPool, objects: &'a Objects) -> Vec<&'a Node> {
    let has = |pool: &MachineConfigPool, node: &Node| {
        let selector = pool.spec.node_selector.as_ref();
        selector.is_some_and(|selector| matches(selector, node.labels()))
    };
    let is_others = |node: &Node| {
        let mut others = objects
            .pools
            .iter()
            .filter(|other| other.name_any() != WORKER);
        pool.name_any() == WORKER && others.any(|other| has(other, node))
    };
    let nodes = objects.nodes.iter();
    nodes
        .filter(|node| has(pool, node) && !is_others(node))
        .collect()
}
