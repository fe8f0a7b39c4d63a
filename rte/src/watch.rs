//! What the API server tells about this node's pods, and the node itself, as a hint that it is time to look at the kubelet.
//!
//! What a pod holds is not taken from here: the kubelet knows that better, and when it does not hold it any more. Kept is only what tells
//! whether the kubelet has done its work: which pods have finished, and what the others ask for. Every watch begins anew with all
//! that is there, so a lost one cannot lose more than time.

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

/// The pause after a watch that was refused: rights may be given later.
const REFUSED: Duration = Duration::from_mins(5);
/// The first and the longest pause after a watch that failed.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));
/// A watch that lived so long was none that failed.
const GOOD: Duration = Duration::from_secs(10);

/// The pods of the node that have finished, by namespace and name: those that an old kubelet lists although they hold nothing any more.
/// Clones share what they know.
#[derive(Clone, Debug, Default)]
pub(crate) struct Terminal(Arc<Mutex<BTreeSet<Key>>>);

impl Terminal {
    /// Removes them from an answer of the kubelet.
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

/// Something to follow.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    what: &'static str,
    path: String,
    selector: String,
    kept: Kept,
}

/// What is kept of the objects.
#[derive(Clone, Debug)]
enum Kept {
    Nothing,
    /// The names.
    Names(Terminal),
    /// What they ask for. Only for this their specs are sent.
    Demands(Demands),
}

impl Kept {
    /// What happened since the last watch is not known.
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
    /// The pods of a node, what they ask for kept in `kept`.
    pub(crate) fn pods(node: &str, kept: Demands) -> Self {
        Self {
            what: "pods",
            path: Pod::url_path(&(), None),
            selector: format!("spec.nodeName={node}"),
            kept: Kept::Demands(kept),
        }
    }

    /// The pods of a node that have finished, kept in `kept`. Upstream asks for phases that exclude each other, and never looks.
    pub(crate) fn terminal_pods(node: &str, kept: Terminal) -> Self {
        let phases = "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown";
        Self {
            what: "finished pods",
            path: Pod::url_path(&(), None),
            selector: format!("spec.nodeName={node},{phases}"),
            kept: Kept::Names(kept),
        }
    }

    /// A node: its status changes when device plugins come and go.
    pub(crate) fn node(node: &str) -> Self {
        Self {
            what: "nodes",
            path: Node::url_path(&(), None),
            selector: format!("metadata.name={node}"),
            kept: Kept::Nothing,
        }
    }
}

/// Tells `changed` whenever something about `subject` may have changed, for ever. Where this is not allowed it says so once and tells
/// nothing.
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
            // The server ends each watch after some minutes.
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

/// One watch, until the server or the network ends it.
async fn watch(client: &Client, subject: &Subject, changed: &Notify) -> Result<(), kube::Error> {
    let parameters = WatchParams::default()
        .fields(&subject.selector)
        .disable_bookmarks();
    let request = Request::new(subject.path.clone());
    // Version 0: first what there is, from the server's cache, then what changes.
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
