//! A machine that moves to another pool on `OpenShift`: its kubelet, its exporter and its NRT follow.

use api::labels::MACHINE_CONFIG_ROLE;
use api::openshift::machine_config::KubeletConfig;
use api::operator::v1::NodeGroup;
use kube::api::Api;
use serde_json::json;

use super::pools::{Kubelets, SCOPE, exporters_are, machine_count, machines_are, move_node};
use super::{ON_OPENSHIFT, pool};
use crate::context::Context;
use crate::ledger::ObjectRef;
use crate::scenario::{Scenario, body};
use crate::scenarios::registry::scenario;
use crate::scenarios::steps;
use crate::step::StepError;

/// Name of the pool and of everything that belongs to it.
const NAME: &str = "mcp-test";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![scenario(
        "config/nrt-attributes-move-group",
        ON_OPENSHIFT,
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
    steps::empty_pool(ctx, NAME).await?;
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
        source: ObjectRef::named::<KubeletConfig>(None, "kc-test"),
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
