//! What is expected of each test.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::outcome::Outcome;

/// The committed list.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/conformance.yaml");

/// Why the list cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file could not be read.
    #[error("cannot read {FILE}")]
    Read(#[from] std::io::Error),
    /// The file does not have the right format.
    #[error("cannot read the list of conformance tests")]
    Yaml(#[from] serde_yaml::Error),
    /// Tests that do not pass need a reason.
    #[error("{0:?} and others of its group need a reason")]
    NoReason(String),
    /// A test is in the list more than once.
    #[error("{0:?} is listed twice")]
    Twice(String),
}

/// What becomes of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It passes.
    Passes,
    /// It fails, and that is a flaw of the embedded cluster.
    Fails,
    /// It needs what an embedded cluster does not claim to have, so it is not run.
    DoesNotApply,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    verdict: Verdict,
    /// Why it is not `passes`.
    #[serde(default)]
    reason: String,
    tests: Vec<String>,
}

/// The expected verdict of each test.
#[derive(Debug)]
pub struct Expected(BTreeMap<String, (Verdict, String)>);

impl Expected {
    /// Reads the committed list.
    ///
    /// # Errors
    /// When the list cannot be read, a reason is missing, or a test is there twice.
    pub fn read() -> Result<Self, Error> {
        Self::parse(&std::fs::read_to_string(FILE)?)
    }

    fn parse(text: &str) -> Result<Self, Error> {
        let groups: Vec<Group> = serde_yaml::from_str(text)?;
        let mut all = BTreeMap::new();
        for group in groups {
            for test in group.tests {
                if group.verdict != Verdict::Passes && group.reason.trim().is_empty() {
                    return Err(Error::NoReason(test));
                }
                let entry = (group.verdict, group.reason.clone());
                if all.insert(test.clone(), entry).is_some() {
                    return Err(Error::Twice(test));
                }
            }
        }
        Ok(Self(all))
    }

    /// Returns what is expected of a test, unless it is not listed.
    pub fn of(&self, test: &str) -> Option<Verdict> {
        self.0.get(test).map(|(verdict, _)| *verdict)
    }

    /// Returns a line for each way in which outcomes differ from the list, and for each test of the program that the list lacks, or the other way round.
    pub fn differences(
        &self,
        tests: &BTreeSet<String>,
        outcomes: &BTreeMap<String, Outcome>,
    ) -> Vec<String> {
        let unlisted = tests
            .iter()
            .filter(|test| !self.0.contains_key(*test))
            .map(|test| format!("not listed: {test}"));
        let gone = self
            .0
            .keys()
            .filter(|test| !tests.contains(*test))
            .map(|test| format!("listed, but there is no such test: {test}"));
        let changed = outcomes.iter().filter_map(|(test, outcome)| {
            let expected = self.of(test)?;
            match (expected, outcome) {
                (Verdict::Passes, Outcome::Passed)
                | (Verdict::Fails, Outcome::Failed(_))
                | (Verdict::DoesNotApply, Outcome::Failed(_) | Outcome::Skipped(_)) => None,
                (Verdict::Fails, Outcome::Passed) => {
                    Some(format!("listed as failing, but it passes: {test}"))
                }
                (Verdict::DoesNotApply, Outcome::Passed) => {
                    Some(format!("listed as not applying, but it passes: {test}"))
                }
                (Verdict::Passes | Verdict::Fails, outcome) => Some(format!("{outcome}: {test}")),
            }
        });
        unlisted.chain(gone).chain(changed).collect()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const LIST: &str = "[{verdict: passes, tests: [a]}, {verdict: fails, reason: r, tests: [b]}, \
        {verdict: does-not-apply, reason: r, tests: [c]}]";

    fn differences(test: &str, outcome: Outcome) -> Vec<String> {
        let tests = ["a", "b", "c"].map(str::to_owned).into();
        let outcomes = [(test.to_owned(), outcome)].into();
        let expected = Expected::parse(LIST).unwrap();
        expected.differences(&tests, &outcomes)
    }

    #[rstest]
    #[case::passes("a", Outcome::Passed, None)]
    #[case::broken("a", Outcome::Failed("why".to_owned()), Some("failed (why): a"))]
    #[case::skipped("a", Outcome::Skipped("why".to_owned()), Some("skipped (why): a"))]
    #[case::fails("b", Outcome::Failed("why".to_owned()), None)]
    #[case::mended("b", Outcome::Passed, Some("listed as failing, but it passes: b"))]
    #[case::does_not_apply("c", Outcome::Failed("why".to_owned()), None)]
    #[case::applies("c", Outcome::Passed, Some("listed as not applying, but it passes: c"))]
    fn outcomes_that_differ_are_told(
        #[case] test: &str,
        #[case] outcome: Outcome,
        #[case] expected: Option<&str>,
    ) {
        let told = differences(test, outcome);
        assert_eq!(
            told,
            expected.map(str::to_owned).into_iter().collect::<Vec<_>>()
        );
    }

    #[test]
    fn tests_that_are_only_on_one_side_are_told() {
        let tests = ["a", "b", "d"].map(str::to_owned).into();
        let expected = Expected::parse(LIST).unwrap();
        assert_eq!(
            expected.differences(&tests, &BTreeMap::new()),
            ["not listed: d", "listed, but there is no such test: c"]
        );
    }

    #[rstest]
    #[case::no_reason("[{verdict: fails, tests: [a]}]")]
    #[case::twice("[{verdict: passes, tests: [a, a]}]")]
    #[case::unknown("[{verdict: maybe, tests: [a]}]")]
    fn a_list_that_says_too_little_or_too_much_is_refused(#[case] text: &str) {
        assert!(Expected::parse(text).is_err());
    }

    /// The goal of the project: of the tests that apply, nine of ten pass.
    #[test]
    fn of_the_tests_that_apply_nine_of_ten_pass() {
        let expected = Expected::read().unwrap();
        let count = |wanted| {
            let verdicts = expected.0.values();
            verdicts.filter(|(verdict, _)| *verdict == wanted).count()
        };
        let (passing, failing) = (count(Verdict::Passes), count(Verdict::Fails));
        assert!(passing > 150, "{passing}");
        assert!(passing >= 9 * failing, "{passing} pass, {failing} fail");
    }
}
