//! A machine that moves to another pool on `OpenShift`: its kubelet, its exporter and its NRT follow.

use api::labels::{MACHINE_CONFIG_ROLE, node_role};
use api::names;
use api::openshift::machine_config::{KubeletConfig, MachineConfigPool, UPDATED};
use api::operator::v1::NodeGroup;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use super::kubelets::{Kubelets, SCOPE, empty_pool};
use super::{ON_OPENSHIFT, pool};
use crate::context::Context;
use crate::context::checks::Rollout;
use crate::ledger::{ObjectRef, Undo};
use crate::recorder::PollResult;
use crate::scenario::{Scenario, StepError, body};

/// Name of the pool and of everything that belongs to it.
const NAME: &str = "mcp-test";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![ON_OPENSHIFT.scenario(
        "config/nrt-attributes-move-group",
        84316,
        "openshift slow tier2 reboot_required",
        "should change NRT attributes correctly when RTE is pointing to a different nodeGroup",
        body(|ctx| Box::pin(node_moves_to_another_pool(ctx))),
    )]
}

async fn node_moves_to_another_pool(ctx: &Context) -> Result<(), StepError> {
    let home = Kubelets::find(ctx).await?;
    let [node, _, ..] = home.nodes.as_slice() else {
        let reason = format!(
            "pool {} has no two nodes, one of which could move",
            home.pool
        );
        return Err(StepError::Skip(reason));
    };
    let other = if home.scope == "pod" {
        "container"
    } else {
        "pod"
    };
    let machines = machine_count(ctx, &home.pool).await?;
    empty_pool(ctx, NAME).await?;
    ctx.step(
        format!("kubelets of the new pool are to have scope {other}"),
        async {
            let configs = Api::<KubeletConfig>::all(ctx.client());
            let mut payload = configs
                .get(&home.config)
                .await?
                .spec
                .kubelet_config
                .unwrap_or_default();
            payload[SCOPE] = json!(other);
            let config: KubeletConfig = serde_json::from_value(json!({
                "metadata": {"name": "kc-test"},
                "spec": {
                    "machineConfigPoolSelector": {"matchLabels": {MACHINE_CONFIG_ROLE: NAME}},
                    "kubeletConfig": payload,
                },
            }))
            .map_err(|error| StepError::fail(error.to_string()))?;
            ctx.create_global(&config).await?;
            Ok(())
        },
    )
    .await?;
    ctx.step(format!("{node} moves to the new pool"), async {
        move_node(ctx, node, &home.pool, NAME).await?;
        machines_are(ctx, NAME, 1).await
    })
    .await?;
    let before = ctx.operator_resource().await?.spec.node_groups;
    let mut groups: Vec<NodeGroup> = before.clone();
    groups.push(pool(NAME));
    ctx.step("the new pool has an exporter", async {
        ctx.set_node_groups(&groups).await?;
        ctx.operator_available().await?;
        exporters_are(ctx, NAME, 1).await
    })
    .await?;
    let moved = Kubelets {
        ctx,
        pool: NAME.to_owned(),
        config: "kc-test".to_owned(),
        nodes: vec![node.clone()],
        policy: home.policy.clone(),
        scope: other.to_owned(),
    };
    ctx.step(
        format!("kubelet, ConfigMap and NRT of {node} say scope {other}"),
        moved.followed(&moved.policy, &moved.scope),
    )
    .await?;
    ctx.step("all is as before again", async {
        ctx.set_node_groups(&before).await?;
        move_node(ctx, node, NAME, &home.pool).await?;
        machines_are(ctx, &home.pool, machines).await?;
        ctx.operator_available().await?;
        home.followed(&home.policy, &home.scope).await
    })
    .await
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
    );
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
        Ok(if rollout.is_over() && rollout.wanted == count {
            PollResult::Ready(())
        } else {
            PollResult::NotYet(rollout.to_string())
        })
    })
    .await
}
