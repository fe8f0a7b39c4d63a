//! What the scheduler says of the pods that wait for it: its own `explain`, run in its container.

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt as _;
use kube::api::Api;
use serde_json::json;

use super::Gather;
use super::dumps;
use super::folder::name;
use crate::{cluster, exec};

/// Largest number of pods that are explained.
const MAX_PODS: usize = 50;

/// Collects the explanations that a scheduler of this namespace gives.
pub(super) async fn collect(gather: &Gather, namespace: &str) {
    let Some(scheduler) = dumps::schedulers(gather, namespace)
        .await
        .into_iter()
        .next()
    else {
        return;
    };
    let containers = scheduler.spec.iter().flat_map(|spec| &spec.containers);
    let Some(container) = containers.into_iter().next() else {
        return;
    };
    let pods: Api<Pod> = Api::all(gather.client.clone());
    let pods = gather.limits.request(cluster::list(&pods, "")).await;
    let pods = gather
        .folder
        .or_error("pending pods", pods)
        .unwrap_or_default();
    for pod in pods.iter().filter(|pod| waits(pod)).take(MAX_PODS) {
        let key = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
        let path = format!(
            "explain/{}/{}",
            name(&pod.namespace().unwrap_or_default()),
            name(&pod.name_any())
        );
        let mut object = json!(pod);
        object["apiVersion"] = json!("v1");
        object["kind"] = json!("Pod");
        gather.folder.yaml(&format!("{path}.yaml"), &object);
        for (format, ending) in [("json", "json"), ("table", "txt")] {
            let words = command(container, &key, format);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let text = exec::run(&gather.client, &scheduler, &container.name, &words);
            let text = gather.limits.request(text).await;
            let what = format!("explanation of pod {key}");
            let Some(text) = gather.folder.or_error(&what, text) else {
                // the scheduler of the original has no such command: one line about it is enough for a pod
                break;
            };
            gather.folder.text(&format!("{path}.{ending}"), &text);
        }
    }
}

/// Returns whether a pod waits for a scheduler.
fn waits(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let node = spec.and_then(|spec| spec.node_name.as_deref());
    let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
    node.is_none_or(str::is_empty) && phase.is_none_or(|phase| phase == "Pending")
}

/// Returns the command that explains a pod by the configuration with which the scheduler runs.
fn command(scheduler: &Container, pod: &str, format: &str) -> Vec<String> {
    let program = scheduler.command.iter().flatten().next();
    let program = program.map_or(api::names::SCHEDULER_BINARY, String::as_str);
    let mut words: Vec<String> = [program, "explain", pod, "-o", format]
        .map(str::to_owned)
        .to_vec();
    let arguments = scheduler
        .command
        .iter()
        .flatten()
        .chain(scheduler.args.iter().flatten());
    words.extend(
        arguments
            .filter(|word| word.starts_with("--config="))
            .cloned(),
    );
    words
}
