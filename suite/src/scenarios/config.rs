//! Configuration of the stack and its effects (scenarios-serial.md 9.6).

mod groups;
mod kubelets;
mod moved;
mod pools;
mod refused;
mod security;
mod status;

use api::operator::v1::NodeGroup;
use serde_json::json;

use crate::context::Context;
use crate::needs::Need;
use crate::scenario::{Scenario, body};
use crate::scenarios::area::Area;
use crate::scenarios::attributes::nrt_attributes;
use crate::step::StepError;
use crate::workload::{PodPlan, ResourceRequest};

const AREA: Area = Area {
    context: "[serial][disruptive] numaresources configuration management",
    labels: &["disruptive", "feature:config"],
    needs: &[],
};
const ON_OPENSHIFT: Area = Area {
    needs: &[Need::OpenShift],
    ..AREA
};

pub(super) fn scenarios() -> Vec<Scenario> {
    let mut all = vec![
        AREA.scenario(
            "config/nrt-attributes",
            84315,
            "tier0",
            "should reflect correct TM configuration in the NRT object attributes",
            body(|ctx| Box::pin(nrt_attributes(ctx))),
        ),
        AREA.scenario(
            "config/sched-modify",
            54916,
            "tier2 schedrst feature:schedrst",
            "should be able to modify the configurable values under the NUMAResourcesScheduler CR",
            body(|ctx| Box::pin(scheduler_is_renamed(ctx))),
        ),
        AREA.scenario(
            "config/nodegroup-config-status",
            84307,
            "tier2",
            "should report the NodeGroupConfig in the status",
            body(|ctx| Box::pin(status::groups_are_reported(ctx))),
        ),
        AREA.scenario(
            "config/related-objects",
            84309,
            "related_objects",
            "should report relatedObjects in the status",
            body(|ctx| Box::pin(status::related_objects_are_reported(ctx))),
        ),
        AREA.scenario(
            "config/poolname-and-selector",
            84311,
            "tier2 ngpoolname feature:ngpoolname",
            "should not allow configuring PoolName and MCP selector on same node group",
            body(|ctx| Box::pin(refused::two_specifiers_are_refused(ctx))),
        ),
        AREA.scenario(
            "config/poolname-status",
            84312,
            "tier1 ngpoolname feature:ngpoolname",
            "should report the NodeGroupConfig in the NodeGroupStatus with NodePool set and allow updates",
            body(|ctx| Box::pin(status::changed_groups_are_reported(ctx))),
        ),
        AREA.scenario(
            "config/poolname-duplicate",
            80823,
            "tier2 ngpoolname feature:ngpoolname",
            "should not allow duplicate and empty PoolName values on the same node group. duplicate pool name",
            body(|ctx| Box::pin(refused::duplicates_are_refused(ctx))),
        ),
        AREA.scenario(
            "config/poolname-empty",
            80823,
            "tier2 ngpoolname feature:ngpoolname",
            "should not allow duplicate and empty PoolName values on the same node group. empty pool name",
            body(|ctx| Box::pin(refused::empty_names_are_refused(ctx))),
        ),
        AREA.scenario(
            "config/no-mcp-selector-hs",
            80912,
            "tier2 ngpoolname feature:ngpoolname",
            "should not allow MCP selector on hypershift",
            body(|ctx| Box::pin(refused::selectors_are_refused_without_pools(ctx))),
        ),
    ];
    all.extend(kubelets::scenarios());
    all.extend(moved::scenarios());
    all.extend(groups::scenarios());
    all.extend(security::scenarios());
    all
}

async fn scheduler_is_renamed(ctx: &Context) -> Result<(), StepError> {
    const NAME: &str = "test-topology-scheduler";
    ctx.step("the scheduler has another name", async {
        ctx.set_scheduler_field("schedulerName", json!(NAME))
            .await?;
        let status = ctx.scheduler_resource().await?.status.unwrap_or_default();
        let seen = status.scheduler_name.unwrap_or_default();
        if seen == NAME {
            return Ok(());
        }
        Err(StepError::mismatch("name in the status", NAME, seen))
    })
    .await?;
    let generation = ctx.scheduler_resource().await?.metadata.generation;
    ctx.step("a pod that asks for it runs", async {
        let plan = PodPlan::new("testpod", NAME, [ResourceRequest::Nothing]);
        ctx.create(plan.pod()).await?;
        let pod = ctx.pods_running(&[plan.name().to_owned()]).await?.remove(0);
        ctx.scheduled_by(NAME, &pod).await
    })
    .await?;
    ctx.step("nobody has changed the resource since", async {
        ctx.scheduler_available().await?;
        let now = ctx.scheduler_resource().await?.metadata.generation;
        if now == generation {
            return Ok(());
        }
        let [expected, seen] = [generation, now].map(Option::unwrap_or_default);
        Err(StepError::mismatch(
            "generation of the resource",
            expected,
            seen,
        ))
    })
    .await
}

/// Returns a node group for a pool.
fn pool(name: &str) -> NodeGroup {
    NodeGroup {
        pool_name: Some(name.to_owned()),
        ..NodeGroup::default()
    }
}
