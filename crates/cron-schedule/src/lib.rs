//! Schedules of CronJobs in the form that Kubernetes reads: five fields, a name such as `@daily`, or `@every` with a duration of Go, each with or
//! without a time zone before it. Errors have the texts of the library that Kubernetes uses.
//!
//! They are read here and not by a library, because those for Rust read other forms: seconds or years as further fields, `L` and `#`, Sunday as
//! 1 or as 7 only, both day fields joined in another way, no `@every`.

use goflags::GoDuration;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan as _, Zoned};

/// When a CronJob runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// At the minutes that all fields allow.
    Fields(Fields),
    /// Again and again after a time.
    Every(SignedDuration),
}

/// Why a text is no schedule.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// There is no text.
    #[error("empty spec string")]
    Empty,
    /// The machine does not know the time zone before the schedule.
    #[error("provided bad location {0}: unknown time zone {0}")]
    Zone(String),
    /// There are more or fewer than five fields.
    #[error("expected exactly 5 fields, found {}: [{}]", .0.len(), .0.join(" "))]
    Count(Vec<String>),
    /// A part of a field is no number and no name.
    #[error("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: {why}")]
    Number {
        /// The part.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A number is negative.
    #[error("negative number ({number}) not allowed: {text}")]
    Negative {
        /// The number.
        number: i64,
        /// The part that it was read from.
        text: String,
    },
    /// A part of a field has too many hyphens.
    #[error("too many hyphens: {0}")]
    Hyphens(String),
    /// A part of a field has too many slashes.
    #[error("too many slashes: {0}")]
    Slashes(String),
    /// A range begins before the least value of its field.
    #[error("beginning of range ({first}) below minimum ({least}): {part}")]
    Low {
        /// Where it begins.
        first: u64,
        /// The least value.
        least: u64,
        /// The part.
        part: String,
    },
    /// A range ends after the greatest value of its field.
    #[error("end of range ({last}) above maximum ({greatest}): {part}")]
    High {
        /// Where it ends.
        last: u64,
        /// The greatest value.
        greatest: u64,
        /// The part.
        part: String,
    },
    /// A range ends before it begins.
    #[error("beginning of range ({first}) beyond end of range ({last}): {part}")]
    Reversed {
        /// Where it begins.
        first: u64,
        /// Where it ends.
        last: u64,
        /// The part.
        part: String,
    },
    /// The step of a range is zero.
    #[error("step of range should be a positive number: {0}")]
    Step(String),
    /// What follows `@every` is no duration.
    #[error("failed to parse duration {text}: time: {source}")]
    Duration {
        /// The schedule.
        text: String,
        /// What is wrong with it.
        source: goflags::duration::ParseError,
    },
    /// The name after `@` is not known.
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
pub struct Fields {
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
    first: u64,
    last: u64,
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

    fn number_or_name(&self, text: &str) -> Result<u64, ScheduleError> {
        let lower = text.to_lowercase();
        let place = (self.first..)
            .zip(self.names)
            .find(|(_, name)| **name == lower);
        place.map_or_else(|| number(text), |(value, _)| Ok(value))
    }

    /// Reads `*`, a number or a range, each with or without a step.
    fn part(&self, part: &str) -> Result<Allowed, ScheduleError> {
        let text = || part.to_owned();
        let mut steps = part.split('/');
        let (range, step) = (steps.next().unwrap_or_default(), steps.next());
        let mut ends = range.split('-');
        let (low, high) = (ends.next().unwrap_or_default(), ends.next());
        let star = low == "*" || low == "?";
        let (first, mut last) = if star {
            (self.first, self.last)
        } else {
            let first = self.number_or_name(low)?;
            if ends.next().is_some() {
                return Err(ScheduleError::Hyphens(text()));
            }
            let last = high.map_or(Ok(first), |high| self.number_or_name(high))?;
            (first, last)
        };
        if steps.next().is_some() {
            return Err(ScheduleError::Slashes(text()));
        }
        let given_step = step.map(number).transpose()?;
        // a number with a step begins a range to the end
        if step.is_some() && high.is_none() {
            last = self.last;
        }
        let step = given_step.unwrap_or(1);
        if first < self.first {
            let (least, part) = (self.first, text());
            return Err(ScheduleError::Low { first, least, part });
        }
        if last > self.last {
            let (greatest, part) = (self.last, text());
            return Err(ScheduleError::High {
                last,
                greatest,
                part,
            });
        }
        if first > last {
            let part = text();
            return Err(ScheduleError::Reversed { first, last, part });
        }
        if step == 0 {
            return Err(ScheduleError::Step(text()));
        }
        // a step beyond the field allows its beginning only
        let values = (first..=last).step_by(usize::try_from(step).unwrap_or(usize::MAX));
        Ok(Allowed {
            bits: values.fold(0, |bits, value| bits | 1 << value),
            any: star && step == 1,
        })
    }
}

fn number(text: &str) -> Result<u64, ScheduleError> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        let (text, why) = (text.to_owned(), "invalid syntax");
        return Err(ScheduleError::Number { text, why });
    }
    let number: i64 = text.parse().map_err(|_| ScheduleError::Number {
        text: text.to_owned(),
        why: "value out of range",
    })?;
    u64::try_from(number).map_err(|_| ScheduleError::Negative {
        number,
        text: text.to_owned(),
    })
}

/// Splits a time zone off a schedule, which may have one by `TZ=` or `CRON_TZ=`.
fn without_zone(text: &str) -> Result<&str, ScheduleError> {
    let zone = text
        .strip_prefix("TZ=")
        .or_else(|| text.strip_prefix("CRON_TZ="));
    let Some(zone) = zone else {
        return Ok(text);
    };
    // the server would have nothing to split at either
    let (name, rest) = zone.split_once(' ').unwrap_or((zone, ""));
    let is_known = matches!(name, "" | "UTC" | "Local") || TimeZone::get(name).is_ok();
    if is_known {
        Ok(rest.trim())
    } else {
        Err(ScheduleError::Zone(name.to_owned()))
    }
}

impl Schedule {
    /// Reads a schedule. A time zone before it must be known and is ignored: a CronJob that has one is refused by the API.
    ///
    /// # Errors
    /// Returns an error if the text is no schedule.
    pub fn parse(text: &str) -> Result<Self, ScheduleError> {
        if text.is_empty() {
            return Err(ScheduleError::Empty);
        }
        let text = without_zone(text)?;
        let fields = match text {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other => other,
        };
        if let Some(every) = text.strip_prefix("@every ") {
            let every: GoDuration = every.parse().map_err(|source| ScheduleError::Duration {
                text: text.to_owned(),
                source,
            })?;
            let seconds = every.as_nanos() / 1_000_000_000;
            return Ok(Self::Every(SignedDuration::from_secs(seconds.max(1))));
        }
        if fields.starts_with('@') {
            return Err(ScheduleError::Descriptor(text.to_owned()));
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
    pub fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
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
    #[case::none("", "empty spec string")]
    #[case::four_fields("* * * *", "expected exactly 5 fields, found 4: [* * * *]")]
    #[case::no_number(
        "a * * * *",
        "failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax"
    )]
    #[case::negative("*/-1 * * * *", "negative number (-1) not allowed: -1")]
    #[case::two_hyphens("1-2-3 * * * *", "too many hyphens: 1-2-3")]
    #[case::two_slashes("*/2/3 * * * *", "too many slashes: */2/3")]
    #[case::a_minute_too_large("60 * * * *", "end of range (60) above maximum (59): 60")]
    #[case::a_day_too_small("* * 0 * *", "beginning of range (0) below minimum (1): 0")]
    #[case::backwards("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1")]
    #[case::no_step("*/0 * * * *", "step of range should be a positive number: */0")]
    #[case::an_unknown_name("@sometimes", "unrecognized descriptor: @sometimes")]
    #[case::no_duration(
        "@every day",
        "failed to parse duration @every day: time: invalid duration \"day\""
    )]
    #[case::an_unknown_zone(
        "TZ=No/City * * * * *",
        "provided bad location No/City: unknown time zone No/City"
    )]
    fn other_texts_are_refused(#[case] schedule: &str, #[case] expected: &str) {
        let error = Schedule::parse(schedule).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn a_time_zone_before_a_schedule_is_left_out() {
        let with = Schedule::parse("CRON_TZ=UTC 1 * * * *");
        assert_eq!(with, Schedule::parse("1 * * * *"));
    }
}
