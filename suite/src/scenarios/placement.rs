//! Workloads that change after their placement (scenarios-serial.md 8.2).

mod replicas;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentStrategy};
use k8s_openapi::api::core::v1::Pod;

use crate::context::Context;
use crate::context::arena::{Arena, Fit};
use crate::context::checks::node_of;
use crate::context::padding::{Pad, in_both_zones};
use crate::needs::Need;
use crate::observed::{NodeTopology, Scope, topology_of};
use crate::resources::Resources;
use crate::scenario::{Scenario, body};
use crate::scenarios::registry::scenario;
use crate::scenarios::steps;
use crate::step::StepError;
use crate::workload::{PodPlan, ResourceRequest};

const NEEDS: &[Need] = &[Need::nodes(2)];
const MANY: &[Need] = &[
    Need::nodes(2),
    Need::Zone {
        count: 2,
        scope: None,
        request: replicas::ROOM,
    },
];
/// What is left in each zone of nodes on which the workload must not fit.
const LEFT_IN_ZONES: &str = "1c 4G";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario(
            "placement/modify-workload",
            NEEDS,
            body(|ctx| Box::pin(modify_workload(ctx))),
        ),
        scenario(
            "placement/modify-two-replicas",
            NEEDS,
            body(|ctx| Box::pin(modify_two_replicas(ctx))),
        ),
        scenario(
            "placement/replicas-sched-time",
            MANY,
            body(|ctx| Box::pin(replicas::take_as_long_as_with_the_default_scheduler(ctx))),
        ),
    ]
}

/// Nodes of one scope, of which only the target has room.
struct PreparedNodes {
    arena: Arena,
    scope: Scope,
    pads: Vec<Pad>,
    before: NodeTopology,
}

impl PreparedNodes {
    async fn new(ctx: &Context) -> Result<Self, StepError> {
        let title = "two nodes have a zone with room";
        let fit = Fit::Zone(Resources::literal("10c 4Gi"));
        let (arena, scope) = steps::arena_of_one_scope(ctx, title, &fit).await?;
        let little = Resources::literal(LEFT_IN_ZONES);
        let title = format!("all nodes but the target are padded to {little} a zone");
        let pads = ctx
            .step(title, async {
                let free = in_both_zones(&little);
                let pads = ctx.pad_each(arena.others(), &free, "others").await?;
                ctx.padded(&pads).await?;
                Ok(pads)
            })
            .await?;
        let before = ctx.baseline_of(&arena.target().node).await?;
        Ok(Self {
            arena,
            scope,
            pads,
            before,
        })
    }

    /// Plans a deployment's pod with two containers.
    fn pair(&self, ctx: &Context, first: &str) -> PodPlan {
        let resources =
            [first, "2c 100Mi"].map(|list| ResourceRequest::Limits(Resources::literal(list)));
        self.arena.plan(ctx, "testdp47591", resources)
    }

    /// Plans a deployment's pod with one container.
    fn single(&self, ctx: &Context, request: &Resources) -> PodPlan {
        let resources = [ResourceRequest::Limits(request.clone())];
        self.arena.plan(ctx, "testdp48746", resources)
    }

    /// Checks that all of these pods are on the target, were placed by the scheduler under test, and are accounted for.
    async fn check_target_holds(
        &self,
        ctx: &Context,
        pods: &[Pod],
        total: &Resources,
    ) -> Result<(), StepError> {
        ctx.step("the target has all of it", async {
            pods.iter()
                .try_for_each(|pod| ctx.on_node(pod, &self.before.node))
        })
        .await?;
        steps::stack_placed_all(ctx, pods).await?;
        let scope = if pods.len() == 1 {
            self.scope
        } else {
            Scope::Container
        };
        ctx.step(
            format!("the zones of the target account for {total}"),
            ctx.accounted(&self.before, total, true, scope),
        )
        .await
    }
}

/// Changes the pods of the deployment, and waits until all of them are new: those of one ReplicaSet more.
async fn updated(ctx: &Context, plan: &PodPlan, replicas: i32) -> Result<Vec<Pod>, StepError> {
    let title = format!("the deployment is complete with {} a pod", plan.total());
    ctx.step(title, async {
        let before = ctx.replica_sets(&plan.selector_labels()).await?;
        ctx.update_deployment(plan, replicas).await?;
        let pods = ctx
            .deployment_complete(plan.name(), &plan.selector_labels())
            .await?;
        let now = ctx.replica_sets(&plan.selector_labels()).await?;
        if now == before + 1 {
            return Ok(pods);
        }
        Err(StepError::mismatch(
            "ReplicaSets of the deployment",
            before + 1,
            now,
        ))
    })
    .await
}

/// Deletes the deployment and waits until the zones of a node are as before.
async fn zones_are_restored_without(
    ctx: &Context,
    plan: &PodPlan,
    before: &NodeTopology,
) -> Result<(), StepError> {
    let deletion = async {
        ctx.delete::<Deployment>(plan.name()).await?;
        ctx.pods_created(&plan.selector_labels(), 0).await.map(drop)
    };
    let title = "after the deletion the zones are as before";
    steps::zones_are_restored_after(ctx, title, deletion, before).await
}

async fn modify_workload(ctx: &Context) -> Result<(), StepError> {
    let prepared = PreparedNodes::new(ctx).await?;
    let plan = prepared.pair(ctx, "2c 100Mi");
    let pods = steps::deployment_is_complete(ctx, "the deployment is complete", &plan, 1).await?;
    prepared
        .check_target_holds(ctx, &pods, &plan.total())
        .await?;
    let plan = prepared.pair(ctx, "3c 100Mi");
    let pods = updated(ctx, &plan, 1).await?;
    prepared
        .check_target_holds(ctx, &pods, &plan.total())
        .await?;
    ctx.step("the padding is removed", ctx.unpad(&prepared.pads))
        .await?;
    let little = Resources::literal(LEFT_IN_ZONES);
    let reorganized = ctx
        .step(
            format!("the target is padded to {little} a zone instead"),
            async {
                let now = ctx.topology(&prepared.before.node).await?;
                let pads = ctx.pad(&now, &in_both_zones(&little), "target").await?;
                ctx.padded(&pads).await
            },
        )
        .await?;
    let plan = prepared.pair(ctx, "6c 100Mi");
    let pods = updated(ctx, &plan, 1).await?;
    let node = pods
        .first()
        .and_then(node_of)
        .unwrap_or_default()
        .to_owned();
    ctx.step("its pod is on another node", async {
        if node == prepared.before.node {
            return Err(StepError::mismatch(
                "it is on the full node",
                "another",
                &node,
            ));
        }
        Ok(())
    })
    .await?;
    steps::stack_placed_all(ctx, &pods).await?;
    let before = topology_of(&reorganized, &node)?;
    let total = plan.total();
    ctx.step(
        format!("the zones of that node account for {total}"),
        ctx.accounted(before, &total, true, prepared.scope),
    )
    .await?;
    zones_are_restored_without(ctx, &plan, before).await
}

/// Replaces two pods that each take a zone by smaller ones.
async fn modify_two_replicas(ctx: &Context) -> Result<(), StepError> {
    let prepared = PreparedNodes::new(ctx).await?;
    let base = ctx.base_load(&prepared.before.node).await?.core();
    let zones = prepared
        .before
        .zones
        .iter()
        .map(|zone| zone.available().core());
    let least = zones.reduce(|least, zone| least.lowest(&zone));
    let request = least.unwrap_or_default().minus(&base);
    let plan = prepared.single(ctx, &request);
    let pods = ctx
        .step(format!("two pods with {request} run"), async {
            let mut deployment = plan.deployment(2);
            if let Some(spec) = &mut deployment.spec {
                // old and new pods do not fit together
                spec.strategy = Some(DeploymentStrategy {
                    type_: Some("Recreate".to_owned()),
                    rolling_update: None,
                });
            }
            ctx.create(deployment).await?;
            ctx.deployment_complete(plan.name(), &plan.selector_labels())
                .await
        })
        .await?;
    prepared
        .check_target_holds(ctx, &pods, &request.plus(&request))
        .await?;
    let less = request.minus(&Resources::literal("4c 100Mi"));
    let plan = prepared.single(ctx, &less);
    let pods = updated(ctx, &plan, 2).await?;
    prepared
        .check_target_holds(ctx, &pods, &less.plus(&less))
        .await?;
    ctx.step("the padding is removed", ctx.unpad(&prepared.pads))
        .await?;
    zones_are_restored_without(ctx, &plan, &prepared.before).await
}
