//! Taints of nodes and tolerations of exporters (scenarios-serial.md 9.5).
//!
//! The original expects a single node group and is about all workers. Here it is the first group and the nodes of its pool.

mod exporters;

use std::collections::BTreeSet;

use api::conditions;
use api::operator::v1::NumaResourcesOperator;
use exporters::Exporters;
use k8s_openapi::api::core::v1::{Pod, Toleration};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams};
use serde_json::json;

use crate::context::Context;
use crate::needs::Need;
use crate::scenario::{Scenario, body};
use crate::scenarios::registry::scenario;
use crate::step::StepError;

const NEEDS: &[Need] = &[Need::nodes(1)];
const KEY: &str = "testkey";
const NO_SCHEDULE: &str = "NoSchedule";
const NO_EXECUTE: &str = "NoExecute";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario(
            "rtetols/invalid-operator",
            NEEDS,
            body(|ctx| {
                let wrong = toleration("invalid", "foo", Some("abc"), NO_SCHEDULE);
                Box::pin(invalid_is_reported(ctx, wrong))
            }),
        ),
        scenario(
            "rtetols/invalid-effect",
            NEEDS,
            body(|ctx| {
                let wrong = toleration("invalid", "Equal", Some("abc"), "__foobar__");
                Box::pin(invalid_is_reported(ctx, wrong))
            }),
        ),
        scenario(
            "rtetols/change-in-place",
            NEEDS,
            body(|ctx| Box::pin(changed_in_place(ctx))),
        ),
        scenario(
            "rtetols/untolerate-tainted",
            NEEDS,
            body(|ctx| Box::pin(untolerated(ctx))),
        ),
        scenario(
            "rtetols/evict-on-cr-change",
            NEEDS,
            body(|ctx| Box::pin(evicted(ctx, ChangedSide::Toleration))),
        ),
        scenario(
            "rtetols/evict-on-taint-change",
            NEEDS,
            body(|ctx| Box::pin(evicted(ctx, ChangedSide::Taint))),
        ),
        scenario(
            "rtetols/partial-taints",
            NEEDS,
            body(|ctx| Box::pin(partial_taints(ctx))),
        ),
        scenario(
            "rtetols/no-restart-noschedule",
            NEEDS,
            body(|ctx| Box::pin(not_started_again(ctx))),
        ),
        scenario(
            "rtetols/noexecute-evict-restore",
            NEEDS,
            body(|ctx| Box::pin(evicted_and_restored(ctx))),
        ),
        scenario(
            "rtetols/inplace-while-running",
            NEEDS,
            body(|ctx| Box::pin(tolerated_later(ctx))),
        ),
        scenario(
            "rtetols/on-cr-creation",
            NEEDS,
            body(|ctx| Box::pin(tolerated_from_the_start(ctx))),
        ),
    ]
}

pub(super) fn toleration(
    key: &str,
    operator: &str,
    value: Option<&str>,
    effect: &str,
) -> Toleration {
    Toleration {
        key: Some(key.to_owned()),
        operator: Some(operator.to_owned()),
        value: value.map(str::to_owned),
        effect: Some(effect.to_owned()),
        ..Toleration::default()
    }
}

/// Returns a toleration of the key with effect `NoSchedule` and any value.
fn of_the_key() -> Toleration {
    toleration(KEY, "Exists", None, NO_SCHEDULE)
}

/// Returns the same resource with other tolerations for the first group.
fn tolerating(before: &NumaResourcesOperator, tolerations: &[Toleration]) -> NumaResourcesOperator {
    let mut object = before.clone();
    if let Some(group) = object.spec.node_groups.first_mut() {
        group.config.get_or_insert_default().tolerations = tolerations.to_vec();
    }
    object
}

/// Sets the tolerations of the first group; the old ones are restored at the end.
async fn tolerate(ctx: &Context, tolerations: &[Toleration]) -> Result<(), StepError> {
    let object = tolerating(&ctx.operator_resource().await?, tolerations);
    ctx.set_node_groups(&object.spec.node_groups).await
}

async fn invalid_is_reported(ctx: &Context, wrong: Toleration) -> Result<(), StepError> {
    let exporters = Exporters::find(ctx).await?;
    ctx.step("the resource is Degraded: Unsupported value", async {
        tolerate(ctx, &[wrong]).await?;
        ctx.operator_is(
            conditions::DEGRADED,
            conditions::REASON_INTERNAL_ERROR,
            "Unsupported value",
        )
        .await
    })
    .await?;
    ctx.step("without it the exporters are ready", async {
        tolerate(ctx, &[]).await?;
        exporters.ready_on(exporters.nodes.len()).await
    })
    .await
}

async fn changed_in_place(ctx: &Context) -> Result<(), StepError> {
    let exporters = Exporters::find(ctx).await?;
    let all = exporters.nodes.len();
    let before = ctx.operator_resource().await?;
    let first = ctx
        .step(
            "exporters tolerate what the resource says, and nothing else",
            async {
                let group = before.spec.node_groups.first();
                let config = group.and_then(|group| group.config.clone());
                // the manifest of the exporters has none (operator.md 6.2)
                let wanted = config.unwrap_or_default().tolerations;
                let seen = exporters.tolerations().await?;
                if seen == wanted {
                    return Ok(seen);
                }
                let [wanted, seen] = [wanted, seen].map(|list| json!(list));
                Err(StepError::mismatch(
                    "tolerations of the daemon set",
                    wanted,
                    seen,
                ))
            },
        )
        .await?;
    let uids = |pods: &[Pod]| pods.iter().map(Pod::uid).collect::<BTreeSet<_>>();
    let old = uids(&exporters.pods().await?);
    let wanted = vec![toleration("sriov", "Equal", Some("true"), NO_SCHEDULE)];
    let recreated = ctx
        .step("all exporters start again with another toleration", async {
            tolerate(ctx, &wanted).await?;
            exporters.tolerate(&wanted).await?;
            exporters.ready_on(all).await?;
            Ok(uids(&exporters.pods().await?))
        })
        .await?;
    if !old.is_disjoint(&recreated) {
        return Err(StepError::fail("an exporter was not started again"));
    }
    ctx.step("and once more when it is taken back", async {
        let group = before.spec.node_groups.first();
        let config = group.and_then(|group| group.config.clone());
        tolerate(ctx, &config.unwrap_or_default().tolerations).await?;
        exporters.tolerate(&first).await?;
        exporters.ready_on(all).await?;
        if !recreated.is_disjoint(&uids(&exporters.pods().await?)) {
            return Err(StepError::fail("an exporter was not started again"));
        }
        Ok(())
    })
    .await
}

async fn untolerated(ctx: &Context) -> Result<(), StepError> {
    let exporters = Exporters::find(ctx).await?;
    let all = exporters.nodes.len();
    ctx.step("exporters tolerate the taint of a node", async {
        tolerate(ctx, &[of_the_key()]).await?;
        exporters.tolerate(&[of_the_key()]).await?;
        exporters.taint(None, NO_SCHEDULE).await?;
        exporters.ready_on(all).await
    })
    .await?;
    ctx.step(
        "the daemon set is deleted, and comes back on all nodes",
        async {
            let old = exporters.sets().get(&exporters.name).await?;
            exporters
                .sets()
                .delete(&exporters.name, &DeleteParams::default())
                .await?;
            ctx.is_made_anew("there is a new one", &exporters.sets(), &old)
                .await?;
            exporters.ready_on(all).await
        },
    )
    .await?;
    ctx.step("without the toleration it is not wanted there", async {
        tolerate(ctx, &[]).await?;
        exporters.wanted_on(all - 1).await
    })
    .await?;
    restored(&exporters, &[NO_SCHEDULE]).await
}

/// Removes the taints and checks that every node has its exporter again.
async fn restored(exporters: &Exporters<'_>, effects: &[&str]) -> Result<(), StepError> {
    exporters
        .ctx
        .step("without the taint every node has its exporter", async {
            for effect in effects {
                exporters.untaint(effect).await?;
            }
            exporters.ready_on(exporters.nodes.len()).await
        })
        .await
}

/// The side of the match that changes.
#[derive(Clone, Copy)]
enum ChangedSide {
    Toleration,
    Taint,
}

async fn evicted(ctx: &Context, changed: ChangedSide) -> Result<(), StepError> {
    let exporters = Exporters::find(ctx).await?;
    let all = exporters.nodes.len();
    let equal = |value| toleration(KEY, "Equal", Some(value), NO_EXECUTE);
    let pod = ctx
        .step("the exporter tolerates the taint of its node", async {
            tolerate(ctx, &[equal("val1")]).await?;
            exporters.tolerate(&[equal("val1")]).await?;
            exporters.ready_on(all).await?;
            exporters.taint(Some("val1"), NO_EXECUTE).await?;
            exporters.ready_on(all).await?;
            exporters.is_there().await
        })
        .await?;
    ctx.step("it goes when the two do not match any more", async {
        match changed {
            ChangedSide::Toleration => tolerate(ctx, &[equal("val2")]).await?,
            ChangedSide::Taint => exporters.taint(Some("val2"), NO_EXECUTE).await?,
        }
        exporters.wanted_on(all - 1).await?;
        exporters.wait_until_gone(&pod).await
    })
    .await?;
    restored(&exporters, &[NO_EXECUTE]).await
}

async fn partial_taints(ctx: &Context) -> Result<(), StepError> {
    const KEEPS_AWAY: &str = "testkeyNoSched";
    const ENDS: &str = "testkeyNoExec";
    let exporters = Exporters::find(ctx).await?;
    let all = exporters.nodes.len();
    ctx.step("a taint that keeps new pods away moves none", async {
        exporters.taint_by(KEEPS_AWAY, NO_SCHEDULE).await?;
        // as soon as the set wants one fewer, its controller has seen the taint
        exporters.wanted_on(all - 1).await?;
        exporters.are(all).await
    })
    .await?;
    ctx.step("one that ends pods ends the one there", async {
        let pod = exporters.is_there().await?;
        exporters.taint_by(ENDS, NO_EXECUTE).await?;
        exporters.wait_until_gone(&pod).await?;
        exporters.ready_on(all - 1).await?;
        exporters.are(all - 1).await
    })
    .await?;
    ctx.step("without the taints every node has its exporter", async {
        exporters.untaint_by(KEEPS_AWAY, NO_SCHEDULE).await?;
        exporters.untaint_by(ENDS, NO_EXECUTE).await?;
        exporters.ready_on(all).await
    })
    .await
}

async fn not_started_again(ctx: &Context) -> Result<(), StepError> {
    let exporters = Exporters::find(ctx).await?;
    let all = exporters.nodes.len();
    let pod = ctx
        .step("the exporter stays on a node that gets a taint", async {
            exporters.taint(None, NO_SCHEDULE).await?;
            exporters.wanted_on(all - 1).await?;
            exporters.are(all).await?;
            exporters.is_there().await
        })
        .await?;
    ctx.step("once deleted it does not come back", async {
        let pods = Api::<Pod>::namespaced(ctx.client(), &exporters.namespace);
        pods.delete(&pod.name_any(), &DeleteParams::default())
            .await?;
        exporters.wait_until_gone(&pod).await?;
        exporters.ready_on(all - 1).await?;
        exporters.is_not_there().await
    })
    .await?;
    restored(&exporters, &[NO_SCHEDULE]).await
}

async fn evicted_and_restored(ctx: &Context) -> Result<(), StepError> {
    let exporters = Exporters::find(ctx).await?;
    let all = exporters.nodes.len();
    ctx.step("the exporter goes from a node that gets a taint", async {
        let pod = exporters.is_there().await?;
        exporters.taint(None, NO_EXECUTE).await?;
        exporters.wanted_on(all - 1).await?;
        exporters.wait_until_gone(&pod).await
    })
    .await?;
    restored(&exporters, &[NO_EXECUTE]).await?;
    ctx.step("it is back on the node", exporters.is_there())
        .await
        .map(drop)
}

/// Deletes the operator's resource, waits until no exporter is left, and taints a node. Returns the deleted resource.
async fn removed_and_tainted(
    exporters: &Exporters<'_>,
) -> Result<NumaResourcesOperator, StepError> {
    let ctx = exporters.ctx;
    let object = ctx
        .step(
            "the resource and all exporters are deleted",
            ctx.remove_operator_resource(),
        )
        .await?;
    ctx.step("a node is tainted", exporters.taint(None, NO_SCHEDULE))
        .await?;
    Ok(object)
}

/// Creates the resource again, with these tolerations for its first group.
async fn created_with(
    ctx: &Context,
    before: &NumaResourcesOperator,
    tolerations: &[Toleration],
) -> Result<(), StepError> {
    let object = tolerating(before, tolerations);
    ctx.create_operator_resource(&object).await
}

/// Restores the tolerations of the old resource and removes the taint.
async fn restore_tolerations(
    exporters: &Exporters<'_>,
    before: &NumaResourcesOperator,
) -> Result<(), StepError> {
    let group = before.spec.node_groups.first();
    let config = group.and_then(|group| group.config.clone());
    tolerate(exporters.ctx, &config.unwrap_or_default().tolerations).await?;
    restored(exporters, &[NO_SCHEDULE]).await
}

async fn tolerated_later(ctx: &Context) -> Result<(), StepError> {
    let exporters = Exporters::find(ctx).await?;
    let all = exporters.nodes.len();
    let before = removed_and_tainted(&exporters).await?;
    ctx.step("exporters without toleration leave the node out", async {
        created_with(ctx, &before, &[]).await?;
        exporters.ready_on(all - 1).await?;
        exporters.is_not_there().await
    })
    .await?;
    ctx.step("with a toleration they run everywhere", async {
        tolerate(ctx, &[of_the_key()]).await?;
        exporters.ready_on(all).await?;
        exporters.is_there().await
    })
    .await?;
    restore_tolerations(&exporters, &before).await
}

async fn tolerated_from_the_start(ctx: &Context) -> Result<(), StepError> {
    let exporters = Exporters::find(ctx).await?;
    let all = exporters.nodes.len();
    let before = removed_and_tainted(&exporters).await?;
    ctx.step("exporters with a toleration run everywhere", async {
        created_with(ctx, &before, &[of_the_key()]).await?;
        exporters.ready_on(all).await?;
        exporters.is_there().await
    })
    .await?;
    restore_tolerations(&exporters, &before).await
}
