//! What can be observed and done inside the exporters' containers, by running commands there.

use std::time::Duration;

use api::annotations::{RTE_UPDATE, UPDATE_PERIODIC, UPDATE_REACTIVE};
use api::nrt::v1alpha2::NodeResourceTopology;
use futures::{StreamExt as _, TryStream, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, WatchEvent, WatchParams};
use serde_json::Value;

use super::endpoint::some_node;
use super::{NEEDS, own};
use crate::context::Context;
use crate::context::checks::node_of;
use crate::context::probe::Output;
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
            "rte/notify", NEEDS,
            body(|ctx| Box::pin(notification_triggers_update(ctx))),
        ),
        scenario(
            "rte/pfp-status", NEEDS,
            body(|ctx| Box::pin(status_is_dumped(ctx))),
        ),
    ]
}

/// Runs a command in the exporter container of a pod.
async fn run(ctx: &Context, pod: &Pod, command: &[&str]) -> Result<Output, StepError> {
    let container = pod.spec.as_ref().and_then(own::exporter);
    let container = container.ok_or_else(|| StepError::fail("the pod has no exporter"))?;
    ctx.exec(pod, &container.name, command).await
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
            ctx.until(
                "there is a record with a fingerprint and the pod",
                ctx.deadlines().settled,
                async || record(ctx, pod, &node, &name).await,
            ),
        )
        .await?;
    }
    Ok(())
}

/// Checks the latest record of a dump. Older exporters write one record to `dump.json`; current ones write a list to a file with the node's
/// name.
async fn record(
    ctx: &Context,
    exporter: &Pod,
    node: &str,
    pod: &str,
) -> Result<PollResult<()>, StepError> {
    let directory = api::names::PFP_STATUS_DIR;
    let mut problem = String::new();
    for name in [node.replace('.', "_"), "dump.json".to_owned()] {
        let file = format!("{directory}/{name}");
        let output = run(ctx, exporter, &["/bin/cat", &file]).await?;
        if output.succeeded {
            return Ok(match flaw(&output.stdout, &ctx.namespace, pod) {
                None => PollResult::Ready(()),
                Some(flaw) => PollResult::NotYet(format!("{file} {flaw}: {}", output.stdout)),
            });
        }
        problem = output.stderr;
    }
    Ok(PollResult::NotYet(problem))
}

/// Returns what is wrong with a dump.
fn flaw(text: &str, namespace: &str, pod: &str) -> Option<String> {
    let dump: Value = match serde_json::from_str(text) {
        Ok(dump) => dump,
        Err(error) => return Some(format!("is no JSON ({error})")),
    };
    let record = match &dump {
        Value::Array(records) => match records.last() {
            Some(record) => record,
            None => return Some("has no record".to_owned()),
        },
        record => record,
    };
    if record["fingerprintComputed"]
        .as_str()
        .is_none_or(str::is_empty)
    {
        return Some("has no fingerprint".to_owned());
    }
    let mut pods = record["pods"].as_array().into_iter().flatten();
    let has_it = pods.any(|one| one["Namespace"] == namespace && one["Name"] == pod);
    (!has_it).then(|| format!("does not have {namespace}/{pod}"))
}

/// Returns the arguments that make an exporter publish fingerprints like those of the stack.
async fn fingerprint_arguments(ctx: &Context) -> Result<Vec<String>, StepError> {
    let sets = ctx.exporter_daemon_sets().await?;
    let spec = sets
        .first()
        .and_then(|set| set.spec.as_ref()?.template.spec.as_ref());
    let arguments = spec
        .and_then(own::exporter)
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
                    let output = run(ctx, &own, &["touch", NOTIFY_FILE]).await?;
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

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::list(
        r#"[{"pods": []}, {"fingerprintComputed": "pfp0v001x", "pods": [{"Namespace": "n", "Name": "p"}]}]"#,
        None
    )]
    #[case::former(
        r#"{"fingerprintComputed": "pfp0v001x", "pods": [{"Namespace": "n", "Name": "p"}]}"#,
        None
    )]
    #[case::no_fingerprint(
        r#"{"fingerprintComputed": "", "pods": [{"Namespace": "n", "Name": "p"}]}"#,
        Some("has no fingerprint")
    )]
    #[case::other_pods(
        r#"[{"fingerprintComputed": "x", "pods": [{"Namespace": "m", "Name": "p"}]}]"#,
        Some("does not have n/p")
    )]
    fn dumps_have_a_fingerprint_and_the_pod(#[case] text: &str, #[case] expected: Option<&str>) {
        assert_eq!(flaw(text, "n", "p").as_deref(), expected);
    }

    #[test]
    fn half_a_dump_is_no_dump() {
        assert!(flaw("[{", "n", "p").is_some());
        assert!(flaw("[]", "n", "p").is_some());
    }
}
