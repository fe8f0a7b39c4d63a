//! Events as a kubelet records them: repeated ones are counted.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::mpsc;

/// Number of different events that are remembered.
const REMEMBERED: usize = 4096;

/// Type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Normal operation.
    Normal,
    /// A problem.
    Warning,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

struct EventRecord {
    about: ObjectReference,
    kind: Kind,
    reason: String,
    message: String,
    at: Timestamp,
}

/// Records events; clones share one task.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    records: mpsc::UnboundedSender<EventRecord>,
}

impl Recorder {
    /// Starts the task that writes events for a node.
    pub(crate) fn start(client: kube::Client, node: String) -> (Self, tokio::task::JoinHandle<()>) {
        let (records, incoming) = mpsc::unbounded_channel();
        let task = tokio::spawn(write_all(client, node, incoming));
        (Self { records }, task)
    }

    /// Records an event about a pod.
    pub(crate) fn pod(&self, pod: &Pod, kind: Kind, reason: &str, message: impl Into<String>) {
        self.record(reference(pod, None), kind, reason, message.into());
    }

    /// Records an event about a container of a pod; `field` is its path in the pod, e.g. `spec.containers{c}`.
    pub(crate) fn container(
        &self,
        pod: &Pod,
        field: &str,
        kind: Kind,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.record(
            reference(pod, Some(field.to_owned())),
            kind,
            reason,
            message.into(),
        );
    }

    /// Records an event about the node.
    pub(crate) fn node(&self, name: &str, kind: Kind, reason: &str, message: impl Into<String>) {
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(name.to_owned()),
            // Kubelets put the name here, and `kubectl describe node` looks for it.
            uid: Some(name.to_owned()),
            ..ObjectReference::default()
        };
        self.record(about, kind, reason, message.into());
    }

    fn record(&self, about: ObjectReference, kind: Kind, reason: &str, message: String) {
        let record = EventRecord {
            about,
            kind,
            reason: reason.to_owned(),
            message,
            at: Timestamp::now(),
        };
        // The receiver is gone while the node is being stopped.
        let _ = self.records.send(record);
    }
}

fn reference(pod: &Pod, field_path: Option<String>) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: pod.metadata.name.clone(),
        namespace: pod.metadata.namespace.clone(),
        uid: pod.metadata.uid.clone(),
        resource_version: pod.metadata.resource_version.clone(),
        field_path,
    }
}

type Key = (Option<String>, Option<String>, Kind, String, String);

async fn write_all(
    client: kube::Client,
    node: String,
    mut incoming: mpsc::UnboundedReceiver<EventRecord>,
) {
    let mut known: BTreeMap<Key, (String, i32)> = BTreeMap::new();
    while let Some(record) = incoming.recv().await {
        let key = (
            record
                .about
                .uid
                .clone()
                .or_else(|| record.about.name.clone()),
            record.about.field_path.clone(),
            record.kind,
            record.reason.clone(),
            record.message.clone(),
        );
        if known.len() > REMEMBERED {
            known.clear();
        }
        let namespace = record.about.namespace.clone();
        let namespace = namespace.as_deref().unwrap_or("default");
        let api: Api<Event> = Api::namespaced(client.clone(), namespace);
        if let Some((name, count)) = known.get_mut(&key) {
            *count += 1;
            let patch = json!({ "count": *count, "lastTimestamp": Time(record.at) });
            let patched = api
                .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
                .await;
            if patched.is_ok() {
                continue;
            }
        }
        let event = event(&record, &node, namespace);
        let name = event.metadata.name.clone().unwrap_or_default();
        match api.create(&PostParams::default(), &event).await {
            Ok(_) => {
                known.insert(key, (name, 1));
            }
            // A namespace that is being deleted refuses events, as for a real node.
            Err(error) => tracing::debug!(%error, reason = record.reason, "Event was not written"),
        }
    }
}

fn event(record: &EventRecord, node: &str, namespace: &str) -> Event {
    let name = record.about.name.as_deref().unwrap_or_default();
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{name}.{:x}", record.at.as_nanosecond())),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: record.about.clone(),
        type_: Some(record.kind.as_str().to_owned()),
        reason: Some(record.reason.clone()),
        message: Some(record.message.clone()),
        count: Some(1),
        first_timestamp: Some(Time(record.at)),
        last_timestamp: Some(Time(record.at)),
        source: Some(EventSource {
            component: Some("kubelet".to_owned()),
            host: Some(node.to_owned()),
        }),
        reporting_component: Some("kubelet".to_owned()),
        reporting_instance: Some(node.to_owned()),
        ..Event::default()
    }
}
