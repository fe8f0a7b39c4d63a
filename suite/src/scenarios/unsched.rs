//! Workloads that fit nodes but no zone (scenarios-serial.md 8.10).

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use crate::arena::{Arena, Fit};
use crate::checks::node_of;
use crate::context::Context;
use crate::observed::NodeTopology;
use crate::resources::Resources;
use crate::scenario::{Body, Need, Scenario, Scope, Stop, body};
use crate::scenarios::{labels, title};
use crate::workload::{Asks, PodPlan};

const CONTEXT: &str = "[serial][disruptive][scheduler] numaresources workload unschedulable";
const LABELS: &[&str] = &["disruptive", "scheduler", "feature:unsched"];
const REQUEST: &str = "16c 16Gi";
const FREE: &str = "12c 12Gi";

pub(super) fn scenarios() -> Vec<Scenario> {
    let scenario = |id, test_id, own, text, body: Body| Scenario {
        id,
        test_id: Some(test_id),
        title: title(CONTEXT, Some(test_id), "", text),
        labels: labels(LABELS, own),
        needs: vec![
            Need::Nodes {
                count: 2,
                scope: None,
            },
            Need::Zone {
                count: 2,
                scope: None,
                request: REQUEST,
            },
        ],
        body,
    };
    vec![
        scenario(
            "unsched/pod-no-zone",
            47617,
            "tier2 unsched failalign",
            "workload requests guaranteed pod resources available on one node but not on a single numa",
            body(|ctx| Box::pin(pod_no_zone(ctx))),
        ),
        scenario(
            "unsched/dp-no-zone",
            48963,
            "tier2 unsched failalign",
            "a deployment with a guaranteed pod resources available on one node but not on a single numa",
            body(|ctx| Box::pin(deployment_no_zone(ctx))),
        ),
        scenario(
            "unsched/ds-no-zone",
            48962,
            "tier2 unsched failalign",
            "a daemonset with a guaranteed pod resources available on one node but not on a single numa",
            body(|ctx| Box::pin(daemon_set_no_zone(ctx))),
        ),
        scenario(
            "unsched/ds-one-node-fits",
            47592,
            "tier2 unsched failalign",
            "a daemonset with a guaranteed pod resources available on one node/one single numa zone but not in any other node",
            body(|ctx| Box::pin(daemon_set_one_node_fits(ctx))),
        ),
    ]
}

/// All nodes of one scope, the one that more nodes have: the reason of a rejection depends on it.
async fn arena(ctx: &Context, at_least: usize) -> Result<(Arena, Scope), Stop> {
    let count = |scope| ctx.facts().candidates(Some(scope)).count();
    let scope = if count(Scope::Container) >= count(Scope::Pod) {
        Scope::Container
    } else {
        Scope::Pod
    };
    let title = format!(
        "nodes of scope {} have a zone with {REQUEST}",
        scope.as_str()
    );
    let arena = ctx
        .step(
            title,
            ctx.arena(
                Some(scope),
                at_least,
                &Fit::Zone(Resources::literal(REQUEST)),
            ),
        )
        .await?;
    Ok((arena, scope))
}

fn plan(ctx: &Context, arena: &Arena, name: &str) -> PodPlan {
    arena.confine(PodPlan::new(
        name,
        ctx.scheduler(),
        [Asks::Limits(Resources::literal(REQUEST))],
    ))
}

async fn pad_all(ctx: &Context, arena: &Arena) -> Result<(), Stop> {
    let free = Resources::literal(FREE);
    ctx.step(format!("all nodes are padded to {free} a zone"), async {
        let mut pads = Vec::new();
        for node in arena.nodes() {
            pads.extend(ctx.pad(node, &[free.clone(), free.clone()], "all").await?);
        }
        ctx.padded(&pads).await.map(drop)
    })
    .await
}

async fn pod_no_zone(ctx: &Context) -> Result<(), Stop> {
    let (arena, scope) = arena(ctx, 2).await?;
    pad_all(ctx, &arena).await?;
    let plan = plan(ctx, &arena, "testpod");
    ctx.step(
        format!("the pod stays pending: {}", scope.alignment_failure()),
        async {
            ctx.create(plan.pod()).await?;
            ctx.stay_pending(&[plan.name().to_owned()], scope.alignment_failure())
                .await
        },
    )
    .await
}

async fn deployment_no_zone(ctx: &Context) -> Result<(), Stop> {
    let (arena, scope) = arena(ctx, 2).await?;
    pad_all(ctx, &arena).await?;
    let plan = plan(ctx, &arena, "test-dp");
    ctx.step(
        format!(
            "the pod of the deployment stays pending: {}",
            scope.alignment_failure()
        ),
        async {
            ctx.create(plan.deployment(1)).await?;
            let pods = ctx.pods_created(&plan.selector_labels(), 1).await?;
            all_pending(ctx, &pods, scope).await
        },
    )
    .await
}

async fn daemon_set_no_zone(ctx: &Context) -> Result<(), Stop> {
    let (arena, scope) = arena(ctx, 2).await?;
    pad_all(ctx, &arena).await?;
    let plan = plan(ctx, &arena, "test-ds");
    let pods = ctx
        .step(
            "the daemon set makes a pod for each node",
            create_daemon_set(ctx, &arena, &plan),
        )
        .await?;
    let title = format!(
        "all pods of the daemon set stay pending: {}",
        scope.alignment_failure()
    );
    ctx.step(title, all_pending(ctx, &pods, scope)).await
}

async fn daemon_set_one_node_fits(ctx: &Context) -> Result<(), Stop> {
    let (arena, scope) = arena(ctx, 2).await?;
    let free = Resources::literal(FREE);
    let title = format!("all nodes but the target are padded to {free} a zone");
    let nodes: Vec<NodeTopology> = ctx.step(title, ctx.pad_others(&arena, &free)).await?;
    let Some(before) = nodes.iter().find(|node| node.node == arena.target().node) else {
        return Err(Stop::fail(format!(
            "the NRT of {} is gone",
            arena.target().node
        )));
    };
    let plan = plan(ctx, &arena, "test-ds");
    let pods = ctx
        .step(
            "the daemon set makes a pod for each node",
            create_daemon_set(ctx, &arena, &plan),
        )
        .await?;
    let running = ctx
        .step("the pod for the target runs there", async {
            let name = pod_for(&pods, &before.node)?;
            let running = ctx.pods_running(&[name]).await?.remove(0);
            ctx.on_node(&running, &before.node)?;
            Ok(running)
        })
        .await?;
    ctx.step(
        "the scheduler under test placed it",
        ctx.scheduled_by_us(&running),
    )
    .await?;
    let others: Vec<_> = pods
        .into_iter()
        .filter(|pod| pod.uid() != running.uid())
        .collect();
    let title = format!(
        "the pods for all other nodes stay pending: {}",
        scope.alignment_failure()
    );
    ctx.step(title, all_pending(ctx, &others, scope)).await?;
    let request = Resources::literal(REQUEST);
    ctx.step(
        format!("one zone of the target accounts for {request}"),
        ctx.accounted(before, &request, true, Scope::Pod),
    )
    .await
}

async fn create_daemon_set(ctx: &Context, arena: &Arena, plan: &PodPlan) -> Result<Vec<Pod>, Stop> {
    ctx.create::<DaemonSet>(plan.daemon_set()).await?;
    ctx.daemon_set_desired(plan.name(), arena.nodes().len())
        .await?;
    ctx.pods_created(&plan.selector_labels(), arena.nodes().len())
        .await
}

/// The pod that the daemon set made for a node: it says so in its affinity, until it is bound.
fn pod_for(pods: &[Pod], node: &str) -> Result<String, Stop> {
    let is_for = |pod: &&Pod| {
        let affinity = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.affinity.as_ref()?.node_affinity.as_ref());
        let terms = affinity.and_then(|affinity| {
            affinity
                .required_during_scheduling_ignored_during_execution
                .as_ref()
        });
        let fields = terms
            .into_iter()
            .flat_map(|terms| &terms.node_selector_terms)
            .flat_map(|term| &term.match_fields);
        let mut values = fields
            .flatten()
            .filter_map(|field| field.values.as_ref())
            .flatten();
        node_of(pod) == Some(node) || values.any(|value| value == node)
    };
    let found = pods.iter().find(is_for).map(ResourceExt::name_any);
    found.ok_or_else(|| Stop::fail(format!("the daemon set made no pod for {node}")))
}

async fn all_pending(ctx: &Context, pods: &[Pod], scope: Scope) -> Result<(), Stop> {
    let names: Vec<_> = pods.iter().map(ResourceExt::name_any).collect();
    ctx.stay_pending(&names, scope.alignment_failure()).await
}
