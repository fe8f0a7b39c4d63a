//! Jobs: tests that run as one process.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom as _;

use super::history::History;
use super::plan::Expected;
use super::targets::{Binary, Names, Test};

/// Number of tests of a library that run in one process: enough to make its start negligible, few enough that the libraries share the
/// processors to the end.
const TOGETHER: usize = 48;
/// Least time that a job may take before it counts as hanging.
const LEAST_LIMIT: Duration = Duration::from_mins(5);
/// Multiple of its expected time that a job may take, because everything takes longer on a busy machine.
const LIMIT_FACTOR: f64 = 6.0;

/// One process and the tests that it runs.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// Key of its history and its name in messages: `package/target/test`, `package/target` when it runs all tests of a binary, or
    /// `package/target 2` when it runs the second part of them.
    pub(crate) id: String,
    /// `package/target`.
    pub(crate) target: String,
    /// Whether it runs many tests, so that their verdicts must be read from its output.
    pub(crate) is_batch: bool,
    /// Whether the program is cargo, which must not get the variables of a package.
    pub(super) is_cargo: bool,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) dir: PathBuf,
    pub(crate) package: String,
    /// Names of the tests, as in the binary.
    pub(crate) tests: Vec<String>,
    pub(crate) expected: Expected,
}

impl Job {
    /// Returns the time after which it counts as hanging.
    pub(crate) fn limit(&self) -> Duration {
        Duration::try_from_secs_f64(self.expected.seconds * LIMIT_FACTOR)
            .unwrap_or(LEAST_LIMIT)
            .max(LEAST_LIMIT)
    }

    fn of(binary: &Binary, tests: &[&Test], which: Which, history: &History) -> Self {
        let target = binary.id();
        let id = match (which, tests) {
            (Which::One, [test]) => test.id(),
            (Which::Part(number), _) => format!("{target} {number}"),
            (Which::All | Which::One, _) => target.clone(),
        };
        let mut arguments = binary.leading.clone();
        arguments.push("--test-threads=1".into());
        if tests.iter().any(|test| test.ignored) {
            arguments.push("--include-ignored".into());
        }
        if which != Which::All {
            arguments.push("--exact".into());
            arguments.extend(tests.iter().map(|test| OsString::from(&test.name)));
        }
        Self {
            expected: history.expected(&id, binary.is_split()),
            id,
            target,
            is_batch: which != Which::One,
            is_cargo: !binary.leading.is_empty(),
            program: binary.executable.clone(),
            arguments,
            dir: binary.dir.clone(),
            package: binary.package.clone(),
            tests: tests.iter().map(|test| test.name.clone()).collect(),
        }
    }
}

/// Which tests of a binary a job runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Which {
    All,
    /// The part of them with this number.
    Part(usize),
    One,
}

/// Cuts tests into jobs, the longest first. With `split` every test becomes a job; `complete` says that no test was left out by a filter.
pub(crate) fn cut(
    tests: &[Test],
    split: bool,
    complete: bool,
    repeat: u32,
    history: &History,
) -> Vec<Job> {
    let mut jobs = Vec::new();
    for of_binary in tests.chunk_by(|one, other| one.binary == other.binary) {
        let Some(first) = of_binary.first() else {
            continue;
        };
        let binary = &first.binary;
        let tests: Vec<&Test> = of_binary.iter().collect();
        let job = |tests: &[&Test], which| Job::of(binary, tests, which, history);
        match binary.names() {
            Names::Any if split || binary.is_split() => {
                jobs.extend(tests.iter().map(|test| job(&[test], Which::One)));
            }
            Names::Any if !complete || tests.len() > TOGETHER => {
                let parts = tests.chunks(TOGETHER).zip(1..);
                jobs.extend(parts.map(|(part, number)| job(part, Which::Part(number))));
            }
            Names::One if tests.len() == 1 => jobs.push(job(&tests, Which::One)),
            // a runner that takes one name runs all of its tests if several are selected; the others are not counted
            Names::Any | Names::One | Names::None => jobs.push(job(&tests, Which::All)),
        }
    }
    jobs.sort_by(|one, other| {
        let longest_first = other.expected.seconds.total_cmp(&one.expected.seconds);
        longest_first.then_with(|| one.id.cmp(&other.id))
    });
    (0..repeat).flat_map(|_| jobs.iter().cloned()).collect()
}

/// Sorts jobs in the random order of a seed.
pub(crate) fn shuffle(jobs: &mut [Job], seed: u64) {
    jobs.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn of(target: &str, names: &[&str]) -> Vec<Test> {
        let binary = Arc::new(Binary {
            package: "rte".to_owned(),
            target: target.to_owned(),
            executable: PathBuf::from("rte-0123"),
            leading: Vec::new(),
            dir: PathBuf::from("rte"),
        });
        names
            .iter()
            .map(|name| Test {
                binary: Arc::clone(&binary),
                name: (*name).to_owned(),
                ignored: *name == "real",
            })
            .collect()
    }

    fn tests() -> Vec<Test> {
        [of("lib", &["a", "b"]), of("it", &["c", "real"])].concat()
    }

    fn ids(jobs: &[Job]) -> Vec<&str> {
        jobs.iter().map(|job| job.id.as_str()).collect()
    }

    #[test]
    fn tests_of_a_library_share_a_process_and_integration_tests_do_not() {
        let jobs = cut(&tests(), false, true, 1, &History::default());
        assert_eq!(ids(&jobs), ["rte/lib", "rte/it/c", "rte/it/real"]);
        assert_eq!(jobs[0].tests, ["a", "b"]);
        assert!(jobs[0].is_batch);
        assert!(!jobs[1].is_batch);
        let names_tests = |job: &Job| job.arguments.contains(&"--exact".into());
        assert!(!names_tests(&jobs[0]) && names_tests(&jobs[1]));
        let asks_for_ignored = |job: &Job| job.arguments.contains(&"--include-ignored".into());
        assert!(!asks_for_ignored(&jobs[1]));
        assert!(asks_for_ignored(&jobs[2]));
    }

    #[test]
    fn parts_of_a_large_library_have_numbers() {
        let names: Vec<String> = (0..=TOGETHER).map(|number| format!("t{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let jobs = cut(&of("lib", &names), false, true, 1, &History::default());
        assert_eq!(ids(&jobs), ["rte/lib 1", "rte/lib 2"]);
        assert_eq!(jobs[1].tests, [format!("t{TOGETHER}")]);
    }

    #[test]
    fn a_shuffled_run_has_every_test_as_often_as_asked_for_in_the_order_of_its_seed() {
        let mut jobs = cut(&tests(), true, true, 3, &History::default());
        assert_eq!(jobs.len(), 12);
        let mut again = jobs.clone();
        shuffle(&mut jobs, 7);
        shuffle(&mut again, 7);
        assert_eq!(ids(&jobs), ids(&again));
        shuffle(&mut again, 8);
        assert_ne!(ids(&jobs), ids(&again));
        let a = jobs.iter().filter(|job| job.id == "rte/lib/a").count();
        assert_eq!(a, 3);
    }
}
