//! Resources that no NUMA zone has (scenarios-serial.md 8.9).

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;

use crate::context::Context;
use crate::context::arena::Fit;
use crate::context::checks::node_of;
use crate::needs::Need;
use crate::observed::{Scope, topology_of};
use crate::resources::Resources;
use crate::scenario::{Scenario, body};
use crate::scenarios::registry::scenario;
use crate::scenarios::{lists, steps};
use crate::step::StepError;
use crate::workload::{PodPlan, ResourceRequest};

const NEEDS: &[Need] = &[Need::nodes(2)];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Qos {
    Guaranteed,
    Burstable,
    BestEffort,
}

impl Qos {
    fn as_str(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }
}

/// Containers, and the part of their resources that the zones must account for.
struct Row {
    id: &'static str,
    qos: Qos,
    containers: &'static str,
    accounted: &'static str,
}

static ROWS: &[Row] = &[
    Row {
        id: "hostlevel/gu-single",
        qos: Qos::Guaranteed,
        containers: "2c 256Mi eph=256Mi",
        accounted: "2c 256Mi",
    },
    Row {
        id: "hostlevel/bu-single",
        qos: Qos::Burstable,
        containers: "2c 256Mi eph=256Mi",
        accounted: "",
    },
    Row {
        id: "hostlevel/be-single",
        qos: Qos::BestEffort,
        containers: "eph=256Mi",
        accounted: "",
    },
    Row {
        id: "hostlevel/gu-multi",
        qos: Qos::Guaranteed,
        containers: "2c 256Mi eph=256Mi; 2c 256Mi eph=256Mi; 2c 256Mi eph=256Mi; 2c 256Mi eph=256Mi",
        accounted: "8c 1Gi",
    },
    Row {
        id: "hostlevel/gu-multi-frac",
        qos: Qos::Guaranteed,
        containers: "3000m 256Mi eph=16Mi; 2c 256Mi eph=16Mi; 1500m 256Mi eph=256Mi; 2c 256Mi eph=256Mi",
        accounted: "7c 1Gi",
    },
    Row {
        id: "hostlevel/bu-multi-frac",
        qos: Qos::Burstable,
        containers: "1200m 384Mi eph=16Mi; 1200m 384Mi eph=256Mi; 1600m 384Mi eph=256Mi; 2c 384Mi eph=16Mi",
        accounted: "",
    },
    Row {
        id: "hostlevel/be-multi",
        qos: Qos::BestEffort,
        containers: "eph=256Mi; eph=16777216",
        accounted: "",
    },
];

const PENDING: &[Need] = &[Need::nodes(1)];

/// A pod that requests more ephemeral storage than any node has.
struct PendingRow {
    id: &'static str,
    qos: Qos,
    containers: &'static str,
    device: bool,
}

static PENDING_ROWS: &[PendingRow] = &[
    PendingRow {
        id: "hostlevel/pend-gu",
        qos: Qos::Guaranteed,
        containers: "2c 16Mi eph=256Mi; 1500m 16Mi eph=128Mi",
        device: false,
    },
    PendingRow {
        id: "hostlevel/pend-bu",
        qos: Qos::Burstable,
        containers: "2500m eph=256Mi; 2c 64Mi eph=16Mi",
        device: false,
    },
    PendingRow {
        id: "hostlevel/pend-be",
        qos: Qos::BestEffort,
        containers: "eph=256Mi; eph=32Mi; d1=2",
        device: true,
    },
];

pub(super) fn scenarios() -> Vec<Scenario> {
    let placed = |row: &'static Row| {
        let run = body(move |ctx| Box::pin(run(ctx, row)));
        scenario(row.id, NEEDS, run)
    };
    let pending = |row: &'static PendingRow| {
        let run = body(move |ctx| Box::pin(pending(ctx, row)));
        let mut scenario = scenario(row.id, PENDING, run);
        scenario
            .needs
            .extend(row.device.then_some(Need::Device("d1")));
        scenario
    };
    let placed = ROWS.iter().map(placed);
    placed.chain(PENDING_ROWS.iter().map(pending)).collect()
}

async fn pending(ctx: &Context, row: &PendingRow) -> Result<(), StepError> {
    const SCRATCH: &str = "ephemeral-storage";
    let devices = &ctx.facts().devices;
    let containers: Vec<Resources> = lists(row.containers)
        .iter()
        .map(|list| list.with_devices(devices))
        .collect();
    let arena = ctx
        .step(
            "nodes with two zones are there",
            ctx.arena(None, 1, &Fit::Anything),
        )
        .await?;
    ctx.step("the cluster is settled", ctx.settle()).await?;
    let wanted = Resources::sum(&containers).units(SCRATCH);
    let title = "all but a little less scratch space than the pod wants is taken on each node";
    ctx.step(title, async {
        let mut names = Vec::new();
        for topology in arena.nodes() {
            let node = Api::<Node>::all(ctx.client()).get(&topology.node).await?;
            let allocatable = node.status.and_then(|status| status.allocatable);
            let allocatable = Resources::from_quantities(&allocatable.unwrap_or_default())
                .map_err(|error| StepError::fail(format!("{}: {error}", topology.node)))?;
            let mut take = Resources::new();
            let left = wanted - (1 << 20);
            take.set(SCRATCH, (allocatable.units(SCRATCH) - left) * 1000);
            let name = format!("padpod-{}", topology.node);
            let plan =
                PodPlan::new(&name, "", [ResourceRequest::Limits(take)]).bound_to(&topology.node);
            ctx.create(plan.pod()).await?;
            names.push(name);
        }
        ctx.pods_running(&names).await.map(drop)
    })
    .await?;
    let to_request = |list| match row.qos {
        Qos::Burstable => ResourceRequest::Requests(list),
        Qos::Guaranteed | Qos::BestEffort => ResourceRequest::Limits(list),
    };
    let plan = arena.plan(ctx, "testpod", containers.into_iter().map(to_request));
    let reason = format!("{} Insufficient ephemeral-storage", arena.nodes().len());
    let title = format!("the pod stays pending: {reason}");
    steps::pod_stays_pending(ctx, title, &plan, &reason).await?;
    let pod = ctx.pod(plan.name()).await?;
    ctx.step(format!("the pod is {}", row.qos.as_str()), async {
        has_class(&pod, row.qos)
    })
    .await
}

fn has_class(pod: &Pod, qos: Qos) -> Result<(), StepError> {
    let status = pod.status.as_ref();
    let seen = status.and_then(|status| status.qos_class.clone());
    let seen = seen.unwrap_or_default();
    if seen == qos.as_str() {
        Ok(())
    } else {
        Err(StepError::mismatch(
            "wrong class of the pod",
            qos.as_str(),
            seen,
        ))
    }
}

async fn run(ctx: &Context, row: &Row) -> Result<(), StepError> {
    let containers = lists(row.containers);
    let fit = Fit::Zone(Resources::sum(&containers).zone_level());
    let arena = ctx
        .step(
            "two nodes have a zone for the pod",
            ctx.arena(None, 2, &fit),
        )
        .await?;
    let before = ctx.step("the cluster is settled", ctx.settle()).await?;
    let to_request = |list| match row.qos {
        Qos::Guaranteed => ResourceRequest::Limits(list),
        Qos::Burstable | Qos::BestEffort => ResourceRequest::Requests(list),
    };
    let plan = arena.plan(ctx, "testpod", containers.into_iter().map(to_request));
    let pod = steps::pod_runs(ctx, "the pod runs", &plan).await?;
    ctx.step(format!("the pod is {}", row.qos.as_str()), async {
        has_class(&pod, row.qos)
    })
    .await?;
    steps::stack_placed(ctx, &pod).await?;
    let before = topology_of(&before, node_of(&pod).unwrap_or_default())?;
    if row.qos == Qos::Guaranteed {
        let wanted = Resources::literal(row.accounted);
        let title = format!("one zone accounts for {wanted}, and for no scratch space");
        ctx.step(title, ctx.accounted(before, &wanted, true, Scope::Pod))
            .await?;
        let title = "after the pod's deletion the zones are as before";
        let deletion = ctx.delete::<Pod>(plan.name());
        return steps::zones_are_restored_after(ctx, title, deletion, before).await;
    }
    ctx.step(
        "the exporter has seen the pod and no zone accounts for it",
        async {
            ctx.barrier(before).await?;
            ctx.accounted(before, &Resources::new(), false, Scope::Pod)
                .await
        },
    )
    .await
}
