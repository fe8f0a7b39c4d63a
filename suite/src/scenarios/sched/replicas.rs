//! The number of the scheduler's replicas, and the nodes that they run on.

use api::names;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};

use super::deployments;
use crate::context::Context;
use crate::context::checks::node_of;
use crate::recorder::PollResult;
use crate::scenario::{Scenario, body};
use crate::scenarios::registry::scenario;
use crate::step::StepError;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario(
            "sched/spread-nodes",
            &[],
            body(|ctx| Box::pin(replicas_are_spread(ctx))),
        ),
        scenario(
            "sched/replicas-0",
            &[],
            body(|ctx| Box::pin(no_replica_is_left(ctx))),
        ),
        scenario(
            "sched/replicas-same",
            &[],
            body(|ctx| Box::pin(same_replicas_change_nothing(ctx))),
        ),
        scenario(
            "sched/replicas-1",
            &[],
            body(|ctx| Box::pin(one_replica_is_left(ctx))),
        ),
    ]
}

/// Returns the number of replicas that a deployment asks for.
pub(super) fn replicas(deployment: &Deployment) -> i32 {
    let spec = deployment.spec.as_ref();
    spec.and_then(|spec| spec.replicas).unwrap_or(1)
}

/// Waits until the scheduler has exactly this many pods, all of them ready.
pub(super) async fn replicas_are(ctx: &Context, count: i32) -> Result<(), StepError> {
    let limit = ctx.deadlines().installed;
    ctx.until(
        &format!("the scheduler has {count} pods"),
        limit,
        async || {
            let deployment = deployments(ctx).get(names::SCHEDULER).await?;
            let status = deployment.status.unwrap_or_default();
            let pods = ctx.scheduler_pods().await?.len();
            let seen = (
                i32::try_from(pods).unwrap_or(i32::MAX),
                status.ready_replicas.unwrap_or(0),
                status.updated_replicas.unwrap_or(0),
            );
            Ok(if seen == (count, count, count) {
                PollResult::Ready(())
            } else {
                let (pods, ready, updated) = seen;
                PollResult::NotYet(format!("{pods} pods, {ready} ready, {updated} updated"))
            })
        },
    )
    .await
}

async fn replicas_are_spread(ctx: &Context) -> Result<(), StepError> {
    // a single replica is on a node of its own in any case
    let several = several_replicas(ctx).await?;
    let deployment = deployments(ctx).get(names::SCHEDULER).await?;
    ctx.step("replicas must be on different nodes", async {
        let spec = deployment.spec.as_ref();
        let (expected, seen) = spec.map(spread).unwrap_or_default();
        if expected == seen {
            return Ok(());
        }
        Err(StepError::mismatch(
            "topology spread constraints",
            expected,
            seen,
        ))
    })
    .await?;
    ctx.step("they are", async {
        let pods = ctx.scheduler_pods().await?;
        let mut nodes: Vec<_> = pods.iter().filter_map(node_of).collect();
        nodes.sort_unstable();
        nodes.dedup();
        if nodes.len() == pods.len() {
            ctx.recorder.saw(nodes.join(", "));
            return Ok(());
        }
        Err(StepError::mismatch(
            "nodes with a replica",
            pods.len(),
            nodes.len(),
        ))
    })
    .await?;
    several.restore(ctx).await
}

/// Returns the topology spread constraints that a deployment should have, and those that it has.
fn spread(spec: &DeploymentSpec) -> (Value, Value) {
    let template = &spec.template;
    let pod_labels = template
        .metadata
        .as_ref()
        .and_then(|meta| meta.labels.as_ref());
    let expected = json!([{
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "matchLabelKeys": ["pod-template-hash"],
        "labelSelector": {"matchLabels": pod_labels},
    }]);
    let pod = template.spec.as_ref();
    let seen = pod.and_then(|pod| pod.topology_spread_constraints.as_ref());
    (expected, json!(seen))
}

async fn no_replica_is_left(ctx: &Context) -> Result<(), StepError> {
    let before = ctx.scheduler_resource().await?.spec.replicas;
    let count = replicas(&deployments(ctx).get(names::SCHEDULER).await?);
    ctx.step("no replica is requested, and none is left", async {
        ctx.set_scheduler_field("replicas", json!(0)).await?;
        replicas_are(ctx, 0).await
    })
    .await?;
    ctx.step("as many as before come back", async {
        ctx.set_scheduler_field("replicas", json!(before)).await?;
        replicas_are(ctx, count).await
    })
    .await
}

/// Runs at least two replicas, each on its own node: as many as there are, but no fewer than two. The operator allows no more replicas than
/// nodes of the control plane, of a hosted cluster than workers (operator.md 5.5). So other nodes join these for the time of the scenario if they
/// are too few.
pub(super) async fn several_replicas(ctx: &Context) -> Result<Several, StepError> {
    let asked_for = ctx.scheduler_resource().await?.spec.replicas;
    let before = replicas(&deployments(ctx).get(names::SCHEDULER).await?);
    let count = before.max(2);
    let label = ctx.facts().environment.platform.label_of_schedulers();
    ctx.step(format!("{count} nodes have the label {label}"), async {
        let nodes = Api::<Node>::all(ctx.client());
        let all = nodes.list(&ListParams::default()).await?.items;
        let is_one = |node: &&Node| node.labels().contains_key(label);
        let missing = usize::try_from(count)
            .unwrap_or(0)
            .saturating_sub(all.iter().filter(is_one).count());
        for other in all.iter().filter(|node| !is_one(node)).take(missing) {
            ctx.label_node(&other.name_any(), label, "").await?;
        }
        Ok(())
    })
    .await?;
    ctx.step(format!("the scheduler has {count} replicas"), async {
        ctx.set_scheduler_field("replicas", json!(count)).await?;
        replicas_are(ctx, count).await
    })
    .await?;
    Ok(Several {
        count,
        before,
        asked_for,
    })
}

/// Several replicas of the scheduler, and the numbers before.
pub(super) struct Several {
    pub(super) count: i32,
    before: i32,
    asked_for: Option<i32>,
}

impl Several {
    /// Waits until there are as many as before, because the next scenario counts them.
    pub(super) async fn restore(&self, ctx: &Context) -> Result<(), StepError> {
        ctx.step("as many replicas as before are left", async {
            ctx.set_scheduler_field("replicas", json!(self.asked_for))
                .await?;
            replicas_are(ctx, self.before).await
        })
        .await
    }
}

async fn one_replica_is_left(ctx: &Context) -> Result<(), StepError> {
    let several = several_replicas(ctx).await?;
    for wanted in [1, several.count] {
        ctx.step(format!("{wanted} requested, {wanted} running"), async {
            ctx.set_scheduler_field("replicas", json!(wanted)).await?;
            replicas_are(ctx, wanted).await
        })
        .await?;
    }
    several.restore(ctx).await
}

async fn same_replicas_change_nothing(ctx: &Context) -> Result<(), StepError> {
    let given = ctx.scheduler_resource().await?.spec.replicas;
    let before = deployments(ctx).get(names::SCHEDULER).await?;
    let other = match given {
        Some(_) => None,
        None => Some(replicas(&before)),
    };
    for wanted in [other, given] {
        ctx.step(
            format!("replicas is {wanted:?}, and the Deployment as before"),
            async {
                ctx.set_scheduler_field("replicas", json!(wanted)).await?;
                let now = deployments(ctx).get(names::SCHEDULER).await?;
                let identity =
                    |one: &Deployment| format!("{:?} {:?}", one.uid(), one.metadata.generation);
                if identity(&now) == identity(&before) {
                    return Ok(());
                }
                let what = "uid and generation of the Deployment";
                Err(StepError::mismatch(what, identity(&before), identity(&now)))
            },
        )
        .await?;
    }
    Ok(())
}
