//! What exporters report about themselves: conditions and logs.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, LogParams};

use super::NEEDS;
use crate::context::Context;
use crate::recorder::PollResult;
use crate::scenario::{Scenario, body};
use crate::scenarios::registry::scenario;
use crate::step::StepError;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario(
            "rte/cond-true",
            NEEDS,
            body(|ctx| Box::pin(conditions_hold(ctx))),
        ),
        scenario(
            "rte/refresh-log",
            NEEDS,
            body(|ctx| Box::pin(refresh_is_logged(ctx))),
        ),
    ]
}

async fn conditions_hold(ctx: &Context) -> Result<(), StepError> {
    for kind in [
        api::conditions::POD_RESOURCES_FETCHED,
        api::conditions::NODE_TOPOLOGY_UPDATED,
    ] {
        ctx.step(
            format!("{kind} is True on every exporter"),
            condition_on_every_exporter(ctx, kind, ["True", "", ""]),
        )
        .await?;
    }
    Ok(())
}

/// Waits until a condition has this status, reason and message on every exporter's pod.
pub(super) async fn condition_on_every_exporter(
    ctx: &Context,
    kind: &str,
    wanted: [&str; 3],
) -> Result<(), StepError> {
    let what = format!("{kind} is {} on every exporter", wanted[0]);
    ctx.until(&what, ctx.deadlines().settled, async || {
        for pod in ctx.exporters().await? {
            let status = pod.status.as_ref();
            let conditions = status.and_then(|status| status.conditions.as_ref());
            let mut conditions = conditions.into_iter().flatten();
            let seen = conditions
                .find(|condition| condition.type_ == kind)
                .map(|condition| {
                    let text = |text: &Option<String>| text.clone().unwrap_or_default();
                    [
                        condition.status.clone(),
                        text(&condition.reason),
                        text(&condition.message),
                    ]
                });
            if seen.as_ref().is_none_or(|seen| *seen != wanted) {
                return Ok(PollResult::NotYet(format!(
                    "on {} it is {seen:?}",
                    pod.name_any()
                )));
            }
        }
        Ok(PollResult::Ready(()))
    })
    .await
}

async fn refresh_is_logged(ctx: &Context) -> Result<(), StepError> {
    ctx.step(
        "every exporter logs that it follows the node",
        ctx.until("the logs say so", ctx.deadlines().settled, async || {
            for pod in ctx.exporters().await? {
                let container = LogParams {
                    container: Some("resource-topology-exporter".to_owned()),
                    ..LogParams::default()
                };
                let name = pod.name_any();
                let pods: Api<Pod> =
                    Api::namespaced(ctx.client(), &pod.namespace().unwrap_or_default());
                let log = pods.logs(&name, &container).await?;
                let is_logged = ["tracking node resources", "update node resources"]
                    .iter()
                    .any(|text| log.contains(text));
                if !is_logged {
                    return Ok(PollResult::NotYet(format!("{name} does not")));
                }
            }
            Ok(PollResult::Ready(()))
        }),
    )
    .await
}
