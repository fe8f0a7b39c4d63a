//! What the API server tells about this node's pods, and the node itself, as a hint that it is time to look at the kubelet.
//!
//! Nothing of the objects is kept: the kubelet knows better what a pod holds, and when it does not hold it any more. So every watch
//! begins anew with all that is there, and a lost one cannot lose more than time.

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Request, WatchEvent, WatchParams};
use kube::{Client, Resource as _};
use serde::Deserialize;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::publish::chain;

/// The pause after a watch that was refused: rights may be given later.
const REFUSED: Duration = Duration::from_mins(5);
/// The first and the longest pause after a watch that failed.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));
/// A watch that lived so long was none that failed.
const GOOD: Duration = Duration::from_secs(10);

/// Something to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    what: &'static str,
    path: String,
    selector: String,
}

impl Subject {
    /// The pods of a node.
    pub(crate) fn pods(node: &str) -> Self {
        Self {
            what: "pods",
            path: Pod::url_path(&(), None),
            selector: format!("spec.nodeName={node}"),
        }
    }

    /// A node: its status changes when device plugins come and go.
    pub(crate) fn node(node: &str) -> Self {
        Self {
            what: "nodes",
            path: Node::url_path(&(), None),
            selector: format!("metadata.name={node}"),
        }
    }
}

/// As much of an object as is needed: that it is one.
#[derive(Clone, Debug, Deserialize)]
struct Seen {}

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
    let request = Request::new(subject.path.clone())
        // Version 0: first what there is, from the server's cache, then what changes.
        .watch_metadata(&parameters, "0")
        .map_err(kube::Error::BuildRequest)?;
    let mut events = Box::pin(client.request_events::<Seen>(request).await?);
    // What happened since the last watch is not known.
    changed.notify_one();
    while let Some(event) = events.next().await {
        match event? {
            WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
            WatchEvent::Added(_) | WatchEvent::Modified(_) | WatchEvent::Deleted(_) => {
                changed.notify_one();
            }
            WatchEvent::Bookmark(_) => {}
        }
    }
    Ok(())
}
