//! The definition of the object is withdrawn, and given back. The original expects that exporters never recover from that; these do.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject};

use super::reported::condition_on_every_exporter;
use super::{one_node, scenario};
use crate::context::{Context, chain};
use crate::ledger::{ObjectRef, Undo};
use crate::recorder::Look;
use crate::scenario::{Scenario, Stop, body};

const DEFINITION: &str = "noderesourcetopologies.topology.node.k8s.io";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![scenario(
        "rte/cond-crd",
        "[RTE][Monitoring] conditions",
        "[Disruptive][EventChain] it should have the condition of a failed write when the definition is gone, and recover",
        one_node(),
        body(|ctx| Box::pin(definition_comes_and_goes(ctx))),
    )]
}

async fn definition_comes_and_goes(ctx: &Context) -> Result<(), Stop> {
    let definitions: Api<CustomResourceDefinition> = Api::all(ctx.client());
    let definition = definitions.get(DEFINITION).await?;
    let reference = ObjectRef::of(&definition);
    let mut again: DynamicObject = serde_json::to_value(&definition)
        .and_then(serde_json::from_value)
        .map_err(|error| Stop::fail(chain(&error)))?;
    again.metadata.resource_version = None;
    again.metadata.uid = None;
    again.metadata.managed_fields = None;
    again.metadata.creation_timestamp = None;
    if let Some(fields) = again.data.as_object_mut() {
        fields.remove("status");
    }
    let restore = Undo::Create {
        object: reference.clone(),
        content: Box::new(again),
    };
    ctx.recorder
        .plan(&format!("delete {reference}"), restore.clone());
    let updated = api::conditions::NODE_TOPOLOGY_UPDATED;
    ctx.step("without the definition no write works", async {
        definitions
            .delete(DEFINITION, &DeleteParams::default())
            .await?;
        condition_on_every_exporter(ctx, updated, "False").await
    })
    .await?;
    ctx.step("with it all do", async {
        restore
            .run(&ctx.client())
            .await
            .map_err(|error| Stop::fail(chain(&error)))?;
        condition_on_every_exporter(ctx, updated, "True").await?;
        let nodes: Vec<String> = ctx
            .facts()
            .nodes
            .iter()
            .map(|node| node.node.clone())
            .collect();
        ctx.until(
            "every node has its NRT",
            ctx.deadlines().settled,
            async || {
                let there = ctx.topologies().await?;
                let missing = nodes
                    .iter()
                    .find(|name| there.iter().all(|node| node.node != **name));
                Ok(match missing {
                    None => Look::Ready(()),
                    Some(name) => Look::NotYet(format!("{name} has none")),
                })
            },
        )
        .await?;
        ctx.recorder.saw(definition.name_any());
        Ok(())
    })
    .await
}
