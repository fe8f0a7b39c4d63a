//! Collects the state of the cluster after a failure, before changes are undone.

use std::path::Path;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams, LogParams};
use kube::{Client, ResourceExt};
use reports::event::{Event as RunEvent, Failure};
use serde::Serialize;

use crate::context::Context;
use crate::context::checks::{describe, event_lines};
use crate::health::{self, Restarts};
use crate::recorder::Recorder;

/// Number of lines that are kept of each log.
const LOG_LINES: i64 = 400;
/// Number of lines of events and pods that the failure itself shows.
const SHOWN: usize = 12;

/// Collects pods, events and logs of a failed scenario.
pub(crate) async fn scenario(
    context: &Context,
    dir: &Path,
    before: &Restarts,
    failure: &mut Failure,
) {
    let pods = context
        .api::<Pod>()
        .list(&ListParams::default())
        .await
        .map(|list| list.items)
        .unwrap_or_default();
    write(&context.recorder, dir, "pods.yaml", &yaml(&pods)).await;
    let events = event_lines(&context.api::<Event>()).await;
    write(&context.recorder, dir, "events.txt", &events.join("\n")).await;
    let test_pods: Vec<_> = pods
        .iter()
        .filter(|pod| !pod.name_any().starts_with("padpod-"))
        .map(describe)
        .collect();
    show(failure, "pods:", &test_pods);
    let shown: Vec<_> = events
        .into_iter()
        .filter(|line| !line.contains("/padpod-"))
        .collect();
    show(failure, "events:", &shown);
    stack(&context.client(), &context.recorder, dir, before, failure).await;
}

/// Puts what is wrong with the stack itself before all other details: it may explain them.
async fn troubles(client: &Client, before: &Restarts, failure: &mut Failure) {
    let lines = match health::troubles(client, before).await {
        Ok(lines) => lines,
        Err(error) => vec![format!("its pods cannot be listed: {error}")],
    };
    if lines.is_empty() {
        return;
    }
    let title = "what is wrong with the stack:".to_owned();
    let lines = lines.into_iter().map(|line| format!("  {line}"));
    failure
        .details
        .splice(..0, std::iter::once(title).chain(lines));
}

/// Collects the state and logs of the stack. `before` are the restarts that are not its trouble.
pub(crate) async fn stack(
    client: &Client,
    recorder: &Recorder,
    dir: &Path,
    before: &Restarts,
    failure: &mut Failure,
) {
    troubles(client, before, failure).await;
    if let Ok(nodes) = crate::context::topologies(client).await {
        let lines: Vec<_> = nodes
            .iter()
            .map(crate::observed::NodeTopology::describe)
            .collect();
        write(recorder, dir, "nrts.txt", &lines.join("\n")).await;
        show(failure, "NRTs:", &lines);
    }
    if let Ok(nodes) = Api::<Node>::all(client.clone())
        .list(&ListParams::default())
        .await
    {
        write(recorder, dir, "nodes.yaml", &yaml(&nodes.items)).await;
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), api::names::NAMESPACE);
    let list = pods
        .list(&ListParams::default())
        .await
        .map(|list| list.items)
        .unwrap_or_default();
    if !list.is_empty() {
        write(recorder, dir, "stack-pods.yaml", &yaml(&list)).await;
        let events: Api<Event> = Api::namespaced(client.clone(), api::names::NAMESPACE);
        write(
            recorder,
            dir,
            "stack-events.txt",
            &event_lines(&events).await.join("\n"),
        )
        .await;
    }
    for pod in list {
        for container in pod.spec.iter().flat_map(|spec| &spec.containers) {
            let params = LogParams {
                container: Some(container.name.clone()),
                tail_lines: Some(LOG_LINES),
                ..LogParams::default()
            };
            if let Ok(text) = pods.logs(&pod.name_any(), &params).await
                && !text.is_empty()
            {
                write(
                    recorder,
                    &dir.join("logs"),
                    &format!("{}_{}.log", pod.name_any(), container.name),
                    &text,
                )
                .await;
            }
        }
    }
    failure.artifacts = Some(dir.display().to_string());
}

fn show(failure: &mut Failure, title: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    failure.details.push(title.to_owned());
    let from = lines.len().saturating_sub(SHOWN);
    failure
        .details
        .extend(lines[from..].iter().map(|line| format!("  {line}")));
}

fn yaml(objects: &[impl Serialize]) -> String {
    let one = |object| serde_yaml::to_string(object).unwrap_or_else(|error| format!("# {error}\n"));
    objects.iter().map(one).collect::<Vec<_>>().join("---\n")
}

/// Writes a file. A failure to write does not hide the failure that the file describes, but the reports of the run are not complete then.
async fn write(recorder: &Recorder, dir: &Path, name: &str, text: &str) {
    let path = dir.join(name);
    let written = async {
        tokio::fs::create_dir_all(dir).await?;
        tokio::fs::write(&path, text).await
    };
    match written.await {
        Ok(()) => recorder.stream().emit(RunEvent::ArtifactWritten {
            unit: recorder.unit().to_owned(),
            path: path.display().to_string(),
        }),
        Err(error) => {
            let text = format!("cannot write {}: {error}", path.display());
            recorder.note(&text);
            recorder.stream().fail(text);
        }
    }
}
