//! A stand-in for the Machine Config Operator: configures the kubelets of a pool according to its `KubeletConfig`, and reports on the pool.
//!
//! Like the real operator, it turns the newest `KubeletConfig` of a pool into a machine configuration `99-<pool>-generated-kubelet`,
//! renders all machine configurations that the pool selects into one, and applies it to the nodes one after another: cordon, change,
//! restart the kubelet, uncordon. The progress of a node is stored in its annotations, so a restarted stand-in continues where the last one
//! ended. It does not drain nodes, and it ignores all parts of machine configurations but those of kubelets.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use api::labels::MACHINE_CONFIG_ROLE;
use api::openshift::machine_config::{
    ConfigurationSource, DEGRADED, GROUP, KubeletConfig, MachineConfig, MachineConfigPool,
    MachineConfigPoolConfiguration, MachineConfigPoolStatus, UPDATED, UPDATING,
};
use api::operator::v1::PoolCondition;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cluster_spec::kubelet::KubeletSettings;
use futures::{Stream, StreamExt as _, stream};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::core::{Selector, SelectorExt as _};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, watcher};
use kube::{Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::machines::Machines;
use super::payload;

/// Field manager of the machine configurations.
const MANAGER: &str = "machine-config-operator";
/// Annotations of nodes: the current and the desired configuration, and the state of the change.
const CURRENT: &str = "machineconfiguration.openshift.io/currentConfig";
const DESIRED: &str = "machineconfiguration.openshift.io/desiredConfig";
const STATE: &str = "machineconfiguration.openshift.io/state";
const REASON: &str = "machineconfiguration.openshift.io/reason";
const DONE: &str = "Done";
const WORKING: &str = "Working";
const STATE_DEGRADED: &str = "Degraded";
/// The pool of the nodes that are in no other pool.
const WORKER: &str = "worker";
/// Path of the kubelet configuration file in OpenShift.
const KUBELET_FILE: &str = "/etc/kubernetes/kubelet.conf";
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

/// The rendered configuration of a pool.
struct Rendered {
    name: String,
    sources: Vec<ConfigurationSource>,
    payload: Option<Value>,
}

/// The objects that were read.
struct Objects {
    pools: Vec<MachineConfigPool>,
    configs: Vec<MachineConfig>,
    /// Sorted, the newest first.
    kubelet_configs: Vec<KubeletConfig>,
    nodes: Vec<Node>,
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
        Ok(Objects {
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

    /// Updates the machine configuration that is generated from the pool's `KubeletConfig`; returns whether it changed.
    async fn generate(&self, pool: &MachineConfigPool, objects: &Objects) -> kube::Result<bool> {
        let name = generated_name(pool);
        let existing = objects
            .configs
            .iter()
            .find(|config| config.name_any() == name);
        let api: Api<MachineConfig> = Api::all(self.client.clone());
        let Some(wanted) = self.payload_of(pool, objects).await? else {
            if existing.is_some() {
                api.delete(&name, &DeleteParams::default()).await?;
            }
            return Ok(existing.is_some());
        };
        let spec = json!({"config": {
            "ignition": {"version": "3.2.0"},
            "storage": {"files": [{
                "path": KUBELET_FILE,
                "mode": 0o644,
                "overwrite": true,
                "contents": {"source": format!("data:text/plain;charset=utf-8;base64,{}", STANDARD.encode(wanted.to_string()))},
            }]},
        }});
        if existing.is_some_and(|config| config.spec.config == spec["config"]) {
            return Ok(false);
        }
        let selector = pool
            .spec
            .machine_config_selector
            .clone()
            .unwrap_or_default();
        let labels = selector
            .match_labels
            .unwrap_or_else(|| BTreeMap::from([(MACHINE_CONFIG_ROLE.to_owned(), pool.name_any())]));
        let object = json!({
            "apiVersion": format!("{GROUP}/v1"),
            "kind": "MachineConfig",
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
        });
        let params = PatchParams::apply(MANAGER).force();
        api.patch(&name, &params, &Patch::Apply(object)).await?;
        Ok(true)
    }

    /// Returns the payload of the newest valid `KubeletConfig` of a pool. Invalid ones get a status with the error.
    async fn payload_of(
        &self,
        pool: &MachineConfigPool,
        objects: &Objects,
    ) -> kube::Result<Option<Value>> {
        for config in &objects.kubelet_configs {
            let selector = config.spec.machine_config_pool_selector.as_ref();
            let is_mine = selector.is_some_and(|selector| matches(selector, pool.labels()));
            let (true, Some(payload)) = (is_mine, &config.spec.kubelet_config) else {
                continue;
            };
            match payload::apply(&KubeletSettings::default(), payload) {
                Ok(_) => {
                    self.write_status(config, "Success", "Success").await?;
                    return Ok(Some(payload.clone()));
                }
                Err(error) => {
                    let message = format!("Error: {error}");
                    self.write_status(config, "Failure", &message).await?;
                }
            }
        }
        Ok(None)
    }

    async fn write_status(
        &self,
        config: &KubeletConfig,
        kind: &str,
        message: &str,
    ) -> kube::Result<()> {
        let status = if kind == "Success" { "True" } else { "False" };
        let last = config
            .status
            .as_ref()
            .map(|status| &status["conditions"][0]);
        let is_written =
            last.is_some_and(|last| last["type"] == kind && last["message"] == message);
        if is_written {
            return Ok(());
        }
        let condition = json!({
            "type": kind, "status": status, "message": message, "lastTransitionTime": Timestamp::now(),
        });
        let patch = json!({"status": {"observedGeneration": config.metadata.generation, "conditions": [condition]}});
        let api: Api<KubeletConfig> = Api::all(self.client.clone());
        api.patch_status(
            &config.name_any(),
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await?;
        Ok(())
    }

    /// Applies the configuration to one node.
    async fn update(&self, node: &Node, rendered: &Rendered) -> kube::Result<()> {
        let name = node.name_any();
        self.annotate(
            &name,
            true,
            &[(DESIRED, &rendered.name), (STATE, WORKING), (REASON, "")],
        )
        .await?;
        tracing::info!(node = %name, config = %rendered.name, "Machine is being configured");
        let done = self.change(&name, rendered.payload.as_ref()).await;
        match done {
            Ok(()) => {
                let annotations = [(CURRENT, rendered.name.as_str()), (STATE, DONE)];
                self.annotate(&name, false, &annotations).await
            }
            Err(error) => {
                tracing::warn!(node = %name, %error, "Machine is not configured");
                let reason = error.to_string();
                let annotations = [(STATE, STATE_DEGRADED), (REASON, reason.as_str())];
                self.annotate(&name, true, &annotations).await
            }
        }
    }

    async fn change(
        &self,
        node: &str,
        payload: Option<&Value>,
    ) -> Result<(), cluster_faults::BoxError> {
        let base = self.machines.base(node)?;
        let wanted = match payload {
            Some(payload) => payload::apply(&base, payload)?,
            None => base,
        };
        self.machines.restart_kubelet(node, &wanted).await
    }

    async fn annotate(
        &self,
        node: &str,
        cordoned: bool,
        annotations: &[(&str, &str)],
    ) -> kube::Result<()> {
        let annotations: BTreeMap<&str, &str> = annotations.iter().copied().collect();
        let unschedulable = cordoned.then_some(true);
        let patch = json!({"metadata": {"annotations": annotations}, "spec": {"unschedulable": unschedulable}});
        let api: Api<Node> = Api::all(self.client.clone());
        api.patch(node, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        Ok(())
    }

    /// Writes the status of the pool if it changed.
    async fn report(
        &self,
        pool: &MachineConfigPool,
        rendered: &Rendered,
        members: &[&Node],
    ) -> kube::Result<()> {
        let status = status(pool, rendered, members);
        if pool.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let api: Api<MachineConfigPool> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({"status": status}));
        api.patch_status(&pool.name_any(), &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }
}

fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    Selector::try_from(selector.clone()).is_ok_and(|selector| selector.matches(labels))
}

fn generated_name(pool: &MachineConfigPool) -> String {
    format!("99-{}-generated-kubelet", pool.name_any())
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

/// Renders all machine configurations that a pool selects into one.
fn render(pool: &MachineConfigPool, objects: &Objects) -> Rendered {
    let selector = pool
        .spec
        .machine_config_selector
        .clone()
        .unwrap_or_default();
    let mine = objects.configs.iter();
    let mine: Vec<&MachineConfig> = mine
        .filter(|config| matches(&selector, config.labels()))
        .collect();
    let mut hasher = DefaultHasher::new();
    for config in &mine {
        (config.name_any(), config.spec.config.to_string()).hash(&mut hasher);
    }
    let generated = mine
        .iter()
        .find(|config| config.name_any() == generated_name(pool));
    Rendered {
        name: format!("rendered-{}-{:016x}", pool.name_any(), hasher.finish()),
        payload: generated.and_then(|config| payload_in(config)),
        sources: mine
            .iter()
            .map(|config| ConfigurationSource {
                api_version: format!("{GROUP}/v1"),
                kind: "MachineConfig".to_owned(),
                name: config.name_any(),
            })
            .collect(),
    }
}

/// Decodes the payload that [`Operator::generate`] wrote.
fn payload_in(config: &MachineConfig) -> Option<Value> {
    let source = config
        .spec
        .config
        .pointer("/storage/files/0/contents/source")?;
    let (_, text) = source.as_str()?.rsplit_once(',')?;
    serde_json::from_slice(&STANDARD.decode(text).ok()?).ok()
}

/// Returns the current configuration of a node. A node without the annotation has its initial configuration, which is what a pool without
/// machine configurations is rendered to.
fn current(node: &Node) -> Option<&str> {
    node.annotations().get(CURRENT).map(String::as_str)
}

/// Returns whether a node failed to reach a configuration.
fn is_degraded(node: &Node, wanted: &str) -> bool {
    let annotations = node.annotations();
    annotations
        .get(STATE)
        .is_some_and(|state| state == STATE_DEGRADED)
        && annotations
            .get(DESIRED)
            .is_some_and(|desired| desired == wanted)
}

/// Returns whether a node has a configuration and is not being changed.
fn has(node: &Node, wanted: &str) -> bool {
    let empty = format!("{:016x}", DefaultHasher::new().finish());
    let state = node.annotations().get(STATE).map_or(DONE, String::as_str);
    match current(node) {
        Some(current) => current == wanted && state == DONE,
        None => wanted.ends_with(&empty) && state == DONE,
    }
}

fn status(
    pool: &MachineConfigPool,
    rendered: &Rendered,
    members: &[&Node],
) -> MachineConfigPoolStatus {
    let old = pool.status.clone().unwrap_or_default();
    let count = |is_one: &dyn Fn(&Node) -> bool| {
        let number = members.iter().filter(|node| is_one(node)).count();
        i32::try_from(number).unwrap_or(i32::MAX)
    };
    let wanted = rendered.name.as_str();
    let all = count(&|_| true);
    let updated = count(&|node| has(node, wanted));
    let ready = count(&|node| has(node, wanted) && is_available(node));
    let degraded = count(&|node| is_degraded(node, wanted));
    let done = updated == all;
    let condition = |name: &str, holds: bool, message: String| {
        let status = if holds { "True" } else { "False" };
        let before = old.conditions.iter();
        let kept = before
            .filter(|before| before.condition_type == name && before.status == status)
            .find_map(|before| before.last_transition_time.clone());
        PoolCondition {
            condition_type: name.to_owned(),
            status: status.to_owned(),
            last_transition_time: Some(kept.unwrap_or_else(now)),
            reason: String::new(),
            message,
        }
    };
    let towards = |holds: bool, text: &str| {
        if holds {
            format!("{text} {wanted}")
        } else {
            String::new()
        }
    };
    let updating = !done && !pool.spec.paused;
    MachineConfigPoolStatus {
        observed_generation: pool.metadata.generation.unwrap_or(0),
        configuration: if done {
            MachineConfigPoolConfiguration {
                name: rendered.name.clone(),
                source: rendered.sources.clone(),
            }
        } else {
            old.configuration.clone()
        },
        machine_count: all,
        updated_machine_count: updated,
        ready_machine_count: ready,
        unavailable_machine_count: all - count(&is_available),
        degraded_machine_count: degraded,
        conditions: vec![
            condition(UPDATED, done, towards(done, "All nodes are updated with")),
            condition(
                UPDATING,
                updating,
                towards(updating, "All nodes are updating to"),
            ),
            condition(DEGRADED, degraded > 0, String::new()),
        ],
    }
}

/// Returns the current time in whole seconds, as the API server stores it.
fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn is_available(node: &Node) -> bool {
    let conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let is_ready = conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable);
    is_ready && cordoned != Some(true)
}
