//! Preemption by pods of higher priority, where it makes room in a zone (scenarios-serial.md 9.4).

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, ObjectMeta};
use serde_json::json;

use crate::context::arena::Fit;
use crate::context::checks::{describe, phase};
use crate::context::padding::{NUMACELL, amounts_to_pad};
use crate::context::{Context, RUN_LABEL};
use crate::observed::NodeTopology;
use crate::recorder::PollResult;
use crate::resources::{CPU, Resources};
use crate::scenario::{Need, Scenario, StepError, body};
use crate::scenarios::area::Area;
use crate::workload::{PodPlan, ResourceRequest};

const AREA: Area = Area {
    context: "[serial][disruptive][scheduler] numaresources priority-based workload placement",
    labels: &["disruptive", "scheduler", "feature:preemption"],
    needs: &[Need::nodes(1)],
};
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
    text: &'static str,
}

static ROWS: &[Row] = &[
    Row {
        id: "preempt/default-vs-default",
        fillers: None,
        pod: None,
        evicts: false,
        text: "default-priority fillers vs default-priority new workload",
    },
    Row {
        id: "preempt/default-vs-snc",
        fillers: None,
        pod: Some(CRITICAL),
        evicts: true,
        text: "default-priority fillers vs system-node-critical new workload",
    },
    Row {
        id: "preempt/snc-vs-default",
        fillers: Some(CRITICAL),
        pod: None,
        evicts: false,
        text: "system-node-critical fillers vs default-priority new workload",
    },
    Row {
        id: "preempt/snc-vs-snc",
        fillers: Some(CRITICAL),
        pod: Some(CRITICAL),
        evicts: false,
        text: "system-node-critical fillers vs system-node-critical new workload",
    },
    Row {
        id: "preempt/low-vs-medium",
        fillers: Some(LOW),
        pod: Some(MEDIUM),
        evicts: true,
        text: "low-priority fillers vs medium-priority new workload",
    },
    Row {
        id: "preempt/medium-vs-low",
        fillers: Some(MEDIUM),
        pod: Some(LOW),
        evicts: false,
        text: "medium-priority fillers vs low-priority new workload",
    },
];

pub(super) fn scenarios() -> Vec<Scenario> {
    let pair = |row: &'static Row| {
        let text = format!("should work as expected {}", row.text);
        let run = body(move |ctx| Box::pin(one_by_one(ctx, row)));
        AREA.scenario(row.id, None, "tier2", &text, run)
    };
    let mut all: Vec<Scenario> = ROWS.iter().map(pair).collect();
    all.extend([
        AREA.scenario(
            "preempt/mixed-priorities",
            None,
            "",
            "should evict the lowest priority that is enough, and no more",
            body(|ctx| Box::pin(mixed_priorities(ctx))),
        ),
        AREA.scenario(
            "preempt/burst-no-false-eviction",
            None,
            "",
            "should not evict when a burst of pods of two priorities fits",
            body(|ctx| Box::pin(burst_fits(ctx))),
        ),
    ]);
    all
}

/// Makes one node the only one that accepts pods and sets the scheduler to preempt by zones. Returns the state of that node.
async fn only_schedulable_node(ctx: &Context) -> Result<NodeTopology, StepError> {
    ctx.step("the priority classes exist", priority_classes(ctx))
        .await?;
    ctx.step(
        "the scheduler preempts by zones",
        ctx.set_scheduler_field("preemptionMode", json!("Enabled")),
    )
    .await?;
    ctx.step("pods can go to the target alone", async {
        let arena = ctx.arena(None, 1, &Fit::Anything).await?;
        let target = arena.target().node.clone();
        let nodes = Api::<Node>::all(ctx.client());
        for node in nodes.list(&ListParams::default()).await? {
            let spec = node.spec.unwrap_or_default();
            let name = node.metadata.name.unwrap_or_default();
            if name != target && spec.unschedulable != Some(true) {
                ctx.cordon_node(&name).await?;
            }
        }
        ctx.settled_on(&target).await
    })
    .await
}

async fn priority_classes(ctx: &Context) -> Result<(), StepError> {
    for (name, value) in [(LOW, 100), (MEDIUM, 200), (HIGH, 300)] {
        let object = PriorityClass {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some([(RUN_LABEL.to_owned(), ctx.run().to_owned())].into()),
                ..ObjectMeta::default()
            },
            value,
            ..PriorityClass::default()
        };
        ctx.create_global(&object).await?;
    }
    Ok(())
}

/// Returns what the pods of the target request without holding it in a zone; that much is left in every zone. A sum of zero counts as the
/// least amount to which such a sum is rounded.
async fn base_load(ctx: &Context, target: &NodeTopology) -> Result<Resources, StepError> {
    let mut base = ctx.base_load(&target.node).await?.core();
    for (name, least) in Resources::literal("2c 1G").iter() {
        if base.milli(name) == 0 {
            base.set(name, least);
        }
    }
    Ok(base)
}

/// Runs a pod in each zone that leaves this much of it.
async fn fill(
    ctx: &Context,
    target: &NodeTopology,
    name: &str,
    class: Option<&str>,
    leave: &Resources,
) -> Result<Vec<(PodPlan, Pod)>, StepError> {
    let mut plans = Vec::new();
    for zone in &target.zones {
        let take = amounts_to_pad(zone, leave)
            .map_err(|error| StepError::fail(format!("cannot fill {}: {error}", target.node)))?;
        let limits = pinned(&take, zone.id);
        let name = format!("{name}-{}", zone.id);
        plans.push(PodPlan::new(
            &name,
            ctx.scheduler(),
            [ResourceRequest::Limits(limits)],
        ));
    }
    run(ctx, plans, class).await
}

/// Returns the list with a device that only this zone has.
fn pinned(list: &Resources, zone: u32) -> Resources {
    let mut pinned = list.clone();
    pinned.set(&format!("{NUMACELL}{zone:02}"), 1000);
    pinned
}

/// Runs pods of a priority class and waits until the NRT accounts for them.
async fn run(
    ctx: &Context,
    plans: Vec<PodPlan>,
    class: Option<&str>,
) -> Result<Vec<(PodPlan, Pod)>, StepError> {
    let mut names = Vec::new();
    for plan in &plans {
        let pod = plan.clone().with_priority_class(class).pod();
        ctx.create(pod).await?;
        names.push(plan.name().to_owned());
    }
    let pods = ctx.pods_running(&names).await?;
    ctx.settle().await?;
    Ok(plans.into_iter().zip(pods).collect())
}

/// Checks that the pods continue to run.
async fn keep_running(ctx: &Context, pods: &[&Pod]) -> Result<(), StepError> {
    for before in pods {
        let found = ctx.api::<Pod>().get_opt(&before.name_any()).await?;
        let same = found.as_ref().is_some_and(|now| {
            now.uid() == before.uid()
                && now.metadata.deletion_timestamp.is_none()
                && phase(now) == "Running"
        });
        if !same {
            let seen = found
                .as_ref()
                .map_or_else(|| "it is gone".to_owned(), describe);
            let message = format!("pod {} does not run on", before.name_any());
            return Err(StepError::mismatch(message, describe(before), seen));
        }
    }
    Ok(())
}

/// Checks that the pod stays pending and its condition says that preemption does not help.
async fn stays_pending_without_preemption(ctx: &Context, name: &str) -> Result<(), StepError> {
    ctx.stay_pending(&[name.to_owned()], NOT_HELPFUL).await?;
    let status = ctx.pod(name).await?.status.unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    if let [one] = conditions.as_slice()
        && one.type_ == "PodScheduled"
        && one.status == "False"
        && one.reason.as_deref() == Some("Unschedulable")
        && one.message.as_deref().unwrap_or("").contains(NOT_HELPFUL)
    {
        return Ok(());
    }
    Err(StepError::mismatch(
        format!("conditions of pod {name}"),
        format!("PodScheduled alone: False, Unschedulable, {NOT_HELPFUL}"),
        format!("{conditions:?}"),
    ))
}

/// Waits until one of the pods is gone and checks that all others continue to run. Returns the name of the one that is gone.
async fn wait_for_eviction(ctx: &Context, pods: &[&Pod]) -> Result<String, StepError> {
    let api = ctx.api::<Pod>();
    let gone = ctx
        .until(
            "one of the pods is gone",
            ctx.deadlines().gone,
            async || {
                for pod in pods {
                    if api.get_opt(&pod.name_any()).await?.is_none() {
                        return Ok(PollResult::Ready(pod.name_any()));
                    }
                }
                Ok(PollResult::NotYet("all are there".to_owned()))
            },
        )
        .await?;
    let others: Vec<&Pod> = pods
        .iter()
        .copied()
        .filter(|pod| pod.name_any() != gone)
        .collect();
    keep_running(ctx, &others).await?;
    Ok(gone)
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
        ctx.step("the others run on", keep_running(ctx, &pods))
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
                let resources = [(); 2].map(|()| ResourceRequest::Limits(pinned(&base, zone.id)));
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
            keep_running(ctx, &pods).await?;
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
        ctx.settle().await?;
        keep_running(ctx, &pods.iter().collect::<Vec<_>>()).await
    })
    .await
}
