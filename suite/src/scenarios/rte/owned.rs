//! The node as owner of the object. The operator's exporters do not set it (rte.md 9.3), so an exporter of our own sets it once.

use api::nrt::v1alpha2::NodeResourceTopology;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::Api;
use serde_json::json;

use super::endpoint::some_node;
use super::{NEEDS, own};
use crate::context::Context;
use crate::ledger::{ObjectRef, Undo};
use crate::recorder::PollResult;
use crate::scenario::{Scenario, body};
use crate::scenarios::registry::scenario;
use crate::step::StepError;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![scenario(
        "tu/owner",
        NEEDS,
        body(|ctx| Box::pin(node_is_owner(ctx))),
    )]
}

async fn node_is_owner(ctx: &Context) -> Result<(), StepError> {
    let name = some_node(ctx)?;
    let objects = Api::<NodeResourceTopology>::all(ctx.client());
    let object = objects.get(&name).await?;
    if !object.owner_references().is_empty() {
        return Err(StepError::fail(format!(
            "the NRT of {name} has an owner already"
        )));
    }
    let reference = ObjectRef::of(&object);
    ctx.recorder.plan(
        &format!("set the owner of {reference}"),
        Undo::Patch {
            object: reference,
            patch: json!({"metadata": {"ownerReferences": null}}),
        },
    )?;
    ctx.step("an exporter that sets owners publishes once", async {
        let arguments = ["--oneshot", "--add-nrt-owner=true"];
        let pod = own::start(ctx, "owner", &name, &arguments).await?;
        own::in_phase(ctx, &pod, "Succeeded").await
    })
    .await?;
    let uid = Api::<Node>::all(ctx.client())
        .get(&name)
        .await?
        .uid()
        .unwrap_or_default();
    let expected = json!([{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}]);
    ctx.step(
        "the node is the owner, and the other exporter leaves it so",
        async {
            ctx.barrier(&ctx.topology(&name).await?).await?;
            ctx.until(
                "the one owner is the node",
                ctx.deadlines().settled,
                async || {
                    let seen = json!(objects.get(&name).await?.owner_references());
                    Ok(if seen == expected {
                        PollResult::Ready(())
                    } else {
                        PollResult::NotYet(format!("{seen} instead of {expected}"))
                    })
                },
            )
            .await
        },
    )
    .await
}
