//! The one node that takes pods: filling it, and seeing which of its pods give way.

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, ObjectMeta};
use serde_json::json;

use super::{HIGH, LOW, MEDIUM, NOT_HELPFUL};
use crate::context::Context;
use crate::context::arena::Fit;
use crate::context::checks::{describe, phase};
use crate::context::padding::{amounts_to_pad, pinned_to};
use crate::observed::NodeTopology;
use crate::recorder::PollResult;
use crate::resources::Resources;
use crate::step::StepError;
use crate::workload::{PodPlan, ResourceRequest};

/// Makes one node the only one that accepts pods and sets the scheduler to preempt by zones. Returns the state of that node.
pub(super) async fn only_schedulable_node(ctx: &Context) -> Result<NodeTopology, StepError> {
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
pub(super) async fn base_load(
    ctx: &Context,
    target: &NodeTopology,
) -> Result<Resources, StepError> {
    let mut base = ctx.base_load(&target.node).await?.core();
    for (name, least) in Resources::literal("2c 1G").iter() {
        if base.milli(name) == 0 {
            base.set(name, least);
        }
    }
    Ok(base)
}

/// Runs a pod in each zone that leaves this much of it.
pub(super) async fn fill(
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
        let limits = pinned_to(&take, zone.id);
        let name = format!("{name}-{}", zone.id);
        plans.push(PodPlan::new(
            &name,
            ctx.scheduler(),
            [ResourceRequest::Limits(limits)],
        ));
    }
    run(ctx, plans, class).await
}

/// Runs pods of a priority class and waits until the NRT accounts for them.
pub(super) async fn run(
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
pub(super) async fn keep_running(ctx: &Context, pods: &[&Pod]) -> Result<(), StepError> {
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

/// Checks that the pods run on, now and when the scheduler has placed one more pod and the NRTs account for it: by then it has carried out
/// whatever it had decided before.
pub(super) async fn keep_running_on(
    ctx: &Context,
    pods: &[&Pod],
    one_more: &str,
) -> Result<(), StepError> {
    keep_running(ctx, pods).await?;
    let plan = PodPlan::new(one_more, ctx.scheduler(), [ResourceRequest::Nothing]);
    ctx.create(plan.pod()).await?;
    let placed = ctx.pods_running(&[one_more.to_owned()]).await?;
    for pod in &placed {
        ctx.scheduled_by_stack(pod).await?;
    }
    ctx.settle().await?;
    keep_running(ctx, pods).await
}

/// Checks that the pod stays pending and its condition says that preemption does not help.
pub(super) async fn stays_pending_without_preemption(
    ctx: &Context,
    name: &str,
) -> Result<(), StepError> {
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
pub(super) async fn wait_for_eviction(ctx: &Context, pods: &[&Pod]) -> Result<String, StepError> {
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
    keep_running_on(ctx, &others, "after-eviction").await?;
    Ok(gone)
}
