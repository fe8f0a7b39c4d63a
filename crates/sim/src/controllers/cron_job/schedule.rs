//! Schedules of CronJobs in the form that Kubernetes reads: five fields, a name such as `@daily`, or `@every` with a duration of Go.
//!
//! They are read here and not by a library, because those for Rust read other forms: seconds or years as further fields, `L` and `#`, Sunday as
//! 1 or as 7 only, both day fields joined in another way, no `@every`.

use goflags::GoDuration;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan as _, Zoned};

/// When a CronJob runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Schedule {
    /// At the minutes that all fields allow.
    Fields(Fields),
    /// Again and again after a time.
    Every(SignedDuration),
}

/// Why a text is no schedule.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ScheduleError {
    /// There are more or fewer than five fields.
    #[error("expected exactly 5 fields, found {}: [{}]", .0.len(), .0.join(" "))]
    Count(Vec<String>),
    /// A part of a field is no number and no name.
    #[error("failed to parse int from {0}")]
    Number(String),
    /// A part of a field has too many hyphens or slashes.
    #[error("too many hyphens or slashes: {0}")]
    Range(String),
    /// A part of a field allows what the field does not have.
    #[error("range is beyond {first} to {last}, or has no step: {part}")]
    Bounds {
        /// The part.
        part: String,
        /// Least value of the field.
        first: u32,
        /// Greatest value of the field.
        last: u32,
    },
    /// The name after `@` is not known, or its duration is none.
    #[error("unrecognized descriptor: {0}")]
    Descriptor(String),
}

/// The values that a field allows, as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Allowed {
    bits: u64,
    /// Whether the field begins with `*` or `?`.
    any: bool,
}

impl Allowed {
    fn has(self, value: i8) -> bool {
        self.bits & (1 << value) != 0
    }
}

/// The five fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fields {
    minute: Allowed,
    hour: Allowed,
    day: Allowed,
    month: Allowed,
    weekday: Allowed,
}

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// The values of a field, and their names from the first value on.
struct Bounds {
    first: u32,
    last: u32,
    names: &'static [&'static str],
}

const MINUTE: Bounds = Bounds {
    first: 0,
    last: 59,
    names: &[],
};
const HOUR: Bounds = Bounds {
    first: 0,
    last: 23,
    names: &[],
};
const DAY: Bounds = Bounds {
    first: 1,
    last: 31,
    names: &[],
};
const MONTH: Bounds = Bounds {
    first: 1,
    last: 12,
    names: &MONTHS,
};
const WEEKDAY: Bounds = Bounds {
    first: 0,
    last: 6,
    names: &WEEKDAYS,
};

impl Bounds {
    fn field(&self, text: &str) -> Result<Allowed, ScheduleError> {
        let mut field = Allowed {
            bits: 0,
            any: false,
        };
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let allowed = self.part(part)?;
            field.bits |= allowed.bits;
            field.any |= allowed.any;
        }
        Ok(field)
    }

    fn number(&self, text: &str) -> Result<u32, ScheduleError> {
        let lower = text.to_lowercase();
        if let Some(place) = self.names.iter().position(|name| *name == lower) {
            return Ok(self.first + place as u32);
        }
        let number = text.strip_prefix('+').unwrap_or(text).parse();
        number.map_err(|_| ScheduleError::Number(text.to_owned()))
    }

    /// Reads `*`, a number or a range, each with or without a step.
    fn part(&self, part: &str) -> Result<Allowed, ScheduleError> {
        let range_error = || ScheduleError::Range(part.to_owned());
        let mut steps = part.split('/');
        let (range, step) = (steps.next().unwrap_or_default(), steps.next());
        if steps.next().is_some() {
            return Err(range_error());
        }
        let mut ends = range.split('-');
        let (low, high) = (ends.next().unwrap_or_default(), ends.next());
        let star = low == "*" || low == "?";
        let (first, mut last) = if star {
            (self.first, self.last)
        } else if ends.next().is_some() {
            return Err(range_error());
        } else {
            let first = self.number(low)?;
            let last = high.map_or(Ok(first), |high| self.number(high))?;
            (first, last)
        };
        let step = step.map(|step| {
            Bounds {
                names: &[],
                ..*self
            }
            .number(step)
        });
        let step = step.transpose()?;
        // a number with a step begins a range to the end
        if step.is_some() && high.is_none() {
            last = self.last;
        }
        let step_by = step.unwrap_or(1);
        if first < self.first || last > self.last || first > last || step_by == 0 {
            return Err(ScheduleError::Bounds {
                part: part.to_owned(),
                first: self.first,
                last: self.last,
            });
        }
        let values = (first..=last).step_by(step_by as usize);
        Ok(Allowed {
            bits: values.fold(0, |bits, value| bits | 1 << value),
            any: star && step_by == 1,
        })
    }
}

impl Schedule {
    /// Reads a schedule.
    pub(super) fn parse(text: &str) -> Result<Self, ScheduleError> {
        let unknown = || ScheduleError::Descriptor(text.to_owned());
        let fields = match text {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other => other,
        };
        if let Some(every) = text.strip_prefix("@every ") {
            let every: GoDuration = every.parse().map_err(|_| unknown())?;
            let seconds = every.as_nanos() / 1_000_000_000;
            return Ok(Self::Every(SignedDuration::from_secs(seconds.max(1))));
        }
        if fields.starts_with('@') {
            return Err(unknown());
        }
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields[..] else {
            let fields = fields.into_iter().map(str::to_owned);
            return Err(ScheduleError::Count(fields.collect()));
        };
        Ok(Self::Fields(Fields {
            minute: MINUTE.field(minute)?,
            hour: HOUR.field(hour)?,
            day: DAY.field(day)?,
            month: MONTH.field(month)?,
            weekday: WEEKDAY.field(weekday)?,
        }))
    }

    /// Returns the first time after `after`, or `None` if there is none within five years.
    pub(super) fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let whole = Timestamp::from_second(after.as_second()).ok()?;
        match self {
            Self::Every(every) => whole.checked_add(*every).ok(),
            Self::Fields(fields) => fields.next(&whole.to_zoned(zone.clone())),
        }
    }
}

impl Fields {
    fn has_day(&self, time: &Zoned) -> bool {
        let day = self.day.has(time.day());
        let weekday = time.weekday().to_sunday_zero_offset();
        let weekday = self.weekday.has(weekday);
        // two restrictions allow what either allows
        if self.day.any || self.weekday.any {
            day && weekday
        } else {
            day || weekday
        }
    }

    fn next(&self, after: &Zoned) -> Option<Timestamp> {
        let last_year = after.year() + 5;
        // times are counted on, not read off a calendar, so that an hour that comes twice has its minutes twice
        let past = i64::from(after.second());
        let mut time = after.checked_add((60 - past).seconds()).ok()?;
        while time.year() <= last_year {
            if !self.month.has(time.month()) {
                let month = time.first_of_month().ok()?.start_of_day().ok()?;
                time = month.checked_add(1.month()).ok()?.start_of_day().ok()?;
            } else if !self.has_day(&time) {
                time = time.tomorrow().ok()?.start_of_day().ok()?;
            } else if !self.hour.has(time.hour()) {
                let rest = 60 - i64::from(time.minute());
                time = time.checked_add(rest.minutes()).ok()?;
            } else if !self.minute.has(time.minute()) {
                time = time.checked_add(1.minute()).ok()?;
            } else {
                return Some(time.timestamp());
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn next(schedule: &str, after: &str, zone: &str) -> Option<String> {
        let zone = TimeZone::get(zone).unwrap();
        let schedule = Schedule::parse(schedule).unwrap();
        let next = schedule.next(after.parse().unwrap(), &zone);
        next.map(|next| next.to_string())
    }

    /// The expected values were printed by the library that Kubernetes 1.35 uses.
    #[rstest]
    #[case::every_minute("* * * * *", "2026-03-01T10:00:00Z", Some("2026-03-01T10:01:00Z"))]
    #[case::within_a_minute("* * * * *", "2026-03-01T10:00:59.5Z", Some("2026-03-01T10:01:00Z"))]
    #[case::steps("*/20 * * * *", "2026-03-01T10:21:00Z", Some("2026-03-01T10:40:00Z"))]
    #[case::a_number_with_a_step(
        "5/20 * * * *",
        "2026-03-01T10:46:00Z",
        Some("2026-03-01T11:05:00Z")
    )]
    #[case::a_range_and_a_list(
        "0 8-9,17 * * *",
        "2026-03-01T09:00:00Z",
        Some("2026-03-01T17:00:00Z")
    )]
    #[case::names("0 0 * FEB Mon", "2026-03-01T00:00:00Z", Some("2027-02-01T00:00:00Z"))]
    #[case::either_day("0 0 13 * 5", "2026-03-01T00:00:00Z", Some("2026-03-06T00:00:00Z"))]
    #[case::a_step_of_days_restricts(
        "0 0 */10 * 5",
        "2026-03-01T00:00:00Z",
        Some("2026-03-06T00:00:00Z")
    )]
    #[case::a_question_mark("0 0 13 * ?", "2026-03-01T00:00:00Z", Some("2026-03-13T00:00:00Z"))]
    #[case::a_step_beyond_the_end(
        "0-9/300 * * * *",
        "2026-03-01T10:00:00Z",
        Some("2026-03-01T11:00:00Z")
    )]
    #[case::a_leap_day("0 0 29 2 *", "2026-03-01T00:00:00Z", Some("2028-02-29T00:00:00Z"))]
    #[case::never("59 23 31 2 *", "2026-03-01T00:00:00Z", None)]
    #[case::yearly("@yearly", "2026-03-01T00:00:00Z", Some("2027-01-01T00:00:00Z"))]
    #[case::weekly("@weekly", "2026-03-01T00:00:00Z", Some("2026-03-08T00:00:00Z"))]
    #[case::every("@every 1h30m", "2026-03-01T10:00:00.7Z", Some("2026-03-01T11:30:00Z"))]
    #[case::every_moment("@every 10ms", "2026-03-01T10:00:00Z", Some("2026-03-01T10:00:01Z"))]
    fn the_next_time_is_that_of_kubernetes(
        #[case] schedule: &str,
        #[case] after: &str,
        #[case] expected: Option<&str>,
    ) {
        assert_eq!(next(schedule, after, "UTC").as_deref(), expected);
    }

    #[rstest]
    #[case::another_zone("0 9 * * *", "2026-07-01T00:00:00Z", "2026-07-01T13:00:00Z")]
    #[case::an_hour_that_does_not_exist(
        "30 2 * * *",
        "2026-03-08T05:00:00Z",
        "2026-03-09T06:30:00Z"
    )]
    #[case::an_hour_that_comes_twice("30 1 * * *", "2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z")]
    fn clocks_that_change_are_followed(
        #[case] schedule: &str,
        #[case] after: &str,
        #[case] expected: &str,
    ) {
        let found = next(schedule, after, "America/New_York");
        assert_eq!(found.as_deref(), Some(expected));
    }

    #[rstest]
    #[case::four_fields("* * * *")]
    #[case::six_fields("0 * * * * *")]
    #[case::no_number("a * * * *")]
    #[case::two_hyphens("1-2-3 * * * *")]
    #[case::two_slashes("*/2/3 * * * *")]
    #[case::a_minute_too_large("60 * * * *")]
    #[case::a_day_too_small("* * 0 * *")]
    #[case::sunday_as_seven("* * * * 7")]
    #[case::backwards("5-1 * * * *")]
    #[case::no_step("*/0 * * * *")]
    #[case::an_unknown_name("@sometimes")]
    #[case::no_duration("@every day")]
    fn other_texts_are_refused(#[case] schedule: &str) {
        assert!(Schedule::parse(schedule).is_err());
    }
}
