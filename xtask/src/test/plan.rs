//! Which tests run at which level, and the expected cost of tests without a history.

use std::time::Duration;

use super::targets::Test;

/// The level of tests to run.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Level {
    /// Tests that need neither root nor Go nor real Kubernetes programs.
    Plain,
    /// Tests that CI runs.
    Real,
    /// All tests, including those that take long.
    All,
}

/// Why a test does not run by default.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Plain,
    /// Needs root, Go or real Kubernetes programs.
    Real,
    /// Takes too long for CI.
    Long,
    /// A scenario of tier 0 in the binary with libtest's command line. From [`Level::Real`] on, a test of `suite/it` runs the whole catalogue in its
    /// place, on a cluster of the same kind.
    Tier0,
    /// A scenario beyond tier 0 in that binary.
    Catalogue,
}

/// The scenario of tier 0 that runs with libtest's command line at every level, so that this way of running scenarios is always tried.
const SHOWN: &str = "tmpol/pend-cpu-cnt";

/// The selected tests.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    pub(crate) level: Level,
    /// Only tests with one of these in their id; an empty list selects all.
    pub(crate) filters: Vec<String>,
}

/// Number of tests that were left out, by what would run them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct LeftOut {
    pub(crate) real: usize,
    pub(crate) long: usize,
    pub(crate) catalogue: usize,
    pub(crate) filtered: usize,
}

impl Selection {
    /// Removes the tests that are not selected, and counts them.
    pub(crate) fn apply(&self, tests: &mut Vec<Test>) -> LeftOut {
        let mut left_out = LeftOut::default();
        tests.retain(|test| {
            let id = test.id();
            let named = self.filters.iter().any(|filter| id.contains(filter));
            if !self.filters.is_empty() && !named {
                left_out.filtered += 1;
                return false;
            }
            let (count, least) = match kind(test) {
                Kind::Plain => return true,
                Kind::Tier0 if self.level == Level::Plain || named || test.name == SHOWN => {
                    return true;
                }
                Kind::Real => (&mut left_out.real, Some(Level::Real)),
                Kind::Long => (&mut left_out.long, Some(Level::All)),
                Kind::Tier0 | Kind::Catalogue => (&mut left_out.catalogue, None),
            };
            let runs = least.is_some_and(|least| self.level >= least);
            if !runs {
                *count += 1;
            }
            runs
        });
        left_out
    }
}

/// Returns the kind of a test. libtest ignores tests that need something or take long, with the reason at the test. Those that take long
/// are in a module `long`, because binaries list names and no reasons.
fn kind(test: &Test) -> Kind {
    let is_scenario = test.binary.id() == "suite/suite";
    if !test.ignored {
        if is_scenario {
            Kind::Tier0
        } else {
            Kind::Plain
        }
    } else if is_scenario {
        Kind::Catalogue
    } else if test.name.split("::").any(|part| part == "long") {
        Kind::Long
    } else {
        Kind::Real
    }
}

/// The expected cost of a job.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize, serde::Serialize)]
pub(crate) struct Expected {
    /// Seconds from start to end.
    pub(crate) seconds: f64,
    /// Number of processors that it keeps busy.
    pub(crate) load: f64,
}

impl Expected {
    /// Returns the time from start to end. What is no time (of a history that was edited) counts as endless.
    pub(crate) fn duration(self) -> Duration {
        Duration::try_from_secs_f64(self.seconds).unwrap_or(Duration::MAX)
    }
}

/// Jobs that take more than some seconds, measured on two processors, for the first run on a machine. A job is a test
/// (`package/target/name`, or the prefix of several) or a whole binary (`package/target`).
const LONG: &[(&str, Expected)] = &[
    ("suite/it/lanes::long::", takes(800.0, 1.4)),
    ("suite/it/lanes::every", takes(300.0, 1.2)),
    ("suite/it/lanes::all_but", takes(290.0, 0.7)),
    ("suite/it/lanes::scenarios_of_a_hosted", takes(25.0, 1.0)),
    (
        "suite/it/lanes::scenarios_of_openshift_but",
        takes(60.0, 0.6),
    ),
    ("suite/it/lanes::", takes(80.0, 1.0)),
    ("suite/it/faults::the_set_up", takes(25.0, 0.3)),
    ("suite/it/faults::a_stopped", takes(108.0, 0.25)),
    ("suite/it/permissions::", takes(25.0, 1.0)),
    ("testbed/it/controllers::compared", takes(100.0, 0.35)),
    ("testbed/it/cluster::removed", takes(100.0, 0.3)),
    ("operator/it/crash::", takes(30.0, 1.2)),
    (
        "suite/it/faults::the_default_scheduler_in_place_of_ours_is_found_out_on_real_parts",
        takes(65.0, 1.0),
    ),
    ("suite/it/churn::", takes(70.0, 0.5)),
    ("xtask/it/images::", takes(60.0, 0.6)),
    (
        "suite/it/attached::a_cluster_known_by_its_kubeconfig_gets_the_verdicts_of_its_lane::case_2_local",
        takes(45.0, 0.9),
    ),
    ("suite/it/accounting::every", takes(55.0, 0.9)),
    ("suite/it/disturbed::", takes(90.0, 0.4)),
    ("suite/it/cleanup::a_run_that", takes(30.0, 0.8)),
    ("suite/it/killed::", takes(25.0, 0.8)),
    ("suite/it/broken_stack::", takes(35.0, 0.3)),
    ("testbed/it/kubelet::", takes(50.0, 0.9)),
    ("suite/it/warm::", takes(25.0, 0.5)),
    ("suite/suite", takes(45.0, 0.8)),
    ("suite/it/containerd::", takes(180.0, 0.4)),
    ("suite/it/faults::", takes(40.0, 0.7)),
    ("judges/replay", takes(50.0, 0.15)),
    ("testbed/it/disturbed::", takes(20.0, 0.15)),
    ("suite/it/attached::", takes(25.0, 0.7)),
    ("suite/it/openshift::", takes(20.0, 0.7)),
    ("judges/lib", takes(17.0, 1.5)),
    ("nrotool/it/gathering::what_is_refused", takes(30.0, 0.1)),
    ("testbed/it/controllers::workloads::many", takes(20.0, 0.5)),
    ("deployer/it/lanes::long::", takes(150.0, 0.45)),
    ("deployer/it/lanes::", takes(50.0, 0.45)),
    ("deployer/it/accepted::", takes(20.0, 1.0)),
    ("deployer/it/reference::", takes(1.0, 1.0)),
    ("deployer/it/", takes(12.0, 0.3)),
    ("nrotool/it/checklist::", takes(12.0, 0.3)),
    ("nrotool/it/failed_scenario::", takes(12.0, 0.3)),
    ("operator/it/idle::", takes(10.0, 0.5)),
    ("operator/it/faults::", takes(10.0, 0.1)),
    ("scheduler/it/admission::", takes(18.0, 0.5)),
    ("testbed/it/openshift::", takes(18.0, 0.6)),
    ("testbed/it/cluster::", takes(15.0, 0.5)),
    ("rte/it/external_faults::", takes(15.0, 0.1)),
    ("rte/it/faults::", takes(15.0, 0.1)),
    ("testbed/it/containerd::", takes(20.0, 0.7)),
    ("testbed/it/kubectl::", takes(8.0, 0.5)),
    ("testbed/it/node", takes(5.0, 0.4)),
];

const fn takes(seconds: f64, load: f64) -> Expected {
    Expected { seconds, load }
}

/// Returns the cost of a job, if it is in the table.
pub(crate) fn known(id: &str) -> Option<Expected> {
    let found = LONG.iter().find(|(beginning, _)| id.starts_with(beginning));
    found.map(|(_, expected)| *expected)
}

/// Returns the expected cost of an unknown job. Most tests of clusters (`is_split`) wait half of their time; the tests of a library only
/// compute.
pub(crate) fn unknown(is_split: bool) -> Expected {
    if is_split {
        takes(1.0, 0.5)
    } else {
        takes(2.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use rstest::rstest;

    use super::super::targets::Binary;
    use super::*;

    fn test(id: &str, ignored: bool) -> Test {
        let mut parts = id.splitn(3, '/');
        let mut part = || parts.next().expect("three parts").to_owned();
        let binary = Binary {
            package: part(),
            target: part(),
            executable: PathBuf::new(),
            leading: Vec::new(),
            dir: PathBuf::new(),
        };
        Test {
            binary: Arc::new(binary),
            name: part(),
            ignored,
        }
    }

    #[rstest]
    #[case::plain(Level::Plain, &["rte/it/publish::a", "suite/suite/tmpol/pend-mem-cnt"], LeftOut { real: 1, long: 1, catalogue: 1, filtered: 0 })]
    #[case::real(Level::Real, &["rte/it/publish::a", "testbed/it/cluster::b"], LeftOut { long: 1, catalogue: 2, ..LeftOut::default() })]
    #[case::all(Level::All, &["rte/it/publish::a", "testbed/it/cluster::b", "suite/it/churn::long::c"], LeftOut { catalogue: 2, ..LeftOut::default() })]
    fn a_level_runs_what_it_says_and_counts_the_rest(
        #[case] level: Level,
        #[case] selected: &[&str],
        #[case] left_out: LeftOut,
    ) {
        let mut tests = vec![
            test("rte/it/publish::a", false),
            test("testbed/it/cluster::b", true),
            test("suite/it/churn::long::c", true),
            test("suite/suite/tmpol/pend-mem-cnt", false),
            test("suite/suite/unsched/gu-pod", true),
        ];
        let selection = Selection {
            level,
            filters: Vec::new(),
        };
        assert_eq!(selection.apply(&mut tests), left_out);
        let ids: Vec<String> = tests.iter().map(Test::id).collect();
        assert_eq!(ids, selected);
    }

    #[test]
    fn filters_look_at_package_target_and_name() {
        let mut tests = vec![
            test("rte/it/publish::a", false),
            test("rte/lib/scan::b", false),
            test("suite/lib/publish::c", false),
        ];
        let selection = Selection {
            level: Level::Plain,
            filters: vec!["rte/it".to_owned(), "publish::c".to_owned()],
        };
        assert_eq!(selection.apply(&mut tests).filtered, 1);
        assert_eq!(tests.len(), 2);
    }
}
