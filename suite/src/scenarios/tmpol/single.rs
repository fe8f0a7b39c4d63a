//! Groups A and B: one Guaranteed container in one zone, alone or from a deployment.

use super::AREA;
use crate::context::Context;
use crate::context::arena::Fit;
use crate::needs::Need;
use crate::observed::Scope;
use crate::resources::Resources;
use crate::scenario::{Scenario, body};
use crate::scenarios::area::Area;
use crate::scenarios::steps;
use crate::step::StepError;
use crate::workload::ResourceRequest;

const PODS: Area = Area {
    context: "[serial][disruptive][scheduler] numaresources workload placement considering TM policy \
        a guaranteed pod with one container should be scheduled into one NUMA zone",
    ..AREA
};
const DEPLOYMENTS: Area = Area {
    context: "[serial][disruptive][scheduler] numaresources workload placement considering TM policy \
        a deployment with a guaranteed pod with one container should be scheduled into one NUMA zone",
    ..AREA
};

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
    let scenario = |row: &'static Row| {
        let area = if row.deployment { DEPLOYMENTS } else { PODS };
        let tags = match row.scope {
            Scope::Container => "[tmscope:cnt]",
            Scope::Pod => "[tmscope:pod]",
        };
        let run = body(move |ctx| Box::pin(run(ctx, row)));
        Scenario {
            needs: vec![
                Need::Nodes {
                    count: 2,
                    scope: Some(row.scope),
                },
                Need::Zone {
                    count: 2,
                    scope: Some(row.scope),
                    request: row.request,
                },
            ],
            ..area.tagged(row.id, row.test_id, row.labels, (tags, row.text), run)
        }
    };
    ROWS.iter().map(scenario).collect()
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
