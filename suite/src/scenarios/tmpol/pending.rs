//! Group D: pods that fit the one free node, but no zone of it, stay pending for that reason.

use k8s_openapi::api::core::v1::Pod;

use super::many::Row;
use crate::context::Context;
use crate::context::arena::Fit;
use crate::observed::Scope;
use crate::resources::Resources;
use crate::scenario::{Scenario, body};
use crate::scenarios::registry::scenario;
use crate::scenarios::steps;
use crate::step::StepError;

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
    scope: Scope,
    reason: &'static str,
    amounts: [&'static str; 3],
) -> PendingRow {
    let [containers, unsuitable, target] = amounts;
    PendingRow {
        row: Row {
            id,
            scope,
            containers,
            init: "",
            unsuitable,
            target,
        },
        reason,
    }
}

/// The amounts are those of the containers, those free on the unsuitable nodes, and those free on the target.
static ROWS: &[PendingRow] = &[
    row(
        "tmpol/pend-cpu-cnt",
        Scope::Container,
        CONTAINER,
        [
            "5c 4Gi h2=32 h1=1; 5c 4Gi h2=32 h1=1",
            SMALL,
            "1c 4Gi h2=32 h1=1; 9c 4Gi h2=32 h1=1",
        ],
    ),
    row(
        "tmpol/pend-frac-gu-pod",
        Scope::Pod,
        POD,
        [
            "4300m 4Gi h2=32; 7500m 4Gi h2=32; 2500m 4Gi",
            "1c; 1c",
            "11c 12Gi h2=128; 6c 12Gi h2=128",
        ],
    ),
    row(
        "tmpol/pend-frac-bu-pod",
        Scope::Pod,
        "Insufficient cpu",
        [
            "4300m h2=32; 10c; 3500m 4Gi",
            "1c; 1c",
            "8c 12Gi h2=128; 7c 12Gi h2=128",
        ],
    ),
    row(
        "tmpol/pend-mem-cnt",
        Scope::Container,
        CONTAINER,
        [
            "4c 7Gi h2=32 h1=1; 4c 7Gi h2=32 h1=1",
            "1c 1Gi h2=32 h1=1; 4c 7Gi h2=32 h1=1",
            "4c 1Gi h2=32 h1=1; 4c 13Gi h2=32 h1=1",
        ],
    ),
    row(
        "tmpol/pend-hp2m-cnt",
        Scope::Container,
        CONTAINER,
        ["4c 4Gi h2=16 h1=1; 4c 4Gi h2=48 h1=1", SMALL, HP],
    ),
    row(
        "tmpol/pend-hp1g-cnt",
        Scope::Container,
        CONTAINER,
        ["4c 4Gi h2=32; 4c 4Gi h2=32 h1=2", SMALL, HP],
    ),
    row(
        "tmpol/pend-multidev-cnt",
        Scope::Container,
        CONTAINER,
        [
            "4c 4Gi d2=2; 4c 4Gi d1=2 d3=2",
            "1c 4Gi; 4c 4Gi",
            "4c 4Gi d1=1 d3=2; 4c 4Gi d1=1 d2=2",
        ],
    ),
    row(
        "tmpol/pend-dev-cnt",
        Scope::Container,
        CONTAINER,
        [
            "5c 4Gi d1=3; 5c 4Gi d1=2",
            "1c 2Gi; 2c 4Gi",
            "5c 4Gi d1=1; 5c 4Gi d1=4",
        ],
    ),
    row(
        "tmpol/pend-dev-pod",
        Scope::Pod,
        POD,
        [
            "8c 4Gi d1=3; 8c 4Gi d2=2",
            "1c 2Gi; 2c 3Gi",
            "8c 4Gi d1=3; 8c 4Gi d2=2",
        ],
    ),
    row(
        "tmpol/pend-be-dev-pod",
        Scope::Pod,
        POD,
        [
            "d1=3 d2=4",
            "1c 1Gi d1=1 d2=1; 1c 1Gi d1=1 d2=1",
            "d1=1 d2=2; d1=2 d2=2",
        ],
    ),
    row(
        "tmpol/pend-bu-dev-pod",
        Scope::Pod,
        POD,
        [
            "1c d1=3 d2=4",
            "1c 1Gi d1=1 d2=1; 1c 1Gi d1=1 d2=1",
            "4c 4Gi d1=1 d2=2; 4c 4Gi d1=2 d2=2",
        ],
    ),
    row(
        "tmpol/pend-be-dev-cnt",
        Scope::Container,
        CONTAINER,
        [
            "d2=2; d1=2 d3=2",
            "1c 4Gi d1=1; 4c 4Gi d1=1",
            "d1=1 d3=2; d1=1 d2=2",
        ],
    ),
    row(
        "tmpol/pend-bu-dev-cnt",
        Scope::Container,
        CONTAINER,
        [
            "4c d2=2; d1=2 d3=2",
            "1c 4Gi d2=1; 4c 4Gi d2=1",
            "d1=1 d3=2; d1=1 d2=2",
        ],
    ),
];

pub(super) fn scenarios() -> Vec<Scenario> {
    let build = |PendingRow { row, reason }: &'static PendingRow| {
        let run = body(move |ctx| Box::pin(run(ctx, row, reason)));
        scenario(row.id, &row.needs(2), run)
    };
    ROWS.iter().map(build).collect()
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
