//! Taints and tolerations (scenarios-serial.md 8.5).

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, ListParams};

use crate::context::Context;
use crate::context::arena::Fit;
use crate::needs::Need;
use crate::resources::Resources;
use crate::scenario::{Scenario, body};
use crate::scenarios::registry::scenario;
use crate::scenarios::steps;
use crate::step::StepError;
use crate::workload::ResourceRequest;

const NEEDS: &[Need] = &[Need::nodes(2)];
const KEY: &str = "testkey";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![scenario(
        "taint/tolerating-pod",
        NEEDS,
        body(|ctx| Box::pin(run(ctx))),
    )]
}

async fn run(ctx: &Context) -> Result<(), StepError> {
    let request = Resources::literal("4c 100Mi");
    let arena = ctx
        .step(
            "two nodes with two zones are there",
            ctx.arena(None, 2, &Fit::Zone(request.clone())),
        )
        .await?;
    let free = Resources::literal("1c 4G");
    steps::others_are_padded(ctx, &arena, &free).await?;
    ctx.step("all workers are tainted", async {
        let workers = ListParams::default().labels(api::labels::WORKER);
        for node in Api::<Node>::all(ctx.client()).list(&workers).await?.items {
            ctx.taint_node(&node.name_any(), KEY, "NoSchedule").await?;
        }
        Ok(())
    })
    .await?;
    let before = ctx.baseline_of(&arena.target().node).await?;
    let [tolerating, untolerating] = ["testpod", "untolerating"]
        .map(|name| arena.plan(ctx, name, [ResourceRequest::Limits(request.clone())]));
    ctx.step("a pod without the toleration stays pending", async {
        ctx.create(untolerating.pod()).await?;
        ctx.stay_pending(&[untolerating.name().to_owned()], "untolerated taint")
            .await?;
        ctx.delete::<Pod>(untolerating.name()).await
    })
    .await?;
    let plan = tolerating.tolerating(KEY, "NoSchedule");
    let pod = steps::pod_runs(ctx, "a pod with the toleration runs", &plan).await?;
    let title = "the pod is on the node that is not padded";
    steps::pod_is_on(ctx, title, &pod, &before.node).await?;
    steps::stack_placed(ctx, &pod).await?;
    steps::one_zone_accounts_for(ctx, &before, &request).await?;
    let title = "after the pod's deletion the zones are as before";
    let deletion = ctx.delete::<Pod>(plan.name());
    steps::zones_are_restored_after(ctx, title, deletion, &before).await
}
