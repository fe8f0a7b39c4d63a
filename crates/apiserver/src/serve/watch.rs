//! Watches: the changes of a resource as an endless body.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, stream};
use http::Response;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::answers::{Body, BodyError, ClosedByFault, respond_with};
use super::shared::Shared;
use crate::access::target::is_true;
use crate::failure::Failure;
use crate::faults::{Effects, OpenWatch, WatchEnd};
use crate::objects::apply::fill_in_zero_values;
use crate::objects::views::{self, View};
use crate::registry::Resource;
use crate::storage::{HistoricObject, Object};
use crate::values::fields::{TEMPLATE_GENERATION, copy};
use crate::verbs::{Filter, Request};

/// How long a watch stays open when the client sets no limit.
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(30);
/// Interval between bookmarks.
const BOOKMARK_INTERVAL: Duration = Duration::from_mins(1);

/// Largest number of queued events. A watch with a slower client reads the rest from the history later, and expires if that has been
/// dropped.
const MAX_QUEUED: usize = 256;

/// An event to send.
enum Event {
    /// An object that was there when the watch began.
    Initial(Arc<Object>),
    /// An event that is still to be converted to the client's view.
    Value(Value),
    /// An event in its final encoding.
    Text(Bytes),
}

/// An open watch.
struct Watch {
    shared: Arc<Shared>,
    newest: tokio::sync::watch::Receiver<u64>,
    resource: Arc<Resource>,
    namespace: String,
    filter: Filter,
    /// Version up to which all events are queued.
    seen: u64,
    /// Version since which the whole history must be complete when it is first read. Afterwards every change of the resource wakes the
    /// watch, so dropped changes of other resources do not matter.
    history_start: Option<u64>,
    queue: VecDeque<Event>,
    bookmarks: bool,
    view: View,
    /// Whether an event was converted to the client's view before.
    sent_any: bool,
    deadline: Instant,
    finished: bool,
    /// Through it, faults end the watch or hold it back.
    ticket: Option<OpenWatch>,
}

pub(super) fn watch(
    shared: &Arc<Shared>,
    request: &Request<'_>,
    resource: Arc<Resource>,
    view: View,
) -> Result<Response<Body>, Failure> {
    let filter = request.filter()?;
    request.check_options(true)?;
    let parameter = |name: &str| request.query.get(name).map_or("", String::as_str);
    let from = request.version()?;
    let present = shared.store.lock();
    let past = request.past_state(&present);
    let state = past.as_ref().unwrap_or(&present);
    let mut queue = VecDeque::new();
    let bookmarks = is_true(parameter("allowWatchBookmarks"));
    let streaming = is_true(parameter("sendInitialEvents"));
    let leaves_out = !parameter("sendInitialEvents").is_empty() && !streaming;
    let defined_at = present.defined_at(&resource.storage);
    let mut finished = false;
    let seen = if from > 0 && from < defined_at && !streaming {
        // the definition of the resource is newer than the version
        queue.push_back(Event::Value(expired(from, defined_at)));
        finished = true;
        from
    } else if leaves_out && from == 0 {
        state.version()
    } else if from == 0 || streaming {
        for (_, object) in state.list(&resource.storage, request.namespace) {
            if filter.matches(object) {
                queue.push_back(Event::Initial(Arc::clone(object)));
            }
        }
        if streaming && bookmarks {
            let mut mark = bookmark(&resource, state.version());
            mark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] = json!("true");
            queue.push_back(Event::Value(mark));
        }
        state.version()
    } else {
        from
    };
    let seconds = parameter("timeoutSeconds")
        .parse()
        .ok()
        .filter(|seconds| *seconds > 0);
    let newest = shared.store.subscribe_to(&resource.storage);
    let watch = Watch {
        shared: Arc::clone(shared),
        newest,
        namespace: request.namespace.to_owned(),
        resource,
        filter,
        seen,
        history_start: Some(seen),
        queue,
        bookmarks,
        view,
        sent_any: false,
        deadline: Instant::now() + seconds.map_or(DEFAULT_TIMEOUT, Duration::from_secs),
        finished,
        ticket: request.effects.and_then(Effects::take_ticket),
    };
    drop(present);
    let body = StreamBody::new(frames(watch)).boxed_unsync();
    Ok(respond_with(200, "application/json", body, &[]))
}

/// Returns a bookmark. It has an object of which nothing is set but the version; what is always written of it depends on its type.
fn bookmark(resource: &Resource, version: u64) -> Value {
    let mut object = json!({
        "kind": resource.kind, "apiVersion": resource.api_version(),
        "metadata": {"resourceVersion": version.to_string()},
    });
    if resource.custom.is_none() {
        fill_in_zero_values(resource.schema(), &mut object);
        match resource.storage.as_str() {
            "deployments.apps"
            | "replicasets.apps"
            | "replicationcontrollers"
            | "statefulsets.apps" => {
                object["spec"]["replicas"] = json!(0);
                if resource.storage == "statefulsets.apps" {
                    object["spec"]["serviceName"] = json!("");
                    object["status"]["availableReplicas"] = json!(0);
                }
            }
            "daemonsets.apps" => {
                object["metadata"]["annotations"] = json!({TEMPLATE_GENERATION: "0"});
            }
            _ => {}
        }
    }
    json!({"type": "BOOKMARK", "object": object})
}

fn frames(watch: Watch) -> impl Stream<Item = Result<Frame<Bytes>, BodyError>> {
    stream::unfold(watch, |mut watch| async move {
        let event = watch.next().await?;
        let frame = event.map(|event| {
            Frame::data(match event {
                Event::Initial(object) => watch.initial(&object),
                Event::Value(event) => watch.encode(event),
                Event::Text(text) => text,
            })
        });
        Some((frame, watch))
    })
}

/// Encodes an event around the text of an object.
fn in_event(kind: &str, object: &[u8]) -> Bytes {
    let mut text = Vec::with_capacity(object.len() + 32);
    text.extend_from_slice(b"{\"type\":\"");
    text.extend_from_slice(kind.as_bytes());
    text.extend_from_slice(b"\",\"object\":");
    text.extend_from_slice(object);
    text.extend_from_slice(b"}\n");
    text.into()
}

fn expired(seen: u64, compacted: u64) -> Value {
    let failure = Failure::expired(format!("too old resource version: {seen} ({compacted})"));
    json!({"type": "ERROR", "object": failure.body()})
}

impl Watch {
    /// Encodes the event of an object that was there when the watch began.
    fn initial(&mut self, object: &Object) -> Bytes {
        match views::whole(&self.resource, object) {
            Cow::Borrowed(_) if self.view == View::Whole => in_event("ADDED", &object.text()),
            shown => self.encode(json!({"type": "ADDED", "object": shown})),
        }
    }

    /// Encodes an event in the view that the client asked for.
    fn encode(&mut self, event: Value) -> Bytes {
        Bytes::from(format!("{}\n", self.in_view(event)))
    }

    /// Returns an event in the view that the client asked for.
    fn in_view(&mut self, mut event: Value) -> Value {
        if self.view != View::Whole {
            let object = event["object"].take();
            event["object"] = self.view.of_event(&self.resource, object, !self.sent_any);
            self.sent_any = true;
        }
        event
    }

    async fn next(&mut self) -> Option<Result<Event, BodyError>> {
        let mark = Instant::now() + BOOKMARK_INTERVAL;
        loop {
            if self.finished {
                return self.queue.pop_front().map(Ok);
            }
            if let Some(how) = self.ticket.as_ref().and_then(OpenWatch::end) {
                return self.end(how).await;
            }
            if let Some(event) = self.queue.pop_front() {
                return match self.ticket.as_ref().and_then(OpenWatch::count) {
                    Some(how) => self.end(how).await,
                    None => Some(Ok(event)),
                };
            }
            self.collect();
            if self.finished || !self.queue.is_empty() {
                continue;
            }
            if let Some(how) = self.ticket.as_ref().and_then(OpenWatch::exhausted) {
                return self.end(how).await;
            }
            let faults_changed = async {
                match &mut self.ticket {
                    Some(ticket) => ticket.changed().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = self.newest.changed() => changed.ok()?,
                () = faults_changed => {}
                () = tokio::time::sleep_until(self.deadline) => return None,
                () = tokio::time::sleep_until(mark), if self.bookmarks => {
                    // other requests may have written since the last check
                    self.collect();
                    if self.finished || !self.queue.is_empty() {
                        continue;
                    }
                    return Some(Ok(Event::Value(bookmark(&self.resource, self.seen))));
                }
            }
        }
    }

    /// Ends the watch early.
    async fn end(&mut self, how: WatchEnd) -> Option<Result<Event, BodyError>> {
        self.finished = true;
        self.queue.clear();
        match how {
            WatchEnd::Closed => None,
            WatchEnd::Broken => {
                // lets the connection send earlier events first
                tokio::task::yield_now().await;
                Some(Err(ClosedByFault.into()))
            }
            WatchEnd::Expired => Some(Ok(Event::Value(expired(self.seen, self.seen + 1)))),
        }
    }

    /// Queues the changes since the last call.
    fn collect(&mut self) {
        self.newest.borrow_and_update();
        let version_limit = self.ticket.as_mut().and_then(OpenWatch::version_limit);
        let shared = Arc::clone(&self.shared);
        let state = shared.store.lock();
        let history_start = self.history_start.take();
        let is_complete =
            history_start.is_none_or(|history_start| history_start >= state.compacted());
        let changes = state.changes_after(&self.resource.storage, self.seen);
        let Some(changes) = changes.filter(|_| is_complete) else {
            self.queue
                .push_back(Event::Value(expired(self.seen, state.compacted())));
            self.finished = true;
            return;
        };
        let version_limit = version_limit.unwrap_or(u64::MAX);
        for change in changes.take_while(|change| change.version <= version_limit) {
            self.seen = self.seen.max(change.version);
            if !self.namespace.is_empty() && change.key.namespace != self.namespace {
                continue;
            }
            let now = change.object.value();
            let before = change.before.as_ref().map(HistoricObject::value);
            let matched_before = before
                .as_ref()
                .is_some_and(|before| self.filter.matches(before));
            let matches_now = !change.deleted && self.filter.matches(&now);
            let kind = match (matched_before, matches_now) {
                (false, true) => "ADDED",
                (true, true) => "MODIFIED",
                (true, false) => "DELETED",
                (false, false) => continue,
            };
            let leaves = kind == "DELETED" && !change.deleted;
            // an object that leaves the selection is shown as it was before the change
            let last = before.as_ref().filter(|_| leaves).unwrap_or(&now);
            let event = match views::whole(&self.resource, last) {
                Cow::Borrowed(_) if self.view == View::Whole && !leaves => {
                    Event::Text(in_event(kind, &change.object.text()))
                }
                shown => {
                    let mut object = shown.into_owned();
                    copy(&now["metadata"], &mut object["metadata"], "resourceVersion");
                    Event::Value(json!({"type": kind, "object": object}))
                }
            };
            self.queue.push_back(event);
            if self.queue.len() >= MAX_QUEUED {
                return;
            }
        }
        self.seen = self.seen.max(state.version().min(version_limit));
    }
}
