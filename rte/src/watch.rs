//! Watches this node and its pods on the API server. Each event is a hint to ask the kubelet.
//!
//! The resources of pods do not come from here, because the kubelet knows them better, including when a pod has released them. The watches
//! keep only what shows whether the kubelet has done its work: which pods have finished, and what the others request. Every watch starts
//! with a full list, so a lost watch costs only time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Request, WatchEvent, WatchParams};
use kube::{Client, Resource as _};
use podresources::v1;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::demand::{Demands, Key, SeenPod};
use crate::publish::chain;

/// Pause after a refused watch: the permission may be granted later.
const REFUSED: Duration = Duration::from_mins(5);
/// First and maximum pause after a failed watch.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));
/// A watch that lasts this long counts as successful.
const GOOD: Duration = Duration::from_secs(10);

/// The finished pods of the node, by namespace and name. Old kubelets still list such pods although they hold nothing any more. Clones
/// share the data.
#[derive(Clone, Debug, Default)]
pub(crate) struct Terminal(Arc<Mutex<BTreeSet<Key>>>);

impl Terminal {
    /// Removes the finished pods from an answer of the kubelet.
    pub(crate) fn leave_out(&self, pods: &mut Vec<v1::PodResources>) {
        let finished = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !finished.is_empty() {
            pods.retain(|pod| !finished.contains(&(pod.namespace.clone(), pod.name.clone())));
        }
    }

    fn change<T>(&self, act: impl FnOnce(&mut BTreeSet<Key>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The objects of a watch.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    what: &'static str,
    path: String,
    selector: String,
    kept: Kept,
}

/// What is kept of the watched objects.
#[derive(Clone, Debug)]
enum Kept {
    Nothing,
    /// Namespaces and names.
    Names(Terminal),
    /// Demands of pods. Only this variant needs the whole objects.
    Demands(Demands),
}

impl Kept {
    /// Forgets everything, because events since the last watch are unknown.
    fn clear(&self) {
        match self {
            Self::Nothing => {}
            Self::Names(names) => names.change(BTreeSet::clear),
            Self::Demands(demands) => demands.with(BTreeMap::clear),
        }
    }

    fn put(&self, pod: SeenPod) {
        match self {
            Self::Nothing => {}
            Self::Names(names) => drop(names.change(|names| names.insert(pod.key()))),
            Self::Demands(demands) => {
                drop(demands.with(|demands| demands.insert(pod.key(), pod.demand())));
            }
        }
    }

    fn remove(&self, pod: &SeenPod) {
        match self {
            Self::Nothing => {}
            Self::Names(names) => drop(names.change(|names| names.remove(&pod.key()))),
            Self::Demands(demands) => drop(demands.with(|demands| demands.remove(&pod.key()))),
        }
    }
}

impl Subject {
    /// Watches the pods of a node and stores their demands in `kept`.
    pub(crate) fn pods(node: &str, kept: Demands) -> Self {
        Self {
            what: "pods",
            path: Pod::url_path(&(), None),
            selector: format!("spec.nodeName={node}"),
            kept: Kept::Demands(kept),
        }
    }

    /// Watches the finished pods of a node and stores their names in `kept`. Upstream selects phases that exclude each other, and never
    /// uses the result.
    pub(crate) fn terminal_pods(node: &str, kept: Terminal) -> Self {
        let phases = "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown";
        Self {
            what: "finished pods",
            path: Pod::url_path(&(), None),
            selector: format!("spec.nodeName={node},{phases}"),
            kept: Kept::Names(kept),
        }
    }

    /// Watches a node, whose status changes when device plugins appear and disappear.
    pub(crate) fn node(node: &str) -> Self {
        Self {
            what: "nodes",
            path: Node::url_path(&(), None),
            selector: format!("metadata.name={node}"),
            kept: Kept::Nothing,
        }
    }
}

/// Notifies `changed` whenever `subject` may have changed. Runs forever. A failed or refused watch is retried; the failure is logged once
/// until a watch succeeds.
pub(crate) async fn follow(client: Client, subject: Subject, changed: Arc<Notify>) {
    let backoff = || {
        ExponentialBuilder::default()
            .with_min_delay(PAUSES.0)
            .with_max_delay(PAUSES.1)
            .with_jitter()
            .without_max_times()
            .build()
    };
    let mut pauses = backoff();
    let mut told = false;
    loop {
        let begun = Instant::now();
        let ended = watch(&client, &subject, &changed).await;
        if begun.elapsed() >= GOOD {
            (pauses, told) = (backoff(), false);
        }
        let pause = match &ended {
            // the server ends each watch after some minutes
            Ok(()) if begun.elapsed() >= GOOD => continue,
            Err(error) if is_refusal(error) => REFUSED,
            _ => pauses.next().unwrap_or(PAUSES.1),
        };
        if let (Err(error), false) = (&ended, told) {
            tracing::warn!(what = subject.what, error = %chain(error),
                "Cannot watch: changes are found by period and notification file only");
            told = true;
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
    let request = match &subject.kept {
        Kept::Demands(_) => request.watch(&parameters, "0"),
        Kept::Nothing | Kept::Names(_) => request.watch_metadata(&parameters, "0"),
    };
    let request = request.map_err(kube::Error::BuildRequest)?;
    let mut events = Box::pin(client.request_events::<SeenPod>(request).await?);
    subject.kept.clear();
    changed.notify_one();
    while let Some(event) = events.next().await {
        match event? {
            WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
            WatchEvent::Added(seen) | WatchEvent::Modified(seen) => subject.kept.put(seen),
            WatchEvent::Deleted(seen) => subject.kept.remove(&seen),
            WatchEvent::Bookmark(_) => continue,
        }
        changed.notify_one();
    }
    Ok(())
}
