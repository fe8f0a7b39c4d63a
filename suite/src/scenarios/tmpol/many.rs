//! Group C: pods with one or more containers run on the one node whose zones fit them.

use k8s_openapi::api::core::v1::Pod;

use crate::context::Context;
use crate::context::arena::{Arena, Fit};
use crate::needs::Need;
use crate::observed::Scope;
use crate::resources::{DeviceNames, Resources};
use crate::scenario::{Scenario, body};
use crate::scenarios::registry::scenario;
use crate::scenarios::rte::placement;
use crate::scenarios::{lists, steps};
use crate::step::StepError;
use crate::workload::{PodPlan, ResourceRequest};

/// Containers, init containers, and what is left free in each zone of the unsuitable nodes and of the target. An empty target list means
/// the containers' own amounts.
pub(super) struct Row {
    pub(super) id: &'static str,
    pub(super) scope: Scope,
    pub(super) containers: &'static str,
    pub(super) init: &'static str,
    pub(super) unsuitable: &'static str,
    pub(super) target: &'static str,
}

const HP: &str = "4c 4Gi h2=32 h1=1; 4c 4Gi h2=32 h1=1";

static ROWS: &[Row] = &[
    Row {
        id: "tmpol/2cnt-split-cnt",
        scope: Scope::Container,
        containers: "6c 6Gi; 12c 8Gi",
        init: "",
        unsuitable: "2c 2Gi; 16c 12Gi",
        target: "",
    },
    Row {
        id: "tmpol/2cnt-same-pod",
        scope: Scope::Pod,
        containers: "6c 4Gi; 8c 12Gi",
        init: "",
        unsuitable: "14c 6Gi; 10c 20Gi",
        target: "2c 2Gi; 14c 16Gi",
    },
    Row {
        id: "tmpol/2cnt-split-cnt-hp",
        scope: Scope::Container,
        containers: "6c 6Gi h2=96; 12c 8Gi h2=128",
        init: "",
        unsuitable: "2c 2Gi; 16c 12Gi h2=192",
        target: "",
    },
    Row {
        id: "tmpol/2cnt-same-pod-hp",
        scope: Scope::Pod,
        containers: "6c 4Gi h2=32; 8c 12Gi h2=128",
        init: "",
        unsuitable: "14c 10Gi h2=32; 10c 16Gi h2=144",
        target: "2c 2Gi; 14c 16Gi h2=160",
    },
    Row {
        id: "tmpol/3cnt-spread",
        scope: Scope::Container,
        containers: "4c 4Gi; 4c 4Gi; 8c 4Gi",
        init: "",
        unsuitable: "12c 8Gi; 4c 4Gi",
        target: "8c 8Gi; 8c 4Gi",
    },
    Row {
        id: "tmpol/2cnt-spread-cpu",
        scope: Scope::Container,
        containers: HP,
        init: "",
        unsuitable: "1c 4Gi h2=32 h1=1; 7c 4Gi h2=32 h1=1",
        target: HP,
    },
    Row {
        id: "tmpol/2cnt-spread-mem",
        scope: Scope::Container,
        containers: HP,
        init: "",
        unsuitable: "4c 1Gi h2=32 h1=1; 4c 7Gi h2=32 h1=1",
        target: HP,
    },
    Row {
        id: "tmpol/2cnt-spread-hp2m",
        scope: Scope::Container,
        containers: HP,
        init: "",
        unsuitable: "1c 4Gi h2=16 h1=1; 7c 4Gi h2=48 h1=1",
        target: HP,
    },
    Row {
        id: "tmpol/2cnt-spread-hp1g",
        scope: Scope::Container,
        containers: HP,
        init: "",
        unsuitable: "1c 4Gi h2=32; 7c 4Gi h2=32 h1=2",
        target: HP,
    },
    Row {
        id: "tmpol/2cnt-spread-devs",
        scope: Scope::Container,
        containers: "4c 4Gi d1=2 d3=1; 4c 4Gi d2=2",
        init: "",
        unsuitable: "1c 4Gi d1=1 d3=1; 7c 4Gi d1=1 d2=2",
        target: "",
    },
    Row {
        id: "tmpol/init-3cnt-spread",
        scope: Scope::Container,
        containers: "4c 4Gi; 4c 4Gi; 8c 4Gi",
        init: "2c 2Gi",
        unsuitable: "12c 8Gi; 4c 4Gi",
        target: "8c 8Gi; 8c 4Gi",
    },
    Row {
        id: "tmpol/3init-3cnt",
        scope: Scope::Container,
        containers: "4c 4Gi; 4c 4Gi; 8c 4Gi",
        init: "8c 4Gi; 8c 4Gi; 8c 4Gi",
        unsuitable: "12c 8Gi; 4c 4Gi",
        target: "8c 8Gi; 8c 4Gi",
    },
    Row {
        id: "tmpol/2cnt-devs-split-cnt",
        scope: Scope::Container,
        containers: "6c 6Gi d1=3; 12c 8Gi d1=4",
        init: "",
        unsuitable: "6c 2Gi d1=2; 12c 12Gi d1=3",
        target: "",
    },
    Row {
        id: "tmpol/1cnt-devs-pod",
        scope: Scope::Pod,
        containers: "8c 4Gi d1=5",
        init: "",
        unsuitable: "6c 4Gi d1=3; 6c 4Gi d1=3",
        target: "1c 1Gi; 8c 4Gi d1=5",
    },
    Row {
        id: "tmpol/be-devs-split-cnt",
        scope: Scope::Container,
        containers: "d1=5 d2=2; d2=1 d3=3",
        init: "",
        unsuitable: "6c 4Gi d1=1; 6c 4Gi d1=1",
        target: "d1=1 d2=3; d1=5 d2=2",
    },
    Row {
        id: "tmpol/be-devs-pod",
        scope: Scope::Pod,
        containers: "d1=5 d2=2",
        init: "",
        unsuitable: "6c 4Gi d1=1; 6c 4Gi d1=1",
        target: "d2=1; d1=5 d2=2",
    },
    Row {
        id: "tmpol/bu-devs-pod",
        scope: Scope::Pod,
        containers: "1c d2=2 d3=3 eph=32Mi; eph=32Mi",
        init: "",
        unsuitable: "6c 4Gi d2=1; 6c 4Gi d2=1",
        target: "d2=2 d3=3; d2=1",
    },
    Row {
        id: "tmpol/bu-devs-split-cnt",
        scope: Scope::Container,
        containers: "1c d1=5 d2=2 eph=32Mi; d2=1 d3=3 eph=32Mi",
        init: "",
        unsuitable: "6c 4Gi d1=1; 6c 4Gi d1=1",
        target: "d2=1 d3=3; d1=5 d2=2",
    },
];

pub(super) fn scenarios() -> Vec<Scenario> {
    let build = |row: &'static Row| {
        let run = body(move |ctx| Box::pin(run(ctx, row)));
        scenario(row.id, &row.needs(2), run)
    };
    ROWS.iter().map(build).collect()
}

impl Row {
    /// Returns the needs: nodes, and the devices that the containers name.
    pub(super) fn needs(&self, count: usize) -> Vec<Need> {
        let named = ["d1", "d2", "d3"]
            .into_iter()
            .filter(|device| self.containers.contains(*device));
        [Need::Nodes {
            count,
            scope: Some(self.scope),
        }]
        .into_iter()
        .chain(named.map(Need::Device))
        .collect()
    }

    pub(super) fn containers(&self, devices: &DeviceNames) -> Vec<Resources> {
        with_devices(self.containers, devices)
    }

    pub(super) fn unsuitable(&self, devices: &DeviceNames) -> Vec<Resources> {
        with_devices(self.unsuitable, devices)
    }

    /// Returns what is left free on the target: the row's lists, or the containers' own amounts.
    pub(super) fn target(&self, devices: &DeviceNames) -> Vec<Resources> {
        with_devices(
            if self.target.is_empty() {
                self.containers
            } else {
                self.target
            },
            devices,
        )
    }

    /// Plans the pod of the row.
    pub(super) fn plan(&self, ctx: &Context, arena: &Arena) -> PodPlan {
        let containers = self.containers(&ctx.facts().devices);
        let containers = containers.into_iter().map(ResourceRequest::Limits);
        let plan = arena.plan(ctx, "testpod", containers);
        if self.init.is_empty() {
            return plan;
        }
        plan.with_init_containers(lists(self.init).into_iter().map(ResourceRequest::Limits))
    }
}

fn with_devices(text: &str, devices: &DeviceNames) -> Vec<Resources> {
    lists(text)
        .iter()
        .map(|list| list.with_devices(devices))
        .collect()
}

/// Returns whether the API server makes the pod Guaranteed.
fn is_guaranteed(containers: &[Resources]) -> bool {
    containers
        .iter()
        .all(|list| list.has("cpu") && list.has("memory"))
}

async fn run(ctx: &Context, row: &Row) -> Result<(), StepError> {
    let devices = ctx.facts().devices.clone();
    let containers = row.containers(&devices);
    let total = Resources::sum(&containers).zone_level();
    let fit = if row.scope == Scope::Pod {
        Fit::Zone(total.clone())
    } else {
        Fit::Node(total.clone())
    };
    let title = format!(
        "two nodes of scope {} have room for {total}",
        row.scope.as_str()
    );
    let arena = ctx.step(title, ctx.arena(Some(row.scope), 2, &fit)).await?;
    let (target, others) = (row.target(&devices), row.unsuitable(&devices));
    ctx.step(
        "one node is padded so that only it fits, the others so that they fit by sums alone",
        ctx.pad_target_and_others(&arena, &target, &others, "unsuitable"),
    )
    .await?;
    let before = steps::target_is_last_choice(ctx, &arena).await?;

    let plan = row.plan(ctx, &arena);
    let pod = steps::pod_runs(ctx, "the pod runs", &plan).await?;
    let title = "the pod is on the one node whose zones fit it";
    steps::pod_is_on(ctx, title, &pod, &before.node).await?;
    steps::stack_placed(ctx, &pod).await?;
    ctx.step(
        format!("the target's zones account for {total}"),
        ctx.accounted(&before, &total, is_guaranteed(&containers), row.scope),
    )
    .await?;
    ctx.step(
        "where the NRT tells the zones of containers, these zones are among them",
        placement::is_in_zones_that_gave(ctx, &before.node),
    )
    .await?;
    let title = "after the pod's deletion the zones are as before";
    let deletion = ctx.delete::<Pod>(plan.name());
    steps::zones_are_restored_after(ctx, title, deletion, &before).await
}
