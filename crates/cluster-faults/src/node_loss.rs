//! A node that goes and comes back: its object is deleted while its kubelet is down.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams};
use tokio::time::{Instant, sleep};

use crate::{Error, NodeFaults, failed};

/// Time between two attempts of a request: the API server may be away at the same time.
const RETRY: Duration = Duration::from_millis(250);
/// Longest time of a request.
const PATIENCE: Duration = Duration::from_secs(30);

/// Deletes a node until `over` is ready. Its containers live on. It comes back with the labels, annotations and settings that it had, but as
/// another object.
pub(crate) async fn lose(
    client: &Client,
    nodes: &dyn NodeFaults,
    name: &str,
    over: impl Future<Output = ()>,
) -> Result<u64, Error> {
    let api: Api<Node> = Api::all(client.clone());
    let stopped = nodes.stop_kubelet(name).await;
    stopped.map_err(failed(name, "stop its kubelet"))?;
    let lost = lose_object(&api, name, over).await;
    // whatever became of the object
    let started = nodes.start_kubelet(name).await;
    lost?;
    started
        .map(|()| 1)
        .map_err(failed(name, "start its kubelet"))
}

async fn lose_object(
    api: &Api<Node>,
    name: &str,
    over: impl Future<Output = ()>,
) -> Result<(), Error> {
    let now = DeleteParams::default();
    let before = insist(name, "show its object", || api.get(name)).await?;
    insist(name, "go", async || match api.delete(name, &now).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        other => other.map(drop),
    })
    .await?;
    over.await;
    let again = Node {
        metadata: ObjectMeta {
            name: before.metadata.name,
            labels: before.metadata.labels,
            annotations: before.metadata.annotations,
            ..ObjectMeta::default()
        },
        spec: before.spec,
        status: None,
    };
    insist(name, "come back", || async {
        match api.create(&PostParams::default(), &again).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            other => other.map(drop),
        }
    })
    .await
}

/// Repeats a request until it succeeds. Its future has a type of its own, because callers of asynchronous closures cannot be spawned.
async fn insist<T, F: Future<Output = kube::Result<T>>>(
    name: &str,
    what: &'static str,
    call: impl Fn() -> F,
) -> Result<T, Error> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match call().await {
            Ok(answer) => return Ok(answer),
            Err(source) if Instant::now() >= deadline => {
                return Err(failed(name, what)(Box::new(source)));
            }
            Err(_) => sleep(RETRY).await,
        }
    }
}
