//! Group D: pods that fit the one free node, but no zone of it, stay pending for that reason.

use k8s_openapi::api::core::v1::Pod;

use super::many::Row;
use crate::context::Context;
use crate::context::arena::Fit;
use crate::observed::Scope;
use crate::resources::Resources;
use crate::scenario::{Scenario, body};
use crate::scenarios::area::Area;
use crate::scenarios::steps;
use crate::step::StepError;

const AREA: Area = Area {
    context: "[serial][disruptive][scheduler] numaresources workload placement considering TM policy \
        [placement][unsched] cluster with one worker nodes suitable",
    labels: &[
        "disruptive",
        "scheduler",
        "feature:wlplacement",
        "feature:tmpol",
        "placement",
        "unsched",
        "feature:unsched",
    ],
    needs: &[],
};
const CANNOT_ALIGN: &str = "pod with two gu cnt keep on pending because cannot align the second container to a single numa node";
const HP: &str = "4c 4Gi h2=32 h1=1; 4c 4Gi h2=32 h1=1";
const SMALL: &str = "1c 4Gi h2=32 h1=1; 4c 4Gi h2=32 h1=1";

/// Reason when no zone fits a container, or the pod as a whole (scheduler.md 3.5).
const CONTAINER: &str = "cannot align container";
const POD: &str = "cannot align pod";

struct PendingRow {
    row: Row,
    reason: &'static str,
}

const fn row(
    id: &'static str,
    test_id: u32,
    labels: &'static str,
    scope: Scope,
    reason: &'static str,
    amounts: [&'static str; 3],
    text: &'static str,
) -> PendingRow {
    let [containers, unsuitable, target] = amounts;
    PendingRow {
        row: Row {
            id,
            test_id,
            labels,
            scope,
            containers,
            init: "",
            unsuitable,
            target,
            text,
        },
        reason,
    }
}

/// The amounts are those of the containers, those free on the unsuitable nodes, and those free on the target.
static ROWS: &[PendingRow] = &[
    row(
        "tmpol/pend-cpu-cnt",
        85007,
        "tier0 tmscope:cnt cpu",
        Scope::Container,
        CONTAINER,
        [
            "5c 4Gi h2=32 h1=1; 5c 4Gi h2=32 h1=1",
            SMALL,
            "1c 4Gi h2=32 h1=1; 9c 4Gi h2=32 h1=1",
        ],
        CANNOT_ALIGN,
    ),
    row(
        "tmpol/pend-frac-gu-pod",
        74256,
        "tier3 tmscope:pod cpu",
        Scope::Pod,
        POD,
        [
            "4300m 4Gi h2=32; 7500m 4Gi h2=32; 2500m 4Gi",
            "1c; 1c",
            "11c 12Gi h2=128; 6c 12Gi h2=128",
        ],
        "guaranteed pod with multi cnt with fractional cpus keep on pending because cannot align the second container to a single numa node",
    ),
    row(
        "tmpol/pend-frac-bu-pod",
        74257,
        "tier3 tmscope:pod cpu feature:nonreg",
        Scope::Pod,
        "Insufficient cpu",
        [
            "4300m h2=32; 10c; 3500m 4Gi",
            "1c; 1c",
            "8c 12Gi h2=128; 7c 12Gi h2=128",
        ],
        "burstable pod with multi cnt with fractional cpus keep on pending because of not enough free cpus",
    ),
    row(
        "tmpol/pend-mem-cnt",
        85008,
        "tier0 tmscope:cnt memory",
        Scope::Container,
        CONTAINER,
        [
            "4c 7Gi h2=32 h1=1; 4c 7Gi h2=32 h1=1",
            "1c 1Gi h2=32 h1=1; 4c 7Gi h2=32 h1=1",
            "4c 1Gi h2=32 h1=1; 4c 13Gi h2=32 h1=1",
        ],
        CANNOT_ALIGN,
    ),
    row(
        "tmpol/pend-hp2m-cnt",
        85009,
        "tier1 tmscope:cnt hugepages2Mi",
        Scope::Container,
        CONTAINER,
        ["4c 4Gi h2=16 h1=1; 4c 4Gi h2=48 h1=1", SMALL, HP],
        CANNOT_ALIGN,
    ),
    row(
        "tmpol/pend-hp1g-cnt",
        85011,
        "tier0 tmscope:cnt hugepages1Gi",
        Scope::Container,
        CONTAINER,
        ["4c 4Gi h2=32; 4c 4Gi h2=32 h1=2", SMALL, HP],
        CANNOT_ALIGN,
    ),
    row(
        "tmpol/pend-multidev-cnt",
        54020,
        "tier2 tmscope:cnt devices",
        Scope::Container,
        CONTAINER,
        [
            "4c 4Gi d2=2; 4c 4Gi d1=2 d3=2",
            "1c 4Gi; 4c 4Gi",
            "4c 4Gi d1=1 d3=2; 4c 4Gi d1=1 d2=2",
        ],
        "pod with two gu cnt requesting multiple device types keep on pending because cannot align the second container to a single numa node",
    ),
    row(
        "tmpol/pend-dev-cnt",
        54019,
        "tier1 tmscope:container devices",
        Scope::Container,
        CONTAINER,
        [
            "5c 4Gi d1=3; 5c 4Gi d1=2",
            "1c 2Gi; 2c 4Gi",
            "5c 4Gi d1=1; 5c 4Gi d1=4",
        ],
        CANNOT_ALIGN,
    ),
    row(
        "tmpol/pend-dev-pod",
        54017,
        "tier1 tmscope:pod devices",
        Scope::Pod,
        POD,
        [
            "8c 4Gi d1=3; 8c 4Gi d2=2",
            "1c 2Gi; 2c 3Gi",
            "8c 4Gi d1=3; 8c 4Gi d2=2",
        ],
        "pod with two gu cnt keep on pending because cannot align the both containers on single numa",
    ),
    row(
        "tmpol/pend-be-dev-pod",
        55430,
        "tier2 tmscope:pod devices",
        Scope::Pod,
        POD,
        [
            "d1=3 d2=4",
            "1c 1Gi d1=1 d2=1; 1c 1Gi d1=1 d2=1",
            "d1=1 d2=2; d1=2 d2=2",
        ],
        "besteffort pod requesting multiple device types keep on pending because cannot align the container to a single numa node",
    ),
    row(
        "tmpol/pend-bu-dev-pod",
        55429,
        "tier2 tmscope:pod devices",
        Scope::Pod,
        POD,
        [
            "1c d1=3 d2=4",
            "1c 1Gi d1=1 d2=1; 1c 1Gi d1=1 d2=1",
            "4c 4Gi d1=1 d2=2; 4c 4Gi d1=2 d2=2",
        ],
        "burstable pod requesting multiple device types keep on pending because cannot align the container to a single numa node",
    ),
    row(
        "tmpol/pend-be-dev-cnt",
        54023,
        "tier2 tmscope:cnt devices",
        Scope::Container,
        CONTAINER,
        [
            "d2=2; d1=2 d3=2",
            "1c 4Gi d1=1; 4c 4Gi d1=1",
            "d1=1 d3=2; d1=1 d2=2",
        ],
        "besteffort pod requesting multiple device types keep on pending because cannot align the container to a single numa node",
    ),
    row(
        "tmpol/pend-bu-dev-cnt",
        54022,
        "tier2 tmscope:cnt devices",
        Scope::Container,
        CONTAINER,
        [
            "4c d2=2; d1=2 d3=2",
            "1c 4Gi d2=1; 4c 4Gi d2=1",
            "d1=1 d3=2; d1=1 d2=2",
        ],
        "burstable pod requesting multiple device types keep on pending because cannot align the container to a single numa node",
    ),
];

pub(super) fn scenarios() -> Vec<Scenario> {
    let scenario = |PendingRow { row, reason }: &'static PendingRow| {
        let run = body(move |ctx| Box::pin(run(ctx, row, reason)));
        let text = (row.tags(), row.text);
        Scenario {
            needs: row.needs(2),
            ..AREA.tagged(row.id, row.test_id, row.labels, text, run)
        }
    };
    ROWS.iter().map(scenario).collect()
}

async fn run(ctx: &Context, row: &Row, reason: &str) -> Result<(), StepError> {
    let devices = ctx.facts().devices.clone();
    let total = Resources::sum(&row.containers(&devices)).zone_level();
    let title = format!(
        "two nodes of scope {} have a zone with {total}",
        row.scope.as_str()
    );
    let arena = ctx
        .step(title, ctx.arena(Some(row.scope), 2, &Fit::Zone(total)))
        .await?;
    let (target, others) = (row.target(&devices), row.unsuitable(&devices));
    ctx.step(
        "one node is padded so that the pod fits its sums but not its zones, the others so that it fits nowhere",
        ctx.pad_target_and_others(&arena, &target, &others, "unsuitable"),
    )
    .await?;
    let plan = row.plan(ctx, &arena);
    let title = format!("the pod stays pending: {reason}");
    steps::pod_stays_pending(ctx, title, &plan, reason).await?;
    ctx.step(
        "the pod is gone after its deletion",
        ctx.delete::<Pod>(plan.name()),
    )
    .await
}
