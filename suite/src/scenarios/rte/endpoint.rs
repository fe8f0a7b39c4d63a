//! Metrics: those of the stack over TLS, and those of our own exporter without TLS, because the operator has no such setting. They are read
//! over a forwarded port, where the original's suite runs `curl` in the exporter's container.

use super::{NEEDS, own};
use crate::context::Context;
use crate::context::metrics::Endpoint;
use crate::resources::Resources;
use crate::scenario::{Scenario, body};
use crate::scenarios::registry::scenario;
use crate::step::StepError;
use crate::workload::{PodPlan, ResourceRequest};

/// Fragments that the names of metrics must contain.
const FRAGMENTS: [&str; 2] = ["operation_delay", "wakeup_delay"];
const WRITES: &str = "noderesourcetopology_writes_total";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario(
            "rte/metrics-https",
            NEEDS,
            body(|ctx| Box::pin(over_tls(ctx))),
        ),
        scenario(
            "rte/metrics-http",
            NEEDS,
            body(|ctx| Box::pin(without_tls(ctx))),
        ),
        scenario(
            "rte/metrics-writes",
            NEEDS,
            body(|ctx| Box::pin(writes_are_counted(ctx))),
        ),
    ]
}

async fn over_tls(ctx: &Context) -> Result<(), StepError> {
    let reader = ctx.metrics_reader().await?;
    for pod in ctx.exporters().await? {
        ctx.step(
            "an exporter of the stack has metrics over https",
            ctx.metrics_have(
                &reader,
                &pod,
                Endpoint::Https(api::metrics::RTE_PORT),
                &FRAGMENTS,
            ),
        )
        .await?;
    }
    Ok(())
}

async fn without_tls(ctx: &Context) -> Result<(), StepError> {
    let node = some_node(ctx)?;
    let port = format!("--metrics-port={}", own::METRICS_PORT);
    let arguments = [
        "--no-publish",
        "--metrics-mode=http",
        "--metrics-ip=0.0.0.0",
        "--sleep-interval=1s",
        port.as_str(),
    ];
    let pod = ctx
        .step("an exporter with mode http runs", async {
            let pod = own::start(ctx, "http", &node, &arguments).await?;
            own::in_phase(ctx, &pod, "Running").await?;
            Ok(pod)
        })
        .await?;
    let reader = ctx.metrics_reader().await?;
    ctx.step(
        "it has metrics over http",
        ctx.metrics_have(&reader, &pod, Endpoint::Http(own::METRICS_PORT), &FRAGMENTS),
    )
    .await
}

async fn writes_are_counted(ctx: &Context) -> Result<(), StepError> {
    let node = some_node(ctx)?;
    ctx.step("a pod with an exclusive CPU runs", async {
        let resources = ResourceRequest::Limits(Resources::literal("1c 100Mi"));
        let plan = PodPlan::new("testpod", "", [resources]).bound_to(&node);
        ctx.create(plan.pod()).await?;
        ctx.pods_running(&[plan.name().to_owned()]).await.map(drop)
    })
    .await?;
    let pod = ctx.exporter_on(&node).await?;
    let reader = ctx.metrics_reader().await?;
    ctx.step(
        "its node's exporter has counted writes",
        ctx.metrics_have(
            &reader,
            &pod,
            Endpoint::Https(api::metrics::RTE_PORT),
            &[WRITES],
        ),
    )
    .await
}

/// Returns a node that has an exporter.
pub(super) fn some_node(ctx: &Context) -> Result<String, StepError> {
    let mut candidates = ctx.facts().candidates(None);
    let node = candidates
        .next()
        .ok_or_else(|| StepError::fail("no node has two zones and policy single-numa-node"))?;
    Ok(node.node.clone())
}
