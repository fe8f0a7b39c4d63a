//! Taints and tolerations (scenarios-serial.md 8.5).

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, ListParams};

use crate::arena::Fit;
use crate::context::Context;
use crate::resources::Resources;
use crate::scenario::{Need, Scenario, Scope, StepError, body};
use crate::scenarios::{labels, title};
use crate::workload::{PodPlan, ResourceRequest};

const CONTEXT: &str =
    "[serial][disruptive][scheduler] numaresources workload placement considering taints";
const KEY: &str = "testkey";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![Scenario {
        id: "taint/tolerating-pod",
        test_id: Some(47594),
        title: title(
            CONTEXT,
            Some(47594),
            "",
            "should make a pod with a toleration land on a node with enough resources on a specific NUMA zone",
        ),
        labels: labels(
            &[
                "disruptive",
                "scheduler",
                "feature:wlplacement",
                "feature:taint",
            ],
            "tier1",
        ),
        needs: vec![Need::Nodes {
            count: 2,
            scope: None,
        }],
        body: body(|ctx| Box::pin(run(ctx))),
    }]
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
    ctx.step(
        format!("all nodes but the target are padded to {free} a zone"),
        ctx.pad_others(&arena, &free),
    )
    .await?;
    ctx.step("all workers are tainted", async {
        let workers = ListParams::default().labels(api::labels::WORKER);
        for node in Api::<Node>::all(ctx.client()).list(&workers).await?.items {
            ctx.taint_node(&node.name_any(), KEY, "NoSchedule").await?;
        }
        Ok(())
    })
    .await?;
    let before = ctx.baseline_of(&arena.target().node).await?;
    let plan = arena.confine(PodPlan::new(
        "testpod",
        ctx.scheduler(),
        [ResourceRequest::Limits(request.clone())],
    ));
    let untolerating = arena.confine(PodPlan::new(
        "untolerating",
        ctx.scheduler(),
        [ResourceRequest::Limits(request.clone())],
    ));
    ctx.step("a pod without the toleration stays pending", async {
        ctx.create(untolerating.pod()).await?;
        ctx.stay_pending(&[untolerating.name().to_owned()], "untolerated taint")
            .await?;
        ctx.delete::<Pod>(untolerating.name()).await
    })
    .await?;
    let pod = ctx
        .step("a pod with the toleration runs", async {
            ctx.create(plan.tolerating(KEY, "NoSchedule").pod()).await?;
            ctx.pods_running(&["testpod".to_owned()]).await
        })
        .await?
        .remove(0);
    ctx.step("the pod is on the node that is not padded", async {
        ctx.on_node(&pod, &before.node)
    })
    .await?;
    ctx.step(
        "the scheduler under test placed it",
        ctx.scheduled_by_stack(&pod),
    )
    .await?;
    ctx.step(
        format!("one zone of the target accounts for {request}"),
        ctx.accounted(&before, &request, true, Scope::Pod),
    )
    .await?;
    ctx.step("after the pod's deletion the zones are as before", async {
        ctx.delete::<Pod>("testpod").await?;
        ctx.settle().await?;
        ctx.restored(&before).await
    })
    .await
}
