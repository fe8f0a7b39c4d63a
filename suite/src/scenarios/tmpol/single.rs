//! Groups A and B: one Guaranteed container in one zone, alone or from a deployment.

use crate::context::Context;
use crate::context::arena::Fit;
use crate::needs::Need;
use crate::observed::Scope;
use crate::resources::Resources;
use crate::scenario::{Scenario, body};
use crate::scenarios::registry::scenario;
use crate::scenarios::steps;
use crate::step::StepError;
use crate::workload::ResourceRequest;

struct Row {
    id: &'static str,
    deployment: bool,
    scope: Scope,
    request: &'static str,
    free: &'static str,
}

static ROWS: &[Row] = &[
    Row {
        id: "tmpol/pod-single-zone-cnt",
        deployment: false,
        scope: Scope::Container,
        request: "4c 4Gi",
        free: "3c 3Gi",
    },
    Row {
        id: "tmpol/pod-single-zone-pod",
        deployment: false,
        scope: Scope::Pod,
        request: "4c 4Gi",
        free: "3c 3Gi",
    },
    Row {
        id: "tmpol/pod-single-zone-cnt-hp",
        deployment: false,
        scope: Scope::Container,
        request: "4c 4Gi h2=256",
        free: "3c 3Gi h2=192",
    },
    Row {
        id: "tmpol/pod-single-zone-pod-hp",
        deployment: false,
        scope: Scope::Pod,
        request: "4c 4Gi h2=256",
        free: "3c 3Gi h2=192",
    },
    Row {
        id: "tmpol/dp-single-zone-cnt",
        deployment: true,
        scope: Scope::Container,
        request: "4c 4Gi",
        free: "3c 3Gi",
    },
    Row {
        id: "tmpol/dp-single-zone-pod",
        deployment: true,
        scope: Scope::Pod,
        request: "4c 4Gi",
        free: "3c 3Gi",
    },
    Row {
        id: "tmpol/dp-single-zone-cnt-hp",
        deployment: true,
        scope: Scope::Container,
        request: "4c 4Gi h2=256",
        free: "3c 3Gi h2=192",
    },
    Row {
        id: "tmpol/dp-single-zone-pod-hp",
        deployment: true,
        scope: Scope::Pod,
        request: "4c 4Gi h2=256",
        free: "3c 3Gi h2=192",
    },
];

pub(super) fn scenarios() -> Vec<Scenario> {
    let build = |row: &'static Row| {
        let run = body(move |ctx| Box::pin(run(ctx, row)));
        let needs = [
            Need::Nodes {
                count: 2,
                scope: Some(row.scope),
            },
            Need::Zone {
                count: 2,
                scope: Some(row.scope),
                request: row.request,
            },
        ];
        scenario(row.id, &needs, run)
    };
    ROWS.iter().map(build).collect()
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
    steps::others_are_padded(ctx, &arena, &Resources::literal(row.free)).await?;
    let target = steps::target_is_last_choice(ctx, &arena).await?;

    let resources = [ResourceRequest::Limits(request.clone())];
    let pod = if row.deployment {
        let plan = arena.plan(ctx, "test-dp", resources);
        let title = "the deployment is complete";
        steps::deployment_is_complete(ctx, title, &plan, 1)
            .await?
            .remove(0)
    } else {
        let plan = arena.plan(ctx, "testpod", resources);
        steps::pod_runs(ctx, "the pod runs", &plan).await?
    };
    let title = "the pod is on the one node with a zone for it";
    steps::pod_is_on(ctx, title, &pod, &target.node).await?;
    steps::stack_placed(ctx, &pod).await?;
    // a single container is in one zone with either scope
    steps::one_zone_accounts_for(ctx, &target, &request).await
}
