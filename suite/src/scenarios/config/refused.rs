//! Node groups that are refused.

use api::conditions;
use api::operator::v1::NodeGroup;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::pool;
use crate::context::Context;
use crate::step::StepError;

pub(super) async fn two_specifiers_are_refused(ctx: &Context) -> Result<(), StepError> {
    let group = NodeGroup {
        machine_config_pool_selector: Some(selector()),
        ..pool("test2")
    };
    one_more_is_refused(ctx, group, "must have only a single specifier set").await
}

pub(super) async fn duplicates_are_refused(ctx: &Context) -> Result<(), StepError> {
    let groups = ctx.operator_resource().await?.spec.node_groups;
    let mut names = groups.iter().filter_map(|group| group.pool_name.as_deref());
    let name = names
        .next()
        .ok_or_else(|| StepError::Skip("no node group has a pool name".to_owned()))?;
    let message = format!("the pool name {name:?} has duplicates");
    one_more_is_refused(ctx, pool(name), &message).await
}

pub(super) async fn empty_names_are_refused(ctx: &Context) -> Result<(), StepError> {
    let before = ctx.operator_resource().await?.spec.node_groups.len();
    let message = format!("pool name for pool #{before} cannot be empty");
    one_more_is_refused(ctx, pool(""), &message).await
}

pub(super) async fn selectors_are_refused_without_pools(ctx: &Context) -> Result<(), StepError> {
    if ctx.facts().is_openshift() {
        let reason = "the cluster has machine config pools, which selectors are for";
        return Err(StepError::Skip(reason.to_owned()));
    }
    let group = NodeGroup {
        machine_config_pool_selector: Some(selector()),
        ..NodeGroup::default()
    };
    one_more_is_refused(ctx, group, "Should specify PoolName only").await
}

/// Returns a selector that matches no machine config pool.
fn selector() -> LabelSelector {
    LabelSelector {
        match_labels: Some([("test2".to_owned(), "test2".to_owned())].into()),
        ..LabelSelector::default()
    }
}

/// Checks that the resource is Degraded, with this in the message, while it has this group in addition, and Available without it. The
/// original requires that it stays Available throughout, which is impossible: the two conditions exclude each other
/// (scenarios-serial.md 12).
async fn one_more_is_refused(
    ctx: &Context,
    group: NodeGroup,
    message: &str,
) -> Result<(), StepError> {
    let before = ctx.operator_resource().await?.spec.node_groups;
    let mut groups = before.clone();
    groups.push(group);
    ctx.step("the resource is Degraded for the group", async {
        ctx.set_node_groups(&groups).await?;
        ctx.operator_is(
            conditions::DEGRADED,
            conditions::REASON_NODE_GROUPS,
            message,
        )
        .await
    })
    .await?;
    ctx.step("it is Available without", async {
        ctx.set_node_groups(&before).await?;
        ctx.operator_available().await
    })
    .await
}
