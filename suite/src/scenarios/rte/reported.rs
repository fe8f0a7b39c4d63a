//! What exporters say about themselves: conditions and logs.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ListParams, LogParams};

use super::{one_node, scenario};
use crate::context::Context;
use crate::recorder::Look;
use crate::scenario::{Scenario, Stop, body};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario(
            "rte/cond-true",
            "[RTE][Monitoring] conditions",
            "[release] should have the conditions of a good scan and a good write",
            one_node(),
            body(|ctx| Box::pin(conditions_hold(ctx))),
        ),
        scenario(
            "rte/refresh-log",
            "[RTE][InfraConsuming] Resource topology exporter",
            "[NodeRefresh] it should log the refresh log message",
            one_node(),
            body(|ctx| Box::pin(refresh_is_logged(ctx))),
        ),
    ]
}

/// The exporters' pods.
pub(super) async fn exporters(ctx: &Context) -> Result<Vec<Pod>, Stop> {
    let label = ListParams::default().labels("name=resource-topology");
    let pods = Api::<Pod>::all(ctx.client()).list(&label).await?.items;
    if pods.is_empty() {
        return Err(Stop::fail("no pod has the label name=resource-topology"));
    }
    Ok(pods)
}

async fn conditions_hold(ctx: &Context) -> Result<(), Stop> {
    for kind in [
        api::conditions::POD_RESOURCES_FETCHED,
        api::conditions::NODE_TOPOLOGY_UPDATED,
    ] {
        ctx.step(
            format!("{kind} is True on every exporter"),
            condition_on_every_exporter(ctx, kind),
        )
        .await?;
    }
    Ok(())
}

/// Waits until a condition is True on every exporter's pod.
async fn condition_on_every_exporter(ctx: &Context, kind: &str) -> Result<(), Stop> {
    let what = format!("{kind} is True on every exporter");
    ctx.until(&what, ctx.deadlines().settled, async || {
        let without = exporters(ctx).await?.into_iter().find(|pod| {
            let conditions = pod
                .status
                .as_ref()
                .and_then(|status| status.conditions.as_ref());
            !conditions
                .into_iter()
                .flatten()
                .any(|condition| condition.type_ == kind && condition.status == "True")
        });
        Ok(match without {
            None => Look::Ready(()),
            Some(pod) => Look::NotYet(format!("not on {}", pod.name_any())),
        })
    })
    .await
}

async fn refresh_is_logged(ctx: &Context) -> Result<(), Stop> {
    ctx.step(
        "every exporter says that it follows the node",
        ctx.until("the logs say so", ctx.deadlines().settled, async || {
            for pod in exporters(ctx).await? {
                let container = LogParams {
                    container: Some("resource-topology-exporter".to_owned()),
                    ..LogParams::default()
                };
                let name = pod.name_any();
                let pods: Api<Pod> =
                    Api::namespaced(ctx.client(), &pod.namespace().unwrap_or_default());
                let log = pods.logs(&name, &container).await?;
                let says = ["tracking node resources", "update node resources"]
                    .iter()
                    .any(|text| log.contains(text));
                if !says {
                    return Ok(Look::NotYet(format!("{name} does not")));
                }
            }
            Ok(Look::Ready(()))
        }),
    )
    .await
}
