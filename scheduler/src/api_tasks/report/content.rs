//! What is told about a pod.

use k8s_openapi::api::core::v1::ObjectReference;
use serde_json::json;

use crate::framework::default_preemption::Victim;
use crate::state::pod::{Pod, PodKey};

/// Longest note that the API server accepts, in bytes.
pub(super) const MAX_NOTE_LENGTH: usize = 1024;

/// What an event reports about a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// It was bound to this node.
    Scheduled {
        /// The node.
        node: String,
    },
    /// It could not be placed.
    Failed {
        /// The reason.
        message: String,
    },
    /// It was preempted by another pod.
    Preempted {
        /// The other pod.
        by: Subject,
        /// The node.
        node: String,
    },
}

/// What happens to the nomination of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nomination {
    /// It stays unchanged.
    Keep,
    /// It is set to this node, or removed.
    Change(Option<String>),
}

impl EventKind {
    pub(super) fn parts(&self, pod: &PodKey) -> (&'static str, &'static str, &'static str, String) {
        match self {
            Self::Scheduled { node } => (
                "Normal",
                "Scheduled",
                "Binding",
                format!("Successfully assigned {pod} to {node}"),
            ),
            Self::Failed { message } => (
                "Warning",
                "FailedScheduling",
                "Scheduling",
                shortened(message),
            ),
            Self::Preempted { by, node } => (
                "Normal",
                "Preempted",
                "Preempting",
                format!("Preempted by pod {} on node {node}", by.uid),
            ),
        }
    }
}

/// Cuts a note to what the API server accepts.
pub(super) fn shortened(message: &str) -> String {
    const ENDING: &str = " ...";
    if message.len() <= MAX_NOTE_LENGTH {
        return message.to_owned();
    }
    let end = message.floor_char_boundary(MAX_NOTE_LENGTH - ENDING.len());
    format!("{}{ENDING}", &message[..end])
}

/// Identity of a pod in a report.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Subject {
    pub(super) key: PodKey,
    pub(super) uid: String,
    pub(super) profile: String,
}

impl Subject {
    pub(super) fn reference(&self, resource_version: Option<String>) -> ObjectReference {
        ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: Some(self.key.name.clone()),
            namespace: Some(self.key.namespace.clone()),
            uid: Some(self.uid.clone()),
            resource_version,
            ..ObjectReference::default()
        }
    }
}

impl From<&Pod> for Subject {
    fn from(pod: &Pod) -> Self {
        Self {
            key: pod.key.clone(),
            uid: pod.uid.clone(),
            profile: pod.scheduler.clone(),
        }
    }
}

/// Further contents of an event. Events that differ only in these belong to one series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    pub(super) resource_version: Option<String>,
    /// Appended to the note, as far as there is room.
    pub(super) details: String,
}

/// Something to tell about a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// An event.
    Event {
        /// The pod.
        subject: Subject,
        /// What happened.
        kind: EventKind,
        /// Further contents.
        facts: Facts,
    },
    /// A change of its status.
    Status {
        /// The pod.
        subject: Subject,
        /// What is written.
        status: Status,
    },
}

impl Report {
    /// Tells of an event about a pod.
    ///
    /// `details` follow the note, as far as there is room.
    pub fn event(pod: &Pod, kind: EventKind, details: String) -> Self {
        let facts = Facts {
            resource_version: pod.resource_version.clone(),
            details,
        };
        Self::Event {
            subject: pod.into(),
            kind,
            facts,
        }
    }

    /// Tells that a pod of any scheduler was preempted by `pod` on a node.
    pub fn preempted(victim: &Victim, pod: &Pod, node: &str) -> Self {
        let subject = Subject {
            key: victim.key.clone(),
            uid: victim.uid.clone(),
            profile: pod.scheduler.clone(),
        };
        let kind = EventKind::Preempted {
            by: pod.into(),
            node: node.to_owned(),
        };
        Self::Event {
            subject,
            kind,
            facts: Facts::default(),
        }
    }

    /// Tells that a pod could not be placed: sets its condition, if one is given, and its nomination.
    pub fn not_scheduled(
        pod: &Pod,
        condition: Option<(&'static str, &str)>,
        nomination: Nomination,
    ) -> Self {
        let status = Status {
            condition: condition.map(|(reason, message)| (reason, message.to_owned())),
            nomination,
        };
        Self::Status {
            subject: pod.into(),
            status,
        }
    }

    pub(super) fn subject(&self) -> &Subject {
        match self {
            Self::Event { subject, .. } | Self::Status { subject, .. } => subject,
        }
    }
}

/// The status to write for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Reason and message of `PodScheduled=False`.
    pub(super) condition: Option<(&'static str, String)>,
    pub(super) nomination: Nomination,
}

impl Status {
    /// Merges a newer status: what it sets takes precedence.
    pub(super) fn replace(&mut self, newer: Self) {
        if newer.condition.is_some() {
            self.condition = newer.condition;
        }
        if newer.nomination != Nomination::Keep {
            self.nomination = newer.nomination;
        }
    }

    pub(super) fn patch(&self, uid: &str) -> serde_json::Value {
        let mut status = json!({});
        if let Some((reason, message)) = &self.condition {
            status["conditions"] = json!([{
                "type": "PodScheduled",
                "status": "False",
                "reason": reason,
                "message": message,
                "lastProbeTime": null,
                "lastTransitionTime": k8s_openapi::jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            }]);
        }
        if let Nomination::Change(node) = &self.nomination {
            status["nominatedNodeName"] = json!(node);
        }
        // The uid makes the API server refuse another pod of the same name.
        json!({"metadata": {"uid": uid}, "status": status})
    }
}
