//! All state. It takes a message, the time, or the next pod, and gives back what has to be done outside.
//!
//! It sends nothing and waits for nothing, so its tests need neither an API server nor tasks.
//!
//! In reading order:
//! - this file: the state, and who calls what.
//! - `changes`: changes of watched objects, and which waiting pods they wake.
//! - `attempts`: the next pod: placed, rejected, or placed after others are evicted.
//! - `bindings`: from the chosen node to the bound pod.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::Instant;

use super::effect::Effect;
use super::message::{Message, Preemption, Waiting};
use crate::api_tasks::report::{EventKind, Nomination, Report};
use crate::framework::memo::Memo;
use crate::framework::profile::Profile;
use crate::framework::queue::{Cause, Queue};
use crate::metrics::Metrics;
use crate::numa::Check;
use crate::numa::cache::Cache;
use crate::plugins::plugin::{Plugin, Plugins};
use crate::state::cluster::Cluster;
use crate::state::pod::Pod;
use crate::state::storage::Storage;
use crate::watch::follow::Notice;
use crate::watch::kinds::{self, Kind, Need, Needs};

mod attempts;
mod bindings;
mod changes;
#[cfg(test)]
mod tests;

/// Whether the kinds that volumes depend on are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VolumeWatches {
    /// No profile reads volumes.
    NotNeeded,
    /// They start with the first pod that cannot be examined without volumes.
    OnDemand,
    /// They were started.
    Started,
}

/// All state.
pub struct Core {
    profiles: Vec<Profile>,
    cluster: Cluster,
    cache: Cache,
    memo: Memo,
    queue: Queue,
    metrics: Metrics,
    /// Kinds that have to be listed completely before anything is placed.
    unlisted: BTreeSet<Kind>,
    /// Number of attempts. Nodes of equal score are used in turn.
    turn: usize,
    volume_watches: VolumeWatches,
    /// Pods whose volumes are being bound, by uid.
    waiting: BTreeMap<String, Waiting>,
    /// Whether something changed that they may wait for.
    volumes_changed: bool,
    /// What has to be done since the last call.
    effects: Vec<Effect>,
}

impl Core {
    /// Creates the state of a scheduler that knows nothing yet. `needs` says which kinds are watched.
    pub fn new(
        profiles: Vec<Profile>,
        cache: Cache,
        queue: Queue,
        metrics: Metrics,
        needs: Needs,
    ) -> Self {
        let mut cluster = Cluster::new();
        let mut volume_watches = VolumeWatches::NotNeeded;
        if needs.volumes {
            *cluster.storage_mut() = Storage::unknown();
            volume_watches = VolumeWatches::OnDemand;
        }
        let unlisted = kinds::all().into_iter();
        Self {
            profiles,
            cluster,
            cache,
            memo: Memo::default(),
            queue,
            metrics,
            unlisted: unlisted
                .filter(|kind| kind.need() != Need::Volumes && needs.include(*kind))
                .collect(),
            turn: 0,
            volume_watches,
            waiting: BTreeMap::new(),
            volumes_changed: false,
            effects: Vec::new(),
        }
    }

    /// Takes a message.
    #[must_use]
    pub fn take(&mut self, message: Message) -> Vec<Effect> {
        match message {
            Message::Watched(Notice::Changed(kind, change)) => self.change(kind, *change),
            Message::Watched(Notice::Refused(kind)) => self.refuse(kind),
            Message::VolumesWritten(written) => self.volumes_written(*written),
            Message::Bound(binding) => self.bound(*binding),
            Message::Preempted(preemption) => {
                let Preemption {
                    pod,
                    uid,
                    rejected_by,
                } = *preemption;
                if self.queue.holds(&pod, &uid) {
                    let now = Instant::now();
                    self.queue.failed(&pod, rejected_by, now);
                    // The pod was not in the queue while its victims went, so their events did not wake it.
                    self.queue.wake(&pod, Cause::PodGone, now);
                }
            }
        }
        self.take_effects()
    }

    /// Tries the next pod, if one is ready.
    #[must_use]
    pub fn attempt_next(&mut self) -> Vec<Effect> {
        self.attempt();
        self.take_effects()
    }

    /// Ends what is due at `now`: charges of deleted pods, and waiting for volumes.
    #[must_use]
    pub fn expire(&mut self, now: Instant) -> Vec<Effect> {
        let expired = self.cache.expire(now);
        self.wake_if(expired, Plugin::NodeResourceTopologyMatch, Cause::PodGone);
        self.check_volumes(now);
        self.take_effects()
    }

    fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Returns whether everything is known that has to be before anything is placed.
    pub fn is_synced(&self) -> bool {
        self.unlisted.is_empty()
    }

    /// Returns whether [`Core::attempt_next`] has a pod to try now.
    pub fn has_ready_pod(&self) -> bool {
        self.queue.is_ready()
    }

    /// Returns when [`Core::expire`], or [`Core::attempt_next`] if attempts are `active`, has something to do next.
    pub fn next_due(&self, active: bool) -> Option<Instant> {
        let wake = if active { self.queue.next_wake() } else { None };
        let volumes = self.waiting.values().map(|waiting| waiting.deadline).min();
        [wake, self.cache.next_expiry(), volumes]
            .into_iter()
            .flatten()
            .min()
    }

    /// Returns the number of known nodes and pods.
    pub fn counts(&self) -> (usize, usize) {
        (self.cluster.nodes().count(), self.cluster.pods().count())
    }

    /// Returns the comparisons of fingerprints since the last call, see [`Cache::take_checks`].
    pub fn take_checks(&mut self) -> Vec<Check> {
        self.cache.take_checks()
    }

    /// Writes the current sizes into the metrics.
    pub fn publish_sizes(&mut self) {
        for ((part, cause), count) in self.queue.take_moves() {
            self.metrics.moves(part, cause, count);
        }
        let mut rejected = BTreeMap::new();
        for (key, plugins) in self.queue.rejected() {
            let Some(pod) = self.cluster.pod(key) else {
                continue;
            };
            for plugin in plugins.iter() {
                *rejected
                    .entry((plugin, pod.scheduler.as_str()))
                    .or_default() += 1;
            }
        }
        self.metrics.unschedulable(&rejected);
        let (nodes, pods) = self.counts();
        self.metrics.sizes(
            self.queue.lengths(),
            nodes,
            pods,
            self.cluster.assumed_count(),
            self.cache.stats(),
        );
    }

    /// Wakes the pods that a plugin rejected, if something changed for it.
    fn wake_if(&mut self, changed: bool, plugin: Plugin, cause: Cause) {
        if changed {
            self.queue
                .wake_rejected_by(Plugins::from(plugin), cause, Instant::now());
        }
    }

    /// Tells users that a pod could not be placed: an event, and what changes in its status.
    fn not_scheduled(
        &mut self,
        pod: &Pod,
        reason: &'static str,
        message: &str,
        details: String,
        nomination: Nomination,
    ) {
        let kind = EventKind::Failed {
            message: message.to_owned(),
        };
        self.report(Report::event(pod, kind, details));
        let known = pod.constraints.condition.as_ref();
        let is_new = known.is_none_or(|(known_reason, known_message)| {
            known_reason != reason || known_message != message
        });
        let nomination = match nomination {
            Nomination::Change(node) if node != pod.nominated => Nomination::Change(node),
            _ => Nomination::Keep,
        };
        if is_new || nomination != Nomination::Keep {
            let condition = is_new.then_some((reason, message));
            self.report(Report::not_scheduled(pod, condition, nomination));
        }
    }

    fn report(&mut self, report: Report) {
        self.effects.push(Effect::Report(Box::new(report)));
    }
}

/// Returns whether a pod cannot be examined without volumes.
fn needs_objects(pod: &Pod) -> bool {
    let volumes = pod.volumes.as_ref();
    volumes.is_some_and(|volumes| volumes.need_objects())
}
