//! How decisions become visible: events and the `PodScheduled` condition (scheduler.md 7.7).
//!
//! A few workers write concurrently with the scheduling. All reports about one pod go to one worker in order. If a worker falls behind,
//! a newer condition replaces an older one and repeated events are only counted as soon as they are sent, and beyond 1,000 events and 5,000
//! conditions a worker, reports are dropped and counted: the next attempt tells the same again.
//!
//! In reading order: `content` (what is told about a pod), this file (how it is written).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use content::{MAX_NOTE_LENGTH, shortened};
use k8s_openapi::api::core::v1::Pod as WirePod;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Client;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::api_tasks::retry::retried;
use crate::metrics::{Metrics, Written};

mod content;

pub use content::{EventKind, Facts, Nomination, Report, Status, Subject};

/// Number of workers, and so of concurrent requests.
const WORKERS: usize = 8;
/// Idle time after which a series of events ends; the next equal event starts a new series.
const SERIES_TIMEOUT: Duration = Duration::from_mins(6);

/// Largest number of different events that wait for one worker. A client with 50 requests a second needs minutes for those of all workers.
const MOST_EVENTS: usize = 1_000;
/// Largest number of pods whose status waits for one worker.
const MOST_STATUSES: usize = 5_000;

/// Accepts reports about decisions. When all clones are dropped, the workers finish their work and end.
#[derive(Clone)]
pub struct Reporter {
    workers: Vec<Inbox>,
    hasher: RandomState,
    metrics: Metrics,
}

/// What waits for one worker.
#[derive(Clone)]
struct Inbox {
    waiting: Arc<Mutex<Batch>>,
    /// Wakes the worker. It ends when all senders are gone.
    wake: mpsc::Sender<()>,
}

impl Reporter {
    /// Starts the workers in `tasks`. `host` distinguishes the instances of a profile.
    pub fn start(client: &Client, host: &str, metrics: &Metrics, tasks: &mut JoinSet<()>) -> Self {
        let workers = (0..WORKERS)
            .map(|_| {
                let (wake, woken) = mpsc::channel(1);
                let waiting = Arc::new(Mutex::new(Batch::default()));
                let worker = Worker {
                    client: client.clone(),
                    host: host.to_owned(),
                    metrics: metrics.clone(),
                    series: HashMap::new(),
                };
                tasks.spawn(worker.run(Arc::clone(&waiting), woken));
                Inbox { waiting, wake }
            })
            .collect();
        Self {
            workers,
            hasher: RandomState::new(),
            metrics: metrics.clone(),
        }
    }

    /// Hands a report to the worker of its pod.
    pub fn send(&self, report: Report) {
        let index = self.hasher.hash_one(&report.subject().key) as usize % self.workers.len();
        let inbox = &self.workers[index];
        if let Err(dropped) = inbox.waiting.lock().add(report) {
            self.metrics.write_dropped(dropped);
        }
        // Full: the worker is about to look. Closed: the process ends.
        let _ = inbox.wake.try_send(());
    }
}

type SeriesKey = (Subject, EventKind);

struct Series {
    name: String,
    count: i32,
    last: Instant,
}

/// Reports that were not written yet.
#[derive(Default)]
struct Batch {
    events: HashMap<SeriesKey, WaitingEvent>,
    statuses: HashMap<Subject, Status>,
    /// Number of events that were ever added.
    added: u64,
}

struct WaitingEvent {
    /// Position among all events.
    position: u64,
    facts: Facts,
    count: i32,
}

impl Batch {
    /// Adds a report. Returns what was dropped, if there was no room.
    fn add(&mut self, report: Report) -> Result<(), Written> {
        match report {
            Report::Event {
                subject,
                kind,
                facts,
            } => {
                let is_full = self.events.len() >= MOST_EVENTS;
                match self.events.entry((subject, kind)) {
                    Entry::Occupied(mut waiting) => {
                        let waiting = waiting.get_mut();
                        waiting.count = waiting.count.saturating_add(1);
                    }
                    Entry::Vacant(_) if is_full => return Err(Written::Event),
                    Entry::Vacant(place) => {
                        self.added += 1;
                        place.insert(WaitingEvent {
                            position: self.added,
                            facts,
                            count: 1,
                        });
                    }
                }
            }
            Report::Status { subject, status } => {
                let is_full = self.statuses.len() >= MOST_STATUSES;
                match self.statuses.entry(subject) {
                    Entry::Occupied(mut waiting) => waiting.get_mut().replace(status),
                    Entry::Vacant(_) if is_full => return Err(Written::Condition),
                    Entry::Vacant(place) => drop(place.insert(status)),
                }
            }
        }
        Ok(())
    }

    /// Returns the events, oldest first.
    fn events(self) -> Vec<(SeriesKey, Facts, i32)> {
        let mut events: Vec<_> = self.events.into_iter().collect();
        events.sort_by_key(|(_, event)| event.position);
        let parts = events
            .into_iter()
            .map(|(key, event)| (key, event.facts, event.count));
        parts.collect()
    }
}

struct Worker {
    client: Client,
    host: String,
    metrics: Metrics,
    series: HashMap<SeriesKey, Series>,
}

impl Worker {
    async fn run(mut self, waiting: Arc<Mutex<Batch>>, mut woken: mpsc::Receiver<()>) {
        while woken.recv().await.is_some() {
            let mut batch = std::mem::take(&mut *waiting.lock());
            for (subject, status) in std::mem::take(&mut batch.statuses) {
                self.write_status(&subject, &status).await;
            }
            for (key, facts, count) in batch.events() {
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
mod tests;
