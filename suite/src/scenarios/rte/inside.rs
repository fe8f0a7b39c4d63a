//! What can be observed and done inside the exporters' containers, by running commands there.

use std::time::Duration;

use api::annotations::{RTE_UPDATE, UPDATE_PERIODIC, UPDATE_REACTIVE};
use api::nrt::v1alpha2::NodeResourceTopology;
use futures::{StreamExt as _, TryStream, TryStreamExt as _};
use kube::ResourceExt;
use kube::api::{Api, WatchEvent, WatchParams};

use super::endpoint::some_node;
use super::{NEEDS, own};
use crate::context::Context;
use crate::context::checks::node_of;
use crate::context::stack::exporters;
use crate::recorder::PollResult;
use crate::resources::Resources;
use crate::scenario::{Scenario, body};
use crate::scenarios::registry::scenario;
use crate::step::StepError;
use crate::workload::{PodPlan, ResourceRequest};

/// Notification file of our own exporter: on the node, where the stack's exporters may have theirs.
const NOTIFY_FILE: &str = "/host-run-rte/notify";
/// Longest wait for one change of an NRT before reporting what is missing.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(1);
/// How often the file is touched and the reaction checked.
const ROUNDS: usize = 2;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario(
            "rte/notify",
            NEEDS,
            body(|ctx| Box::pin(notification_triggers_update(ctx))),
        ),
        scenario(
            "rte/pfp-status",
            NEEDS,
            body(|ctx| Box::pin(status_is_dumped(ctx))),
        ),
    ]
}

async fn status_is_dumped(ctx: &Context) -> Result<(), StepError> {
    for (index, pod) in ctx.exporters().await?.iter().enumerate() {
        let node = node_of(pod).unwrap_or_default().to_owned();
        let name = format!("testpod-{index}");
        let exclusive = ResourceRequest::Limits(Resources::literal("1c 32Mi"));
        // Every fingerprint method counts this pod.
        let plan = PodPlan::new(&name, "", [exclusive]).bound_to(&node);
        ctx.step(
            format!("a pod with a CPU of its own runs on {node}"),
            async {
                ctx.create(plan.pod()).await?;
                ctx.pods_running(std::slice::from_ref(&name)).await
            },
        )
        .await?;
        ctx.step(
            format!("the exporter on {node} has dumped its fingerprint and pods"),
            ctx.last_scan_has(pod, &name, true),
        )
        .await?;
    }
    Ok(())
}

/// Returns the arguments that make an exporter publish fingerprints like those of the stack.
async fn fingerprint_arguments(ctx: &Context) -> Result<Vec<String>, StepError> {
    let sets = ctx.exporter_daemon_sets().await?;
    let spec = sets
        .first()
        .and_then(|set| set.spec.as_ref()?.template.spec.as_ref());
    let arguments = spec
        .and_then(exporters::container)
        .and_then(|one| one.args.clone());
    let arguments = arguments.into_iter().flatten();
    Ok(arguments
        .filter(|argument| {
            argument
                .trim_start_matches('-')
                .starts_with("pods-fingerprint")
        })
        .collect())
}

async fn notification_triggers_update(ctx: &Context) -> Result<(), StepError> {
    let node = some_node(ctx)?;
    let own = ctx
        .step("an exporter with a notification file runs", async {
            let file = format!("--notify-file={NOTIFY_FILE}");
            let mut arguments = fingerprint_arguments(ctx).await?;
            arguments.extend([file, "--sleep-interval=1h".to_owned()]);
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let pod = own::start(ctx, "notify", &node, &arguments).await?;
            own::in_phase(ctx, &pod, "Running").await?;
            Ok(pod)
        })
        .await?;
    let objects = Api::<NodeResourceTopology>::all(ctx.client());
    // Our own exporter publishes at its start without a notification. That can be mistaken for one reaction, but not for two.
    for round in 1..=ROUNDS {
        let version = ctx
            .step(
                format!("round {round}: the other exporter has published, with its period"),
                ctx.until(
                    &format!("the NRT of {node} says {UPDATE_PERIODIC}"),
                    ctx.deadlines().settled,
                    async || {
                        let object = objects.get(&node).await?;
                        let version = object.resource_version().unwrap_or_default();
                        Ok(match object.annotations().get(RTE_UPDATE) {
                            Some(seen) if seen == UPDATE_PERIODIC => PollResult::Ready(version),
                            seen => PollResult::NotYet(format!("it says {seen:?}")),
                        })
                    },
                ),
            )
            .await?;
        // The watch must show each version, because the other exporter writes as well.
        let only = WatchParams::default().fields(&format!("metadata.name={node}"));
        let mut changes = objects.watch(&only, &version).await?.boxed();
        ctx.step(
            format!("round {round}: touched, its file makes it publish"),
            ctx.until(
                &format!("the NRT of {node} says {UPDATE_REACTIVE}"),
                ctx.deadlines().settled,
                async || {
                    let output = ctx.exec_in_exporter(&own, &["touch", NOTIFY_FILE]).await?;
                    if !output.succeeded {
                        return Err(StepError::fail(format!("touch: {}", output.stderr)));
                    }
                    let changed = tokio::time::timeout(CHANGE_TIMEOUT, reason(&mut changes)).await;
                    Ok(match changed.ok().transpose()? {
                        Some(Some(seen)) if seen == UPDATE_REACTIVE => PollResult::Ready(()),
                        Some(seen) => {
                            PollResult::NotYet(format!("it was written and says {seen:?}"))
                        }
                        None => PollResult::NotYet("it is not written".to_owned()),
                    })
                },
            ),
        )
        .await?;
    }
    Ok(())
}

/// Returns why the next version of an NRT was published.
async fn reason(
    changes: &mut (impl TryStream<Ok = WatchEvent<NodeResourceTopology>, Error = kube::Error> + Unpin),
) -> Result<Option<String>, StepError> {
    loop {
        match changes.try_next().await? {
            Some(WatchEvent::Modified(object)) => {
                return Ok(object.annotations().get(RTE_UPDATE).cloned());
            }
            Some(WatchEvent::Bookmark(_)) => {}
            other => {
                return Err(StepError::fail(format!(
                    "the NRT is not followed any more: {other:?}"
                )));
            }
        }
    }
}
