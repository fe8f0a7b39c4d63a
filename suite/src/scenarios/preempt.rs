//! Preemption by pods of higher priority, where it makes room in a zone (scenarios-serial.md 9.4).

mod target;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use target::{
    base_load, fill, keep_running_on, only_schedulable_node, run, stays_pending_without_preemption,
    wait_for_eviction,
};

use crate::context::Context;
use crate::context::padding::pinned_to;
use crate::needs::Need;
use crate::resources::{CPU, Resources};
use crate::scenario::{Scenario, body};
use crate::scenarios::registry::scenario;
use crate::step::StepError;
use crate::workload::{PodPlan, ResourceRequest};

const NEEDS: &[Need] = &[Need::nodes(1)];
const CRITICAL: &str = "system-node-critical";
const LOW: &str = "e2e-preemption-low";
const MEDIUM: &str = "e2e-preemption-medium";
const HIGH: &str = "e2e-preemption-high";
/// Message in the condition of a pod for which preemption frees no room.
const NOT_HELPFUL: &str = "Preemption is not helpful for scheduling";

struct Row {
    id: &'static str,
    fillers: Option<&'static str>,
    pod: Option<&'static str>,
    evicts: bool,
}

static ROWS: &[Row] = &[
    Row {
        id: "preempt/default-vs-default",
        fillers: None,
        pod: None,
        evicts: false,
    },
    Row {
        id: "preempt/default-vs-snc",
        fillers: None,
        pod: Some(CRITICAL),
        evicts: true,
    },
    Row {
        id: "preempt/snc-vs-default",
        fillers: Some(CRITICAL),
        pod: None,
        evicts: false,
    },
    Row {
        id: "preempt/snc-vs-snc",
        fillers: Some(CRITICAL),
        pod: Some(CRITICAL),
        evicts: false,
    },
    Row {
        id: "preempt/low-vs-medium",
        fillers: Some(LOW),
        pod: Some(MEDIUM),
        evicts: true,
    },
    Row {
        id: "preempt/medium-vs-low",
        fillers: Some(MEDIUM),
        pod: Some(LOW),
        evicts: false,
    },
];

pub(super) fn scenarios() -> Vec<Scenario> {
    let pair = |row: &'static Row| {
        let run = body(move |ctx| Box::pin(one_by_one(ctx, row)));
        scenario(row.id, NEEDS, run)
    };
    let mut all: Vec<Scenario> = ROWS.iter().map(pair).collect();
    all.extend([
        scenario(
            "preempt/mixed-priorities",
            NEEDS,
            body(|ctx| Box::pin(mixed_priorities(ctx))),
        ),
        scenario(
            "preempt/burst-no-false-eviction",
            NEEDS,
            body(|ctx| Box::pin(burst_fits(ctx))),
        ),
    ]);
    all
}

async fn one_by_one(ctx: &Context, row: &Row) -> Result<(), StepError> {
    let target = only_schedulable_node(ctx).await?;
    let base = base_load(ctx, &target).await?;
    let fillers = ctx
        .step(
            format!("a pod in each zone of the target leaves {base}"),
            fill(ctx, &target, "filler", row.fillers, &base),
        )
        .await?;
    let pods: Vec<&Pod> = fillers.iter().map(|(_, pod)| pod).collect();
    let resources = fillers[0].0.total();
    let plan = PodPlan::new(
        "test-workload",
        ctx.scheduler(),
        [ResourceRequest::Limits(resources)],
    )
    .with_priority_class(row.pod);
    ctx.create(plan.pod()).await?;
    if row.evicts {
        ctx.step("the pod runs in the place of one of them", async {
            ctx.pods_running(&[plan.name().to_owned()]).await?;
            let gone = wait_for_eviction(ctx, &pods).await?;
            ctx.recorder.saw(format!("{gone} gave way"));
            Ok(())
        })
        .await
    } else {
        ctx.step(
            "the pod stays pending",
            stays_pending_without_preemption(ctx, plan.name()),
        )
        .await?;
        ctx.step(
            "the others run on",
            keep_running_on(ctx, &pods, "after-refusal"),
        )
        .await
    }
}

async fn mixed_priorities(ctx: &Context) -> Result<(), StepError> {
    let target = only_schedulable_node(ctx).await?;
    let base = base_load(ctx, &target).await?;
    let times = |count: usize| Resources::sum(std::iter::repeat_n(&base, count));
    let seven = times(7);
    if let Some(zone) = target
        .zones
        .iter()
        .find(|zone| !seven.fits_in(&zone.available()))
    {
        return Err(StepError::Skip(format!(
            "wanted {seven} in each zone of {}; {} has {}",
            target.node,
            zone.name,
            zone.available()
        )));
    }
    let mut fillers = ctx
        .step("two small pods of no class run in each zone", async {
            let plans = target.zones.iter().map(|zone| {
                let resources =
                    [(); 2].map(|()| ResourceRequest::Limits(pinned_to(&base, zone.id)));
                let name = format!("default-priority-filler-{}", zone.id);
                PodPlan::new(&name, ctx.scheduler(), resources)
            });
            run(ctx, plans.collect(), None).await
        })
        .await?;
    let now = ctx.topology(&target.node).await?;
    let medium = ctx
        .step(
            format!("a pod of class {MEDIUM} in each zone leaves {base}"),
            fill(ctx, &now, "medium-priority-filler", Some(MEDIUM), &base),
        )
        .await?;
    let candidates: Vec<String> = medium.iter().map(|(_, pod)| pod.name_any()).collect();
    fillers.extend(medium);
    let pods: Vec<&Pod> = fillers.iter().map(|(_, pod)| pod).collect();
    let preemptor = |name: &str, class: &str| {
        PodPlan::new(name, ctx.scheduler(), [ResourceRequest::Limits(times(4))])
            .with_priority_class(Some(class))
    };
    let low = preemptor("preemptor-phase-1", LOW);
    ctx.step(
        "a pod that the small ones cannot make room for waits",
        async {
            ctx.create(low.pod()).await?;
            stays_pending_without_preemption(ctx, low.name()).await?;
            keep_running_on(ctx, &pods, "after-refusal").await?;
            ctx.delete::<Pod>(low.name()).await
        },
    )
    .await?;
    let high = preemptor("preemptor-phase-2", HIGH);
    ctx.step(
        format!("a pod of class {HIGH} runs in the place of one of class {MEDIUM}"),
        async {
            ctx.create(high.pod()).await?;
            ctx.pods_running(&[high.name().to_owned()]).await?;
            let gone = wait_for_eviction(ctx, &pods).await?;
            if candidates.contains(&gone) {
                ctx.recorder.saw(format!("{gone} gave way"));
                return Ok(());
            }
            let message = "the wrong pod gave way";
            Err(StepError::mismatch(message, candidates.join(" or "), gone))
        },
    )
    .await
}

async fn burst_fits(ctx: &Context) -> Result<(), StepError> {
    let target = only_schedulable_node(ctx).await?;
    let base = base_load(ctx, &target).await?;
    let each = base.milli(CPU);
    let mut count = 0;
    for zone in &target.zones {
        let fit = (zone.available().milli(CPU) - each) / each;
        if fit < 4 {
            let message = format!("wanted room for 4 pods in {}; seen {fit}", zone.name);
            return Err(StepError::Skip(message));
        }
        count += usize::try_from(fit).unwrap_or_default();
    }
    let mut resources = Resources::literal("32Mi");
    resources.set(CPU, each);
    let names: Vec<String> = (0..count).map(|index| format!("pod-{index}")).collect();
    let pods = ctx
        .step(
            format!("{count} pods run, the last two of class {HIGH}"),
            async {
                for (index, name) in names.iter().enumerate() {
                    let class = if index + 2 < count { LOW } else { HIGH };
                    let plan = PodPlan::new(
                        name,
                        ctx.scheduler(),
                        [ResourceRequest::Limits(resources.clone())],
                    );
                    ctx.create(plan.with_priority_class(Some(class)).pod())
                        .await?;
                }
                ctx.pods_running(&names).await
            },
        )
        .await?;
    ctx.step("none was evicted", async {
        let pods: Vec<&Pod> = pods.iter().collect();
        keep_running_on(ctx, &pods, "after-burst").await
    })
    .await
}
