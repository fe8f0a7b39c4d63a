//! Loads that scenarios of several areas put on nodes: bursts of small pods, and one large pod for each zone.

use std::time::Duration;

use crate::context::Context;
use crate::context::arena::Arena;
use crate::resources::{CPU, Resources};
use crate::scenarios::steps;
use crate::step::StepError;
use crate::workload::{PodPlan, ResourceRequest};

/// CPUs of each pod of a burst.
const CPUS: i64 = 2;
/// Number of resync periods within which all pods of a burst must run.
const PERIODS: u32 = 10;
/// Limit of the catalogue for pods that the cache may keep pending.
const CORRECTED: Duration = Duration::from_mins(3);
/// Memory of each large pod.
pub(super) const MEMORY: &str = "8Gi";

/// Returns the request of a Guaranteed pod of a burst.
pub(super) fn guaranteed() -> ResourceRequest {
    ResourceRequest::Limits(Resources::literal("2c 64Mi"))
}

/// Returns the request of a Burstable pod of a burst.
pub(super) fn burstable() -> ResourceRequest {
    ResourceRequest::Requests(Resources::literal("2c 64Mi"))
}

/// Returns the number of pods: 150 % of one zone on one node; 125 % of one zone on each of all nodes. The divisions are those of the
/// catalogue.
fn count(zone_cpus: i64, nodes: usize, one_node: bool) -> i64 {
    let nodes = i64::try_from(nodes).unwrap_or(1);
    if one_node {
        (3 * zone_cpus / 2) / CPUS
    } else {
        nodes * (10 * zone_cpus / 8) / CPUS
    }
}

/// Creates many small pods at once, which need the room of several zones. All must run within the time in which the cache has to follow.
pub(super) async fn burst(
    ctx: &Context,
    arena: &Arena,
    name: &str,
    resources: fn() -> ResourceRequest,
    one_node: bool,
) -> Result<(), StepError> {
    let zone_cpus = arena
        .target()
        .zones
        .iter()
        .map(|zone| zone.allocatable().units(CPU))
        .max()
        .unwrap_or_default();
    let count = count(zone_cpus, arena.nodes().len(), one_node);
    let plan = |index| {
        let plan = arena.plan(ctx, &format!("{name}-{index}"), [resources()]);
        if one_node {
            plan.on_nodes_with(api::labels::HOSTNAME, &arena.target().node)
        } else {
            plan
        }
    };
    let plans: Vec<PodPlan> = (0..count).map(plan).collect();
    let limit = ctx.facts().cache_resync.unwrap_or_default() * PERIODS;
    run_at_once(ctx, &plans, limit).await
}

/// Runs as many pods as there are zones; each zone has room for one.
pub(super) async fn one_for_each_zone(
    ctx: &Context,
    arena: &Arena,
    name: &str,
) -> Result<(), StepError> {
    let request = Resources::literal(&format!("{}c {MEMORY}", zone_cpus(arena) * 6 / 10));
    let plans: Vec<PodPlan> = (0..2 * arena.nodes().len())
        .map(|index| {
            let resources = ResourceRequest::Limits(request.clone());
            arena.plan(ctx, &format!("{name}-{index}"), [resources])
        })
        .collect();
    run_at_once(ctx, &plans, CORRECTED).await
}

/// Returns the whole CPUs that the fullest zone of any node has left.
pub(super) fn zone_cpus(arena: &Arena) -> i64 {
    let zones = arena.nodes().iter().flat_map(|node| &node.zones);
    let left = zones.map(|zone| zone.available().units(CPU));
    left.min().unwrap_or_default()
}

/// Creates the pods without waiting in between. All must run within the limit, placed by the scheduler under test.
async fn run_at_once(ctx: &Context, plans: &[PodPlan], limit: Duration) -> Result<(), StepError> {
    let names: Vec<String> = plans.iter().map(|plan| plan.name().to_owned()).collect();
    let title = format!(
        "all of {} pods, created at once, run within {} s",
        names.len(),
        limit.as_secs()
    );
    let pods = ctx
        .step(title, async {
            ctx.create_all(plans.iter().map(PodPlan::pod)).await?;
            ctx.pods_running_within(&names, limit).await
        })
        .await?;
    steps::stack_placed_all(ctx, &pods).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_are_as_large_as_in_the_catalogue() {
        assert_eq!(count(22, 4, false), 54);
        assert_eq!(count(22, 4, true), 16);
        assert_eq!(count(30, 2, false), 37);
    }
}
