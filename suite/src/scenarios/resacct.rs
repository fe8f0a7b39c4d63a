//! What zones account for, and what not (scenarios-serial.md 8.8).

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use crate::context::Context;
use crate::context::arena::{Arena, Fit};
use crate::context::padding::{in_both_zones, pinned_to};
use crate::needs::Need;
use crate::observed::{NodeTopology, Scope, difference, topology_of};
use crate::resources::{CPU, MEMORY, Resources};
use crate::scenario::{Scenario, body};
use crate::scenarios::registry::scenario;
use crate::scenarios::steps;
use crate::step::StepError;
use crate::workload::{PodPlan, ResourceRequest};

const NEEDS: &[Need] = &[Need::nodes(2)];

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario(
            "resacct/pending-then-scheduled",
            NEEDS,
            body(|ctx| Box::pin(pending_then_scheduled(ctx))),
        ),
        scenario(
            "resacct/best-effort",
            NEEDS,
            body(|ctx| Box::pin(not_accounted(ctx, false))),
        ),
        scenario(
            "resacct/burstable",
            NEEDS,
            body(|ctx| Box::pin(not_accounted(ctx, true))),
        ),
        scenario(
            "resacct/burstable-dp",
            NEEDS,
            body(|ctx| Box::pin(burstable_deployment(ctx))),
        ),
        scenario(
            "resacct/burstable-mixed",
            NEEDS,
            body(|ctx| Box::pin(burstable_mixed(ctx))),
        ),
        scenario(
            "resacct/burstable-then-guaranteed",
            NEEDS,
            body(|ctx| Box::pin(burstable_then_guaranteed(ctx))),
        ),
        scenario(
            "resacct/burstable-ds",
            NEEDS,
            body(|ctx| Box::pin(burstable_daemon_set(ctx))),
        ),
    ]
}

async fn pending_then_scheduled(ctx: &Context) -> Result<(), StepError> {
    let request = Resources::literal("4c 8Gi");
    let title = format!("two nodes have a zone with {request}");
    let (arena, scope) =
        steps::arena_of_one_scope(ctx, &title, &Fit::Zone(request.clone())).await?;
    let small = Resources::literal("2c 4Gi");
    let title = format!("the target has {request} left in each zone, all other nodes {small}");
    let [target, others] = [&request, &small].map(in_both_zones);
    let padded = ctx
        .step(
            title,
            ctx.pad_target_and_others(&arena, &target, &others, "others"),
        )
        .await?;
    let before = arena.target_in(&padded)?;
    let holders = ctx
        .step(
            "a small pod in each zone of the target leaves none that fits",
            hold_zones(ctx, before),
        )
        .await?;
    let Some((last, before_last)) = holders else {
        return Err(StepError::fail("the target has no zones"));
    };

    let plan = arena.plan(ctx, "testpod", [ResourceRequest::Limits(request.clone())]);
    let reason = scope.alignment_failure();
    let title = format!("the pod stays pending: {reason}");
    steps::pod_stays_pending(ctx, title, &plan, reason).await?;
    ctx.step("one of the small pods is deleted", ctx.delete::<Pod>(&last))
        .await?;
    let pod = ctx
        .step("the pod runs", ctx.pods_running(&[plan.name().to_owned()]))
        .await?
        .remove(0);
    steps::pod_is_on(ctx, "the pod is on the target", &pod, &before.node).await?;
    steps::stack_placed(ctx, &pod).await?;
    steps::one_zone_accounts_for(ctx, &before_last, &request).await
}

/// Puts a small pinned pod into each zone of a node. Returns the name of the last pod and the node's state before it.
async fn hold_zones(
    ctx: &Context,
    node: &NodeTopology,
) -> Result<Option<(String, NodeTopology)>, StepError> {
    let mut last = None;
    for zone in &node.zones {
        let before = ctx.baseline_of(&node.node).await?;
        let name = format!("tgtpadpod-{}", zone.name);
        let limits = pinned_to(&Resources::literal("1c 1Gi"), zone.id);
        ctx.create(
            PodPlan::new(&name, "", [ResourceRequest::Limits(limits)])
                .bound_to(&node.node)
                .pod(),
        )
        .await?;
        ctx.pods_running(std::slice::from_ref(&name)).await?;
        ctx.settle().await?;
        last = Some((name, before));
    }
    Ok(last)
}

/// A node with room for pods that no zone accounts for; all other nodes are full.
struct PreparedNodes {
    arena: Arena,
    scope: Scope,
    /// Base load of the target.
    base: Resources,
    /// The state of every node.
    reference: Vec<NodeTopology>,
}

impl PreparedNodes {
    async fn new(ctx: &Context) -> Result<Self, StepError> {
        let title = "two nodes with two zones are there";
        let (arena, scope) = steps::arena_of_one_scope(ctx, title, &Fit::Anything).await?;
        let base = ctx.base_load(&arena.target().node).await?.core();
        let reference = steps::others_are_full(ctx, &arena).await?;
        Ok(Self {
            arena,
            scope,
            base,
            reference,
        })
    }

    fn target(&self) -> &str {
        &self.arena.target().node
    }

    /// Returns the CPU and memory that the whole target has left.
    fn all(&self) -> Resources {
        let core = |name: &str, _| name == CPU || name == MEMORY;
        self.arena
            .target()
            .available()
            .filtered(core)
            .minus(&self.base)
    }

    /// Returns the CPU and memory that a zone of the target has left.
    fn zone(&self, index: usize) -> Resources {
        let core = |name: &str, _| name == CPU || name == MEMORY;
        let zone = self.arena.target().zones.get(index);
        zone.map_or_else(Resources::new, |zone| zone.available().filtered(core))
    }

    async fn placed(&self, ctx: &Context, pod: &Pod, on_target: bool) -> Result<(), StepError> {
        if on_target {
            steps::pod_is_on(ctx, "the pod is on the target", pod, self.target()).await?;
        }
        steps::stack_placed(ctx, pod).await
    }

    async fn unchanged(&self, ctx: &Context, node: &str) -> Result<(), StepError> {
        ctx.step(
            "the exporter has seen the pod and no zone of any node changed",
            async {
                let nodes = ctx.barrier(topology_of(&self.reference, node)?).await?;
                match difference(&self.reference, &nodes) {
                    None => Ok(()),
                    Some(seen) => Err(StepError::mismatch("an NRT changed", "no change", seen)),
                }
            },
        )
        .await
    }
}

/// Checks that a pod that is not Guaranteed runs and does not change the zones of its node.
async fn not_accounted(ctx: &Context, burstable: bool) -> Result<(), StepError> {
    let prepared = PreparedNodes::new(ctx).await?;
    let request = prepared.all();
    let (resources, title) = if burstable {
        let title = format!("a pod that requests {request} runs");
        (ResourceRequest::Requests(request), title)
    } else {
        (
            ResourceRequest::Nothing,
            "a best-effort pod runs".to_owned(),
        )
    };
    let pod = steps::pod_runs(
        ctx,
        title,
        &prepared.arena.plan(ctx, "testpod", [resources]),
    )
    .await?;
    prepared.placed(ctx, &pod, burstable).await?;
    let node = crate::context::checks::node_of(&pod).unwrap_or_default();
    prepared.unchanged(ctx, node).await
}

async fn burstable_deployment(ctx: &Context) -> Result<(), StepError> {
    let prepared = PreparedNodes::new(ctx).await?;
    let plan = prepared
        .arena
        .plan(ctx, "test-dp", [ResourceRequest::Requests(prepared.all())]);
    let title = format!(
        "a deployment of a pod that requests {} is complete",
        prepared.all()
    );
    let pods = steps::deployment_is_complete(ctx, title, &plan, 1).await?;
    for pod in &pods {
        prepared.placed(ctx, pod, true).await?;
    }
    prepared.unchanged(ctx, prepared.target()).await
}

async fn burstable_daemon_set(ctx: &Context) -> Result<(), StepError> {
    let prepared = PreparedNodes::new(ctx).await?;
    let plan = prepared
        .arena
        .plan(ctx, "test-ds", [ResourceRequest::Requests(prepared.all())])
        .on_nodes_with(api::labels::HOSTNAME, prepared.target());
    let title = format!(
        "a daemon set for the target, whose pod requests {}, runs",
        prepared.all()
    );
    let pods = ctx
        .step(title, async {
            ctx.create(plan.daemon_set()).await?;
            ctx.daemon_set_desired(plan.name(), 1).await?;
            let pods = ctx.pods_created(&plan.selector_labels(), 1).await?;
            let names: Vec<String> = pods.iter().map(ResourceExt::name_any).collect();
            ctx.pods_running(&names).await
        })
        .await?;
    for pod in &pods {
        prepared.placed(ctx, pod, true).await?;
    }
    prepared.unchanged(ctx, prepared.target()).await
}

/// Runs a pod that is Burstable as a whole: one container has limits that a zone could hold, the other one only requests.
async fn burstable_mixed(ctx: &Context) -> Result<(), StepError> {
    let prepared = PreparedNodes::new(ctx).await?;
    let limits = prepared.zone(0).minus(&prepared.base);
    let requests = match prepared.scope {
        Scope::Container => prepared.zone(1).minus(&prepared.base),
        Scope::Pod => Resources::literal("5Mi"),
    };
    let title =
        format!("a pod whose containers have limits of {limits} and request {requests} runs");
    let resources = [
        ResourceRequest::Limits(limits),
        ResourceRequest::Requests(requests),
    ];
    let pod = steps::pod_runs(ctx, title, &prepared.arena.plan(ctx, "testpod", resources)).await?;
    prepared.placed(ctx, &pod, true).await?;
    prepared.unchanged(ctx, prepared.target()).await
}

/// Checks that a Burstable pod takes the room of a Guaranteed one although no zone accounts for it.
async fn burstable_then_guaranteed(ctx: &Context) -> Result<(), StepError> {
    let prepared = PreparedNodes::new(ctx).await?;
    let first = prepared.arena.plan(
        ctx,
        "testpod-first-bu",
        [ResourceRequest::Requests(prepared.all())],
    );
    let title = format!("a pod that requests {} runs", prepared.all());
    let pod = steps::pod_runs(ctx, title, &first).await?;
    prepared.placed(ctx, &pod, true).await?;
    prepared.unchanged(ctx, prepared.target()).await?;
    let whole = prepared.zone(0);
    let second = prepared.arena.plan(
        ctx,
        "testpod-second-gu",
        [ResourceRequest::Limits(whole.clone())],
    );
    let title = format!("a pod with limits of {whole} stays pending");
    steps::pod_stays_pending(ctx, title, &second, "Insufficient").await?;
    prepared.unchanged(ctx, prepared.target()).await?;
    let running = ctx
        .step("it runs when the other one is deleted", async {
            ctx.delete::<Pod>(first.name()).await?;
            ctx.pods_running(&[second.name().to_owned()]).await
        })
        .await?
        .remove(0);
    prepared.placed(ctx, &running, true).await?;
    let before = prepared.arena.target();
    ctx.step(
        format!("the target accounts for {whole}"),
        ctx.accounted(before, &whole, true, prepared.scope),
    )
    .await?;
    let title = "after its deletion the zones are as before";
    let deletion = ctx.delete::<Pod>(second.name());
    steps::zones_are_restored_after(ctx, title, deletion, before).await
}
