//! One cycle after another: wait until one is due, scan, publish, report (rte.md 3).
//!
//! A cycle is one scan and one publication; a failed scan publishes nothing. Events that arrive during a cycle, or while the rate limit
//! holds them, are merged into one for the next cycle. A failed cycle is retried after growing pauses.

use std::time::SystemTime;

use api::nrt::{AttributeInfo, Zone};
use daemon::admin::{Gate, Watchdog};
use daemon::log::chain;
use goflags::GoDuration;
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::fatal;
use crate::metrics::Metrics;
use crate::publish::content::{Content, Timing};
use crate::publish::publisher::{Outcome, Publisher};
use crate::publish::readiness::{Report, Reporter};
use crate::publish::status_dump::{PodName, Record, StatusDump};
use crate::scan::Scanner;
use crate::scan::observation::Observation;
use crate::triggers::Trigger;
use crate::triggers::events::{Event, Events};

/// The parts that a cycle needs.
pub(super) struct Exporter {
    pub(super) scanner: Scanner,
    pub(super) publisher: Option<Publisher>,
    pub(super) reporter: Option<Reporter>,
    pub(super) status: StatusDump,
    pub(super) metrics: Metrics,
    pub(super) node: String,
    pub(super) expose_timing: bool,
    pub(super) last_event: Instant,
    /// The content on the API server, if known.
    pub(super) published: Option<(Vec<Zone>, Vec<AttributeInfo>)>,
    /// Open while the last cycle was successful.
    pub(super) ready: Gate,
    /// Notices a cycle that hangs.
    pub(super) watchdog: Watchdog,
}

impl Exporter {
    /// Runs cycles until `stop` is cancelled; with `one_shot` only one, whose outcome it returns.
    pub(super) async fn run(
        mut self,
        mut events: Events,
        period: GoDuration,
        one_shot: bool,
        stop: &CancellationToken,
    ) -> anyhow::Result<()> {
        tracing::info!("initial update trigger");
        let mut trigger = Trigger::Reactive;
        loop {
            let interval = match trigger {
                Trigger::Periodic => period,
                Trigger::Reactive => GoDuration::default(),
            };
            let outcome = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                outcome = self.cycle(trigger, interval) => outcome,
            };
            if one_shot {
                return outcome;
            }
            match &outcome {
                Ok(()) => self.ready.open(),
                Err(error) => {
                    self.ready.close();
                    tracing::error!(%error, "Update failed, trying again");
                }
            }
            if events.is_retrying() {
                self.metrics.retried("cycle");
            }
            events.plan_retry(trigger, outcome.is_ok());
            trigger = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                trigger = self.next(&mut events) => trigger,
            };
        }
    }

    /// Waits until a cycle is due.
    async fn next(&mut self, events: &mut Events) -> Trigger {
        loop {
            match events.next().await {
                Event::Cycle(trigger) => return trigger,
                Event::Probe if self.differs_from_published().await => {
                    tracing::debug!("pod change update trigger");
                    return Trigger::Reactive;
                }
                Event::Probe => {}
            }
        }
    }

    /// Returns whether the state of the node differs from the published one. A failed probe counts as no difference; the next cycle reports
    /// the failure.
    async fn differs_from_published(&mut self) -> bool {
        let _turn = self.watchdog.turn();
        match self.scanner.probe().await {
            Ok(seen) => self.published.as_ref().is_none_or(|(zones, attributes)| {
                (zones, attributes) != (&seen.zones, &seen.attributes)
            }),
            Err(error) => {
                tracing::debug!(error = %chain(&error), "Probe failed");
                false
            }
        }
    }

    /// Scans, publishes and reports.
    async fn cycle(&mut self, trigger: Trigger, interval: GoDuration) -> anyhow::Result<()> {
        let _turn = self.watchdog.turn();
        let start = Instant::now();
        let since_previous = start - std::mem::replace(&mut self.last_event, start);
        self.metrics.record_wakeup(trigger.as_str(), since_previous);
        let observation = match self.scanner.scan().await {
            Ok(observation) => observation,
            Err(error) => {
                let report = Report {
                    fetched: false,
                    updated: None,
                };
                self.report(report).await;
                return Err(fatal("failed to scan pod resources", &error));
            }
        };
        self.metrics
            .record_duration("podresources_scan", trigger.as_str(), start.elapsed());
        self.record(&observation);
        self.metrics.unzoned(&observation.unzoned);

        let start = Instant::now();
        let timing = self.expose_timing.then_some(Timing {
            since_previous,
            interval,
        });
        let content = content(observation, trigger, timing);
        let written = match &mut self.publisher {
            Some(publisher) => publisher.publish(&content).await.map(Some),
            None => Ok(None),
        };
        self.published = written
            .is_ok()
            .then_some((content.zones, content.attributes));
        self.metrics.record_duration(
            "node_resource_object_update",
            trigger.as_str(),
            start.elapsed(),
        );
        let report = Report {
            fetched: true,
            updated: Some(written.is_ok()),
        };
        let reported = self.report(report).await;
        let outcome = written.map_err(|error| fatal("failed to update", &error))?;
        if let Some(outcome) = outcome {
            self.metrics.published(SystemTime::now());
            if outcome != Outcome::Unchanged {
                tracing::info!(node = %self.node, ?outcome, trigger = trigger.as_str(), "Published");
            }
        }
        anyhow::ensure!(reported, "failed to update pod status");
        Ok(())
    }

    /// Writes the conditions of the own pod. Returns whether that succeeded.
    async fn report(&mut self, report: Report) -> bool {
        let Some(reporter) = &mut self.reporter else {
            return true;
        };
        let outcome = reporter.report(report, Timestamp::now()).await;
        if let Err(error) = &outcome {
            tracing::error!(error = %chain(error), "Conditions not reported");
        }
        outcome.is_ok()
    }

    fn record(&mut self, observation: &Observation) {
        let Some(fingerprint) = &observation.fingerprint else {
            return;
        };
        let pod = |(namespace, name): &(String, String)| PodName {
            namespace: namespace.clone(),
            name: name.clone(),
        };
        let record = Record {
            fingerprint_computed: fingerprint.text.clone(),
            pods: fingerprint.pods.iter().map(pod).collect(),
            node_name: self.node.clone(),
        };
        self.status.add(&record, Timestamp::now());
    }
}

fn content(observation: Observation, trigger: Trigger, timing: Option<Timing>) -> Content {
    Content {
        zones: observation.zones,
        attributes: observation.attributes,
        fingerprint: observation.fingerprint.map(|fingerprint| fingerprint.text),
        trigger,
        timing,
    }
}
