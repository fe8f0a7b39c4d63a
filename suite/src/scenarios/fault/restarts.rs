//! Programs of the stack that start again while pods are placed, and an operator that loses its lease.

use api::names;
use cluster_faults::{Disturbance, FAULT_HOLDER, Part, Process};
use futures::future::LocalBoxFuture;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ObjectMeta};

use super::{
    is_placed_on, leave_room_for_one, next_takes_its_place, plan, stop_exporter, waits,
    with_faults, zone_accounts_for_pod,
};
use crate::context::Context;
use crate::context::checks::{describe, node_of, phase};
use crate::recorder::PollResult;
use crate::scenario::{Scenario, body};
use crate::step::StepError;

/// Priority class whose pods come before others and evict nobody.
const IMPORTANT: &str = "important-and-polite";

pub(super) fn scenarios() -> [Scenario; 4] {
    [
        with_faults(
            "fault/scheduler-killed",
            Part::Nodes,
            body(|ctx| Box::pin(scheduler_starts_again(ctx))),
        ),
        with_faults(
            "fault/important-first",
            Part::Nodes,
            body(|ctx| Box::pin(important_pod_goes_first(ctx))),
        ),
        with_faults(
            "fault/kubelet-restarts",
            Part::Nodes,
            body(|ctx| Box::pin(kubelet_starts_again(ctx))),
        ),
        with_faults(
            "fault/lease-lost",
            Part::Nodes,
            body(|ctx| Box::pin(operator_loses_its_lease(ctx))),
        ),
    ]
}

async fn scheduler_starts_again(ctx: &Context) -> Result<(), StepError> {
    let (arena, before) = leave_room_for_one(ctx).await?;
    let target = &before.node;
    let [first, next] = ["first", "next"].map(|name| plan(ctx, &arena, name));
    ctx.step(
        "the pod is placed without a report of its node, and the scheduler is killed",
        async {
            let exporter = ctx.exporter_on(target).await?;
            // while the exporter is stopped, only the pod itself informs the new scheduler
            let stopped = stop_exporter(&exporter, target);
            ctx.during(&stopped, async {
                ctx.create(first.pod()).await?;
                is_placed_on(ctx, first.name(), target).await?;
                for process in schedulers(ctx).await? {
                    ctx.inject(&Disturbance::Kill { process }).await?;
                }
                ctx.create(next.pod()).await?;
                waits(ctx, next.name()).await
            })
            .await
        },
    )
    .await?;
    zone_accounts_for_pod(ctx, &before).await?;
    next_takes_its_place(ctx, first.name(), next.name(), target).await
}

/// A scheduler that starts lists what waits before it tries the first, so the order is that of its queue alone.
async fn important_pod_goes_first(ctx: &Context) -> Result<(), StepError> {
    let (arena, before) = leave_room_for_one(ctx).await?;
    let target = &before.node;
    let ordinary = plan(ctx, &arena, "ordinary");
    let important = plan(ctx, &arena, "important").with_priority_class(Some(IMPORTANT));
    ctx.step(
        "there is a class of important pods that evict nobody",
        async {
            ctx.create_global(&PriorityClass {
                metadata: ObjectMeta {
                    name: Some(IMPORTANT.to_owned()),
                    ..ObjectMeta::default()
                },
                value: 1_000,
                preemption_policy: Some("Never".to_owned()),
                ..PriorityClass::default()
            })
            .await
        },
    )
    .await?;
    let processes = schedulers(ctx).await?;
    let meanwhile = async {
        ctx.create(ordinary.pod()).await?;
        ctx.create(important.pod()).await?;
        for process in processes.clone() {
            ctx.inject(&Disturbance::Kill { process }).await?;
        }
        is_placed_on(ctx, important.name(), target).await
    };
    let stops: Vec<Disturbance> = processes
        .iter()
        .map(|process| Disturbance::Stop {
            process: process.clone(),
        })
        .collect();
    let first: LocalBoxFuture<'_, _> = Box::pin(meanwhile);
    let nested = stops
        .iter()
        .fold(first, |work, stop| ctx.during(stop, work));
    ctx.step(
        "the scheduler stands still, an ordinary and an important pod come, it starts again and places the important one",
        nested,
    )
    .await?;
    ctx.step("the ordinary pod waits", waits(ctx, ordinary.name()))
        .await?;
    zone_accounts_for_pod(ctx, &before).await?;
    next_takes_its_place(ctx, important.name(), ordinary.name(), target).await
}

/// Returns the running processes of the scheduler under test.
async fn schedulers(ctx: &Context) -> Result<Vec<Process>, StepError> {
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
        return Err(StepError::fail("no pod of the scheduler runs"));
    }
    Ok(processes)
}

async fn kubelet_starts_again(ctx: &Context) -> Result<(), StepError> {
    let (arena, before) = leave_room_for_one(ctx).await?;
    let target = &before.node;
    let [first, next] = ["first", "next"].map(|name| plan(ctx, &arena, name));
    let held = ctx
        .step("the pod is placed", async {
            ctx.create(first.pod()).await?;
            is_placed_on(ctx, first.name(), target).await?;
            ctx.settled_on(target).await
        })
        .await?;
    let ran = ctx.pod(first.name()).await?;
    let node = target.clone();
    ctx.step("the kubelet of the target starts again", async {
        ctx.inject(&Disturbance::RestartKubelet { node }).await
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
        Err(StepError::mismatch(
            "its containers changed",
            expected,
            seen,
        ))
    })
    .await?;
    ctx.step("the next pod waits", async {
        ctx.settle().await?;
        ctx.create(next.pod()).await?;
        waits(ctx, next.name()).await
    })
    .await?;
    next_takes_its_place(ctx, first.name(), next.name(), target).await
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

async fn operator_loses_its_lease(ctx: &Context) -> Result<(), StepError> {
    let services = Api::<Service>::namespaced(ctx.client(), names::NAMESPACE);
    let service = services.get(names::RTE_METRICS_SERVICE).await?;
    ctx.step("somebody else takes the operator's lease", async {
        ctx.inject(&Disturbance::LoseLease {
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
                    PollResult::NotYet(format!("{FAULT_HOLDER} holds it"))
                } else {
                    PollResult::Ready(())
                })
            },
        )
        .await
    })
    .await?;
    ctx.step("what it installed is deleted, and comes back", async {
        ctx.recorder.plan_deletion(&service)?;
        services
            .delete(&service.name_any(), &DeleteParams::default())
            .await?;
        ctx.is_made_anew("it is there", &services, &service).await
    })
    .await
}

fn holder(lease: &Lease) -> Option<String> {
    lease.spec.as_ref()?.holder_identity.clone()
}
