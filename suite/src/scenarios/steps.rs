//! Steps that scenarios of several areas share, each with its title. They are in the order of a story: nodes are prepared, a pod runs or
//! stays pending, it is where it has to be, zones account for it, and in the end they are as before.

use api::labels::{MACHINE_CONFIG_ROLE, node_role};
use api::openshift::machine_config::MachineConfigPool;
use api::operator::InfoRefreshPause;
use api::operator::v1::NodeGroup;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::context::Context;
use crate::context::arena::{Arena, Fit};
use crate::context::padding::in_both_zones;
use crate::observed::{NodeTopology, Scope};
use crate::resources::Resources;
use crate::step::StepError;
use crate::workload::{PodPlan, ResourceRequest};

/// Takes nodes of one scope, that which more nodes have, because the reason of a rejection depends on it. At least two must qualify.
pub(super) async fn arena_of_one_scope(
    ctx: &Context,
    title: &str,
    fit: &Fit,
) -> Result<(Arena, Scope), StepError> {
    let scope = ctx.facts().majority_scope();
    let arena = ctx.step(title, ctx.arena(Some(scope), 2, fit)).await?;
    Ok((arena, scope))
}

/// Pads all nodes but the target to leave this in each zone. Returns the NRTs.
pub(super) async fn others_are_padded(
    ctx: &Context,
    arena: &Arena,
    free: &Resources,
) -> Result<Vec<NodeTopology>, StepError> {
    ctx.step(
        format!("all nodes but the target are padded to {free} a zone"),
        ctx.pad_others(arena, free),
    )
    .await
}

/// Leaves no CPU and no memory on any node but the target. Returns the NRTs.
pub(super) async fn others_are_full(
    ctx: &Context,
    arena: &Arena,
) -> Result<Vec<NodeTopology>, StepError> {
    ctx.step("all nodes but the target are full", async {
        let nothing = in_both_zones(&Resources::literal("0c 0Gi"));
        let pads = ctx.pad_each(arena.others(), &nothing, "full").await?;
        ctx.padded(&pads).await
    })
    .await
}

/// Makes the target the last choice of a scheduler that ignores zones. Returns the state of the target, which scenarios measure against.
pub(super) async fn target_is_last_choice(
    ctx: &Context,
    arena: &Arena,
) -> Result<NodeTopology, StepError> {
    ctx.step(
        "the target is the last choice without NUMA knowledge",
        ctx.make_last_choice(arena),
    )
    .await?;
    ctx.baseline_of(&arena.target().node).await
}

/// Has the operator pause all exporters: they look on and publish nothing. Returns the node groups before.
pub(super) async fn exporters_pause(ctx: &Context) -> Result<Vec<NodeGroup>, StepError> {
    ctx.step("no exporter publishes any more", async {
        let before = ctx.operator_resource().await?.spec.node_groups;
        let mut groups = before.clone();
        for group in &mut groups {
            let config = group.config.get_or_insert_default();
            config.info_refresh_pause = Some(InfoRefreshPause::Enabled);
            // so that the exporters look again soon
            config.info_refresh_period = Some("1s".to_owned());
        }
        ctx.set_node_groups(&groups).await?;
        ctx.operands_rolled_out().await?;
        Ok(before)
    })
    .await
}

/// Ends what [`exporters_pause`] began, and waits until the cluster is settled.
pub(super) async fn exporters_publish_again(
    ctx: &Context,
    before: &[NodeGroup],
) -> Result<(), StepError> {
    ctx.step("exporters publish again", async {
        ctx.set_node_groups(before).await?;
        ctx.operands_rolled_out().await?;
        ctx.settle().await.map(drop)
    })
    .await
}

/// Creates the pod and waits until it runs.
pub(super) async fn pod_runs(
    ctx: &Context,
    title: impl Into<String>,
    plan: &PodPlan,
) -> Result<Pod, StepError> {
    let pods = ctx.step(title, async {
        ctx.create(plan.pod()).await?;
        ctx.pods_running(&[plan.name().to_owned()]).await
    });
    Ok(pods.await?.remove(0))
}

/// Creates a deployment of such pods and waits until it is complete. Returns its pods.
pub(super) async fn deployment_is_complete(
    ctx: &Context,
    title: impl Into<String>,
    plan: &PodPlan,
    replicas: i32,
) -> Result<Vec<Pod>, StepError> {
    ctx.step(title, async {
        ctx.create(plan.deployment(replicas)).await?;
        ctx.deployment_complete(plan.name(), &plan.selector_labels())
            .await
    })
    .await
}

/// Creates the pod, which must stay pending for a reason that matches.
pub(super) async fn pod_stays_pending(
    ctx: &Context,
    title: impl Into<String>,
    plan: &PodPlan,
    reason: &str,
) -> Result<(), StepError> {
    ctx.step(title, async {
        ctx.create(plan.pod()).await?;
        ctx.stay_pending(&[plan.name().to_owned()], reason).await
    })
    .await
}

/// Checks that the pod is on this node.
pub(super) async fn pod_is_on(
    ctx: &Context,
    title: &str,
    pod: &Pod,
    node: &str,
) -> Result<(), StepError> {
    ctx.step(title, async { ctx.on_node(pod, node) }).await
}

/// Checks that the scheduler under test placed the pod.
pub(super) async fn stack_placed(ctx: &Context, pod: &Pod) -> Result<(), StepError> {
    ctx.step(
        "the scheduler under test placed it",
        ctx.scheduled_by_stack(pod),
    )
    .await
}

/// Checks that the scheduler under test placed each of these pods.
pub(super) async fn stack_placed_all(ctx: &Context, pods: &[Pod]) -> Result<(), StepError> {
    ctx.step("the scheduler under test placed each of them", async {
        for pod in pods {
            ctx.scheduled_by_stack(pod).await?;
        }
        Ok(())
    })
    .await
}

/// Checks that one zone of the target accounts for a Guaranteed pod, and nothing else has changed there.
pub(super) async fn one_zone_accounts_for(
    ctx: &Context,
    before: &NodeTopology,
    request: &Resources,
) -> Result<(), StepError> {
    ctx.step(
        format!("one zone of the target accounts for {request}"),
        ctx.accounted(before, request, true, Scope::Pod),
    )
    .await
}

/// Deletes what was created, and waits until the zones of the node are as before.
pub(super) async fn zones_are_restored_after(
    ctx: &Context,
    title: &str,
    deletion: impl Future<Output = Result<(), StepError>>,
    before: &NodeTopology,
) -> Result<(), StepError> {
    ctx.step(title, async {
        deletion.await?;
        ctx.settle().await?;
        ctx.restored(before).await
    })
    .await
}

/// Checks that the zones of the target are as before.
pub(super) async fn zones_are_as_before(
    ctx: &Context,
    before: &NodeTopology,
) -> Result<(), StepError> {
    ctx.step(
        "the zones of the target are as before",
        ctx.restored(before),
    )
    .await
}

/// Checks that the zones of all these nodes are as before.
pub(super) async fn all_zones_are_as_before(
    ctx: &Context,
    before: &[NodeTopology],
) -> Result<(), StepError> {
    ctx.step(
        "the zones of every node are as before",
        ctx.all_restored(before),
    )
    .await
}

/// Creates a pool without machines; it is deleted at the end.
pub(super) async fn empty_pool(ctx: &Context, name: &str) -> Result<MachineConfigPool, StepError> {
    ctx.step("there is a pool without machines", async {
        let pool: MachineConfigPool = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {MACHINE_CONFIG_ROLE: name}},
            "spec": {
                "machineConfigSelector": {"matchExpressions": [
                    {"key": MACHINE_CONFIG_ROLE, "operator": "In", "values": ["worker", name]},
                ]},
                "nodeSelector": {"matchLabels": {node_role(name): ""}},
            },
        }))
        .map_err(|error| StepError::fail(error.to_string()))?;
        ctx.create_global(&pool).await
    })
    .await
}

/// Runs and deletes a pod of the default scheduler, on any node that is left, including those of the control plane. Not a step of its own:
/// it proves, within one, that schedulers had time to do something else.
pub(super) async fn default_scheduler_places_a_pod(ctx: &Context) -> Result<(), StepError> {
    let plan = PodPlan::new("witness", "default-scheduler", [ResourceRequest::Nothing])
        .tolerating(api::labels::CONTROL_PLANE, "NoSchedule")
        .tolerating(api::labels::MASTER, "NoSchedule");
    ctx.create(plan.pod()).await?;
    ctx.pods_running(&[plan.name().to_owned()]).await?;
    ctx.delete::<Pod>(plan.name()).await
}
