//! The scheduler's output: messages, events and conditions.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, ObjectReference, Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::mpsc;

use super::MANAGER;
use crate::controllers::{events, objects};

/// Longest note of an event, in bytes.
const LONGEST_NOTE: usize = 1024;
/// Number of events that are remembered for their series.
const REMEMBERED: usize = 4096;

/// Returns a message of the form `0/5 nodes are available: 2 reason, 3 other reason.`
pub(super) fn histogram<'a>(
    total: usize,
    reasons: impl Iterator<Item = &'a Cow<'static, str>>,
) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for reason in reasons {
        *counts.entry(reason).or_default() += 1;
    }
    let mut parts: Vec<String> = counts
        .iter()
        .map(|(reason, count)| format!("{count} {reason}"))
        .collect();
    // Sorted as text, including the numbers.
    parts.sort();
    let mut text = format!("0/{total} nodes are available:");
    if !parts.is_empty() {
        // Writing to a `String` cannot fail.
        let _ = write!(text, " {}.", parts.join(", "));
    }
    text
}

/// One event of the scheduler.
#[derive(Debug)]
pub(super) struct EventRecord {
    pub(super) about: ObjectReference,
    pub(super) related: Option<ObjectReference>,
    pub(super) warning: bool,
    pub(super) reason: &'static str,
    pub(super) action: &'static str,
    pub(super) note: String,
}

/// Accepts events.
#[derive(Clone, Debug)]
pub(super) struct Recorder(mpsc::UnboundedSender<EventRecord>);

impl Recorder {
    /// Returns a recorder and the task that writes its events.
    pub(super) fn new(
        client: Client,
        profile: String,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), write(client, profile, receiver))
    }

    /// Records that a pod got a node.
    pub(super) fn scheduled(&self, pod: &Pod, node: &str) {
        let note = format!(
            "Successfully assigned {}/{} to {node}",
            objects::namespace(pod),
            objects::name(pod)
        );
        self.send(EventRecord {
            about: events::reference(pod),
            related: None,
            warning: false,
            reason: "Scheduled",
            action: "Binding",
            note,
        });
    }

    /// Records that a pod got no node.
    pub(super) fn failed(&self, pod: &Pod, why: &str) {
        self.send(EventRecord {
            about: events::reference(pod),
            related: None,
            warning: true,
            reason: "FailedScheduling",
            action: "Scheduling",
            note: shortened(why),
        });
    }

    /// Records that a pod is evicted in favour of another.
    pub(super) fn preempted(&self, victim: &Pod, by: &Pod, node: &str) {
        self.send(EventRecord {
            about: events::reference(victim),
            related: Some(events::reference(by)),
            warning: false,
            reason: "Preempted",
            action: "Preempting",
            note: format!("Preempted by pod {} on node {node}", objects::uid(by)),
        });
    }

    fn send(&self, record: EventRecord) {
        // The receiver is gone only while the scheduler is being stopped.
        let _ = self.0.send(record);
    }
}

fn shortened(note: &str) -> String {
    const MARK: &str = " ...";
    if note.len() <= LONGEST_NOTE {
        return note.to_owned();
    }
    let end = note.floor_char_boundary(LONGEST_NOTE - MARK.len());
    format!("{}{MARK}", &note[..end])
}

async fn write(
    client: Client,
    profile: String,
    mut receiver: mpsc::UnboundedReceiver<EventRecord>,
) {
    let mut known: HashMap<String, (String, i32)> = HashMap::new();
    let params = PostParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PostParams::default()
    };
    let patching = PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    while let Some(record) = receiver.recv().await {
        let namespace = record
            .about
            .namespace
            .clone()
            .unwrap_or_else(|| "default".into());
        let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
        let now = MicroTime(Timestamp::now());
        // The note is part of the key, so that a pod that fails for another reason gets another event.
        let key = format!("{:?}\0{}\0{}", record.about.uid, record.reason, record.note);
        if known.len() > REMEMBERED {
            known.clear();
        }
        if let Some((name, count)) = known.get_mut(&key) {
            *count += 1;
            let patch = json!({"series": {"count": *count, "lastObservedTime": now}});
            if api
                .patch(name, &patching, &Patch::Merge(&patch))
                .await
                .is_ok()
            {
                continue;
            }
        }
        let name = format!(
            "{}.{:x}",
            record.about.name.as_deref().unwrap_or_default(),
            now.0.as_nanosecond()
        );
        let event = Event {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: Some(namespace),
                ..ObjectMeta::default()
            },
            involved_object: record.about,
            related: record.related,
            reason: Some(record.reason.to_owned()),
            action: Some(record.action.to_owned()),
            message: Some(record.note),
            type_: Some(if record.warning { "Warning" } else { "Normal" }.to_owned()),
            event_time: Some(now),
            reporting_component: Some(profile.clone()),
            reporting_instance: Some(format!("{profile}-embedded")),
            ..Event::default()
        };
        match api.create(&params, &event).await {
            Ok(_) => {
                known.insert(key, (name, 1));
            }
            Err(error) => tracing::debug!(%error, reason = record.reason, "Event was not written"),
        }
    }
}

/// Writes the condition of a pod without a node, and the node on which room is being made for it.
pub(super) async fn refuse(
    client: &Client,
    pod: &Pod,
    reason: &str,
    message: &str,
    nominated: Option<&str>,
) -> Result<(), kube::Error> {
    let status = pod.status.clone().unwrap_or_default();
    let held = objects::pod_condition(pod, "PodScheduled");
    let is_written = held.is_some_and(|held| {
        held.status == "False"
            && held.reason.as_deref() == Some(reason)
            && held.message.as_deref() == Some(message)
    });
    let nominated = nominated.filter(|node| status.nominated_node_name.as_deref() != Some(node));
    if is_written && nominated.is_none() {
        return Ok(());
    }
    let since = held
        .filter(|held| held.status == "False")
        .and_then(|held| held.last_transition_time.clone());
    let mut conditions = status.conditions.unwrap_or_default();
    let new = PodCondition {
        type_: "PodScheduled".to_owned(),
        status: "False".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        observed_generation: pod.metadata.generation,
        last_transition_time: Some(since.unwrap_or_else(objects::now)),
        last_probe_time: None,
    };
    match conditions.iter_mut().find(|held| held.type_ == new.type_) {
        Some(held) => *held = new,
        None => conditions.push(new),
    }
    let mut patch = json!({
        "metadata": {"uid": objects::uid(pod)},
        "status": {"conditions": conditions},
    });
    if let Some(node) = nominated {
        patch["status"]["nominatedNodeName"] = json!(node);
    }
    patch_status(client, pod, &patch).await
}

/// Patches the status of a pod with a merge patch. It is no error if the pod is gone.
pub(super) async fn patch_status(
    client: &Client,
    pod: &Pod,
    patch: &serde_json::Value,
) -> Result<(), kube::Error> {
    let api: Api<Pod> = Api::namespaced(client.clone(), objects::namespace(pod));
    let params = PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let result = api
        .patch_status(objects::name(pod), &params, &Patch::Merge(patch))
        .await;
    match result {
        Err(error) if objects::code(&error) != 404 => Err(error),
        _ => Ok(()),
    }
}
