//! Daemon sets, each pod of which is for one node.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::{FREE, REQUEST, all_pending, arena, pad_all, plan};
use crate::context::Context;
use crate::context::arena::Arena;
use crate::context::checks::node_of;
use crate::resources::Resources;
use crate::scenarios::steps;
use crate::step::StepError;
use crate::workload::PodPlan;

pub(super) async fn daemon_set_no_zone(ctx: &Context) -> Result<(), StepError> {
    let (arena, scope) = arena(ctx, 2).await?;
    pad_all(ctx, &arena, &Resources::literal(FREE)).await?;
    let plan = plan(ctx, &arena, "test-ds");
    let pods = ctx
        .step(
            "the daemon set makes a pod for each node",
            create_daemon_set(ctx, &arena, &plan),
        )
        .await?;
    let title = format!(
        "all pods of the daemon set stay pending: {}",
        scope.alignment_failure()
    );
    ctx.step(title, all_pending(ctx, &pods, scope)).await
}

pub(super) async fn daemon_set_one_node_fits(ctx: &Context) -> Result<(), StepError> {
    let (arena, scope) = arena(ctx, 2).await?;
    let nodes = steps::others_are_padded(ctx, &arena, &Resources::literal(FREE)).await?;
    let before = arena.target_in(&nodes)?;
    let plan = plan(ctx, &arena, "test-ds");
    let pods = ctx
        .step(
            "the daemon set makes a pod for each node",
            create_daemon_set(ctx, &arena, &plan),
        )
        .await?;
    let running = ctx
        .step("the pod for the target runs there", async {
            let name = pod_for(&pods, &before.node)?;
            let running = ctx.pods_running(&[name]).await?.remove(0);
            ctx.on_node(&running, &before.node)?;
            Ok(running)
        })
        .await?;
    steps::stack_placed(ctx, &running).await?;
    let others: Vec<_> = pods
        .into_iter()
        .filter(|pod| pod.uid() != running.uid())
        .collect();
    let title = format!(
        "the pods for all other nodes stay pending: {}",
        scope.alignment_failure()
    );
    ctx.step(title, all_pending(ctx, &others, scope)).await?;
    steps::one_zone_accounts_for(ctx, before, &Resources::literal(REQUEST)).await
}

/// Creates a daemon set that wants a pod on each of the nodes, and waits until these pods are created.
pub(super) async fn create_daemon_set(
    ctx: &Context,
    arena: &Arena,
    plan: &PodPlan,
) -> Result<Vec<Pod>, StepError> {
    ctx.create::<DaemonSet>(plan.daemon_set()).await?;
    ctx.daemon_set_desired(plan.name(), arena.nodes().len())
        .await?;
    ctx.pods_created(&plan.selector_labels(), arena.nodes().len())
        .await
}

/// Returns the pod that the daemon set made for a node. The affinity of the pod names the node until the pod is bound.
fn pod_for(pods: &[Pod], node: &str) -> Result<String, StepError> {
    let is_for = |pod: &&Pod| {
        let affinity = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.affinity.as_ref()?.node_affinity.as_ref());
        let terms = affinity.and_then(|affinity| {
            affinity
                .required_during_scheduling_ignored_during_execution
                .as_ref()
        });
        let fields = terms
            .into_iter()
            .flat_map(|terms| &terms.node_selector_terms)
            .flat_map(|term| &term.match_fields);
        let mut values = fields
            .flatten()
            .filter_map(|field| field.values.as_ref())
            .flatten();
        node_of(pod) == Some(node) || values.any(|value| value == node)
    };
    let found = pods.iter().find(is_for).map(ResourceExt::name_any);
    found.ok_or_else(|| StepError::fail(format!("the daemon set made no pod for {node}")))
}
