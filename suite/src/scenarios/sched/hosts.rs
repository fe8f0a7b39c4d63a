//! A replica of the scheduler that loses its node (scenarios-other.md 4.4: `sched-host-down`).

use api::names;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams};

use super::replicas::{replicas_are, several_replicas};
use crate::context::Context;
use crate::context::checks::{describe, node_of, phase};
use crate::recorder::PollResult;
use crate::scenario::{Scenario, body};
use crate::scenarios::registry::scenario;
use crate::scenarios::steps;
use crate::step::StepError;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![scenario(
        "sched/host-down",
        &[],
        body(|ctx| Box::pin(replica_waits_for_its_own_node(ctx))),
    )]
}

async fn replica_waits_for_its_own_node(ctx: &Context) -> Result<(), StepError> {
    let several = several_replicas(ctx).await?;
    let count = several.count;
    let before = ctx.scheduler_pods().await?;
    let Some((lost, others)) = before.split_first() else {
        return Err(StepError::fail("the scheduler has no pod"));
    };
    let taken: Vec<&str> = others.iter().filter_map(node_of).collect();
    let nodes = ctx
        .step("no node is left but those of other replicas", async {
            let nodes = Api::<Node>::all(ctx.client());
            let all = nodes.list(&ListParams::default()).await?.items;
            let names = all.iter().map(kube::ResourceExt::name_any);
            let rest: Vec<String> = names
                .filter(|name| !taken.contains(&name.as_str()))
                .collect();
            for node in &rest {
                ctx.cordon_node(node).await?;
            }
            Ok(rest)
        })
        .await?;
    let refusal = format!(
        "{} node(s) didn't match pod topology spread constraints",
        count - 1
    );
    ctx.step(
        format!("the lost replica's successor waits: {refusal}"),
        async {
            Api::<Pod>::namespaced(ctx.client(), names::NAMESPACE)
                .delete(&lost.name_any(), &DeleteParams::default())
                .await?;
            let limit = ctx.deadlines().rejected;
            let waits = async || {
                ctx.until(
                    "the replacement pod is reported unschedulable",
                    limit,
                    async || {
                        let now = ctx.scheduler_pods().await?;
                        let is_new = |pod: &&Pod| before.iter().all(|old| old.uid() != pod.uid());
                        let Some(pod) = now.iter().find(is_new) else {
                            return Ok(PollResult::NotYet("there is none".to_owned()));
                        };
                        Ok(if waits_because(pod, &refusal) {
                            PollResult::Ready(pod.uid())
                        } else {
                            PollResult::NotYet(describe(pod))
                        })
                    },
                )
                .await
            };
            let first = waits().await?;
            // a scheduler has placed a pod since, and the successor still waits
            steps::default_scheduler_places_a_pod(ctx).await?;
            let again = waits().await?;
            if first == again {
                return Ok(());
            }
            Err(StepError::mismatch(
                "uid of the pod that waits",
                first.unwrap_or_default(),
                again.unwrap_or_default(),
            ))
        },
    )
    .await?;
    ctx.step("it runs as soon as a node is free", async {
        for node in &nodes {
            ctx.uncordon_node(node).await?;
        }
        replicas_are(ctx, count).await
    })
    .await?;
    several.restore(ctx).await
}

/// Returns whether a pod is pending with a single condition, which says that it could not be placed, for this reason among others.
fn waits_because(pod: &Pod, refusal: &str) -> bool {
    let conditions = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let conditions: Vec<_> = conditions.collect();
    let [only] = conditions.as_slice() else {
        return false;
    };
    phase(pod) == "Pending"
        && only.type_ == "PodScheduled"
        && only.status == "False"
        && only.reason.as_deref() == Some("Unschedulable")
        && only
            .message
            .as_ref()
            .is_some_and(|message| message.contains(refusal))
}
