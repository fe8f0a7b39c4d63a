//! What zones account for, and what not (scenarios-serial.md 8.8).

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use crate::arena::{Arena, Fit};
use crate::context::Context;
use crate::observed::{NodeTopology, difference};
use crate::padding::NUMACELL;
use crate::resources::{CPU, MEMORY, Resources};
use crate::scenario::{Body, Need, Scenario, Scope, StepError, body};
use crate::scenarios::{labels, title};
use crate::workload::{PodPlan, ResourceRequest};

const CONTEXT: &str =
    "[serial][disruptive][scheduler][resacct] numaresources workload resource accounting";
const LABELS: &[&str] = &["disruptive", "scheduler", "resacct", "feature:resacct"];

pub(super) fn scenarios() -> Vec<Scenario> {
    let scenario = |id, test_id, own, text, body: Body| Scenario {
        id,
        test_id: Some(test_id),
        title: title(CONTEXT, Some(test_id), "", text),
        labels: labels(LABELS, own),
        needs: vec![Need::Nodes {
            count: 2,
            scope: None,
        }],
        body,
    };
    vec![
        scenario(
            "resacct/pending-then-scheduled",
            49068,
            "tier2 placement",
            "should keep the pod pending if not enough resources available, then schedule when resources are freed",
            body(|ctx| Box::pin(pending_then_scheduled(ctx))),
        ),
        scenario(
            "resacct/best-effort",
            48685,
            "tier1",
            "should properly schedule a best-effort pod with no changes in NRTs",
            body(|ctx| Box::pin(not_accounted(ctx, false))),
        ),
        scenario(
            "resacct/burstable",
            48686,
            "tier1",
            "should properly schedule a burstable pod with no changes in NRTs",
            body(|ctx| Box::pin(not_accounted(ctx, true))),
        ),
        scenario(
            "resacct/burstable-dp",
            47618,
            "tier2",
            "should properly schedule deployment with burstable pod with no changes in NRTs",
            body(|ctx| Box::pin(burstable_deployment(ctx))),
        ),
        scenario(
            "resacct/burstable-mixed",
            85768,
            "tier2",
            "should properly schedule a burstable pod when one of the containers is asking for requests=limits, with no changes in NRTs",
            body(|ctx| Box::pin(burstable_mixed(ctx))),
        ),
        scenario(
            "resacct/burstable-then-guaranteed",
            47620,
            "tier2",
            "should properly schedule a burstable pod with no changes in NRTs followed by a guaranteed pod that stays pending till burstable pod is deleted",
            body(|ctx| Box::pin(burstable_then_guaranteed(ctx))),
        ),
        scenario(
            "resacct/burstable-ds",
            49071,
            "tier2",
            "should properly schedule daemonset with burstable pod with no changes in NRTs",
            body(|ctx| Box::pin(burstable_daemon_set(ctx))),
        ),
    ]
}

async fn pending_then_scheduled(ctx: &Context) -> Result<(), StepError> {
    let request = Resources::literal("4c 8Gi");
    let title = format!("two nodes have a zone with {request}");
    let (arena, scope) = one_scope(ctx, &title, &Fit::Zone(request.clone())).await?;
    let small = Resources::literal("2c 4Gi");
    let title = format!("the target has {request} left in each zone, all other nodes {small}");
    let padded = ctx
        .step(title, async {
            let mut pads = ctx
                .pad(
                    arena.target(),
                    &[request.clone(), request.clone()],
                    "target",
                )
                .await?;
            for node in arena.others() {
                pads.extend(
                    ctx.pad(node, &[small.clone(), small.clone()], "others")
                        .await?,
                );
            }
            ctx.padded(&pads).await
        })
        .await?;
    let Some(before) = padded.iter().find(|node| node.node == arena.target().node) else {
        return Err(StepError::fail(format!(
            "the NRT of {} is gone",
            arena.target().node
        )));
    };
    let holders = ctx
        .step(
            "a small pod in each zone of the target leaves none that fits",
            hold_zones(ctx, before),
        )
        .await?;
    let Some((last, before_last)) = holders else {
        return Err(StepError::fail("the target has no zones"));
    };

    let plan = arena.confine(PodPlan::new(
        "testpod",
        ctx.scheduler(),
        [ResourceRequest::Limits(request.clone())],
    ));
    ctx.step(
        format!("the pod stays pending: {}", scope.alignment_failure()),
        async {
            ctx.create(plan.pod()).await?;
            ctx.stay_pending(&[plan.name().to_owned()], scope.alignment_failure())
                .await
        },
    )
    .await?;
    ctx.step("one of the small pods is deleted", ctx.delete::<Pod>(&last))
        .await?;
    let pod = ctx
        .step("the pod runs", ctx.pods_running(&[plan.name().to_owned()]))
        .await?
        .remove(0);
    ctx.step("the pod is on the target", async {
        ctx.on_node(&pod, &before.node)
    })
    .await?;
    ctx.step(
        "the scheduler under test placed it",
        ctx.scheduled_by_stack(&pod),
    )
    .await?;
    ctx.step(
        format!("one zone of the target accounts for {request}"),
        ctx.accounted(&before_last, &request, true, Scope::Pod),
    )
    .await
}

/// Puts a small pinned pod into each zone of a node. Returns the name of the last pod and the node's state before it.
async fn hold_zones(
    ctx: &Context,
    node: &NodeTopology,
) -> Result<Option<(String, NodeTopology)>, StepError> {
    let mut last = None;
    for zone in &node.zones {
        let before = ctx.baseline_of(&node.node).await?;
        let name = format!("tgtpadpod-{}", zone.name);
        let mut limits = Resources::literal("1c 1Gi");
        limits.set(&format!("{NUMACELL}{:02}", zone.id), 1000);
        ctx.create(
            PodPlan::new(&name, "", [ResourceRequest::Limits(limits)])
                .bound_to(&node.node)
                .pod(),
        )
        .await?;
        ctx.pods_running(std::slice::from_ref(&name)).await?;
        ctx.settle().await?;
        last = Some((name, before));
    }
    Ok(last)
}

/// A node with room for pods that no zone accounts for; all other nodes are full.
struct PreparedNodes {
    arena: Arena,
    scope: Scope,
    /// Base load of the target.
    base: Resources,
    /// The state of every node.
    reference: Vec<NodeTopology>,
}

impl PreparedNodes {
    async fn new(ctx: &Context) -> Result<Self, StepError> {
        let title = "two nodes with two zones are there";
        let (arena, scope) = one_scope(ctx, title, &Fit::Anything).await?;
        let base = ctx.base_load(&arena.target().node).await?.core();
        let reference = ctx
            .step("all nodes but the target are full", async {
                let nothing = Resources::literal("0c 0Gi");
                let mut pads = Vec::new();
                for node in arena.others() {
                    pads.extend(
                        ctx.pad(node, &[nothing.clone(), nothing.clone()], "full")
                            .await?,
                    );
                }
                ctx.padded(&pads).await
            })
            .await?;
        Ok(Self {
            arena,
            scope,
            base,
            reference,
        })
    }

    fn target(&self) -> &str {
        &self.arena.target().node
    }

    /// Returns the CPU and memory that the whole target has left.
    fn all(&self) -> Resources {
        let core = |name: &str, _| name == CPU || name == MEMORY;
        self.arena
            .target()
            .available()
            .filtered(core)
            .minus(&self.base)
    }

    /// Returns the CPU and memory that a zone of the target has left.
    fn zone(&self, index: usize) -> Resources {
        let core = |name: &str, _| name == CPU || name == MEMORY;
        let zone = self.arena.target().zones.get(index);
        zone.map_or_else(Resources::new, |zone| zone.available().filtered(core))
    }

    fn plan(
        &self,
        ctx: &Context,
        name: &str,
        resources: impl IntoIterator<Item = ResourceRequest>,
    ) -> PodPlan {
        self.arena
            .confine(PodPlan::new(name, ctx.scheduler(), resources))
    }

    async fn placed(&self, ctx: &Context, pod: &Pod, on_target: bool) -> Result<(), StepError> {
        if on_target {
            ctx.step("the pod is on the target", async {
                ctx.on_node(pod, self.target())
            })
            .await?;
        }
        ctx.step(
            "the scheduler under test placed it",
            ctx.scheduled_by_stack(pod),
        )
        .await
    }

    async fn unchanged(&self, ctx: &Context, node: &str) -> Result<(), StepError> {
        ctx.step(
            "the exporter has seen the pod and no zone of any node changed",
            async {
                let mut nodes = self.reference.iter();
                let Some(node) = nodes.find(|topology| topology.node == node) else {
                    return Err(StepError::fail(format!("node {node} has no NRT")));
                };
                let nodes = ctx.barrier(node).await?;
                match difference(&self.reference, &nodes) {
                    None => Ok(()),
                    Some(seen) => Err(StepError::mismatch("an NRT changed", "no change", seen)),
                }
            },
        )
        .await
    }
}

/// Checks that a pod that is not Guaranteed runs and does not change the zones of its node.
async fn not_accounted(ctx: &Context, burstable: bool) -> Result<(), StepError> {
    let prepared = PreparedNodes::new(ctx).await?;
    let request = prepared.all();
    let (resources, title) = if burstable {
        let title = format!("a pod that requests {request} runs");
        (ResourceRequest::Requests(request), title)
    } else {
        (
            ResourceRequest::Nothing,
            "a best-effort pod runs".to_owned(),
        )
    };
    let pod = run_pod(ctx, title, &prepared.plan(ctx, "testpod", [resources])).await?;
    prepared.placed(ctx, &pod, burstable).await?;
    let node = crate::checks::node_of(&pod).unwrap_or_default();
    prepared.unchanged(ctx, node).await
}

async fn run_pod(ctx: &Context, title: String, plan: &PodPlan) -> Result<Pod, StepError> {
    let pods = ctx.step(title, async {
        ctx.create(plan.pod()).await?;
        ctx.pods_running(&[plan.name().to_owned()]).await
    });
    Ok(pods.await?.remove(0))
}

async fn burstable_deployment(ctx: &Context) -> Result<(), StepError> {
    let prepared = PreparedNodes::new(ctx).await?;
    let plan = prepared.plan(ctx, "test-dp", [ResourceRequest::Requests(prepared.all())]);
    let title = format!(
        "a deployment of a pod that requests {} is complete",
        prepared.all()
    );
    let pods = ctx
        .step(title, async {
            ctx.create(plan.deployment(1)).await?;
            ctx.deployment_complete(plan.name(), &plan.selector_labels())
                .await
        })
        .await?;
    for pod in &pods {
        prepared.placed(ctx, pod, true).await?;
    }
    prepared.unchanged(ctx, prepared.target()).await
}

async fn burstable_daemon_set(ctx: &Context) -> Result<(), StepError> {
    let prepared = PreparedNodes::new(ctx).await?;
    let plan = prepared
        .plan(ctx, "test-ds", [ResourceRequest::Requests(prepared.all())])
        .on_nodes_with(api::labels::HOSTNAME, prepared.target());
    let title = format!(
        "a daemon set for the target, whose pod requests {}, runs",
        prepared.all()
    );
    let pods = ctx
        .step(title, async {
            ctx.create(plan.daemon_set()).await?;
            ctx.daemon_set_desired(plan.name(), 1).await?;
            let pods = ctx.pods_created(&plan.selector_labels(), 1).await?;
            let names: Vec<String> = pods.iter().map(ResourceExt::name_any).collect();
            ctx.pods_running(&names).await
        })
        .await?;
    for pod in &pods {
        prepared.placed(ctx, pod, true).await?;
    }
    prepared.unchanged(ctx, prepared.target()).await
}

/// Runs a pod that is Burstable as a whole: one container has limits that a zone could hold, the other one only requests.
async fn burstable_mixed(ctx: &Context) -> Result<(), StepError> {
    let prepared = PreparedNodes::new(ctx).await?;
    let limits = prepared.zone(0).minus(&prepared.base);
    let requests = match prepared.scope {
        Scope::Container => prepared.zone(1).minus(&prepared.base),
        Scope::Pod => Resources::literal("5Mi"),
    };
    let title =
        format!("a pod whose containers have limits of {limits} and request {requests} runs");
    let resources = [
        ResourceRequest::Limits(limits),
        ResourceRequest::Requests(requests),
    ];
    let pod = run_pod(ctx, title, &prepared.plan(ctx, "testpod", resources)).await?;
    prepared.placed(ctx, &pod, true).await?;
    prepared.unchanged(ctx, prepared.target()).await
}

/// Checks that a Burstable pod takes the room of a Guaranteed one although no zone accounts for it.
async fn burstable_then_guaranteed(ctx: &Context) -> Result<(), StepError> {
    let prepared = PreparedNodes::new(ctx).await?;
    let first = prepared.plan(
        ctx,
        "testpod-first-bu",
        [ResourceRequest::Requests(prepared.all())],
    );
    let title = format!("a pod that requests {} runs", prepared.all());
    let pod = run_pod(ctx, title, &first).await?;
    prepared.placed(ctx, &pod, true).await?;
    prepared.unchanged(ctx, prepared.target()).await?;
    let whole = prepared.zone(0);
    let second = prepared.plan(
        ctx,
        "testpod-second-gu",
        [ResourceRequest::Limits(whole.clone())],
    );
    ctx.step(
        format!("a pod with limits of {whole} stays pending"),
        async {
            ctx.create(second.pod()).await?;
            ctx.stay_pending(&[second.name().to_owned()], "Insufficient")
                .await
        },
    )
    .await?;
    prepared.unchanged(ctx, prepared.target()).await?;
    let running = ctx
        .step("it runs when the other one is deleted", async {
            ctx.delete::<Pod>(first.name()).await?;
            ctx.pods_running(&[second.name().to_owned()]).await
        })
        .await?
        .remove(0);
    prepared.placed(ctx, &running, true).await?;
    let before = prepared.arena.target();
    ctx.step(
        format!("the target accounts for {whole}"),
        ctx.accounted(before, &whole, true, prepared.scope),
    )
    .await?;
    ctx.step("after its deletion the zones are as before", async {
        ctx.delete::<Pod>(second.name()).await?;
        ctx.settle().await?;
        ctx.restored(before).await
    })
    .await
}

/// Takes two nodes of one scope: the scope that more nodes have.
async fn one_scope(ctx: &Context, title: &str, fit: &Fit) -> Result<(Arena, Scope), StepError> {
    let count = |scope| ctx.facts().candidates(Some(scope)).count();
    let scope = if count(Scope::Pod) > count(Scope::Container) {
        Scope::Pod
    } else {
        Scope::Container
    };
    let arena = ctx.step(title, ctx.arena(Some(scope), 2, fit)).await?;
    Ok((arena, scope))
}
