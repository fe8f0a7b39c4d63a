//! Workloads that change after their placement (scenarios-serial.md 8.2).

use k8s_openapi::api::apps::v1::{Deployment, DeploymentStrategy};
use k8s_openapi::api::core::v1::Pod;

use crate::arena::{Arena, Fit};
use crate::checks::node_of;
use crate::context::Context;
use crate::observed::NodeTopology;
use crate::padding::Pad;
use crate::resources::Resources;
use crate::scenario::{Body, Need, Scenario, Scope, StepError, body};
use crate::scenarios::fundamentals::all_scheduled;
use crate::scenarios::{labels, title};
use crate::workload::{PodPlan, ResourceRequest};

const CONTEXT: &str = "[serial][disruptive][scheduler] numaresources workload placement";
const LABELS: &[&str] = &["disruptive", "scheduler", "feature:wlplacement"];
/// What is left in each zone of nodes on which the workload must not fit.
const LEFT_IN_ZONES: &str = "1c 4G";

pub(super) fn scenarios() -> Vec<Scenario> {
    let scenario = |id, test_id, own, text, body: Body| Scenario {
        id,
        test_id: Some(test_id),
        title: title(CONTEXT, Some(test_id), "", text),
        labels: labels(LABELS, own),
        needs: vec![Need::Nodes {
            count: 2,
            scope: None,
        }],
        body,
    };
    vec![
        scenario(
            "placement/modify-workload",
            47591,
            "tier1",
            "should modify workload post scheduling while keeping the resource requests available",
            body(|ctx| Box::pin(modify_workload(ctx))),
        ),
        scenario(
            "placement/modify-two-replicas",
            48746,
            "tier2",
            "should modify workload post scheduling while keeping the resource requests available across all NUMA node",
            body(|ctx| Box::pin(modify_two_replicas(ctx))),
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
        let count = |scope| ctx.facts().candidates(Some(scope)).count();
        let scope = if count(Scope::Container) >= count(Scope::Pod) {
            Scope::Container
        } else {
            Scope::Pod
        };
        let fit = Fit::Zone(Resources::literal("10c 4Gi"));
        let arena = ctx
            .step(
                "two nodes have a zone with room",
                ctx.arena(Some(scope), 2, &fit),
            )
            .await?;
        let little = Resources::literal(LEFT_IN_ZONES);
        let title = format!("all nodes but the target are padded to {little} a zone");
        let pads = ctx
            .step(title, async {
                let mut pads = Vec::new();
                for node in arena.others() {
                    let free = [little.clone(), little.clone()];
                    pads.extend(ctx.pad(node, &free, "others").await?);
                }
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
        self.arena
            .confine(PodPlan::new("testdp47591", ctx.scheduler(), resources))
    }

    /// Plans a deployment's pod with one container.
    fn single(&self, ctx: &Context, request: &Resources) -> PodPlan {
        let resources = [ResourceRequest::Limits(request.clone())];
        self.arena
            .confine(PodPlan::new("testdp48746", ctx.scheduler(), resources))
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
        all_scheduled(ctx, pods).await?;
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

async fn updated(ctx: &Context, plan: &PodPlan, replicas: i32) -> Result<Vec<Pod>, StepError> {
    let title = format!("the deployment is complete with {} a pod", plan.total());
    ctx.step(title, async {
        ctx.update_deployment(plan, replicas).await?;
        ctx.deployment_complete(plan.name(), &plan.selector_labels())
            .await
    })
    .await
}

async fn modify_workload(ctx: &Context) -> Result<(), StepError> {
    let prepared = PreparedNodes::new(ctx).await?;
    let plan = prepared.pair(ctx, "2c 100Mi");
    let pods = ctx
        .step("the deployment is complete", async {
            ctx.create(plan.deployment(1)).await?;
            ctx.deployment_complete(plan.name(), &plan.selector_labels())
                .await
        })
        .await?;
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
                let free = [little.clone(), little.clone()];
                let pads = ctx.pad(&now, &free, "target").await?;
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
    all_scheduled(ctx, &pods).await?;
    let Some(before) = reorganized.iter().find(|topology| topology.node == node) else {
        return Err(StepError::fail(format!("node {node} has no NRT")));
    };
    let total = plan.total();
    ctx.step(
        format!("the zones of that node account for {total}"),
        ctx.accounted(before, &total, true, prepared.scope),
    )
    .await?;
    ctx.step("after the deletion the zones are as before", async {
        ctx.delete::<Deployment>(plan.name()).await?;
        ctx.pods_created(&plan.selector_labels(), 0).await?;
        ctx.settle().await?;
        ctx.restored(before).await
    })
    .await
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
    ctx.step("after the deletion the zones are as before", async {
        ctx.delete::<Deployment>(plan.name()).await?;
        ctx.pods_created(&plan.selector_labels(), 0).await?;
        ctx.settle().await?;
        ctx.restored(&prepared.before).await
    })
    .await
}
