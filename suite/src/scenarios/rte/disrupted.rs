//! What exporters do when the definition of NRTs is deleted (scenarios-other.md 7: `rte-cond-crd`).
//!
//! The original's suite runs without an operator and expects the condition to be False even when the definition is back: it looks at its
//! own exporter, which waits a period. Here the operator, which would restore the definition at once, is stopped meanwhile, and the
//! condition must be True in the end.

use api::conditions;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

use super::NEEDS;
use super::reported::condition_on_every_exporter;
use crate::context::Context;
use crate::ledger::{ObjectRef, Undo};
use crate::recorder::PollResult;
use crate::resources::Resources;
use crate::scenario::{Scenario, body};
use crate::scenarios::registry::scenario;
use crate::step::StepError;
use crate::workload::{PodPlan, ResourceRequest};

/// Name of the definition of NRTs.
const DEFINITION: &str = "noderesourcetopologies.topology.node.k8s.io";
/// Status, reason and message of the condition when a write failed.
const FAILED: [&str; 3] = [
    "False",
    conditions::REASON_UPDATE_FAILED,
    "failed to update noderesourcetopology object",
];

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![scenario(
        "rte/cond-crd",
        NEEDS,
        body(|ctx| Box::pin(definition_is_missed(ctx))),
    )]
}

async fn definition_is_missed(ctx: &Context) -> Result<(), StepError> {
    let kind = conditions::NODE_TOPOLOGY_UPDATED;
    let operator = operator(ctx).await?;
    ctx.step("the operator is stopped", stop(ctx, &operator))
        .await?;
    let definitions = Api::<CustomResourceDefinition>::all(ctx.client());
    let definition = definitions.get(DEFINITION).await?;
    let undo = ctx.recorder.plan_deletion(&definition)?;
    ctx.step("the definition of NRTs is deleted", async {
        definitions
            .delete(DEFINITION, &DeleteParams::default())
            .await?;
        ctx.until("it is gone", ctx.deadlines().gone, async || {
            Ok(match definitions.get_opt(DEFINITION).await? {
                None => PollResult::Ready(()),
                Some(_) => PollResult::NotYet("it is there".to_owned()),
            })
        })
        .await
    })
    .await?;
    ctx.step(
        format!("{kind} becomes False on every exporter"),
        condition_on_every_exporter(ctx, kind, FAILED),
    )
    .await?;
    ctx.step("the definition is created again", ctx.undo(&undo))
        .await?;
    ctx.step(
        format!("{kind} becomes True on every exporter"),
        condition_on_every_exporter(ctx, kind, ["True", "", ""]),
    )
    .await?;
    ctx.step("every node has its NRT again", every_node_is_there(ctx))
        .await?;
    ctx.step("a pod with an exclusive CPU finds its place", async {
        let resources = ResourceRequest::Limits(Resources::literal("1c 100Mi"));
        let plan = PodPlan::new("testpod", ctx.scheduler(), [resources]);
        ctx.create(plan.pod()).await?;
        ctx.pods_running(&[plan.name().to_owned()]).await
    })
    .await?;
    ctx.step("the operator runs again", start(ctx, &operator))
        .await
}

/// Returns the operator's Deployment.
async fn operator(ctx: &Context) -> Result<Deployment, StepError> {
    let name = ListParams::default().fields(&format!(
        "metadata.name={}",
        api::names::OPERATOR_DEPLOYMENT
    ));
    let all = Api::<Deployment>::all(ctx.client());
    let found = all.list(&name).await?.items.into_iter().next();
    found.ok_or_else(|| {
        StepError::Skip(format!(
            "no Deployment is called {}",
            api::names::OPERATOR_DEPLOYMENT
        ))
    })
}

fn replicas(deployment: &Deployment) -> i32 {
    let spec = deployment.spec.as_ref();
    spec.and_then(|spec| spec.replicas).unwrap_or(1)
}

async fn scale(ctx: &Context, operator: &Deployment, replicas: i32) -> Result<(), StepError> {
    let namespace = operator.namespace().unwrap_or_default();
    let deployments = Api::<Deployment>::namespaced(ctx.client(), &namespace);
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    deployments
        .patch(&operator.name_any(), &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

/// Scales the operator to zero and waits until none of its pods is left.
async fn stop(ctx: &Context, operator: &Deployment) -> Result<(), StepError> {
    let reference = ObjectRef::of(operator);
    ctx.recorder.plan(
        &format!("stop {reference}"),
        Undo::Patch {
            object: reference,
            patch: json!({"spec": {"replicas": replicas(operator)}}),
        },
    )?;
    scale(ctx, operator, 0).await?;
    let selector = operator.spec.as_ref().map(|spec| &spec.selector);
    let labels = selector.and_then(|selector| selector.match_labels.as_ref());
    let labels: Vec<String> = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let own = ListParams::default().labels(&labels.join(","));
    let namespace = operator.namespace().unwrap_or_default();
    let pods = Api::<Pod>::namespaced(ctx.client(), &namespace);
    ctx.until("it has no pods", ctx.deadlines().gone, async || {
        Ok(match pods.list(&own).await?.items.first() {
            None => PollResult::Ready(()),
            Some(pod) => PollResult::NotYet(crate::context::checks::describe(pod)),
        })
    })
    .await
}

/// Scales the operator to its former number of replicas and waits until it is available.
async fn start(ctx: &Context, operator: &Deployment) -> Result<(), StepError> {
    let wanted = replicas(operator);
    scale(ctx, operator, wanted).await?;
    let namespace = operator.namespace().unwrap_or_default();
    let deployments = Api::<Deployment>::namespaced(ctx.client(), &namespace);
    let name = operator.name_any();
    ctx.until("it is available", ctx.deadlines().installed, async || {
        let status = deployments.get(&name).await?.status.unwrap_or_default();
        let available = status.available_replicas.unwrap_or(0);
        Ok(if available == wanted {
            PollResult::Ready(())
        } else {
            PollResult::NotYet(format!("{available} of {wanted}"))
        })
    })
    .await
}

/// Waits until every node of the reference has an NRT and the cluster is settled.
async fn every_node_is_there(ctx: &Context) -> Result<(), StepError> {
    let nodes: Vec<String> = ctx
        .facts()
        .nodes
        .iter()
        .map(|node| node.node.clone())
        .collect();
    ctx.topologies_are_there(&nodes).await?;
    ctx.settle().await.map(drop)
}
