//! Workloads that fit nodes but no zone (scenarios-serial.md 8.10).

mod daemon_sets;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use crate::context::Context;
use crate::context::arena::{Arena, Fit};
use crate::context::checks::{describe, phase};
use crate::context::padding::in_both_zones;
use crate::needs::Need;
use crate::observed::{NodeTopology, Scope};
use crate::recorder::PollResult;
use crate::resources::Resources;
use crate::scenario::{Scenario, body};
use crate::scenarios::registry::scenario;
use crate::scenarios::steps;
use crate::step::StepError;
use crate::workload::{PodPlan, ResourceRequest};

const NEEDS: &[Need] = &[
    Need::nodes(2),
    Need::Zone {
        count: 2,
        scope: None,
        request: REQUEST,
    },
];
const REQUEST: &str = "16c 16Gi";
const FREE: &str = "12c 12Gi";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario(
            "unsched/pod-no-zone",
            NEEDS,
            body(|ctx| Box::pin(pod_no_zone(ctx))),
        ),
        scenario(
            "unsched/dp-no-zone",
            NEEDS,
            body(|ctx| Box::pin(deployment_no_zone(ctx))),
        ),
        scenario(
            "unsched/ds-no-zone",
            NEEDS,
            body(|ctx| Box::pin(daemon_sets::daemon_set_no_zone(ctx))),
        ),
        scenario(
            "unsched/ds-one-node-fits",
            NEEDS,
            body(|ctx| Box::pin(daemon_sets::daemon_set_one_node_fits(ctx))),
        ),
        scenario(
            "unsched/dp-default-sched-tae",
            NEEDS,
            body(|ctx| Box::pin(refused_of_the_default_scheduler(ctx))),
        ),
        scenario(
            "unsched/two-cnt-pod-scope",
            &[Need::Nodes {
                count: 1,
                scope: Some(Scope::Pod),
            }],
            body(|ctx| Box::pin(two_containers_of_one_pod(ctx))),
        ),
        scenario(
            "unsched/dp-partially-fits",
            NEEDS,
            body(|ctx| Box::pin(deployment_partially_fits(ctx))),
        ),
        scenario(
            "unsched/allocatable-pod",
            NEEDS,
            body(|ctx| Box::pin(allocatable(ctx, Kind::Pod))),
        ),
        scenario(
            "unsched/allocatable-dp",
            NEEDS,
            body(|ctx| Box::pin(allocatable(ctx, Kind::Deployment))),
        ),
        scenario(
            "unsched/allocatable-ds",
            NEEDS,
            body(|ctx| Box::pin(allocatable(ctx, Kind::DaemonSet))),
        ),
    ]
}

/// Takes all nodes of one scope, the scope that more nodes have, because the reason of a rejection depends on it.
async fn arena(ctx: &Context, at_least: usize) -> Result<(Arena, Scope), StepError> {
    let scope = ctx.facts().majority_scope();
    let title = format!(
        "nodes of scope {} have a zone with {REQUEST}",
        scope.as_str()
    );
    let arena = ctx
        .step(
            title,
            ctx.arena(
                Some(scope),
                at_least,
                &Fit::Zone(Resources::literal(REQUEST)),
            ),
        )
        .await?;
    Ok((arena, scope))
}

fn plan(ctx: &Context, arena: &Arena, name: &str) -> PodPlan {
    let resources = [ResourceRequest::Limits(Resources::literal(REQUEST))];
    arena.plan(ctx, name, resources)
}

/// Leaves this in each zone of every node. Returns the NRTs.
async fn pad_all(
    ctx: &Context,
    arena: &Arena,
    free: &Resources,
) -> Result<Vec<NodeTopology>, StepError> {
    ctx.step(format!("all nodes are padded to {free} a zone"), async {
        let free = in_both_zones(free);
        let pads = ctx.pad_each(arena.nodes(), &free, "all").await?;
        ctx.padded(&pads).await
    })
    .await
}

async fn pod_no_zone(ctx: &Context) -> Result<(), StepError> {
    let (arena, scope) = arena(ctx, 2).await?;
    pad_all(ctx, &arena, &Resources::literal(FREE)).await?;
    let plan = plan(ctx, &arena, "testpod");
    let reason = scope.alignment_failure();
    let title = format!("the pod stays pending: {reason}");
    steps::pod_stays_pending(ctx, title, &plan, reason).await
}

async fn deployment_no_zone(ctx: &Context) -> Result<(), StepError> {
    let (arena, scope) = arena(ctx, 2).await?;
    pad_all(ctx, &arena, &Resources::literal(FREE)).await?;
    let plan = plan(ctx, &arena, "test-dp");
    ctx.step(
        format!(
            "the pod of the deployment stays pending: {}",
            scope.alignment_failure()
        ),
        async {
            ctx.create(plan.deployment(1)).await?;
            let pods = ctx.pods_created(&plan.selector_labels(), 1).await?;
            all_pending(ctx, &pods, scope).await
        },
    )
    .await
}

async fn all_pending(ctx: &Context, pods: &[Pod], scope: Scope) -> Result<(), StepError> {
    let names: Vec<_> = pods.iter().map(ResourceExt::name_any).collect();
    ctx.stay_pending(&names, scope.alignment_failure()).await
}

/// Shows what happens with a scheduler that ignores zones: the kubelet refuses its pods.
async fn refused_of_the_default_scheduler(ctx: &Context) -> Result<(), StepError> {
    const REASON: &str = "TopologyAffinityError";
    let (arena, _) = arena(ctx, 2).await?;
    pad_all(ctx, &arena, &Resources::literal(FREE)).await?;
    let resources = ResourceRequest::Limits(Resources::literal(REQUEST));
    let plan = arena.confine(PodPlan::new("test-dp", "default-scheduler", [resources]));
    let title = format!("a kubelet refuses a pod of the deployment: {REASON}");
    ctx.step(title, async {
        ctx.create(plan.deployment(1)).await?;
        let limit = ctx.deadlines().running;
        let what = format!("a pod failed with {REASON}");
        let failed = ctx.until(&what, limit, async || {
            let pods = ctx.pods_with(&plan.selector_labels()).await?;
            let reason = |pod: &Pod| pod.status.as_ref().and_then(|status| status.reason.clone());
            let mut reasons = pods.iter().filter_map(reason);
            Ok(if reasons.any(|reason| reason == REASON) {
                PollResult::Ready(())
            } else {
                let seen: Vec<_> = pods.iter().map(describe).collect();
                PollResult::NotYet(seen.join(", "))
            })
        });
        failed.await?;
        // otherwise one pod after the other is created and refused
        ctx.delete::<Deployment>(plan.name()).await
    })
    .await
}

async fn two_containers_of_one_pod(ctx: &Context) -> Result<(), StepError> {
    let free = Resources::literal("6c 6Gi");
    let title = format!("a node of scope pod has a zone with {free}");
    let fit = Fit::Zone(free.clone());
    let arena = ctx
        .step(title, ctx.arena(Some(Scope::Pod), 1, &fit))
        .await?;
    let title = format!("the target has {free} left in each zone, all other nodes nothing");
    let nothing = Resources::literal("0c 0Gi");
    let [target, others] = [&free, &nothing].map(in_both_zones);
    let padded = ctx
        .step(
            title,
            ctx.pad_target_and_others(&arena, &target, &others, "full"),
        )
        .await?;
    let before = arena.target_in(&padded)?;
    let resources =
        ["4c 4Gi", "5c 5Gi"].map(|list| ResourceRequest::Limits(Resources::literal(list)));
    let plan = arena.plan(ctx, "testpod", resources);
    let reason = Scope::Pod.alignment_failure();
    let title = format!("the pod stays pending: {reason}");
    steps::pod_stays_pending(ctx, title, &plan, reason).await?;
    steps::zones_are_as_before(ctx, before).await
}

/// Runs a deployment with one pod more than there are zones; each zone fits one pod.
async fn deployment_partially_fits(ctx: &Context) -> Result<(), StepError> {
    // Two zones together have room for one pod more than they can hold, so only its alignment refuses the last one.
    let [free, fits, too_large] = ["8c 8Gi", "5c 5Gi", "11c 11Gi"].map(Resources::literal);
    let (arena, scope) = arena(ctx, 2).await?;
    let padded = pad_all(ctx, &arena, &free).await?;
    let zones = 2 * arena.nodes().len();
    let replicas = i32::try_from(zones + 1).unwrap_or(i32::MAX);
    let plan = |request: &Resources| {
        let resources = ResourceRequest::Limits(request.clone());
        arena.plan(ctx, "test-dp-47615", [resources])
    };
    let large = plan(&too_large);
    let labels = large.selector_labels();
    let title = format!("all of {replicas} pods with {too_large} stay pending");
    ctx.step(title, async {
        ctx.create(large.deployment(replicas)).await?;
        let pods = ctx.pods_created(&labels, zones + 1).await?;
        all_pending(ctx, &pods, scope).await
    })
    .await?;
    ctx.step("no zone of any node changed", async {
        for before in arena_of(&padded, &arena) {
            ctx.restored(before).await?;
        }
        Ok(())
    })
    .await?;
    let title = format!("with {fits} a pod runs in each zone, and one stays pending");
    ctx.step(title, async {
        ctx.scale_deployment(large.name(), 0).await?;
        ctx.pods_created(&labels, 0).await?;
        ctx.settle().await?;
        ctx.update_deployment(&plan(&fits), replicas).await?;
        let what = format!("{zones} of {replicas} pods run");
        let limit = ctx.deadlines().running;
        let left = ctx.until(&what, limit, async || {
            let pods = ctx.pods_with(&labels).await?;
            let (running, left): (Vec<_>, Vec<_>) =
                pods.into_iter().partition(|pod| phase(pod) == "Running");
            Ok(if running.len() == zones && left.len() == 1 {
                PollResult::Ready(left)
            } else {
                let seen: Vec<_> = left.iter().map(describe).collect();
                PollResult::NotYet(format!("{} run; {}", running.len(), seen.join(", ")))
            })
        });
        let left = left.await?;
        ctx.settle().await?;
        let names: Vec<_> = left.iter().map(ResourceExt::name_any).collect();
        ctx.stay_pending(&names, scope.alignment_failure()).await
    })
    .await?;
    let both = fits.plus(&fits);
    ctx.step(
        format!("the zones of each node account for {both}"),
        async {
            for before in arena_of(&padded, &arena) {
                ctx.accounted(before, &both, true, Scope::Container).await?;
            }
            Ok(())
        },
    )
    .await
}

/// Returns those of the nodes that are in the arena.
fn arena_of<'a>(
    nodes: &'a [NodeTopology],
    arena: &'a Arena,
) -> impl Iterator<Item = &'a NodeTopology> {
    let names = arena.names();
    nodes.iter().filter(move |node| names.contains(&node.node))
}

/// The kind of object that creates the pod.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Pod,
    Deployment,
    DaemonSet,
}

/// Lets one pod request everything that the zones of a node have allocatable.
async fn allocatable(ctx: &Context, kind: Kind) -> Result<(), StepError> {
    let (arena, _) = arena(ctx, 2).await?;
    let zones = arena.target().zones.iter();
    let all: Vec<Resources> = zones.map(|zone| zone.allocatable().core()).collect();
    let request = Resources::sum(&all);
    steps::others_are_full(ctx, &arena).await?;
    let plan = arena.plan(ctx, "testpod", [ResourceRequest::Limits(request.clone())]);
    ctx.step(format!("pods with {request} stay pending"), async {
        let names = match kind {
            Kind::Pod => {
                ctx.create(plan.pod()).await?;
                vec![plan.name().to_owned()]
            }
            Kind::Deployment => {
                ctx.create(plan.deployment(1)).await?;
                let pods = ctx.pods_created(&plan.selector_labels(), 1).await?;
                pods.iter().map(ResourceExt::name_any).collect()
            }
            Kind::DaemonSet => {
                let pods = daemon_sets::create_daemon_set(ctx, &arena, &plan).await?;
                pods.iter().map(ResourceExt::name_any).collect()
            }
        };
        ctx.stay_pending(&names, "Insufficient|cannot align").await
    })
    .await
}
