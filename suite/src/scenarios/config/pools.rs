//! Machine config pools: the kubelets of one and their configuration, its machines, and its exporters.

use api::labels::{OPERATOR_NAME, POOL, node_role};
use api::names;
use api::openshift::machine_config::{KubeletConfig, MachineConfigPool, UPDATED};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::core::{Selector, SelectorExt as _};
use serde_json::{Value, json};

use crate::context::Context;
use crate::context::checks::Rollout;
use crate::ledger::{ObjectRef, Undo};
use crate::machine_pools;
use crate::recorder::PollResult;
use crate::resources::Resources;
use crate::scenarios::attributes::{KubeletPart, agree, config_of, nodes_of};
use crate::step::StepError;
use crate::workload::{PodPlan, ResourceRequest};

pub(super) const POLICY: &str = "topologyManagerPolicy";
pub(super) const SCOPE: &str = "topologyManagerScope";

/// Kind of the objects that OpenShift's node tuning makes `KubeletConfig`s from.
const PROFILE: &str = "PerformanceProfile";
/// Annotation of a profile: settings of kubelets that it has no field for, as JSON.
const EXPERIMENTAL: &str = "kubeletconfig.experimental";

/// The kubelets of a pool.
pub(super) struct Kubelets<'a> {
    pub(super) ctx: &'a Context,
    pub(super) pool: String,
    /// Name of the `KubeletConfig` that they have.
    pub(super) config: String,
    /// What changes that: itself, or the profile that it is made from.
    pub(super) source: ObjectRef,
    pub(super) nodes: Vec<String>,
    pub(super) policy: String,
    pub(super) scope: String,
}

impl<'a> Kubelets<'a> {
    pub(super) async fn find(ctx: &'a Context) -> Result<Self, StepError> {
        ctx.step("a node group's pool has a KubeletConfig", async {
            let groups = ctx.operator_resource().await?.spec.node_groups;
            let configs = machine_pools::kubelet_configs(&ctx.client()).await?;
            let pools = Api::<MachineConfigPool>::all(ctx.client());
            for name in groups.into_iter().filter_map(|group| group.pool_name) {
                let Some(pool) = pools.get_opt(&name).await? else {
                    continue;
                };
                // the newest takes effect
                let of_it = configs.iter().rev().find(|config| selects(config, &pool));
                let Some(config) = of_it else { continue };
                let payload = config.spec.kubelet_config.clone().unwrap_or_default();
                let field = |name: &str| payload[name].as_str().map(str::to_owned);
                ctx.recorder.saw(config.name_any());
                return Ok(Self {
                    ctx,
                    source: source_of(config)?,
                    config: config.name_any(),
                    nodes: nodes_of(ctx, &name).await?,
                    pool: name,
                    policy: field(POLICY).unwrap_or_else(|| "none".to_owned()),
                    scope: field(SCOPE).unwrap_or_else(|| "container".to_owned()),
                });
            }
            Err(StepError::Skip("no node group's pool has one".to_owned()))
        })
        .await
    }

    /// Sets a field of their configuration and waits until kubelets, ConfigMap and NRTs show this policy and scope. The field is restored
    /// at the end.
    pub(super) async fn set(
        &self,
        field: &str,
        value: &str,
        policy: &str,
        scope: &str,
    ) -> Result<(), StepError> {
        let ctx = self.ctx;
        let source = self.source.api(&ctx.client());
        let object = json!(source.get(&self.source.name).await?);
        let [old, new] = patches(&self.source.kind, &object, field, value);
        ctx.recorder.plan(
            &format!("set {field} of {}", self.source),
            Undo::Patch {
                object: self.source.clone(),
                patch: old,
            },
        )?;
        let before = machine_pools::configuration(&ctx.client(), &self.pool).await?;
        source
            .patch(
                &self.source.name,
                &PatchParams::default(),
                &Patch::Merge(new),
            )
            .await?;
        let limit = ctx.deadlines().installed;
        machine_pools::rolled_out(&ctx.recorder, &ctx.client(), &self.pool, &before, limit).await?;
        self.followed(policy, scope).await
    }

    /// Waits until the pool's ConfigMap and the NRTs of its nodes match its kubelets.
    pub(super) async fn followed(&self, policy: &str, scope: &str) -> Result<(), StepError> {
        let what = format!("the ConfigMap says {policy}, {scope}");
        let limit = self.ctx.deadlines().installed;
        let part = self
            .ctx
            .until(&what, limit, async || {
                let Some(map) = self.config_map().await? else {
                    return Ok(PollResult::NotYet("there is none".to_owned()));
                };
                let part = config_of(&map)?;
                let [seen_policy, seen_scope] = published_policy_and_scope(&part);
                Ok(if seen_policy == policy && seen_scope == scope {
                    PollResult::Ready(part)
                } else {
                    PollResult::NotYet(format!("it says {seen_policy}, {seen_scope}"))
                })
            })
            .await?;
        for node in &self.nodes {
            agree(self.ctx, node, &part).await?;
        }
        Ok(())
    }

    /// Returns the ConfigMap that the operator passes to the pool's exporters.
    pub(super) async fn config_map(&self) -> Result<Option<ConfigMap>, StepError> {
        let ours = format!("{OPERATOR_NAME},{POOL}={}", self.pool);
        let maps = Api::<ConfigMap>::all(self.ctx.client());
        let found = maps.list(&ListParams::default().labels(&ours)).await?;
        Ok(found.items.into_iter().next())
    }

    /// Plans a pod with these limits that only fits on the pool's nodes.
    pub(super) fn plan(&self, name: &str, limits: Resources) -> PodPlan {
        PodPlan::new(
            name,
            self.ctx.scheduler(),
            [ResourceRequest::Limits(limits)],
        )
        .on_nodes_with(&node_role(&self.pool), "")
    }
}

/// Returns what changes a `KubeletConfig`: itself, or the performance profile that it is made from. Other owners would take a change back.
fn source_of(config: &KubeletConfig) -> Result<ObjectRef, StepError> {
    let Some(owner) = config.owner_references().first() else {
        return Ok(ObjectRef::of(config));
    };
    if owner.kind != PROFILE {
        let (config, kind) = (config.name_any(), &owner.kind);
        let reason = format!("KubeletConfig {config} is made from a {kind}, which is not known");
        return Err(StepError::Skip(reason));
    }
    Ok(ObjectRef {
        api_version: owner.api_version.clone(),
        kind: owner.kind.clone(),
        plural: "performanceprofiles".to_owned(),
        namespace: None,
        name: owner.name.clone(),
    })
}

/// Returns the patches that restore a field of the kubelets' configuration and that set it.
fn patches(kind: &str, object: &Value, field: &str, value: &str) -> [Value; 2] {
    if kind != PROFILE {
        let patch = |value: &Value| json!({"spec": {"kubeletConfig": {field: value}}});
        return [&object["spec"]["kubeletConfig"][field], &json!(value)].map(patch);
    }
    if field == POLICY {
        let patch = |value: &Value| json!({"spec": {"numa": {"topologyPolicy": value}}});
        return [&object["spec"]["numa"]["topologyPolicy"], &json!(value)].map(patch);
    }
    let old = &object["metadata"]["annotations"][EXPERIMENTAL];
    let settings = old.as_str().and_then(|old| serde_json::from_str(old).ok());
    let mut settings: serde_json::Map<String, Value> = settings.unwrap_or_default();
    settings.insert(field.to_owned(), json!(value));
    let new = json!(json!(settings).to_string());
    [old, &new].map(|value| json!({"metadata": {"annotations": {EXPERIMENTAL: value}}}))
}

/// Returns policy and scope, with the kubelet's defaults.
fn published_policy_and_scope(part: &KubeletPart) -> [&str; 2] {
    [
        part.topology_manager_policy.as_deref().unwrap_or("none"),
        part.topology_manager_scope
            .as_deref()
            .unwrap_or("container"),
    ]
}

fn selects(config: &KubeletConfig, pool: &MachineConfigPool) -> bool {
    let selector = config.spec.machine_config_pool_selector.clone();
    selector.is_some_and(|selector| {
        Selector::try_from(selector).is_ok_and(|selector| selector.matches(pool.labels()))
    })
}

/// Moves a node to another pool; at the end it is moved back.
pub(super) async fn move_node(
    ctx: &Context,
    node: &str,
    from: &str,
    to: &str,
) -> Result<(), StepError> {
    let labels = |gone: &str, new: Option<&str>| -> Value {
        let mut labels = serde_json::Map::new();
        // a node in a custom pool remains a worker
        if gone != "worker" {
            labels.insert(node_role(gone), Value::Null);
        }
        if let Some(new) = new {
            labels.insert(node_role(new), json!(""));
        }
        json!({"metadata": {"labels": labels}})
    };
    ctx.recorder.plan(
        &format!("move Node {node} from pool {from} to {to}"),
        Undo::Patch {
            object: ObjectRef::node(node),
            patch: labels(to, Some(from)),
        },
    )?;
    Api::<Node>::all(ctx.client())
        .patch(
            node,
            &PatchParams::default(),
            &Patch::Merge(labels(from, Some(to))),
        )
        .await?;
    Ok(())
}

pub(super) async fn machine_count(ctx: &Context, name: &str) -> Result<i32, StepError> {
    let pool = Api::<MachineConfigPool>::all(ctx.client())
        .get(name)
        .await?;
    Ok(pool.status.unwrap_or_default().machine_count)
}

/// Waits until a pool has this many machines, all of them configured and ready.
pub(super) async fn machines_are(ctx: &Context, name: &str, count: i32) -> Result<(), StepError> {
    let pools = Api::<MachineConfigPool>::all(ctx.client());
    let what = format!("pool {name} has {count} machines, which are up to date");
    let limit = ctx.deadlines().installed;
    ctx.until(&what, limit, async || {
        let status = pools.get(name).await?.status.unwrap_or_default();
        let seen = [
            status.machine_count,
            status.updated_machine_count,
            status.ready_machine_count,
        ];
        Ok(
            if seen == [count; 3] && status.condition(UPDATED) == Some("True") {
                PollResult::Ready(())
            } else {
                let [all, updated, ready] = seen;
                PollResult::NotYet(format!("{all} machines, {updated} updated, {ready} ready"))
            },
        )
    })
    .await
}

/// Waits until a pool has this many exporters, all of them ready.
pub(super) async fn exporters_are(ctx: &Context, pool: &str, count: i32) -> Result<(), StepError> {
    let name = names::rte_daemon_set(names::OPERATOR_CR, pool);
    let sets = Api::<DaemonSet>::namespaced(ctx.client(), names::NAMESPACE);
    let limit = ctx.deadlines().installed;
    ctx.until(&format!("DaemonSet {name} is ready"), limit, async || {
        let Some(set) = sets.get_opt(&name).await? else {
            return Ok(PollResult::NotYet("it is missing".to_owned()));
        };
        let rollout = Rollout::of(&set);
        // pods on nodes of another pool
        let status = set.status.unwrap_or_default();
        let elsewhere = status.number_misscheduled;
        Ok(
            if rollout.is_over() && rollout.wanted == count && elsewhere == 0 {
                PollResult::Ready(())
            } else {
                PollResult::NotYet(format!("{rollout}, {elsewhere} elsewhere"))
            },
        )
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned_by(kind: Option<&str>) -> KubeletConfig {
        let owner = |kind: &str| json!({"apiVersion": "performance.openshift.io/v2", "kind": kind, "name": "p", "uid": "u"});
        let owners: Vec<Value> = kind.into_iter().map(owner).collect();
        serde_json::from_value(
            json!({"metadata": {"name": "k", "ownerReferences": owners}, "spec": {}}),
        )
        .unwrap()
    }

    #[test]
    fn a_configuration_is_changed_where_it_comes_from() {
        let source = |kind| source_of(&owned_by(kind)).map(|source| source.to_string());
        assert_eq!(source(None).ok().as_deref(), Some("KubeletConfig k"));
        assert_eq!(
            source(Some(PROFILE)).ok().as_deref(),
            Some("PerformanceProfile p")
        );
        assert!(matches!(source(Some("Other")), Err(StepError::Skip(_))));
    }

    #[test]
    fn patches_set_a_field_and_restore_it() {
        let config = json!({"spec": {"kubeletConfig": {SCOPE: "pod"}}});
        assert_eq!(
            patches("KubeletConfig", &config, SCOPE, "container"),
            ["pod", "container"].map(|scope| json!({"spec": {"kubeletConfig": {SCOPE: scope}}}))
        );
        let profile = json!({
            "metadata": {"annotations": {EXPERIMENTAL: "{\"a\":1}"}},
            "spec": {"numa": {"topologyPolicy": "restricted"}},
        });
        let annotation = |text: &str| json!({"metadata": {"annotations": {EXPERIMENTAL: text}}});
        assert_eq!(
            patches(PROFILE, &profile, SCOPE, "pod"),
            [
                annotation("{\"a\":1}"),
                annotation("{\"a\":1,\"topologyManagerScope\":\"pod\"}")
            ]
        );
        assert_eq!(
            patches(PROFILE, &profile, POLICY, "none"),
            ["restricted", "none"]
                .map(|policy| json!({"spec": {"numa": {"topologyPolicy": policy}}}))
        );
    }
}
