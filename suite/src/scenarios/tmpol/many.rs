//! Group C: pods with one or more containers run on the one node whose zones fit them.

use k8s_openapi::api::core::v1::Pod;

use super::AREA;
use crate::context::Context;
use crate::context::arena::{Arena, Fit};
use crate::needs::Need;
use crate::observed::Scope;
use crate::resources::{DeviceNames, Resources};
use crate::scenario::{Scenario, body};
use crate::scenarios::area::Area;
use crate::scenarios::{lists, steps};
use crate::step::StepError;
use crate::workload::{PodPlan, ResourceRequest};

const SUITABLE: Area = Area {
    context: "[serial][disruptive][scheduler] numaresources workload placement considering TM policy \
        [placement] cluster with multiple worker nodes suitable",
    ..AREA
};

/// Containers, init containers, and what is left free in each zone of the unsuitable nodes and of the target. An empty target list means
/// the containers' own amounts.
pub(super) struct Row {
    pub(super) id: &'static str,
    pub(super) test_id: u32,
    pub(super) labels: &'static str,
    pub(super) scope: Scope,
    pub(super) containers: &'static str,
    pub(super) init: &'static str,
    pub(super) unsuitable: &'static str,
    pub(super) target: &'static str,
    pub(super) text: &'static str,
}

const SPREAD: &str = "pod with two gu cnt land on a node with enough resources, containers should be spread on a different zone";
const HP: &str = "4c 4Gi h2=32 h1=1; 4c 4Gi h2=32 h1=1";

static ROWS: &[Row] = &[
    Row {
        id: "tmpol/2cnt-split-cnt",
        test_id: 47575,
        labels: "placement tier0 tmscope:cnt",
        scope: Scope::Container,
        containers: "6c 6Gi; 12c 8Gi",
        init: "",
        unsuitable: "2c 2Gi; 16c 12Gi",
        target: "",
        text: "should make a pod with two gu cnt land on a node with enough resources on a specific NUMA zone, each cnt on a different zone",
    },
    Row {
        id: "tmpol/2cnt-same-pod",
        test_id: 47577,
        labels: "placement tier0 tmscope:pod",
        scope: Scope::Pod,
        containers: "6c 4Gi; 8c 12Gi",
        init: "",
        unsuitable: "14c 6Gi; 10c 20Gi",
        target: "2c 2Gi; 14c 16Gi",
        text: "should make a pod with two gu cnt land on a node with enough resources on a specific NUMA zone, all cnt on the same zone",
    },
    Row {
        id: "tmpol/2cnt-split-cnt-hp",
        test_id: 50183,
        labels: "placement tmscope:cnt hugepages",
        scope: Scope::Container,
        containers: "6c 6Gi h2=96; 12c 8Gi h2=128",
        init: "",
        unsuitable: "2c 2Gi; 16c 12Gi h2=192",
        target: "",
        text: "should make a pod with two gu cnt land on a node with enough resources with hugepages on a specific NUMA zone, each cnt on a different zone",
    },
    Row {
        id: "tmpol/2cnt-same-pod-hp",
        test_id: 50184,
        labels: "placement tmscope:pod hugepages",
        scope: Scope::Pod,
        containers: "6c 4Gi h2=32; 8c 12Gi h2=128",
        init: "",
        unsuitable: "14c 10Gi h2=32; 10c 16Gi h2=144",
        target: "2c 2Gi; 14c 16Gi h2=160",
        text: "should make a pod with two gu cnt land on a node with enough resources with hugepages on a specific NUMA zone, all cnt on the same zone",
    },
    Row {
        id: "tmpol/3cnt-spread",
        test_id: 85000,
        labels: "placement tier1 tmscope:cnt testtype4",
        scope: Scope::Container,
        containers: "4c 4Gi; 4c 4Gi; 8c 4Gi",
        init: "",
        unsuitable: "12c 8Gi; 4c 4Gi",
        target: "8c 8Gi; 8c 4Gi",
        text: "should make a pod with three gu cnt land on a node with enough resources, containers should be spread on a different zone",
    },
    Row {
        id: "tmpol/2cnt-spread-cpu",
        test_id: 85001,
        labels: "placement tier1 tmscope:cnt cpu testtype4",
        scope: Scope::Container,
        containers: HP,
        init: "",
        unsuitable: "1c 4Gi h2=32 h1=1; 7c 4Gi h2=32 h1=1",
        target: HP,
        text: SPREAD,
    },
    Row {
        id: "tmpol/2cnt-spread-mem",
        test_id: 85002,
        labels: "placement tier1 tmscope:cnt memory testtype4",
        scope: Scope::Container,
        containers: HP,
        init: "",
        unsuitable: "4c 1Gi h2=32 h1=1; 4c 7Gi h2=32 h1=1",
        target: HP,
        text: SPREAD,
    },
    Row {
        id: "tmpol/2cnt-spread-hp2m",
        test_id: 85003,
        labels: "placement tier1 testtype4 tmscope:cnt hugepages2Mi",
        scope: Scope::Container,
        containers: HP,
        init: "",
        unsuitable: "1c 4Gi h2=16 h1=1; 7c 4Gi h2=48 h1=1",
        target: HP,
        text: SPREAD,
    },
    Row {
        id: "tmpol/2cnt-spread-hp1g",
        test_id: 85004,
        labels: "placement tier1 testtype4 tmscope:cnt hugepages1Gi",
        scope: Scope::Container,
        containers: HP,
        init: "",
        unsuitable: "1c 4Gi h2=32; 7c 4Gi h2=32 h1=2",
        target: HP,
        text: SPREAD,
    },
    Row {
        id: "tmpol/2cnt-spread-devs",
        test_id: 54021,
        labels: "placement tier1 testtype4 tmscope:container devices",
        scope: Scope::Container,
        containers: "4c 4Gi d1=2 d3=1; 4c 4Gi d2=2",
        init: "",
        unsuitable: "1c 4Gi d1=1 d3=1; 7c 4Gi d1=1 d2=2",
        target: "",
        text: SPREAD,
    },
    Row {
        id: "tmpol/init-3cnt-spread",
        test_id: 85005,
        labels: "placement tier1 tmscope:container testtype11",
        scope: Scope::Container,
        containers: "4c 4Gi; 4c 4Gi; 8c 4Gi",
        init: "2c 2Gi",
        unsuitable: "12c 8Gi; 4c 4Gi",
        target: "8c 8Gi; 8c 4Gi",
        text: "should make a pod with one init cnt and three gu cnt land on a node with enough resources, containers should be spread on a different zone",
    },
    Row {
        id: "tmpol/3init-3cnt",
        test_id: 85006,
        labels: "placement tier1 tmscope:container testtype29",
        scope: Scope::Container,
        containers: "4c 4Gi; 4c 4Gi; 8c 4Gi",
        init: "8c 4Gi; 8c 4Gi; 8c 4Gi",
        unsuitable: "12c 8Gi; 4c 4Gi",
        target: "8c 8Gi; 8c 4Gi",
        text: "should make a pod with 3 gu cnt and 3 init cnt land on a node with enough resources, when sum of init and app cnt resources are more than node resources",
    },
    Row {
        id: "tmpol/2cnt-devs-split-cnt",
        test_id: 54018,
        labels: "placement tmscope:cnt devices",
        scope: Scope::Container,
        containers: "6c 6Gi d1=3; 12c 8Gi d1=4",
        init: "",
        unsuitable: "6c 2Gi d1=2; 12c 12Gi d1=3",
        target: "",
        text: "should make a pod with two gu cnt land on a node with enough resources with devices on a specific NUMA zone,  containers should be spread on a different zone",
    },
    Row {
        id: "tmpol/1cnt-devs-pod",
        test_id: 54016,
        labels: "placement tier0 tmscope:pod devices",
        scope: Scope::Pod,
        containers: "8c 4Gi d1=5",
        init: "",
        unsuitable: "6c 4Gi d1=3; 6c 4Gi d1=3",
        target: "1c 1Gi; 8c 4Gi d1=5",
        text: "should make a pod with one gu cnt requesting devices land on a node with enough resources on a specific NUMA zone",
    },
    Row {
        id: "tmpol/be-devs-split-cnt",
        test_id: 54025,
        labels: "placement tier2 tmscope:cnt devices",
        scope: Scope::Container,
        containers: "d1=5 d2=2; d2=1 d3=3",
        init: "",
        unsuitable: "6c 4Gi d1=1; 6c 4Gi d1=1",
        target: "d1=1 d2=3; d1=5 d2=2",
        text: "should make a besteffort pod requesting devices land on a node with enough resources on a specific NUMA zone, containers should be spread on a different zone",
    },
    Row {
        id: "tmpol/be-devs-pod",
        test_id: 55431,
        labels: "placement tier1 tmscope:pod devices",
        scope: Scope::Pod,
        containers: "d1=5 d2=2",
        init: "",
        unsuitable: "6c 4Gi d1=1; 6c 4Gi d1=1",
        target: "d2=1; d1=5 d2=2",
        text: "should make a besteffort pod requesting devices land on a node with enough resources on a specific NUMA zone",
    },
    Row {
        id: "tmpol/bu-devs-pod",
        test_id: 55450,
        labels: "placement tier2 tmscope:pod devices hostlevel",
        scope: Scope::Pod,
        containers: "1c d2=2 d3=3 eph=32Mi; eph=32Mi",
        init: "",
        unsuitable: "6c 4Gi d2=1; 6c 4Gi d2=1",
        target: "d2=2 d3=3; d2=1",
        text: "should make a burstable pod requesting devices land on a node with enough resources on a specific NUMA zone",
    },
    Row {
        id: "tmpol/bu-devs-split-cnt",
        test_id: 54024,
        labels: "placement tier2 tmscope:container devices hostlevel",
        scope: Scope::Container,
        containers: "1c d1=5 d2=2 eph=32Mi; d2=1 d3=3 eph=32Mi",
        init: "",
        unsuitable: "6c 4Gi d1=1; 6c 4Gi d1=1",
        target: "d2=1 d3=3; d1=5 d2=2",
        text: "should make a burstable pod requesting devices land on a node with enough resources on a specific NUMA zone, containers should be spread on a different zone",
    },
];

pub(super) fn scenarios() -> Vec<Scenario> {
    let scenario = |row: &'static Row| {
        let run = body(move |ctx| Box::pin(run(ctx, row)));
        let text = (row.tags(), row.text);
        Scenario {
            needs: row.needs(2),
            ..SUITABLE.tagged(row.id, row.test_id, row.labels, text, run)
        }
    };
    ROWS.iter().map(scenario).collect()
}

impl Row {
    pub(super) fn tags(&self) -> &'static str {
        match self.scope {
            Scope::Container => "[tmscope:cnt]",
            Scope::Pod => "[tmscope:pod]",
        }
    }

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
    let title = "after the pod's deletion the zones are as before";
    let deletion = ctx.delete::<Pod>(plan.name());
    steps::zones_are_restored_after(ctx, title, deletion, &before).await
}
