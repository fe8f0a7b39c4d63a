//! How decisions become visible: events and the `PodScheduled` condition (scheduler.md 7.7).
//!
//! A few workers write concurrently with the scheduling. All reports about one pod go to one worker in order. If a worker falls behind,
//! a newer condition replaces an older one and repeated events are only counted, so the backlog is bounded by the number of pods.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ObjectReference, Pod as WirePod};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Client;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::api_tasks::retry::retried;
use crate::metrics::{Metrics, Written};
use crate::plugins::default_preemption::Victim;
use crate::state::pod::{Pod, PodKey};

/// Number of workers, and so of concurrent requests.
const WORKERS: usize = 8;
/// Idle time after which a series of events ends; the next equal event starts a new series.
const SERIES_TIMEOUT: Duration = Duration::from_mins(6);
/// Longest note that the API server accepts, in bytes.
const MAX_NOTE_LENGTH: usize = 1024;
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
    fn parts(&self, pod: &PodKey) -> (&'static str, &'static str, &'static str, String) {
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

fn shortened(message: &str) -> String {
    const ENDING: &str = " ...";
    if message.len() <= MAX_NOTE_LENGTH {
        return message.to_owned();
    }
    let mut end = MAX_NOTE_LENGTH - ENDING.len();
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{ENDING}", &message[..end])
}

/// Identity of a pod in a report.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Subject {
    key: PodKey,
    uid: String,
    profile: String,
}

impl Subject {
    fn reference(&self, resource_version: Option<String>) -> ObjectReference {
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
    resource_version: Option<String>,
    /// Appended to the note, as far as there is room.
    details: String,
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

    fn subject(&self) -> &Subject {
        match self {
            Self::Event { subject, .. } | Self::Status { subject, .. } => subject,
        }
    }
}

/// The status to write for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Reason and message of `PodScheduled=False`.
    condition: Option<(&'static str, String)>,
    nomination: Nomination,
}

impl Status {
    /// Merges a newer status: what it sets takes precedence.
    fn replace(&mut self, newer: Self) {
        if newer.condition.is_some() {
            self.condition = newer.condition;
        }
        if newer.nomination != Nomination::Keep {
            self.nomination = newer.nomination;
        }
    }

    fn patch(&self, uid: &str) -> serde_json::Value {
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

/// Accepts reports about decisions. When all clones are dropped, the workers finish their work and end.
#[derive(Clone)]
pub struct Reporter {
    workers: Vec<mpsc::UnboundedSender<Report>>,
    hasher: RandomState,
}

impl Reporter {
    /// Starts the workers in `tasks`. `host` distinguishes the instances of a profile.
    pub fn start(client: &Client, host: &str, metrics: &Metrics, tasks: &mut JoinSet<()>) -> Self {
        let workers = (0..WORKERS)
            .map(|_| {
                let (sender, reports) = mpsc::unbounded_channel();
                let worker = Worker {
                    client: client.clone(),
                    host: host.to_owned(),
                    metrics: metrics.clone(),
                    series: HashMap::new(),
                };
                tasks.spawn(worker.run(reports));
                sender
            })
            .collect();
        Self {
            workers,
            hasher: RandomState::new(),
        }
    }

    /// Hands a report to the worker of its pod.
    pub fn send(&self, report: Report) {
        let index = self.hasher.hash_one(&report.subject().key) as usize % self.workers.len();
        // A worker ends only after this sender is gone, or with the process.
        drop(self.workers[index].send(report));
    }
}

type SeriesKey = (Subject, EventKind);

struct Series {
    name: String,
    count: i32,
    last: Instant,
}

#[derive(Default)]
struct Batch {
    events: Vec<(SeriesKey, Facts, i32)>,
    statuses: HashMap<Subject, Status>,
}

impl Batch {
    fn add(&mut self, report: Report) {
        match report {
            Report::Event {
                subject,
                kind,
                facts,
            } => {
                let key = (subject, kind);
                match self.events.iter_mut().find(|(other, _, _)| *other == key) {
                    Some((_, _, count)) => *count += 1,
                    None => self.events.push((key, facts, 1)),
                }
            }
            Report::Status { subject, status } => match self.statuses.get_mut(&subject) {
                Some(waiting) => waiting.replace(status),
                None => drop(self.statuses.insert(subject, status)),
            },
        }
    }
}

struct Worker {
    client: Client,
    host: String,
    metrics: Metrics,
    series: HashMap<SeriesKey, Series>,
}

impl Worker {
    async fn run(mut self, mut reports: mpsc::UnboundedReceiver<Report>) {
        while let Some(first) = reports.recv().await {
            let mut batch = Batch::default();
            batch.add(first);
            while let Ok(next) = reports.try_recv() {
                batch.add(next);
            }
            for (subject, status) in batch.statuses {
                self.write_status(&subject, &status).await;
            }
            for (key, facts, count) in batch.events {
                self.write_event(key, facts, count).await;
            }
            self.series
                .retain(|_, series| series.last.elapsed() < SERIES_TIMEOUT);
        }
    }

    async fn write_event(&mut self, key: SeriesKey, facts: Facts, count: i32) {
        let api: Api<Event> = Api::namespaced(self.client.clone(), &key.0.key.namespace);
        let now = MicroTime(k8s_openapi::jiff::Timestamp::now());
        let mut count = count;
        if let Some(series) = self.series.get_mut(&key) {
            series.count = series.count.saturating_add(count);
            series.last = Instant::now();
            let patch =
                Patch::Merge(json!({"series": {"count": series.count, "lastObservedTime": now}}));
            let params = PatchParams::default();
            let written = retried(|| api.patch(&series.name, &params, &patch)).await;
            self.metrics.write(Written::Event, written.is_ok());
            match written {
                Err(error) if is_gone(&error) => count = series.count,
                Err(error) => {
                    tracing::warn!(pod = %key.0.key, error = %daemon::log::chain(&error), "Event not updated");
                    return;
                }
                Ok(_) => return,
            }
        }
        let name = format!("{}.{}", key.0.key.name, unique());
        let event = self.mk_event(&key, facts, &name, now);
        let params = PostParams::default();
        let written = match retried(|| api.create(&params, &event)).await {
            // an earlier attempt created the event and its answer was lost: no one else uses this name
            Err(error) if already_exists(&error) => Ok(()),
            result => result.map(drop),
        };
        self.metrics.write(Written::Event, written.is_ok());
        match written {
            Ok(()) => {
                self.series.insert(
                    key,
                    Series {
                        name,
                        count,
                        last: Instant::now(),
                    },
                );
            }
            Err(error) => {
                tracing::warn!(pod = %key.0.key, error = %daemon::log::chain(&error), "Event not written");
            }
        }
    }

    fn mk_event(&self, key: &SeriesKey, facts: Facts, name: &str, now: MicroTime) -> Event {
        let (subject, kind) = key;
        let (event_type, reason, action, mut note) = kind.parts(&subject.key);
        if !facts.details.is_empty() && note.len() < MAX_NOTE_LENGTH {
            note = shortened(&format!("{note} Nodes: {}.", facts.details));
        }
        Event {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some(subject.key.namespace.clone()),
                ..ObjectMeta::default()
            },
            type_: Some(event_type.to_owned()),
            reason: Some(reason.to_owned()),
            action: Some(action.to_owned()),
            note: Some(note),
            event_time: Some(now),
            reporting_controller: Some(subject.profile.clone()),
            reporting_instance: Some(format!("{}-{}", subject.profile, self.host)),
            regarding: Some(subject.reference(facts.resource_version)),
            related: match kind {
                EventKind::Preempted { by, .. } => Some(by.reference(None)),
                EventKind::Scheduled { .. } | EventKind::Failed { .. } => None,
            },
            ..Event::default()
        }
    }

    async fn write_status(&self, subject: &Subject, status: &Status) {
        let api: Api<WirePod> = Api::namespaced(self.client.clone(), &subject.key.namespace);
        let patch = Patch::Strategic(status.patch(&subject.uid));
        let params = PatchParams::default();
        let written = retried(|| api.patch_status(&subject.key.name, &params, &patch)).await;
        self.metrics.write(Written::Condition, written.is_ok());
        if let Err(error) = written
            && !is_gone(&error)
        {
            tracing::warn!(pod = %subject.key, error = %daemon::log::chain(&error), "Pod status not written");
        }
    }
}

fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

fn already_exists(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

/// Returns a suffix that no other event of the pod has. Names of events only have to be unique.
fn unique() -> String {
    format!("{:016x}", RandomState::new().hash_one(0_u8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::mk_pod;

    #[test]
    fn notes_are_cut_at_a_character() {
        assert_eq!(shortened("short"), "short");
        let long = shortened(&"é".repeat(600));
        assert!(
            long.len() <= MAX_NOTE_LENGTH && long.ends_with("é ..."),
            "{}",
            long.len()
        );
    }

    #[test]
    fn equal_events_are_counted_and_conditions_replaced() {
        let pod = mk_pod("p", "");
        let mut batch = Batch::default();
        let event = |message: &str| Report::Event {
            subject: (&pod).into(),
            kind: EventKind::Failed {
                message: message.to_owned(),
            },
            facts: Facts {
                // amounts that differ start no new series
                details: format!("{:?}", Instant::now()),
                ..Facts::default()
            },
        };
        for message in ["a", "b", "a"] {
            batch.add(event(message));
            batch.add(Report::Status {
                subject: (&pod).into(),
                status: Status {
                    condition: Some(("Unschedulable", message.to_owned())),
                    nomination: match message {
                        "b" => Nomination::Change(Some("n".to_owned())),
                        _ => Nomination::Keep,
                    },
                },
            });
        }
        let counts: Vec<i32> = batch.events.iter().map(|(_, _, count)| *count).collect();
        assert_eq!(counts, [2, 1]);
        let status = Status {
            condition: Some(("Unschedulable", "a".to_owned())),
            // a status without a nomination leaves the waiting one unchanged
            nomination: Nomination::Change(Some("n".to_owned())),
        };
        assert_eq!(batch.statuses.into_values().collect::<Vec<_>>(), [status]);
    }

    #[test]
    fn texts_are_those_that_others_match() {
        let pod = mk_pod("p", "").key;
        let scheduled = EventKind::Scheduled {
            node: "worker-0".to_owned(),
        };
        assert_eq!(
            scheduled.parts(&pod),
            (
                "Normal",
                "Scheduled",
                "Binding",
                "Successfully assigned ns/p to worker-0".to_owned()
            )
        );
        let failed = EventKind::Failed {
            message: "m".to_owned(),
        };
        assert_eq!(
            failed.parts(&pod),
            ("Warning", "FailedScheduling", "Scheduling", "m".to_owned())
        );
        let preempted = EventKind::Preempted {
            by: (&mk_pod("q", "")).into(),
            node: "worker-0".to_owned(),
        };
        assert_eq!(
            preempted.parts(&pod),
            (
                "Normal",
                "Preempted",
                "Preempting",
                "Preempted by pod uid-q on node worker-0".to_owned()
            )
        );
    }

    #[test]
    fn a_status_says_only_what_changes() {
        let nominated = Status {
            condition: None,
            nomination: Nomination::Change(None),
        };
        assert_eq!(
            nominated.patch("u"),
            json!({"metadata": {"uid": "u"}, "status": {"nominatedNodeName": null}})
        );
        let rejected = Status {
            condition: Some(("Unschedulable", "m".to_owned())),
            nomination: Nomination::Keep,
        };
        let patch = rejected.patch("u");
        assert_eq!(patch["status"]["conditions"][0]["message"], "m");
        assert!(patch["status"].get("nominatedNodeName").is_none());
    }
}
