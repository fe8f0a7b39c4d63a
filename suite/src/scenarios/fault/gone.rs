//! Something is gone that held a zone or told of it: the NRT of a node, the processes of a pod.

use api::nrt::v1alpha2::NodeResourceTopology;
use cluster_faults::{Disturbance, Part, Process};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams};

use super::{
    REQUEST, is_placed_on, leave, plan, stop_exporter, waits, with_faults, zone_accounts_for_pod,
};
use crate::context::Context;
use crate::context::checks::{describe, phase};
use crate::observed::NodeTopology;
use crate::scenario::{Scenario, body};
use crate::step::StepError;
use crate::workload::PodPlan;

/// What the zones of a node have for pods where even their sums have no room for two.
const TIGHT: [&str; 2] = [REQUEST, LITTLE];
const LITTLE: &str = "3c 3Gi";

pub(super) fn scenarios() -> [Scenario; 2] {
    [
        with_faults(
            "fault/nrt-deleted",
            Part::Nodes,
            body(|ctx| Box::pin(node_without_topology(ctx))),
        ),
        with_faults(
            "fault/pod-ends",
            Part::Nodes,
            body(|ctx| Box::pin(pod_that_ended(ctx))),
        ),
    ]
}

async fn node_without_topology(ctx: &Context) -> Result<(), StepError> {
    let (before, [first, next]) = one_runs_and_one_waits(ctx).await?;
    let target = &before.node;
    let exporter = ctx.exporter_on(target).await?;
    let stopped = stop_exporter(&exporter, target);
    let meanwhile = async {
        delete_topology(ctx, target).await?;
        // its sums have room then, and nothing says any more that its zones have none
        ctx.delete::<Pod>(first.name()).await?;
        is_placed_on(ctx, next.name(), target).await
    };
    ctx.step(
        "while the exporter stands still, the NRT and the first pod are deleted, and the next one takes its place",
        ctx.during(&stopped, meanwhile),
    )
    .await?;
    zone_accounts_for_pod(ctx, &before).await
}

async fn pod_that_ended(ctx: &Context) -> Result<(), StepError> {
    let (before, [first, next]) = one_runs_and_one_waits(ctx).await?;
    let target = &before.node;
    ctx.step(
        "the process of the first pod is killed, and the next one takes its place",
        async {
            let pod = ctx.pod(first.name()).await?;
            let containers = pod.spec.map(|spec| spec.containers).unwrap_or_default();
            for container in containers {
                let process = Process {
                    node: target.clone(),
                    namespace: ctx.namespace.clone(),
                    pod: first.name().to_owned(),
                    container: container.name,
                };
                ctx.inject(&Disturbance::Kill { process }).await?;
            }
            is_placed_on(ctx, next.name(), target).await
        },
    )
    .await?;
    ctx.step("the first pod is still there, and has ended", async {
        let pod = ctx.pod(first.name()).await?;
        if phase(&pod) == "Failed" {
            return Ok(());
        }
        Err(StepError::mismatch(
            "the phase of the first pod",
            "Failed",
            describe(&pod),
        ))
    })
    .await?;
    zone_accounts_for_pod(ctx, &before).await
}

/// Returns a node with the room for one pod, the pod that then took it, and one that waits for it.
async fn one_runs_and_one_waits(ctx: &Context) -> Result<(NodeTopology, [PodPlan; 2]), StepError> {
    let (arena, before) = leave(ctx, TIGHT, LITTLE).await?;
    let first = plan(ctx, &arena, "first").never_restarted();
    let next = plan(ctx, &arena, "next");
    ctx.step("the first pod takes the room, the next one waits", async {
        ctx.create(first.pod()).await?;
        is_placed_on(ctx, first.name(), &before.node).await?;
        ctx.settle().await?;
        ctx.create(next.pod()).await?;
        waits(ctx, next.name()).await
    })
    .await?;
    Ok((before, [first, next]))
}

async fn delete_topology(ctx: &Context, node: &str) -> Result<(), StepError> {
    let nrts = Api::<NodeResourceTopology>::all(ctx.client());
    ctx.recorder.plan_deletion(&nrts.get(node).await?)?;
    nrts.delete(node, &DeleteParams::default()).await?;
    Ok(())
}
