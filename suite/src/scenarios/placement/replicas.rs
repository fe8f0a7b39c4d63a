//! Many replicas at once: the scheduler under test places them as fast as the default scheduler does.

use std::time::Duration;

use k8s_openapi::api::apps::v1::ReplicaSet;
use tokio::time::Instant;

use super::PreparedNodes;
use crate::context::Context;
use crate::context::checks::node_of;
use crate::observed::{NodeTopology, Scope};
use crate::recorder::PollResult;
use crate::resources::{CPU, Resources};
use crate::scenarios::steps;
use crate::step::StepError;
use crate::workload::{PodPlan, ResourceRequest};

/// Largest number of replicas.
const MOST: i64 = 10;
/// CPUs of a replica.
const CPUS: i64 = 4;
/// What a zone must have for a comparison of five replicas.
pub(super) const ROOM: &str = "20c 3000Mi";
/// How much longer it may take (scenarios-serial.md 8.2).
const MARGIN: Duration = Duration::from_secs(2);
/// How often the two are compared: a busy machine may disturb one comparison, and a slow scheduler loses all.
const ROUNDS: usize = 3;
const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// Compares the times that the two schedulers need.
pub(super) async fn take_as_long_as_with_the_default_scheduler(
    ctx: &Context,
) -> Result<(), StepError> {
    let prepared = PreparedNodes::new(ctx).await?;
    let count = replicas(&prepared.before);
    let containers =
        ["2c 200Mi", "2c 100Mi"].map(|list| ResourceRequest::Limits(Resources::literal(list)));
    let theirs = PodPlan::new("testrs", DEFAULT_SCHEDULER, containers.clone())
        .on_nodes_with(api::labels::HOSTNAME, &prepared.before.node);
    let ours = prepared.arena.plan(ctx, "testrs", containers);
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let reference = placed(ctx, &prepared, &theirs, count, DEFAULT_SCHEDULER).await?;
        let measured = placed(ctx, &prepared, &ours, count, ctx.scheduler()).await?;
        times.push(format!(
            "{} ms, with the default scheduler {} ms",
            measured.as_millis(),
            reference.as_millis()
        ));
        if measured < reference + MARGIN {
            return ctx
                .step("the scheduler under test takes about as long", async {
                    ctx.recorder.saw(times.join("; "));
                    Ok(())
                })
                .await;
        }
    }
    Err(StepError::mismatch(
        format!("placing {count} replicas takes longer, {ROUNDS} times"),
        format!(
            "at most {} ms more than with the default scheduler",
            MARGIN.as_millis()
        ),
        times.join("; "),
    ))
}

/// Returns the number of replicas: as many as one zone has room for, up to that of the catalogue. Until an NRT accounts for a pod, the scheduler
/// under test charges it in every zone. More replicas would wait for the next NRT, whose period is not what is compared here.
fn replicas(target: &NodeTopology) -> i32 {
    let zones = target
        .zones
        .iter()
        .map(|zone| zone.available().milli(CPU) / 1000);
    let fit = zones.min().unwrap_or_default() / CPUS;
    i32::try_from(fit.min(MOST)).unwrap_or_default()
}

/// Creates the replicas, checks where they are and what the zones account for, and deletes them. Returns the time until all of them had a node.
async fn placed(
    ctx: &Context,
    prepared: &PreparedNodes,
    plan: &PodPlan,
    replicas: i32,
    scheduler: &str,
) -> Result<Duration, StepError> {
    let labels = plan.selector_labels();
    let count = usize::try_from(replicas).unwrap_or_default();
    let (time, pods) = ctx
        .step(format!("{scheduler} places {count} replicas"), async {
            let begun = Instant::now();
            ctx.create::<ReplicaSet>(plan.replica_set(replicas)).await?;
            let limit = ctx.deadlines().running;
            ctx.until("each of them has a node", limit, async || {
                let pods = ctx.pods_with(&labels).await?;
                let placed = pods.iter().filter(|pod| node_of(pod).is_some()).count();
                Ok(if placed == count {
                    PollResult::Ready(())
                } else {
                    PollResult::NotYet(format!("{placed} of {count} have"))
                })
            })
            .await?;
            let time = begun.elapsed();
            let pods = ctx.pods_with(&labels).await?;
            let names: Vec<String> = pods
                .iter()
                .filter_map(|pod| pod.metadata.name.clone())
                .collect();
            let pods = ctx.pods_running(&names).await?;
            ctx.recorder.saw(format!("{} ms", time.as_millis()));
            Ok((time, pods))
        })
        .await?;
    let target = &prepared.before.node;
    ctx.step(
        format!("all of them are on {target}, placed by {scheduler}"),
        async {
            for pod in &pods {
                ctx.on_node(pod, target)?;
                ctx.scheduled_by(scheduler, pod).await?;
            }
            Ok(())
        },
    )
    .await?;
    let all = Resources::sum(&vec![plan.total(); count]);
    ctx.step(
        format!("the zones of the target account for {all}"),
        ctx.accounted(&prepared.before, &all, true, Scope::Container),
    )
    .await?;
    let deletion = async {
        ctx.delete::<ReplicaSet>(plan.name()).await?;
        ctx.pods_created(&labels, 0).await.map(drop)
    };
    let title = "after the deletion the zones are as before";
    steps::zones_are_restored_after(ctx, title, deletion, &prepared.before).await?;
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observed::tests::node;

    #[test]
    fn all_replicas_fit_the_smaller_zone() {
        assert_eq!(replicas(&node("n", &["22c 60Gi", "24c 60Gi"])), 5);
        assert_eq!(replicas(&node("n", &["64c 60Gi", "64c 60Gi"])), 10);
    }
}
