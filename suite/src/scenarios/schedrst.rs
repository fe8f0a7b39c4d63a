//! Workloads without a scheduler (scenarios-serial.md 9.3).
//!
//! The original looks three times in half a minute. Here a pod that another scheduler places proves that the schedulers had time: it was
//! created after the pods that stay pending.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use crate::context::Context;
use crate::context::checks::{describe, node_of};
use crate::scenario::{Scenario, body};
use crate::scenarios::registry::scenario;
use crate::scenarios::steps;
use crate::step::StepError;
use crate::workload::{PodPlan, ResourceRequest};

const REPLICAS: i32 = 2;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario(
            "schedrst/existing-keep-running",
            &[],
            body(|ctx| Box::pin(existing_keep_running(ctx))),
        ),
        scenario(
            "schedrst/new-stay-pending",
            &[],
            body(|ctx| Box::pin(new_stay_pending(ctx))),
        ),
        scenario(
            "schedrst/pending-scheduled-after-restore",
            &[],
            body(|ctx| Box::pin(pending_are_scheduled(ctx))),
        ),
    ]
}

fn plan(ctx: &Context) -> PodPlan {
    PodPlan::new("testdp", ctx.scheduler(), [ResourceRequest::Nothing])
}

fn uids(pods: &[Pod]) -> BTreeSet<Option<String>> {
    pods.iter().map(Pod::uid).collect()
}

async fn existing_keep_running(ctx: &Context) -> Result<(), StepError> {
    let plan = plan(ctx);
    let title = "the deployment is complete";
    let running = steps::deployment_is_complete(ctx, title, &plan, REPLICAS).await?;
    let before = ctx
        .step("the scheduler is removed", ctx.remove_scheduler())
        .await?;
    ctx.step("the same pods run on", async {
        steps::default_scheduler_places_a_pod(ctx).await?;
        let now = ctx
            .deployment_complete(plan.name(), &plan.selector_labels())
            .await?;
        if uids(&running) == uids(&now) {
            return Ok(());
        }
        let [expected, seen] =
            [&running, &now].map(|pods| pods.iter().map(describe).collect::<Vec<_>>().join(", "));
        Err(StepError::mismatch("other pods run", expected, seen))
    })
    .await?;
    ctx.step("the scheduler is back", ctx.restore_scheduler(&before))
        .await
}

async fn new_stay_pending(ctx: &Context) -> Result<(), StepError> {
    let before = ctx
        .step("the scheduler is removed", ctx.remove_scheduler())
        .await?;
    ctx.step("new pods wait", pods_wait(ctx, &plan(ctx)))
        .await?;
    ctx.step("the scheduler is back", ctx.restore_scheduler(&before))
        .await
}

async fn pending_are_scheduled(ctx: &Context) -> Result<(), StepError> {
    let plan = plan(ctx);
    let before = ctx
        .step("the scheduler is removed", ctx.remove_scheduler())
        .await?;
    ctx.step("new pods wait", pods_wait(ctx, &plan)).await?;
    ctx.step("the scheduler is back", ctx.restore_scheduler(&before))
        .await?;
    let pods = ctx
        .step(
            "the pods run",
            ctx.deployment_complete(plan.name(), &plan.selector_labels()),
        )
        .await?;
    ctx.step("the scheduler under test placed them", async {
        for pod in &pods {
            ctx.scheduled_by_stack(pod).await?;
        }
        Ok(())
    })
    .await
}

/// Creates a deployment and checks that its pods stay without a node although other pods are placed.
async fn pods_wait(ctx: &Context, plan: &PodPlan) -> Result<(), StepError> {
    ctx.create(plan.deployment(REPLICAS)).await?;
    let labels = plan.selector_labels();
    let count = usize::try_from(REPLICAS).unwrap_or_default();
    ctx.pods_created(&labels, count).await?;
    steps::default_scheduler_places_a_pod(ctx).await?;
    for pod in ctx.pods_with(&labels).await? {
        if node_of(&pod).is_some() {
            let message = "a pod was placed without a scheduler";
            return Err(StepError::mismatch(message, "no node", describe(&pod)));
        }
    }
    Ok(())
}
