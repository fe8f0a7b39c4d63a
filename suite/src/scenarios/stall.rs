//! Pods of other schedulers, whether they end or not, do not keep the cache from following (scenarios-serial.md 9.2).

use k8s_openapi::api::batch::v1::Job;
use serde_json::json;

use crate::context::Context;
use crate::context::arena::{Arena, Fit};
use crate::context::checks::{describe, phase};
use crate::needs::Need;
use crate::recorder::PollResult;
use crate::resources::Resources;
use crate::scenario::{Scenario, body};
use crate::scenarios::load;
use crate::scenarios::registry::scenario;
use crate::step::StepError;
use crate::workload::{PodPlan, ResourceRequest};

const NEEDS: &[Need] = &[Need::nodes(2), Need::CacheResync];
/// Name of the job of other pods.
const JOB: &str = "generic-pause";

/// Pods that the scheduler under test does not place.
#[derive(Clone, Copy)]
enum OtherPods {
    /// Pods that are bound to the nodes, with programs that sleep for these times. They are restarted always or never.
    Bound {
        init: bool,
        sleeps: &'static [&'static str],
        restarts: bool,
    },
    /// A job whose containers have this request.
    Job(fn() -> ResourceRequest),
}

/// Pods of the scheduler under test.
#[derive(Clone, Copy)]
enum StackPods {
    /// Many small pods.
    Burst(fn() -> ResourceRequest),
    /// One pod for each zone.
    Large,
}

struct Row {
    id: &'static str,
    others: OtherPods,
    ours: StackPods,
}

fn nothing() -> ResourceRequest {
    ResourceRequest::Nothing
}

fn small_requests() -> ResourceRequest {
    ResourceRequest::Requests(Resources::literal("100m 256Mi"))
}

fn small_limits() -> ResourceRequest {
    ResourceRequest::Limits(Resources::literal("100m 256Mi"))
}

fn cpu_limits() -> ResourceRequest {
    ResourceRequest::Limits(Resources::literal("1c 256Mi"))
}

static ROWS: &[Row] = &[
    Row {
        id: "stall/init-short",
        others: OtherPods::Bound {
            init: true,
            sleeps: &["1s"],
            restarts: false,
        },
        ours: StackPods::Burst(load::guaranteed),
    },
    Row {
        id: "stall/init-long",
        others: OtherPods::Bound {
            init: true,
            sleeps: &["42d"],
            restarts: false,
        },
        ours: StackPods::Burst(load::guaranteed),
    },
    Row {
        id: "stall/partial-never",
        others: OtherPods::Bound {
            init: false,
            sleeps: &["42d", "1s"],
            restarts: false,
        },
        ours: StackPods::Burst(load::guaranteed),
    },
    Row {
        id: "stall/partial-always",
        others: OtherPods::Bound {
            init: false,
            sleeps: &["42d", "1s"],
            restarts: true,
        },
        ours: StackPods::Burst(load::guaranteed),
    },
    Row {
        id: "stall/job-be",
        others: OtherPods::Job(nothing),
        ours: StackPods::Large,
    },
    Row {
        id: "stall/job-bu",
        others: OtherPods::Job(small_requests),
        ours: StackPods::Large,
    },
    Row {
        id: "stall/job-gu-mem",
        others: OtherPods::Job(small_limits),
        ours: StackPods::Large,
    },
    Row {
        id: "stall/job-gu-mem-cpu",
        others: OtherPods::Job(cpu_limits),
        ours: StackPods::Large,
    },
    Row {
        id: "stall/job-burst-gu",
        others: OtherPods::Job(nothing),
        ours: StackPods::Burst(load::guaranteed),
    },
    Row {
        id: "stall/job-burst-bu",
        others: OtherPods::Job(nothing),
        ours: StackPods::Burst(load::burstable),
    },
];

pub(super) fn scenarios() -> Vec<Scenario> {
    let build = |row: &'static Row| {
        let run = body(move |ctx| Box::pin(run(ctx, row)));
        scenario(row.id, NEEDS, run)
    };
    ROWS.iter().map(build).collect()
}

async fn run(ctx: &Context, row: &Row) -> Result<(), StepError> {
    let arena = ctx
        .step(
            "two nodes with two zones are there",
            ctx.arena(None, 2, &Fit::Anything),
        )
        .await?;
    match row.others {
        OtherPods::Bound {
            init,
            sleeps,
            restarts,
        } => {
            let plan = |name: &str, node: &str| {
                let resources = sleeps.iter().map(|_| small_limits());
                let mut plan = PodPlan::new(name, "", resources)
                    .bound_to(node)
                    .sleeping(sleeps);
                if init {
                    plan = plan.with_init_containers([small_limits()]);
                }
                if restarts {
                    plan
                } else {
                    plan.never_restarted()
                }
            };
            ctx.step(
                "two pods of others start on each node",
                bound(ctx, &arena, plan),
            )
            .await?;
        }
        OtherPods::Job(resources) => {
            ctx.step("a job of others completes", job(ctx, &arena, &resources()))
                .await?;
        }
    }
    ctx.step("the cluster is settled", ctx.settle()).await?;
    match row.ours {
        StackPods::Burst(resources) => {
            load::burst(ctx, &arena, "testpod-schedstall", resources, false).await
        }
        StackPods::Large => load::one_for_each_zone(ctx, &arena, "stall-generic-pod").await,
    }
}

/// Creates the pods and waits until each has started; some have ended by then.
async fn bound(
    ctx: &Context,
    arena: &Arena,
    plan: impl Fn(&str, &str) -> PodPlan,
) -> Result<(), StepError> {
    let mut names = Vec::new();
    for (number, node) in arena.nodes().iter().enumerate() {
        for index in 0..2 {
            let name = format!("{JOB}-pod-{number}-{index}");
            ctx.create(
                plan(&name, &node.node)
                    .with_label("test-pod-index", &index.to_string())
                    .pod(),
            )
            .await?;
            names.push(name);
        }
    }
    let what = format!("{} pods have started", names.len());
    ctx.until(&what, ctx.deadlines().running, async || {
        let mut missing = Vec::new();
        for name in &names {
            let pod = ctx.pod(name).await?;
            match phase(&pod) {
                "Running" | "Succeeded" => {}
                "Failed" => return Err(StepError::fail(describe(&pod))),
                _ => missing.push(describe(&pod)),
            }
        }
        Ok(if missing.is_empty() {
            PollResult::Ready(())
        } else {
            PollResult::NotYet(missing.join(", "))
        })
    })
    .await
}

/// Runs as many short pods as there are zones, placed by the default scheduler.
async fn job(ctx: &Context, arena: &Arena, resources: &ResourceRequest) -> Result<(), StepError> {
    let count = 2 * arena.nodes().len();
    let plan = arena
        .confine(PodPlan::new(JOB, "", [resources.clone()]))
        .sleeping(&["1s"])
        .never_restarted()
        .with_label("app", "idle-job-sched-stall");
    let pod = plan.pod();
    let mut template = json!({"metadata": {"labels": pod.metadata.labels}, "spec": pod.spec});
    template["spec"]["topologySpreadConstraints"] = json!([{
        "maxSkew": 1,
        "topologyKey": api::labels::HOSTNAME,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": pod.metadata.labels},
        "matchLabelKeys": ["pod-template-hash"],
    }]);
    let job = json!({
        "metadata": {"name": JOB},
        "spec": {"parallelism": count, "completions": count, "template": template},
    });
    let job: Job =
        serde_json::from_value(job).map_err(|error| StepError::fail(format!("no job: {error}")))?;
    ctx.create(job).await?;
    let jobs = ctx.api::<Job>();
    ctx.until(
        &format!("job {JOB} is complete"),
        ctx.deadlines().running,
        async || {
            let status = jobs.get(JOB).await?.status.unwrap_or_default();
            let succeeded =
                usize::try_from(status.succeeded.unwrap_or_default()).unwrap_or_default();
            Ok(if succeeded == count {
                PollResult::Ready(())
            } else {
                PollResult::NotYet(format!(
                    "{succeeded} of {count} succeeded, {} failed",
                    status.failed.unwrap_or_default()
                ))
            })
        },
    )
    .await
}
