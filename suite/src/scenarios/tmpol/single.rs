//! Groups A and B: one Guaranteed container in one zone, alone or from a deployment.

use super::{CONTEXT, LABELS};
use crate::arena::Fit;
use crate::context::Context;
use crate::resources::Resources;
use crate::scenario::{Need, Scenario, Scope, StepError, body};
use crate::scenarios::{labels, title};
use crate::workload::{PodPlan, ResourceRequest};

struct Row {
    id: &'static str,
    test_id: u32,
    labels: &'static str,
    deployment: bool,
    scope: Scope,
    request: &'static str,
    free: &'static str,
    text: &'static str,
}

static ROWS: &[Row] = &[
    Row {
        id: "tmpol/pod-single-zone-cnt",
        test_id: 48713,
        labels: "tier1 tmscope:cnt",
        deployment: false,
        scope: Scope::Container,
        request: "4c 4Gi",
        free: "3c 3Gi",
        text: "with topology-manager-scope: container",
    },
    Row {
        id: "tmpol/pod-single-zone-pod",
        test_id: 50156,
        labels: "tier1 tmscope:pod",
        deployment: false,
        scope: Scope::Pod,
        request: "4c 4Gi",
        free: "3c 3Gi",
        text: "with topology-manager-scope: pod",
    },
    Row {
        id: "tmpol/pod-single-zone-cnt-hp",
        test_id: 50158,
        labels: "tier1 tmscope:cnt hugepages",
        deployment: false,
        scope: Scope::Container,
        request: "4c 4Gi h2=256",
        free: "3c 3Gi h2=192",
        text: "with topology-manager-scope: container with hugepages",
    },
    Row {
        id: "tmpol/pod-single-zone-pod-hp",
        test_id: 50157,
        labels: "tier1 tmscope:pod hugepages",
        deployment: false,
        scope: Scope::Pod,
        request: "4c 4Gi h2=256",
        free: "3c 3Gi h2=192",
        text: "with topology-manager-scope: pod with hugepages",
    },
    Row {
        id: "tmpol/dp-single-zone-cnt",
        test_id: 47583,
        labels: "tier0 tmscope:cnt",
        deployment: true,
        scope: Scope::Container,
        request: "4c 4Gi",
        free: "3c 3Gi",
        text: "with topology-manager-scope: container",
    },
    Row {
        id: "tmpol/dp-single-zone-pod",
        test_id: 50159,
        labels: "tier0 tmscope:pod",
        deployment: true,
        scope: Scope::Pod,
        request: "4c 4Gi",
        free: "3c 3Gi",
        text: "with topology-manager-scope: pod",
    },
    Row {
        id: "tmpol/dp-single-zone-cnt-hp",
        test_id: 50165,
        labels: "tier1 tmscope:cnt hugepages",
        deployment: true,
        scope: Scope::Container,
        request: "4c 4Gi h2=256",
        free: "3c 3Gi h2=192",
        text: "with topology-manager-scope: container and with hugepages",
    },
    Row {
        id: "tmpol/dp-single-zone-pod-hp",
        test_id: 50182,
        labels: "tier1 tmscope:pod hugepages",
        deployment: true,
        scope: Scope::Pod,
        request: "4c 4Gi h2=256",
        free: "3c 3Gi h2=192",
        text: "with topology-manager-scope: pod and with hugepages",
    },
];

pub(super) fn scenarios() -> Vec<Scenario> {
    ROWS.iter()
        .map(|row| {
            let table = if row.deployment {
                "a deployment with a guaranteed pod with one container should be scheduled into one NUMA zone"
            } else {
                "a guaranteed pod with one container should be scheduled into one NUMA zone"
            };
            let tags = format!("[tmscope:{}]", if row.scope == Scope::Pod { "pod" } else { "cnt" });
            Scenario {
                id: row.id,
                test_id: Some(row.test_id),
                title: title(&format!("{CONTEXT} {table}"), Some(row.test_id), &tags, row.text),
                labels: labels(LABELS, row.labels),
                needs: vec![
                    Need::Nodes { count: 2, scope: Some(row.scope) },
                    Need::Zone { count: 2, scope: Some(row.scope), request: row.request },
                ],
                body: body(move |ctx| Box::pin(run(ctx, row))),
            }
        })
        .collect()
}

async fn run(ctx: &Context, row: &Row) -> Result<(), StepError> {
    let request = Resources::literal(row.request);
    let title = format!(
        "two nodes of scope {} have a zone with {request}",
        row.scope.as_str()
    );
    let arena = ctx
        .step(
            title,
            ctx.arena(Some(row.scope), 2, &Fit::Zone(request.clone())),
        )
        .await?;
    let free = Resources::literal(row.free);
    ctx.step(
        format!("all nodes but the target are padded to {free} a zone"),
        ctx.pad_others(&arena, &free),
    )
    .await?;
    ctx.step(
        "the target is the last choice without NUMA knowledge",
        ctx.make_last_choice(&arena),
    )
    .await?;
    let target = ctx.baseline_of(&arena.target().node).await?;

    let pod = if row.deployment {
        let plan = arena.confine(PodPlan::new(
            "test-dp",
            ctx.scheduler(),
            [ResourceRequest::Limits(request.clone())],
        ));
        ctx.step("the deployment is complete", async {
            ctx.create(plan.deployment(1)).await?;
            ctx.deployment_complete(plan.name(), &plan.selector_labels())
                .await
        })
        .await?
        .remove(0)
    } else {
        let plan = arena.confine(PodPlan::new(
            "testpod",
            ctx.scheduler(),
            [ResourceRequest::Limits(request.clone())],
        ));
        ctx.step("the pod runs", async {
            ctx.create(plan.pod()).await?;
            ctx.pods_running(&[plan.name().to_owned()]).await
        })
        .await?
        .remove(0)
    };
    ctx.step("the pod is on the one node with a zone for it", async {
        ctx.on_node(&pod, &target.node)
    })
    .await?;
    ctx.step(
        "the scheduler under test placed it",
        ctx.scheduled_by_stack(&pod),
    )
    .await?;
    // a single container is in one zone with either scope
    ctx.step(
        format!("one zone of the target accounts for {request}"),
        ctx.accounted(&target, &request, true, Scope::Pod),
    )
    .await
}
