//! Node groups of the control plane and of workers, separate and overlapping, on `OpenShift` clusters whose control plane runs pods.

use api::nrt::v1alpha2::NodeResourceTopology;
use api::{labels, names};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};

use super::pools::{exporters_are, machine_count, machines_are, move_node};
use super::{ON_OPENSHIFT, pool};
use crate::context::Context;
use crate::context::checks::node_of;
use crate::ledger::{ObjectRef, Undo};
use crate::recorder::PollResult;
use crate::scenario::{Scenario, body};
use crate::scenarios::registry::scenario;
use crate::scenarios::steps;
use crate::step::StepError;

/// Pool of the control plane.
const MASTER: &str = "master";
/// Pool of all workers.
const WORKER: &str = "worker";
/// Pool that a worker moves to.
const OWN: &str = "worker-cnf";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario(
            "config/non-overlapping-groups",
            ON_OPENSHIFT,
            body(|ctx| Box::pin(groups_stand_beside_each_other(ctx))),
        ),
        scenario(
            "config/overlapping-groups",
            ON_OPENSHIFT,
            body(|ctx| Box::pin(second_exporter_of_a_node_waits(ctx))),
        ),
    ]
}

/// Returns the nodes of the control plane and the other workers, if the control plane accepts pods.
async fn nodes(ctx: &Context) -> Result<[Vec<Node>; 2], StepError> {
    ctx.step("the control plane takes pods", async {
        let nodes = Api::<Node>::all(ctx.client());
        let all = nodes.list(&ListParams::default()).await?.items;
        let (masters, others): (Vec<Node>, Vec<Node>) = all
            .into_iter()
            .partition(|node| node.labels().contains_key(labels::MASTER));
        let taints = masters
            .iter()
            .filter_map(|node| node.spec.as_ref()?.taints.as_ref());
        let is_open = taints.flatten().all(|taint| taint.effect != "NoSchedule")
            && masters
                .iter()
                .all(|node| node.labels().contains_key(labels::WORKER));
        if masters.is_empty() || !is_open {
            return Err(StepError::Skip(
                "its nodes are no workers, or are tainted".to_owned(),
            ));
        }
        Ok([masters, others])
    })
    .await
}

/// Records that these nodes get NRTs, before exporters run there. Returns those of nodes that have none yet: nobody else deletes them.
async fn plan_nrts(ctx: &Context, nodes: &[Node]) -> Result<Vec<ObjectRef>, StepError> {
    let there = ctx.topologies().await?;
    let names = nodes.iter().map(kube::ResourceExt::name_any);
    let new = names.filter(|name| there.iter().all(|one| one.node != *name));
    let new: Vec<ObjectRef> = new
        .map(|name| ObjectRef::named::<NodeResourceTopology>(None, &name))
        .collect();
    for nrt in &new {
        ctx.recorder.plan_creation(nrt)?;
    }
    Ok(new)
}

/// Deletes the new NRTs, once no exporter is left that would publish them again.
async fn nrts_are_deleted(ctx: &Context, new: &[ObjectRef]) -> Result<(), StepError> {
    let limit = ctx.deadlines().gone;
    ctx.until("no exporter is left on their nodes", limit, async || {
        let exporters = ctx.exporters().await?;
        let is_there = |pod: &&Pod| new.iter().any(|nrt| node_of(pod) == Some(&nrt.name));
        Ok(match exporters.iter().find(is_there) {
            None => PollResult::Ready(()),
            Some(pod) => PollResult::NotYet(format!("pod {} is there", pod.name_any())),
        })
    })
    .await?;
    for object in new.iter().cloned() {
        ctx.undo(&Undo::Delete { object }).await?;
    }
    Ok(())
}

async fn groups_stand_beside_each_other(ctx: &Context) -> Result<(), StepError> {
    let [masters, workers] = nodes(ctx).await?;
    let Some(worker) = workers.first() else {
        return Err(StepError::Skip(
            "there is no worker beside the control plane".to_owned(),
        ));
    };
    let name = worker.name_any();
    // a machine in two custom pools is an error
    let mut roles = worker
        .labels()
        .keys()
        .filter_map(|label| label.strip_prefix(labels::NODE_ROLE_PREFIX));
    let home = roles
        .find(|role| *role != WORKER)
        .unwrap_or(WORKER)
        .to_owned();
    let machines = machine_count(ctx, &home).await?;
    steps::empty_pool(ctx, OWN).await?;
    ctx.step(format!("{name} moves to a pool of its own"), async {
        move_node(ctx, &name, &home, OWN).await?;
        machines_are(ctx, OWN, 1).await
    })
    .await?;
    let before = ctx.operator_resource().await?.spec.node_groups;
    let new = plan_nrts(ctx, &masters).await?;
    ctx.step("both groups have their exporters", async {
        ctx.set_node_groups(&[pool(MASTER), pool(OWN)]).await?;
        ctx.operator_available().await?;
        let count = i32::try_from(masters.len()).unwrap_or(i32::MAX);
        exporters_are(ctx, MASTER, count).await?;
        exporters_are(ctx, OWN, 1).await
    })
    .await?;
    let nodes = masters.iter().chain([worker]);
    let nodes: Vec<String> = nodes.map(kube::ResourceExt::name_any).collect();
    let there = ctx.topologies_are_there(&nodes);
    ctx.step("each of their nodes has an NRT", there).await?;
    ctx.step("all is as before again", async {
        ctx.set_node_groups(&before).await?;
        move_node(ctx, &name, OWN, &home).await?;
        machines_are(ctx, &home, machines).await?;
        ctx.operator_available().await?;
        nrts_are_deleted(ctx, &new).await
    })
    .await
}

async fn second_exporter_of_a_node_waits(ctx: &Context) -> Result<(), StepError> {
    let [masters, workers] = nodes(ctx).await?;
    let before = ctx.operator_resource().await?.spec.node_groups;
    let new = plan_nrts(ctx, &masters).await?;
    let all = masters.len() + workers.len();
    ctx.step(
        "each node has one exporter, though two groups have some of them",
        async {
            ctx.set_node_groups(&[pool(MASTER), pool(WORKER)]).await?;
            let sets = Api::<DaemonSet>::namespaced(ctx.client(), names::NAMESPACE);
            let limit = ctx.deadlines().installed;
            ctx.until("those beyond one a node wait", limit, async || {
                let (mut desired, mut ready) = (0, 0);
                for group in [MASTER, WORKER] {
                    let name = names::rte_daemon_set(names::OPERATOR_CR, group);
                    let Some(set) = sets.get_opt(&name).await? else {
                        return Ok(PollResult::NotYet(format!("DaemonSet {name} is missing")));
                    };
                    let generation = set.metadata.generation;
                    let status = set.status.unwrap_or_default();
                    if status.observed_generation != generation {
                        return Ok(PollResult::NotYet(format!("DaemonSet {name} is new")));
                    }
                    desired += status.desired_number_scheduled;
                    ready += status.number_ready;
                }
                let wanted = [all + masters.len(), all].map(i32::try_from);
                Ok(if wanted == [Ok(desired), Ok(ready)] {
                    PollResult::Ready(())
                } else {
                    PollResult::NotYet(format!("{ready} of {desired} are ready on {all} nodes"))
                })
            })
            .await
        },
    )
    .await?;
    ctx.step("all is as before again", async {
        ctx.set_node_groups(&before).await?;
        ctx.operator_available().await?;
        nrts_are_deleted(ctx, &new).await
    })
    .await
}
