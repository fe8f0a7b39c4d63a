//! Keeps the volumes of a running pod up to date with their objects.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{BoxStream, SelectAll, StreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use k8s_openapi::jiff::Timestamp;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use crate::node::kubelet::Kubelet;
use crate::node::volumes::{self, References, Tokens};

/// Interval between two checks when nothing has to be renewed.
const CHECK_INTERVAL: Duration = Duration::from_hours(1);
/// Time until a failed update is repeated.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// Runs until the task is aborted.
pub(crate) async fn run(
    kubelet: Arc<Kubelet>,
    pod: Pod,
    references: References,
    mut tokens: Tokens,
) {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let mut changes = SelectAll::new();
    for name in &references.config_maps {
        let api: Api<ConfigMap> = Api::namespaced(kubelet.client.clone(), &namespace);
        changes.push(object_changes(api, name));
    }
    for name in &references.secrets {
        let api: Api<Secret> = Api::namespaced(kubelet.client.clone(), &namespace);
        changes.push(object_changes(api, name));
    }
    let mut failed = false;
    loop {
        let pause = match tokens.renewal() {
            _ if failed => RETRY_DELAY,
            Some(at) => Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default(),
            None => CHECK_INTERVAL,
        };
        tokio::select! {
            Some(is_change) = changes.next() => if !is_change { continue; },
            () = tokio::time::sleep(pause) => {}
        }
        kubelet.until_running().await;
        let context = kubelet.volume_context();
        failed = match volumes::mount(&context, &pod, &mut tokens).await {
            Ok(_) => false,
            Err(error) => {
                tracing::debug!(%error, "Volume was not updated; trying again");
                true
            }
        };
    }
}

/// Returns the events of the object with a name, as whether each changes it.
fn object_changes<K>(api: Api<K>, name: &str) -> BoxStream<'static, bool>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    // Without a backoff, a watch whose client is gone would fail in a tight loop and never yield its thread, so the runtime could not end.
    watcher(api, only)
        .default_backoff()
        .map(|event| is_change(&event))
        .boxed()
}

fn is_change<K>(event: &Result<watcher::Event<K>, watcher::Error>) -> bool {
    matches!(
        event,
        Ok(watcher::Event::Apply(_) | watcher::Event::Delete(_) | watcher::Event::InitApply(_))
    )
}
