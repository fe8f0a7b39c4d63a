//! Watches this node and its pods on the API server. Each event is a hint to ask the kubelet.
//!
//! The resources of pods do not come from here, because the kubelet knows them better, including when a pod has released them. The watches
//! keep only what shows whether the kubelet has done its work: which pods have finished, and what the others request. Every watch starts
//! with a full list, so a lost watch costs only time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use daemon::log::chain;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Request, WatchEvent, WatchParams};
use kube::{Client, Resource as _};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::kubelet::demand::{Demands, WatchedPod};
use crate::kubelet::terminal_pods::TerminalPods;

/// Pause after a refused watch: the permission may be granted later.
const REFUSED_PAUSE: Duration = Duration::from_mins(5);
/// Pause after the first failed watch.
const MIN_PAUSE: Duration = Duration::from_secs(1);
/// Maximum pause after a failed watch.
const MAX_PAUSE: Duration = Duration::from_secs(15);
/// A watch that lasts this long counts as successful.
const SUCCESS_AFTER: Duration = Duration::from_secs(10);

/// The objects of a watch.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    what: &'static str,
    path: String,
    selector: String,
    state: WatchState,
}

/// The information that is stored about the watched objects.
#[derive(Clone, Debug)]
enum WatchState {
    Nothing,
    /// Namespaces and names.
    Names(TerminalPods),
    /// Demands of pods. Only this variant needs the whole objects.
    Demands(Demands),
}

impl WatchState {
    /// Forgets everything, because events since the last watch are unknown.
    fn clear(&self) {
        match self {
            Self::Nothing => {}
            Self::Names(names) => names.change(BTreeSet::clear),
            Self::Demands(demands) => demands.with(BTreeMap::clear),
        }
    }

    fn put(&self, pod: WatchedPod) {
        match self {
            Self::Nothing => {}
            Self::Names(names) => drop(names.change(|names| names.insert(pod.key()))),
            Self::Demands(demands) => {
                drop(demands.with(|demands| demands.insert(pod.key(), pod.demand())));
            }
        }
    }

    fn remove(&self, pod: &WatchedPod) {
        match self {
            Self::Nothing => {}
            Self::Names(names) => drop(names.change(|names| names.remove(&pod.key()))),
            Self::Demands(demands) => drop(demands.with(|demands| demands.remove(&pod.key()))),
        }
    }
}

impl Subject {
    /// Watches the pods of a node and stores their demands in `demands`.
    pub(crate) fn pods(node: &str, demands: Demands) -> Self {
        Self {
            what: "pods",
            path: Pod::url_path(&(), None),
            selector: format!("spec.nodeName={node}"),
            state: WatchState::Demands(demands),
        }
    }

    /// Watches the finished pods of a node and stores their names in `terminal`. Upstream selects phases that exclude each other, and never
    /// uses the result.
    pub(crate) fn terminal_pods(node: &str, terminal: TerminalPods) -> Self {
        let phases = "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown";
        Self {
            what: "finished pods",
            path: Pod::url_path(&(), None),
            selector: format!("spec.nodeName={node},{phases}"),
            state: WatchState::Names(terminal),
        }
    }

    /// Watches a node, whose status changes when device plugins appear and disappear.
    pub(crate) fn node(node: &str) -> Self {
        Self {
            what: "nodes",
            path: Node::url_path(&(), None),
            selector: format!("metadata.name={node}"),
            state: WatchState::Nothing,
        }
    }
}

/// Notifies `changed` whenever `subject` may have changed. Runs forever. A failed or refused watch is retried; the failure is logged once
/// until a watch succeeds.
pub(crate) async fn follow(client: Client, subject: Subject, changed: Arc<Notify>) {
    let backoff = || {
        ExponentialBuilder::default()
            .with_min_delay(MIN_PAUSE)
            .with_max_delay(MAX_PAUSE)
            .with_jitter()
            .without_max_times()
            .build()
    };
    let mut pauses = backoff();
    let mut logged = false;
    loop {
        let begun = Instant::now();
        let ended = watch(&client, &subject, &changed).await;
        if begun.elapsed() >= SUCCESS_AFTER {
            (pauses, logged) = (backoff(), false);
        }
        let pause = match &ended {
            // the server ends each watch after some minutes
            Ok(()) if begun.elapsed() >= SUCCESS_AFTER => continue,
            Err(error) if is_refusal(error) => REFUSED_PAUSE,
            _ => pauses.next().unwrap_or(MAX_PAUSE),
        };
        if let (Err(error), false) = (&ended, logged) {
            tracing::warn!(what = subject.what, error = %chain(error),
                "Cannot watch: changes are found by period and notification file only");
            logged = true;
        }
        sleep(pause).await;
    }
}

fn is_refusal(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 401 | 403))
}

/// Runs one watch until the server or the network ends it.
async fn watch(client: &Client, subject: &Subject, changed: &Notify) -> Result<(), kube::Error> {
    let parameters = WatchParams::default()
        .fields(&subject.selector)
        .disable_bookmarks();
    let request = Request::new(subject.path.clone());
    // version 0: first the existing objects from the server's cache, then the changes
    let request = match &subject.state {
        WatchState::Demands(_) => request.watch(&parameters, "0"),
        WatchState::Nothing | WatchState::Names(_) => request.watch_metadata(&parameters, "0"),
    };
    let request = request.map_err(kube::Error::BuildRequest)?;
    let mut events = Box::pin(client.request_events::<WatchedPod>(request).await?);
    subject.state.clear();
    changed.notify_one();
    while let Some(event) = events.next().await {
        match event? {
            WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
            WatchEvent::Added(seen) | WatchEvent::Modified(seen) => subject.state.put(seen),
            WatchEvent::Deleted(seen) => subject.state.remove(&seen),
            WatchEvent::Bookmark(_) => continue,
        }
        changed.notify_one();
    }
    Ok(())
}
