//! Bursts of pods are placed without stalls (scenarios-serial.md 8.12).

use crate::context::Context;
use crate::context::arena::{Arena, Fit};
use crate::resources::{CPU, Resources};
use crate::scenario::{Need, Scenario, StepError, body};
use crate::scenarios::area::Area;
use crate::scenarios::steps;
use crate::workload::ResourceRequest;

const ONE_NODE: Area = Area {
    context: "numaresources fundamentals non-regression [node1] against a single node",
    labels: &["serial", "fundamentals", "scheduler", "feature:nonreg"],
    needs: &[Need::nodes(1), Need::CacheResync],
};
const ALL_NODES: Area = Area {
    context: "numaresources fundamentals non-regression [nodeAll] against all the available worker nodes",
    ..ONE_NODE
};
/// CPUs of each pod.
const CPUS: i64 = 2;
/// Number of resync periods within which all pods must run.
const PERIODS: u32 = 10;

struct Row {
    id: &'static str,
    test_id: u32,
    labels: &'static str,
    one_node: bool,
    resources: fn() -> ResourceRequest,
    text: &'static str,
}

pub(super) fn guaranteed() -> ResourceRequest {
    ResourceRequest::Limits(Resources::literal("2c 64Mi"))
}

pub(super) fn burstable() -> ResourceRequest {
    ResourceRequest::Requests(Resources::literal("2c 64Mi"))
}

fn best_effort() -> ResourceRequest {
    ResourceRequest::Nothing
}

static ROWS: &[Row] = &[
    Row {
        id: "fundamentals/node1-gu",
        test_id: 84018,
        labels: "node1 tier1",
        one_node: true,
        resources: guaranteed,
        text: "should handle a burst of qos=guaranteed pods",
    },
    Row {
        id: "fundamentals/node1-bu",
        test_id: 84019,
        labels: "node1 tier1",
        one_node: true,
        resources: burstable,
        text: "should handle a burst of qos=burstable pods",
    },
    Row {
        id: "fundamentals/node1-be",
        test_id: 84020,
        labels: "node1 tier2",
        one_node: true,
        resources: best_effort,
        text: "should handle a burst of qos=best-effort pods",
    },
    Row {
        id: "fundamentals/all-gu",
        test_id: 84021,
        labels: "nodeAll tier0",
        one_node: false,
        resources: guaranteed,
        text: "should handle a burst of qos=guaranteed pods",
    },
    Row {
        id: "fundamentals/all-bu",
        test_id: 84022,
        labels: "nodeAll tier1",
        one_node: false,
        resources: burstable,
        text: "should handle a burst of qos=burstable pods",
    },
    Row {
        id: "fundamentals/all-be",
        test_id: 84023,
        labels: "nodeAll tier2",
        one_node: false,
        resources: best_effort,
        text: "should handle a burst of qos=best-effort pods",
    },
];

pub(super) fn scenarios() -> Vec<Scenario> {
    let scenario = |row: &'static Row| {
        let area = if row.one_node { ONE_NODE } else { ALL_NODES };
        let run = body(move |ctx| Box::pin(run(ctx, row)));
        area.scenario(row.id, row.test_id, row.labels, row.text, run)
    };
    ROWS.iter().map(scenario).collect()
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

async fn run(ctx: &Context, row: &Row) -> Result<(), StepError> {
    let arena = ctx
        .step(
            "nodes with two zones are there",
            ctx.arena(None, 1, &Fit::Anything),
        )
        .await?;
    ctx.step("the cluster is settled", ctx.settle()).await?;
    burst(ctx, &arena, "testpod", row.resources, row.one_node).await
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
    let names: Vec<String> = (0..count).map(|index| format!("{name}-{index}")).collect();
    let limit = ctx.facts().cache_resync.unwrap_or_default() * PERIODS;
    let pods = ctx
        .step(
            format!(
                "all of {count} pods, created at once, run within {} s",
                limit.as_secs()
            ),
            async {
                let pods = names.iter().map(|name| {
                    let mut plan = arena.plan(ctx, name, [resources()]);
                    if one_node {
                        plan = plan.on_nodes_with(api::labels::HOSTNAME, &arena.target().node);
                    }
                    plan.pod()
                });
                ctx.create_all(pods).await?;
                ctx.pods_running_within(&names, limit).await
            },
        )
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
