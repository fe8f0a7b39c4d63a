//! Placement and accounting during faults. Not in the catalogue: the original's suite injects none.
//!
//! Each row leaves room for one pod on one node of several. A fault is injected and a pod is created. The pod must get exactly that room,
//! and every later pod must wait until the first is gone. A stack that forgets a pod, counts it twice or relies on missing reports fails
//! one of the two checks.

use api::names;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams};
use testbed::faults::socket::SocketFault;
use testbed::faults::{Disturbance, FAULT_HOLDER, Fault, Part, Process, Rule, Selector, WatchEnd};

use crate::arena::{Arena, Fit};
use crate::checks::{describe, node_of, phase};
use crate::context::Context;
use crate::ledger::{ObjectRef, Undo};
use crate::observed::{NodeTopology, zones_difference};
use crate::recorder::Look;
use crate::resources::Resources;
use crate::scenario::{Body, Need, Scenario, Scope, Stop, body};
use crate::scenarios::{labels, title};
use crate::workload::{Asks, PodPlan};

const CONTEXT: &str = "[disruptive][fault] numaresources stack on a bad day";
const REQUEST: &str = "4c 4Gi";
const SMALL: &str = "3c 3Gi";
/// User of the stack's programs in their requests.
const STACK: &str = "system:serviceaccount:numaresources:*";

/// The fault during which a pod is placed.
struct Row {
    id: &'static str,
    text: &'static str,
    part: Part,
    /// Whether the pod's node cannot report the pod meanwhile, so that the scheduler must rely on its own charge.
    untold: bool,
    /// Whether the scheduler does not learn that it has bound the pod, so that there is no event about the binding.
    unannounced: bool,
    what: fn(&Pod, &str) -> Disturbance,
    /// A second fault, injected before the pod is created.
    and: Option<fn() -> Disturbance>,
}

impl Row {
    /// Builds a row with a fault of the API server, during which the node can report the pod.
    const fn of_the_api(
        id: &'static str,
        text: &'static str,
        what: fn(&Pod, &str) -> Disturbance,
    ) -> Self {
        Self {
            id,
            text,
            part: Part::ApiServer,
            untold: false,
            unannounced: false,
            what,
            and: None,
        }
    }

    /// Builds a row with a fault that keeps the node from reporting the pod.
    const fn of_the_node(
        id: &'static str,
        text: &'static str,
        part: Part,
        what: fn(&Pod, &str) -> Disturbance,
    ) -> Self {
        Self {
            part,
            untold: true,
            ..Self::of_the_api(id, text, what)
        }
    }
}

static ROWS: &[Row] = &[
    Row::of_the_node(
        "fault/exporter-stands-still",
        "should charge a node for a pod that its exporter cannot tell about",
        Part::Nodes,
        stand_still,
    ),
    Row::of_the_node(
        "fault/podresources-hangs",
        "should publish nothing while the kubelet does not answer the exporter",
        Part::PodResources,
        |_, node| socket(node, SocketFault::Hangs),
    ),
    Row::of_the_node(
        "fault/podresources-garbage",
        "should publish nothing while the kubelet's answers make no sense",
        Part::PodResources,
        |_, node| socket(node, SocketFault::Garbage),
    ),
    Row::of_the_api(
        "fault/binding-fails",
        "should place a pod once when its first bindings fail",
        |_, _| rule(Rule::new(binding(), Fault::InternalError).times(2)),
    ),
    Row {
        unannounced: true,
        ..Row::of_the_api(
            "fault/binding-unanswered",
            "should place a pod once when its binding is done but not answered",
            |_, _| rule(Rule::new(binding(), Fault::LoseAnswer).times(1)),
        )
    },
    Row::of_the_api(
        "fault/nrt-conflicts",
        "should publish in the end when others change what the exporter writes",
        |_, _| rule(Rule::new(published(), Fault::Conflict).times(5)),
    ),
    Row::of_the_api(
        "fault/too-many-requests",
        "should wait as long as an API server asks it to",
        |_, _| {
            let busy = Fault::TooManyRequests {
                retry_after_seconds: 1,
            };
            let some = Rule::new(Selector::default().user(STACK), busy);
            rule(some.probability(0.5, 1).times(20))
        },
    ),
    Row {
        and: Some(|| Disturbance::EndWatches {
            select: watches(),
            how: WatchEnd::Expired,
        }),
        ..Row::of_the_api(
            "fault/watches-expire",
            "should list again when a watch is told that its history is gone",
            |_, _| {
                let expire = Fault::EndWatch {
                    after_events: 1,
                    how: WatchEnd::Expired,
                };
                rule(Rule::new(watches(), expire))
            },
        )
    },
];

fn stand_still(exporter: &Pod, node: &str) -> Disturbance {
    Disturbance::Stop {
        process: Process {
            node: node.to_owned(),
            namespace: exporter.namespace().unwrap_or_default(),
            pod: exporter.name_any(),
            container: names::RTE_CONTAINER.to_owned(),
        },
    }
}

fn watches() -> Selector {
    Selector::default().user(STACK).verbs(&["watch"])
}

fn rule(rule: Rule) -> Disturbance {
    Disturbance::Api { rule }
}

fn socket(node: &str, fault: SocketFault) -> Disturbance {
    Disturbance::PodResources {
        node: node.to_owned(),
        fault,
    }
}

fn binding() -> Selector {
    Selector {
        subresource: Some("binding".to_owned()),
        ..Selector::resource("", "pods").user(STACK)
    }
}

fn published() -> Selector {
    Selector::resource("topology.node.k8s.io", "noderesourcetopologies")
        .user(STACK)
        .verbs(&["update", "patch"])
}

fn scenario(id: &'static str, text: &str, part: Part, body: Body) -> Scenario {
    Scenario {
        id,
        test_id: None,
        title: title(CONTEXT, None, "", text),
        labels: labels(&["disruptive"], "tier2"),
        needs: vec![
            Need::Zone {
                count: 2,
                scope: Some(Scope::Container),
                request: REQUEST,
            },
            Need::Faults(part),
        ],
        body,
    }
}

pub(super) fn scenarios() -> Vec<Scenario> {
    let placed = |row: &'static Row| {
        let run = body(move |ctx| Box::pin(placed_meanwhile(ctx, row)));
        scenario(row.id, row.text, row.part, run)
    };
    let mut all: Vec<Scenario> = ROWS.iter().map(placed).collect();
    all.extend([
        scenario(
            "fault/scheduler-killed",
            "should know what it placed when it starts again",
            Part::Nodes,
            body(|ctx| Box::pin(scheduler_starts_again(ctx))),
        ),
        scenario(
            "fault/kubelet-restarts",
            "should account for what ran on when a kubelet starts again",
            Part::Nodes,
            body(|ctx| Box::pin(kubelet_starts_again(ctx))),
        ),
        scenario(
            "fault/lease-lost",
            "should keep what it installed after somebody else had the operator's lease",
            Part::Nodes,
            body(|ctx| Box::pin(operator_loses_its_lease(ctx))),
        ),
    ]);
    all
}

/// Leaves room for one pod, in one zone of the target.
async fn one_room(ctx: &Context) -> Result<(Arena, NodeTopology), Stop> {
    let (request, small) = (Resources::literal(REQUEST), Resources::literal(SMALL));
    let fit = Fit::Zone(request.clone());
    let title = format!("two nodes have a zone with {request}");
    let arena = ctx
        .step(title, ctx.arena(Some(Scope::Container), 2, &fit))
        .await?;
    let title = format!("one zone of the target has {request} left, all others {small}");
    let padded = ctx
        .step(title, async {
            let room = [request.clone(), small.clone()];
            let mut pads = ctx.pad(arena.target(), &room, "target").await?;
            for node in arena.others() {
                let none = [small.clone(), small.clone()];
                pads.extend(ctx.pad(node, &none, "others").await?);
            }
            ctx.padded(&pads).await
        })
        .await?;
    let target = &arena.target().node;
    let before = padded.into_iter().find(|node| node.node == *target);
    let before = before.ok_or_else(|| Stop::fail(format!("the NRT of {target} is gone")))?;
    Ok((arena, before))
}

fn plan(ctx: &Context, arena: &Arena, name: &str) -> PodPlan {
    let asks = [Asks::Limits(Resources::literal(REQUEST))];
    arena.confine(PodPlan::new(name, ctx.scheduler(), asks))
}

/// Checks that the pod runs on the node and that the scheduler under test placed it.
async fn takes_the_room(ctx: &Context, name: &str, node: &str) -> Result<(), Stop> {
    let pod = ctx.pods_running(&[name.to_owned()]).await?.remove(0);
    ctx.on_node(&pod, node)?;
    ctx.scheduled_by_us(&pod).await
}

async fn waits(ctx: &Context, name: &str) -> Result<(), Stop> {
    let reason = Scope::Container.alignment_failure();
    ctx.stay_pending(&[name.to_owned()], reason).await
}

/// Checks that one zone of the target accounts for one pod more than before.
async fn accounts_for_it(ctx: &Context, before: &NodeTopology) -> Result<(), Stop> {
    ctx.step("one zone of the target accounts for it", async {
        let request = Resources::literal(REQUEST);
        ctx.accounted(before, &request, true, Scope::Container)
            .await
    })
    .await
}

/// Deletes the first pod and checks that the second takes its room.
async fn next_takes_the_room(
    ctx: &Context,
    first: &str,
    next: &str,
    node: &str,
) -> Result<(), Stop> {
    ctx.step(format!("{first} goes, and {next} takes its place"), async {
        ctx.delete::<Pod>(first).await?;
        takes_the_room(ctx, next, node).await
    })
    .await
}

async fn placed_meanwhile(ctx: &Context, row: &Row) -> Result<(), Stop> {
    let (arena, before) = one_room(ctx).await?;
    let target = &before.node;
    let [first, next] = ["first", "next"].map(|name| plan(ctx, &arena, name));
    let exporter = exporter_on(ctx, target).await?;
    let meanwhile = async {
        if let Some(and) = row.and {
            ctx.inflict(&and()).await?;
        }
        ctx.create(first.pod()).await?;
        if row.unannounced {
            let pods = ctx.pods_running(&[first.name().to_owned()]).await?;
            ctx.on_node(&pods[0], target)?;
        } else {
            takes_the_room(ctx, first.name(), target).await?;
        }
        if row.untold {
            ctx.create(next.pod()).await?;
            waits(ctx, next.name()).await?;
            let now = ctx.topology(target).await?;
            if let Some(difference) = zones_difference(&before, &now) {
                let message = format!("{target} has told something it cannot know");
                return Err(Stop::mismatch(message, "the zones of before", difference));
            }
        }
        Ok(())
    };
    let what = (row.what)(&exporter, target);
    ctx.step(
        "the pod takes the room while something is wrong",
        ctx.during(&what, meanwhile),
    )
    .await?;
    accounts_for_it(ctx, &before).await?;
    ctx.step("the next pod waits", async {
        if !row.untold {
            ctx.create(next.pod()).await?;
        }
        waits(ctx, next.name()).await
    })
    .await?;
    next_takes_the_room(ctx, first.name(), next.name(), target).await
}

async fn exporter_on(ctx: &Context, node: &str) -> Result<Pod, Stop> {
    let exporters = super::rte::exporters(ctx).await?;
    let here = exporters.into_iter().find(|pod| node_of(pod) == Some(node));
    here.ok_or_else(|| Stop::fail(format!("no exporter runs on {node}")))
}

async fn scheduler_starts_again(ctx: &Context) -> Result<(), Stop> {
    let (arena, before) = one_room(ctx).await?;
    let target = &before.node;
    let [first, next] = ["first", "next"].map(|name| plan(ctx, &arena, name));
    ctx.step(
        "the pod takes the room, untold, and the scheduler dies",
        async {
            let exporter = exporter_on(ctx, target).await?;
            // while the exporter is stopped, only the pod itself informs the new scheduler
            let silence = stand_still(&exporter, target);
            ctx.during(&silence, async {
                ctx.create(first.pod()).await?;
                takes_the_room(ctx, first.name(), target).await?;
                for process in schedulers(ctx).await? {
                    ctx.inflict(&Disturbance::Kill { process }).await?;
                }
                ctx.create(next.pod()).await?;
                waits(ctx, next.name()).await
            })
            .await
        },
    )
    .await?;
    accounts_for_it(ctx, &before).await?;
    next_takes_the_room(ctx, first.name(), next.name(), target).await
}

/// Returns the running processes of the scheduler under test.
async fn schedulers(ctx: &Context) -> Result<Vec<Process>, Stop> {
    let pods = ctx.scheduler_pods().await?;
    let running = pods.iter().filter(|pod| phase(pod) == "Running");
    let processes: Vec<Process> = running
        .filter_map(|pod| {
            Some(Process {
                node: node_of(pod)?.to_owned(),
                namespace: pod.namespace()?,
                pod: pod.name_any(),
                container: names::SCHEDULER.to_owned(),
            })
        })
        .collect();
    if processes.is_empty() {
        return Err(Stop::fail("no pod of the scheduler runs"));
    }
    Ok(processes)
}

async fn kubelet_starts_again(ctx: &Context) -> Result<(), Stop> {
    let (arena, before) = one_room(ctx).await?;
    let target = &before.node;
    let [first, next] = ["first", "next"].map(|name| plan(ctx, &arena, name));
    let held = ctx
        .step("the pod takes the room", async {
            ctx.create(first.pod()).await?;
            takes_the_room(ctx, first.name(), target).await?;
            ctx.settled_on(target).await
        })
        .await?;
    let ran = ctx.pod(first.name()).await?;
    let node = target.clone();
    ctx.step("the kubelet of the target starts again", async {
        ctx.inflict(&Disturbance::RestartKubelet { node }).await
    })
    .await?;
    ctx.step("the target is accounted for as before", ctx.restored(&held))
        .await?;
    ctx.step("the pod ran on", async {
        let runs = ctx.pod(first.name()).await?;
        let containers = [&ran, &runs].map(container_ids);
        if phase(&runs) == "Running" && containers[0] == containers[1] {
            return Ok(());
        }
        let [expected, seen] = [&ran, &runs].map(describe);
        Err(Stop::mismatch("its containers changed", expected, seen))
    })
    .await?;
    ctx.step("the next pod waits", async {
        ctx.settle().await?;
        ctx.create(next.pod()).await?;
        waits(ctx, next.name()).await
    })
    .await?;
    next_takes_the_room(ctx, first.name(), next.name(), target).await
}

fn container_ids(pod: &Pod) -> Vec<Option<String>> {
    let status = pod.status.as_ref();
    let containers = status.and_then(|status| status.container_statuses.as_ref());
    containers
        .into_iter()
        .flatten()
        .map(|container| container.container_id.clone())
        .collect()
}

async fn operator_loses_its_lease(ctx: &Context) -> Result<(), Stop> {
    let services = Api::<Service>::namespaced(ctx.client(), names::NAMESPACE);
    let service = services.get(names::RTE_METRICS_SERVICE).await?;
    ctx.step("somebody else takes the operator's lease", async {
        ctx.inflict(&Disturbance::LoseLease {
            namespace: names::NAMESPACE.to_owned(),
            name: names::OPERATOR_LEASE.to_owned(),
        })
        .await
    })
    .await?;
    let leases = Api::<Lease>::namespaced(ctx.client(), names::NAMESPACE);
    ctx.step("an operator gets it back", async {
        ctx.until(
            "somebody else holds it",
            ctx.deadlines().installed,
            async || {
                let now = holder(&leases.get(names::OPERATOR_LEASE).await?);
                Ok(if now.as_deref() == Some(FAULT_HOLDER) {
                    Look::NotYet(format!("{FAULT_HOLDER} holds it"))
                } else {
                    Look::Ready(())
                })
            },
        )
        .await
    })
    .await?;
    ctx.step("what it installed is deleted, and comes back", async {
        let reference = ObjectRef::of(&service);
        ctx.recorder.plan(
            &format!("delete {reference}"),
            Undo::Create {
                object: reference,
                manifest: serde_json::json!(service),
            },
        );
        services
            .delete(&service.name_any(), &DeleteParams::default())
            .await?;
        ctx.until("it is there", ctx.deadlines().installed, async || {
            Ok(match services.get_opt(&service.name_any()).await? {
                Some(new) if new.uid() != service.uid() => Look::Ready(()),
                Some(_) => Look::NotYet("the old one is there".to_owned()),
                None => Look::NotYet("it is gone".to_owned()),
            })
        })
        .await
    })
    .await
}

fn holder(lease: &Lease) -> Option<String> {
    lease.spec.as_ref()?.holder_identity.clone()
}
