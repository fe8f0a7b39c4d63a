//! What is to be seen and done inside of exporters' containers, by running commands there.

use std::time::Duration;

use api::annotations::{RTE_UPDATE, UPDATE_PERIODIC, UPDATE_REACTIVE};
use api::nrt::v1alpha2::NodeResourceTopology;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, AttachParams, WatchEvent, WatchParams};
use serde_json::Value;
use tokio::io::AsyncReadExt as _;

use super::endpoint::some_node;
use super::reported::exporters;
use super::{one_node, own, scenario};
use crate::checks::node_of;
use crate::context::Context;
use crate::recorder::Look;
use crate::scenario::{Scenario, Stop, body};

/// Where an exporter of our own is notified: on the node, as the stack's exporters may be.
const NOTIFY_FILE: &str = "/host-run-rte/notify";
/// Longest wait for one change of an NRT before saying what is missing.
const LOOK: Duration = Duration::from_secs(1);
/// How often the other exporter has to publish before our own has certainly started.
const ROUNDS: usize = 2;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario(
            "rte/notify",
            "[RTE][InfraConsuming] Resource topology exporter",
            "[NotificationFile] it should react to touches of the notification file",
            one_node(),
            body(|ctx| Box::pin(notification_is_heard(ctx))),
        ),
        scenario(
            "rte/pfp-status",
            "[rte][podfingerprint]",
            "should expose the pod set fingerprint status on each worker",
            one_node(),
            body(|ctx| Box::pin(status_is_dumped(ctx))),
        ),
    ]
}

/// What a command in a container did.
struct Output {
    stdout: String,
    stderr: String,
    succeeded: bool,
}

/// Runs a command in the container of a pod that is the exporter.
async fn run(ctx: &Context, pod: &Pod, command: &[&str]) -> Result<Output, Stop> {
    let container = pod.spec.as_ref().and_then(own::exporter);
    let container = container.ok_or_else(|| Stop::fail("the pod has no exporter"))?;
    let params = AttachParams::default()
        .container(&container.name)
        .stdout(true)
        .stderr(true);
    let pods: Api<Pod> = Api::namespaced(ctx.client(), &pod.namespace().unwrap_or_default());
    let words = command.iter().copied();
    let mut process = pods.exec(&pod.name_any(), words, &params).await?;
    let mut output = Output {
        stdout: String::new(),
        stderr: String::new(),
        succeeded: false,
    };
    let missing = || Stop::fail("a stream of the command is missing");
    let mut stdout = process.stdout().ok_or_else(missing)?;
    let mut stderr = process.stderr().ok_or_else(missing)?;
    let status = process.take_status().ok_or_else(missing)?;
    let (read, complained, status) = tokio::join!(
        stdout.read_to_string(&mut output.stdout),
        stderr.read_to_string(&mut output.stderr),
        status
    );
    for outcome in [read, complained] {
        outcome.map_err(|error| Stop::fail(format!("output of {command:?}: {error}")))?;
    }
    output.succeeded = status.is_some_and(|status| status.status.as_deref() == Some("Success"));
    Ok(output)
}

async fn status_is_dumped(ctx: &Context) -> Result<(), Stop> {
    for pod in exporters(ctx).await? {
        let node = node_of(&pod).unwrap_or_default().to_owned();
        ctx.step(
            format!("the exporter on {node} has dumped its fingerprint and pods"),
            ctx.until(
                "there is a record with a fingerprint and pods",
                ctx.deadlines().settled,
                async || {
                    Ok(match record(ctx, &pod, &node).await? {
                        Ok(()) => Look::Ready(()),
                        Err(problem) => Look::NotYet(problem),
                    })
                },
            ),
        )
        .await?;
    }
    Ok(())
}

/// Looks for the latest record. Former exporters had one in `dump.json`, present ones have a list in a file with the node's name.
async fn record(ctx: &Context, pod: &Pod, node: &str) -> Result<Result<(), String>, Stop> {
    let directory = api::names::PFP_STATUS_DIR;
    let mut problem = String::new();
    for name in [node.replace('.', "_"), "dump.json".to_owned()] {
        let file = format!("{directory}/{name}");
        let output = run(ctx, pod, &["/bin/cat", &file]).await?;
        if output.succeeded {
            return Ok(flaw(&output.stdout).map_or(Ok(()), |flaw| {
                Err(format!("{file} {flaw}: {}", output.stdout))
            }));
        }
        problem = output.stderr;
    }
    Ok(Err(problem))
}

/// What a dump lacks.
fn flaw(text: &str) -> Option<String> {
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
    let pods = record["pods"].as_array();
    pods.is_none_or(Vec::is_empty)
        .then(|| "has no pods".to_owned())
}

/// The words that make an exporter publish fingerprints as those of the stack do.
async fn fingerprint_words(ctx: &Context) -> Result<Vec<String>, Stop> {
    let sets = own::daemon_sets(ctx).await?;
    let spec = sets
        .first()
        .and_then(|set| set.spec.as_ref()?.template.spec.as_ref());
    let words = spec
        .and_then(own::exporter)
        .and_then(|one| one.args.clone());
    let words = words.into_iter().flatten();
    Ok(words
        .filter(|word| word.trim_start_matches('-').starts_with("pods-fingerprint"))
        .collect())
}

async fn notification_is_heard(ctx: &Context) -> Result<(), Stop> {
    let node = some_node(ctx)?;
    let own = ctx
        .step("an exporter with a notification file runs", async {
            let file = format!("--notify-file={NOTIFY_FILE}");
            let mut words = fingerprint_words(ctx).await?;
            words.extend([file, "--sleep-interval=1h".to_owned()]);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let pod = own::start(ctx, "notify", &node, &words).await?;
            own::in_phase(ctx, &pod, "Running").await?;
            Ok(pod)
        })
        .await?;
    let objects = Api::<NodeResourceTopology>::all(ctx.client());
    let before = objects.get(&node).await?.resource_version();
    let only = WatchParams::default().fields(&format!("metadata.name={node}"));
    // Each version is to be seen: the other exporter of the node writes as well.
    let mut changes = objects
        .watch(&only, &before.unwrap_or_default())
        .await?
        .boxed();
    let mut next = async |reason: &str| -> Result<Look<()>, Stop> {
        let changed = tokio::time::timeout(LOOK, changes.try_next()).await;
        let Ok(event) = changed else {
            return Ok(Look::NotYet("it is not written".to_owned()));
        };
        let Some(WatchEvent::Modified(object)) = event? else {
            return Err(Stop::fail("the NRT is not followed any more"));
        };
        let seen = object.annotations().get(RTE_UPDATE);
        Ok(match seen {
            Some(seen) if seen == reason => Look::Ready(()),
            seen => Look::NotYet(format!("it was written, reason {seen:?}")),
        })
    };
    ctx.step(
        "only the other exporter publishes, with its period",
        async {
            for _ in 0..ROUNDS {
                ctx.until(
                    &format!("the NRT is written, reason {UPDATE_PERIODIC}"),
                    ctx.deadlines().settled,
                    async || next(UPDATE_PERIODIC).await,
                )
                .await?;
            }
            Ok(())
        },
    )
    .await?;
    ctx.step("touched, its file makes it publish", async {
        let output = run(ctx, &own, &["touch", NOTIFY_FILE]).await?;
        if !output.succeeded {
            return Err(Stop::fail(format!("touch: {}", output.stderr)));
        }
        ctx.until(
            &format!("the NRT is written, reason {UPDATE_REACTIVE}"),
            ctx.deadlines().settled,
            async || next(UPDATE_REACTIVE).await,
        )
        .await
    })
    .await
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::list(
        r#"[{"pods": []}, {"fingerprintComputed": "pfp0v001x", "pods": [{}]}]"#,
        None
    )]
    #[case::former(r#"{"fingerprintComputed": "pfp0v001x", "pods": [{}]}"#, None)]
    #[case::no_fingerprint(
        r#"{"fingerprintComputed": "", "pods": [{}]}"#,
        Some("has no fingerprint")
    )]
    #[case::no_pods(r#"[{"fingerprintComputed": "x", "pods": []}]"#, Some("has no pods"))]
    fn dumps_have_a_fingerprint_and_pods(#[case] text: &str, #[case] expected: Option<&str>) {
        assert_eq!(flaw(text).as_deref(), expected);
    }

    #[test]
    fn half_a_dump_is_no_dump() {
        assert!(flaw("[{").is_some());
        assert!(flaw("[]").is_some());
    }
}
