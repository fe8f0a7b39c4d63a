//! What samples of a long run say: each figure against its level early in the run.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use super::samples::{Program, Sample};

/// How much of its level a figure may reach later.
const GROWTH: f64 = 1.2;
/// By how many files and threads a process may differ in any case: connections come and go.
const SLACK: f64 = 8.0;
/// Requests per second that the scheduler's client may send for long, as in kube-scheduler (scheduler.md 1.3).
const REQUESTS: f64 = 50.0;
/// How many seconds a pod that fits may wait for its node, however many wait that do not.
const WAIT: f64 = 60.0;

/// What a figure is called, by how much it may differ in any case, and how it is read.
type Figure = (&'static str, f64, fn(&Program) -> f64);

/// A figure, and what it may be.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What was measured.
    pub what: String,
    /// Its level early in the run.
    pub level: f64,
    /// The largest value since.
    pub largest: f64,
    /// The largest value that is allowed.
    pub limit: f64,
}

impl Row {
    /// Returns whether the figure is as it must be.
    pub fn is_met(&self) -> bool {
        self.largest <= self.limit
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "| {} | {:.1} | {:.1} | {:.1} | {} |",
            self.what,
            self.level,
            self.largest,
            self.limit,
            if self.is_met() { "met" } else { "MISSED" }
        )
    }
}

/// Compares every figure after a time with its level then: the median of the first three samples. A process that is not the same at the end
/// as at the start, or that nobody saw, has missed.
pub fn rows(samples: &[Sample], level_after: Duration) -> Vec<Row> {
    let from = level_after.as_secs();
    let later: Vec<&Sample> = samples.iter().filter(|one| one.seconds >= from).collect();
    let names: BTreeSet<&String> = samples.iter().flat_map(|one| one.programs.keys()).collect();
    let mut rows = Vec::new();
    for name in names {
        let figures: [Figure; 3] = [
            ("resident memory, MiB", 0.0, |one| {
                one.resident_kib as f64 / 1024.0
            }),
            ("open files", SLACK, |one| one.files as f64),
            ("threads", SLACK, |one| one.threads as f64),
        ];
        for (what, slack, figure) in figures {
            let values: Vec<f64> = later
                .iter()
                .filter_map(|one| one.programs.get(name))
                .map(figure)
                .collect();
            let level = median(&values[..values.len().min(3)]);
            rows.push(Row {
                what: format!("{name}: {what}"),
                level,
                largest: largest(&values),
                limit: level * GROWTH + slack,
            });
        }
        let pids: BTreeSet<i32> = samples
            .iter()
            .filter_map(|one| one.programs.get(name))
            .map(|one| one.pid)
            .collect();
        rows.push(Row {
            what: format!("{name}: processes"),
            level: 1.0,
            largest: pids.len() as f64,
            limit: 1.0,
        });
    }
    rows.push(requests(&later));
    let waits: Vec<f64> = later.iter().map(|one| one.waited as f64).collect();
    rows.push(Row {
        what: "longest wait of a pod that fits, seconds".to_owned(),
        level: median(&waits[..waits.len().min(3)]),
        largest: largest(&waits),
        limit: WAIT,
    });
    rows
}

/// The scheduler's requests per second between the level and the end, and in the busiest pair of samples.
fn requests(later: &[&Sample]) -> Row {
    let rate = |from: &Sample, to: &Sample| {
        let seconds = to.seconds.saturating_sub(from.seconds).max(1) as f64;
        (to.requests - from.requests) / seconds
    };
    let mean = match later {
        [first, .., last] => rate(first, last),
        _ => f64::INFINITY,
    };
    let pairs: Vec<f64> = later
        .windows(2)
        .map(|pair| rate(pair[0], pair[1]))
        .collect();
    Row {
        what: "requests of the scheduler per second: mean, busiest ten seconds".to_owned(),
        level: mean,
        largest: largest(&pairs),
        // its client has a burst of twice the rate
        limit: REQUESTS * 1.2,
    }
}

/// Returns the largest value; infinite when nothing was measured.
fn largest(values: &[f64]) -> f64 {
    values
        .iter()
        .copied()
        .max_by(f64::total_cmp)
        .unwrap_or(f64::INFINITY)
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(memory: impl Fn(u64) -> u64, requests: impl Fn(u64) -> f64) -> Vec<Sample> {
        let sample = |seconds: u64| {
            let program = Program {
                pid: 7,
                resident_kib: memory(seconds),
                files: 20,
                threads: 5,
            };
            Sample {
                seconds,
                programs: [("scheduler".to_owned(), program)].into(),
                requests: requests(seconds),
                pending: 0.0,
                waited: 2,
            }
        };
        (0..100).map(|number| sample(number * 10)).collect()
    }

    fn missed(samples: &[Sample]) -> Vec<String> {
        let rows = rows(samples, Duration::from_mins(5));
        let missed = rows.into_iter().filter(|row| !row.is_met());
        missed.map(|row| row.what).collect()
    }

    #[test]
    fn what_grows_in_the_beginning_only_is_flat() {
        let flat = samples(|at| 50_000 + at.min(300) * 100, |at| at as f64);
        assert_eq!(missed(&flat), Vec::<String>::new());
    }

    #[test]
    fn a_leak_is_found() {
        let leak = samples(|at| 50_000 + at * 50, |at| at as f64);
        assert_eq!(missed(&leak), ["scheduler: resident memory, MiB"]);
    }

    #[test]
    fn too_many_requests_are_found() {
        let busy = samples(|_| 50_000, |at| at as f64 * 70.0);
        assert_eq!(
            missed(&busy),
            ["requests of the scheduler per second: mean, busiest ten seconds"]
        );
    }

    #[test]
    fn a_pod_that_fits_and_is_never_tried_is_found() {
        let mut starved = samples(|_| 50_000, |at| at as f64);
        for sample in &mut starved[60..] {
            sample.waited = i64::try_from(sample.seconds).unwrap();
        }
        assert_eq!(
            missed(&starved),
            ["longest wait of a pod that fits, seconds"]
        );
    }

    #[test]
    fn a_program_that_starts_again_is_found() {
        let mut again = samples(|_| 50_000, |at| at as f64);
        for sample in &mut again[60..] {
            sample.programs.get_mut("scheduler").unwrap().pid = 8;
        }
        assert_eq!(missed(&again), ["scheduler: processes"]);
    }

    #[test]
    fn what_was_not_measured_is_missed() {
        assert_eq!(missed(&[]).len(), 2);
    }
}
