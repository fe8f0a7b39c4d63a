//! The pods of a namespace, with the logs of their containers: current ones, and those of the runs before.

use std::collections::VecDeque;

use apply::Cause;
use futures::io::AsyncRead;
use futures::{AsyncReadExt as _, TryFutureExt as _};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, LogParams};
use serde_json::json;

use super::Gather;
use super::folder::name;
use crate::cluster;

/// Bytes that are read at once.
const CHUNK: usize = 64 << 10;

/// Collects the pods of a namespace.
pub(super) async fn collect(gather: &Gather, namespace: &str) {
    let pods: Api<Pod> = Api::namespaced(gather.client.clone(), namespace);
    let listed = gather.limits.request(cluster::list(&pods, "")).await;
    let what = format!("logs of namespace {namespace}");
    for pod in gather.folder.or_error(&what, listed).unwrap_or_default() {
        let folder = format!(
            "namespaces/{}/pods/{}",
            name(namespace),
            name(&pod.name_any())
        );
        let mut object = json!(&pod);
        object["apiVersion"] = json!("v1");
        object["kind"] = json!("Pod");
        let path = format!("{folder}/{}.yaml", name(&pod.name_any()));
        gather.folder.yaml(&path, &object);
        for status in statuses(&pod) {
            // a container that never ran has no log
            if has_run(status) {
                log(gather, &pods, &pod, &folder, &status.name, false).await;
            }
            if status.restart_count > 0 {
                log(gather, &pods, &pod, &folder, &status.name, true).await;
            }
        }
    }
}

fn statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.as_ref();
    let init = status.and_then(|status| status.init_container_statuses.as_ref());
    let app = status.and_then(|status| status.container_statuses.as_ref());
    init.into_iter().chain(app).flatten()
}

/// Returns whether a container has ever run. One that waits for its next start shows the log of its last run.
fn has_run(status: &ContainerStatus) -> bool {
    let states = [&status.state, &status.last_state];
    let mut states = states.into_iter().flatten();
    states.any(|state| state.running.is_some() || state.terminated.is_some())
}

async fn log(
    gather: &Gather,
    pods: &Api<Pod>,
    pod: &Pod,
    folder: &str,
    container: &str,
    previous: bool,
) {
    let params = LogParams {
        container: Some(container.to_owned()),
        previous,
        timestamps: true,
        ..LogParams::default()
    };
    let pod = pod.name_any();
    let limit = gather.limits.log_bytes;
    let text = async {
        let stream = pods
            .log_stream(&pod, &params)
            .map_err(|error| Unread::Request(error.into()));
        end_of(stream.await?, limit).await.map_err(Unread::Stream)
    };
    let file = if previous { "previous" } else { "current" };
    let what = format!("{file} log of {pod}/{container}");
    let text = gather.limits.request(text).await;
    if let Some(text) = gather.folder.or_error(&what, text) {
        let container = name(container);
        // that the container's name is twice in the path is the layout of `oc adm inspect`
        let path = format!("{folder}/{container}/{container}/logs/{file}.log");
        gather.folder.text(&path, &text);
    }
}

/// A log could not be read.
#[derive(Debug, thiserror::Error)]
enum Unread {
    /// The API server refused.
    #[error(transparent)]
    Request(Cause),
    /// It broke off.
    #[error("it broke off")]
    Stream(#[source] std::io::Error),
}

/// Reads a log and keeps its end. If something is left out, the first line says so and the next is whole.
async fn end_of(stream: impl AsyncRead, limit: u64) -> std::io::Result<String> {
    let mut stream = std::pin::pin!(stream);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut kept: VecDeque<u8> = VecDeque::new();
    let mut left_out = 0;
    let mut chunk = vec![0; CHUNK];
    loop {
        let count = stream.read(&mut chunk).await?;
        if count == 0 {
            break;
        }
        kept.extend(&chunk[..count]);
        let surplus = kept.len().saturating_sub(limit);
        kept.drain(..surplus);
        left_out += surplus;
    }
    let kept = Vec::from(kept);
    let text = String::from_utf8_lossy(&kept);
    if left_out == 0 {
        return Ok(text.into_owned());
    }
    let start = text.find('\n').map_or(0, |end| end + 1);
    let (left_out, rest) = (left_out + start, &text[start..]);
    Ok(format!(
        "({left_out} bytes before this line are left out)\n{rest}"
    ))
}

#[cfg(test)]
mod tests {
    use futures::io::Cursor;

    use super::*;

    #[tokio::test]
    async fn the_end_of_a_long_log_is_kept_from_a_whole_line_on() {
        let text = "one\ntwo\nthree\n";
        let end = async |limit| end_of(Cursor::new(text), limit).await.expect("readable");
        assert_eq!(end(100).await, text);
        assert_eq!(
            end(8).await,
            "(8 bytes before this line are left out)\nthree\n"
        );
    }
}
