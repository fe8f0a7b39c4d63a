//! When a CronJob is due.

use cron_schedule::{Schedule, ScheduleError};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::CronJob;

/// Number of missed times above which a warning is due.
const MANY: i64 = 100;
/// Time that is added to every wait, so that the clock is past the moment.
const PADDING: SignedDuration = SignedDuration::from_millis(100);

/// The schedule of a CronJob, with its time zone.
pub(super) struct Plan {
    pub(super) schedule: Schedule,
    pub(super) zone: TimeZone,
}

/// The last time at which a job was due.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Due {
    /// The time from which on the times were looked at.
    from: Timestamp,
    /// The last time that was due, if any was.
    pub(super) last: Option<Timestamp>,
    missed: i64,
}

impl Due {
    /// Returns whether so many times were missed that something is wrong.
    pub(super) fn missed_many(&self) -> bool {
        self.missed > MANY
    }
}

/// The two next times are the same, so that the schedule has no sense.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("time difference between two schedules is less than 1 second")]
pub(super) struct NoTime;

/// Why nothing is known of the times of a CronJob.
#[derive(Debug, thiserror::Error)]
pub(super) enum PlanError {
    /// The machine does not know the time zone.
    #[error("invalid timeZone: {name:?}: {source}")]
    Zone {
        /// Name of the time zone.
        name: String,
        /// What the library says.
        source: jiff::Error,
    },
    /// The schedule cannot be read.
    #[error("unparseable schedule: {text:?} : {source}")]
    Schedule {
        /// The schedule.
        text: String,
        /// What is wrong with it.
        source: ScheduleError,
    },
}

impl Plan {
    /// Returns the schedule of a CronJob; without a time zone its times are in UTC.
    pub(super) fn of(cron: &CronJob) -> Result<Self, PlanError> {
        let spec = cron.spec.clone().unwrap_or_default();
        let zone = match spec.time_zone {
            None => TimeZone::UTC,
            Some(name) => {
                TimeZone::get(&name).map_err(|source| PlanError::Zone { name, source })?
            }
        };
        let text = spec.schedule;
        let schedule =
            Schedule::parse(&text).map_err(|source| PlanError::Schedule { text, source })?;
        Ok(Self { schedule, zone })
    }

    fn next(&self, after: Timestamp) -> Option<Timestamp> {
        self.schedule.next(after, &self.zone)
    }

    /// Returns the last time until `now` at which a job was due; with `deadline`, only if it may still start.
    pub(super) fn due(
        &self,
        cron: &CronJob,
        now: Timestamp,
        deadline: bool,
    ) -> Result<Due, NoTime> {
        let status = cron.status.as_ref();
        let last = status.and_then(|status| status.last_schedule_time.as_ref());
        let begin = last.or(cron.metadata.creation_timestamp.as_ref());
        let mut from = begin.map_or(now, |begin| begin.0);
        let spec = cron.spec.as_ref();
        let limit = spec.and_then(|spec| spec.starting_deadline_seconds);
        if let Some(limit) = limit.filter(|_| deadline) {
            let earliest = now.checked_sub(SignedDuration::from_secs(limit));
            from = from.max(earliest.unwrap_or(Timestamp::MIN));
        }
        let due = |last, missed| Due { from, last, missed };
        let first = self.next(from).ok_or(NoTime)?;
        if now < first {
            return Ok(due(None, 0));
        }
        let second = self.next(first).ok_or(NoTime)?;
        if now < second {
            return Ok(due(Some(first), 0));
        }
        let between = (second.as_second() - first.as_second()).max(1);
        let missed = (now.as_second() - first.as_second()) / between + 1;
        // the times before this one need no look
        let skipped = SignedDuration::from_secs((missed - 2).saturating_mul(between));
        let mut last = None;
        let mut next = first.checked_add(skipped).ok().and_then(|at| self.next(at));
        while let Some(at) = next.filter(|at| *at <= now) {
            last = Some(at);
            next = self.next(at);
        }
        Ok(due(last, missed))
    }

    /// Returns how long it is until the next time.
    pub(super) fn wait(&self, cron: &CronJob, now: Timestamp) -> Option<SignedDuration> {
        let from = match self.due(cron, now, false) {
            Err(NoTime) => now,
            Ok(due) => match due.last {
                Some(last) => last,
                None if due.missed == 0 => due.from,
                None => now,
            },
        };
        Some(self.next(from)?.duration_since(now) + PADDING)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::not_yet("0 * * * *", json!({}), None, false)]
    #[case::once("*/20 * * * *", json!({}), Some("2026-03-01T10:40:00Z"), false)]
    #[case::several_times("*/10 * * * *", json!({}), Some("2026-03-01T10:40:00Z"), false)]
    #[case::after_the_last_job("*/10 * * * *", json!({"last": "2026-03-01T10:40:00Z"}), None, false)]
    #[case::too_late("*/20 * * * *", json!({"deadline": 60}), None, false)]
    #[case::often("0 0 * * *", json!({"last": "2025-03-01T00:00:00Z"}), Some("2026-03-01T00:00:00Z"), true)]
    fn the_last_time_is_due(
        #[case] schedule: &str,
        #[case] cron: Value,
        #[case] expected: Option<&str>,
        #[case] many: bool,
    ) {
        let plan = Plan {
            schedule: Schedule::parse(schedule).unwrap(),
            zone: TimeZone::UTC,
        };
        let cron = json!({
            "metadata": {"creationTimestamp": "2026-03-01T10:20:30Z"},
            "spec": {"schedule": schedule, "startingDeadlineSeconds": cron["deadline"], "jobTemplate": {}},
            "status": {"lastScheduleTime": cron["last"]},
        });
        let cron = serde_json::from_value(cron).unwrap();
        let now = "2026-03-01T10:45:00Z".parse().unwrap();
        let due = plan.due(&cron, now, true).unwrap();
        assert_eq!(due.last.map(|at| at.to_string()).as_deref(), expected);
        assert_eq!(due.missed_many(), many);
    }

    #[test]
    fn a_schedule_without_times_is_told() {
        let plan = Plan {
            schedule: Schedule::parse("0 0 31 2 *").unwrap(),
            zone: TimeZone::UTC,
        };
        let now = "2026-03-01T10:45:00Z".parse().unwrap();
        assert_eq!(plan.due(&CronJob::default(), now, true), Err(NoTime));
    }
}
