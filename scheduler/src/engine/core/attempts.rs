//! The next pod: placed, rejected, or placed after others are evicted.

use tokio::time::Instant;

use super::{Core, needs_objects};
use crate::api_tasks::report::{Nomination, Report};
use crate::engine::effect::{Effect, Eviction};
use crate::engine::message::Placement;
use crate::framework::cycle::{self, Attempted, Outcome, Timings, Verdict};
use crate::framework::default_preemption::{self, Candidate};
use crate::framework::profile::Profile;
use crate::framework::queue::Popped;
use crate::metrics::{AttemptResult, Point, Status};
use crate::plugins::plugin::{Plugin, Plugins};
use crate::plugins::rejection::counted;
use crate::plugins::volumes;
use crate::state::pod::Pod;

impl Core {
    /// Tries the next pod, if one is ready.
    pub(super) fn attempt(&mut self) {
        let started = Instant::now();
        let Some(popped) = self.queue.pop(started) else {
            return;
        };
        let Some(pod) = self.cluster.pod(&popped.key).cloned() else {
            self.queue.remove(&popped.key);
            return;
        };
        let Some(profile) = self
            .profiles
            .iter()
            .find(|profile| profile.name == pod.scheduler)
        else {
            self.queue.remove(&popped.key);
            return;
        };
        let awaits_lists = self.cluster.storage().awaits_lists();
        if awaits_lists && profile.reads_volumes() && needs_objects(&pod) {
            // the objects needed to examine it are not listed yet
            let rejected_by = volumes::PLUGINS.into_iter().collect();
            self.queue.failed(&pod.key, rejected_by, started);
            return;
        }
        tracing::info!(v = 3, pod = %pod.key, attempt = popped.attempts, "Attempting to schedule pod");
        self.turn = self.turn.wrapping_add(1);
        let Attempted { outcome, timings } = cycle::attempt(
            profile,
            (&mut self.cluster, &mut self.cache),
            &mut self.memo,
            &pod,
            self.turn,
        );
        self.measure(profile, started, &outcome, timings);
        let volume_timeout = profile
            .filters
            .plugins
            .contains(&Plugin::VolumeBinding)
            .then_some(profile.volume_timeout);
        match outcome {
            Outcome::Placed { node, feasible } => {
                tracing::debug!(pod = %pod.key, %node, feasible, "Node chosen");
                let placement = Placement {
                    pod,
                    node,
                    popped,
                    started,
                };
                self.place(placement, volume_timeout);
            }
            Outcome::Rejected(verdict) => {
                let nomination = if verdict.clears_nomination {
                    self.cluster.nominate(&pod.key, None);
                    Nomination::Change(None)
                } else {
                    Nomination::Keep
                };
                self.reject(&pod, &popped, &verdict, nomination, started);
                self.queue
                    .failed(&pod.key, verdict.rejected_by, Instant::now());
            }
            Outcome::Preempting { verdict, candidate } => {
                let nomination = Nomination::Change(Some(candidate.node.clone()));
                self.reject(&pod, &popped, &verdict, nomination, started);
                self.preempt(pod, verdict.rejected_by, candidate);
            }
        }
    }

    /// Records the time that an attempt took since `started`.
    fn measure(&self, profile: &Profile, started: Instant, outcome: &Outcome, timings: Timings) {
        self.metrics.algorithm(started.elapsed());
        let profile_name = &profile.name;
        let (filtered, preempts) = match outcome {
            Outcome::Placed { .. } => (Status::Success, Status::Success),
            Outcome::Rejected(_) => (Status::Unschedulable, Status::Unschedulable),
            Outcome::Preempting { .. } => (Status::Unschedulable, Status::Success),
        };
        let metrics = &self.metrics;
        metrics.point(Point::Filter, filtered, profile_name, timings.filter);
        if filtered == Status::Success {
            metrics.point(Point::Score, Status::Success, profile_name, timings.score);
        }
        if let Some(duration) = timings.post_filter {
            metrics.point(Point::PostFilter, preempts, profile_name, duration);
        }
    }

    /// Evicts the victims for a pod. The pod stays out of the queue until all evictions are attempted.
    fn preempt(&mut self, pod: Pod, rejected_by: Plugins, candidate: Candidate) {
        let Candidate { node, victims, .. } = candidate;
        tracing::info!(v = 2, pod = %pod.key, %node, victims = ?victims.iter().map(|victim| victim.key.to_string()).collect::<Vec<_>>(), "Preempting");
        self.metrics.preemption(victims.len());
        for key in default_preemption::displaced(&self.cluster, &pod, &node) {
            self.cluster.nominate(&key, None);
            if let Some(other) = self.cluster.pod(&key) {
                let report = Report::not_scheduled(other, None, Nomination::Change(None));
                self.effects.push(Effect::Report(Box::new(report)));
            }
        }
        self.cluster.nominate(&pod.key, Some(node.clone()));
        let to_evict: Vec<_> = victims
            .into_iter()
            .filter(|victim| {
                let known = self.cluster.pod(&victim.key);
                known.is_some_and(|known| !known.deleting)
            })
            .collect();
        self.effects.push(Effect::Evict(Box::new(Eviction {
            pod,
            rejected_by,
            node,
            victims: to_evict,
        })));
    }

    fn reject(
        &mut self,
        pod: &Pod,
        popped: &Popped,
        verdict: &Verdict,
        nomination: Nomination,
        started: Instant,
    ) {
        tracing::info!(v = 2, pod = %pod.key, attempt = popped.attempts, err = verdict.message, "Unable to schedule pod; no fit; waiting");
        for (rejection, nodes) in counted(&verdict.nodes) {
            self.metrics.rejection(rejection, nodes);
        }
        if tracing::enabled!(tracing::Level::DEBUG) {
            for (node, rejection) in &verdict.nodes {
                let detail = rejection.detail.as_deref().unwrap_or_default();
                tracing::debug!(pod = %pod.key, %node, plugin = %rejection.plugin, reasons = ?rejection.reasons, detail, "Node ruled out");
            }
        }
        self.metrics.attempt(
            AttemptResult::unschedulable,
            &pod.scheduler,
            started.elapsed(),
        );
        let details = verdict.details();
        self.not_scheduled(pod, "Unschedulable", &verdict.message, details, nomination);
    }
}
