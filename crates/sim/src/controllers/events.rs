//! Events (core/v1), written in the background. A repeated event raises a counter, as in real components.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use serde_json::json;
use tokio::sync::mpsc;

use super::objects;

/// Number of events that are remembered for their counters.
const REMEMBERED: usize = 4096;
/// Time after which a repeated event starts a new count.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(10);

/// One event about an object.
#[derive(Clone, Debug)]
struct EventRecord {
    component: &'static str,
    about: ObjectReference,
    warning: bool,
    reason: &'static str,
    message: String,
}

/// Accepts events; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    component: &'static str,
    sender: mpsc::UnboundedSender<EventRecord>,
}

impl Recorder {
    /// Returns a recorder and the task that writes its events.
    pub(crate) fn new(
        client: Client,
        manager: &'static str,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let recorder = Self {
            component: manager,
            sender,
        };
        (recorder, write(client, manager, receiver))
    }

    /// Returns the same recorder for events that name another component as their source.
    pub(crate) fn of(&self, component: &'static str) -> Self {
        Self {
            component,
            sender: self.sender.clone(),
        }
    }

    /// Records an event of type Normal.
    pub(crate) fn normal<K: Resource<DynamicType = ()>>(
        &self,
        about: &K,
        reason: &'static str,
        message: String,
    ) {
        self.send(reference(about), false, reason, message);
    }

    /// Records an event of type Warning.
    pub(crate) fn warning<K: Resource<DynamicType = ()>>(
        &self,
        about: &K,
        reason: &'static str,
        message: String,
    ) {
        self.send(reference(about), true, reason, message);
    }

    /// Records an event about an object that is known only by reference.
    pub(crate) fn send(
        &self,
        about: ObjectReference,
        warning: bool,
        reason: &'static str,
        message: String,
    ) {
        // The receiver is gone only while the controllers are being stopped.
        let _ = self.sender.send(EventRecord {
            component: self.component,
            about,
            warning,
            reason,
            message,
        });
    }
}

/// Returns the reference to an object that events carry.
pub(crate) fn reference<K: Resource<DynamicType = ()>>(object: &K) -> ObjectReference {
    let meta = object.meta();
    ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::kind(&()).into_owned()),
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        ..ObjectReference::default()
    }
}

struct Written {
    name: String,
    count: i32,
    at: Timestamp,
}

async fn write(
    client: Client,
    manager: &'static str,
    mut receiver: mpsc::UnboundedReceiver<EventRecord>,
) {
    let mut known: HashMap<String, Written> = HashMap::new();
    while let Some(record) = receiver.recv().await {
        let about = &record.about;
        let namespace = about
            .namespace
            .clone()
            .filter(|namespace| !namespace.is_empty())
            .unwrap_or_else(|| "default".to_owned());
        let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
        let key = format!(
            "{}\0{}\0{}\0{}\0{}",
            record.component,
            about.uid.as_deref().unwrap_or_default(),
            about.name.as_deref().unwrap_or_default(),
            record.reason,
            record.message
        );
        let now = Timestamp::now();
        if known.len() > REMEMBERED {
            known.clear();
        }
        if let Some(written) = known.get_mut(&key)
            && now.duration_since(written.at).unsigned_abs() < FORGOTTEN_AFTER
        {
            written.count += 1;
            written.at = now;
            let patch = json!({"count": written.count, "lastTimestamp": objects::now()});
            let params = PatchParams {
                field_manager: Some(manager.to_owned()),
                ..PatchParams::default()
            };
            if api
                .patch(&written.name, &params, &Patch::Merge(&patch))
                .await
                .is_ok()
            {
                continue;
            }
        }
        let name = format!(
            "{}.{:x}",
            about.name.as_deref().unwrap_or_default(),
            now.as_nanosecond()
        );
        let event = compose(&record, &namespace, &name);
        let params = PostParams {
            field_manager: Some(manager.to_owned()),
            ..PostParams::default()
        };
        match api.create(&params, &event).await {
            Ok(_) => {
                known.insert(
                    key,
                    Written {
                        name,
                        count: 1,
                        at: now,
                    },
                );
            }
            Err(error) => {
                tracing::debug!(%error, reason = record.reason, "Event was not written");
            }
        }
    }
}

fn compose(record: &EventRecord, namespace: &str, name: &str) -> Event {
    let now = objects::now();
    Event {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: record.about.clone(),
        reason: Some(record.reason.to_owned()),
        message: Some(record.message.clone()),
        source: Some(EventSource {
            component: Some(record.component.to_owned()),
            host: None,
        }),
        first_timestamp: Some(now.clone()),
        last_timestamp: Some(now),
        count: Some(1),
        type_: Some(if record.warning { "Warning" } else { "Normal" }.to_owned()),
        reporting_component: Some(record.component.to_owned()),
        reporting_instance: Some(String::new()),
        ..Event::default()
    }
}
