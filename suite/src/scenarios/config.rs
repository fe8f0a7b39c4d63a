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
pub(super) use status::groups_are_reported;

use crate::context::Context;
use crate::needs::Need;
use crate::scenario::{Scenario, body};
use crate::scenarios::attributes::nrt_attributes;
use crate::scenarios::registry::scenario;
use crate::step::StepError;
use crate::workload::{PodPlan, ResourceRequest};

const ON_OPENSHIFT: &[Need] = &[Need::OpenShift];

pub(super) fn scenarios() -> Vec<Scenario> {
    let mut all = vec![
        scenario(
            "config/nrt-attributes",
            &[],
            body(|ctx| Box::pin(nrt_attributes(ctx))),
        ),
        scenario(
            "config/sched-modify",
            &[],
            body(|ctx| Box::pin(scheduler_is_renamed(ctx))),
        ),
        scenario(
            "config/nodegroup-config-status",
            &[],
            body(|ctx| Box::pin(groups_are_reported(ctx))),
        ),
        scenario(
            "config/related-objects",
            &[],
            body(|ctx| Box::pin(status::related_objects_are_reported(ctx))),
        ),
        scenario(
            "config/poolname-and-selector",
            &[],
            body(|ctx| Box::pin(refused::two_specifiers_are_refused(ctx))),
        ),
        scenario(
            "config/poolname-status",
            &[],
            body(|ctx| Box::pin(status::changed_groups_are_reported(ctx))),
        ),
        scenario(
            "config/poolname-duplicate",
            &[],
            body(|ctx| Box::pin(refused::duplicates_are_refused(ctx))),
        ),
        scenario(
            "config/poolname-empty",
            &[],
            body(|ctx| Box::pin(refused::empty_names_are_refused(ctx))),
        ),
        scenario(
            "config/no-mcp-selector-hs",
            &[],
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
