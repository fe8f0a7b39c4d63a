//! What became of a test.

use std::fmt;

/// Marks of a failure in the output, each at the beginning of its message.
const FAILURES: [&str; 4] = ["[FAILED] ", "[TIMEDOUT] ", "[PANICKED] ", "[INTERRUPTED] "];
/// The same of a test that found out that it cannot run.
const SKIPPED: &str = "[SKIPPED] ";
/// Longest reason in bytes.
const LONGEST: usize = 400;

/// What became of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It passed.
    Passed,
    /// It failed, with the first lines of why.
    Failed(String),
    /// It found out that it cannot run here, and why.
    Skipped(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Failed(why) => write!(f, "failed ({why})"),
            Self::Skipped(why) => write!(f, "skipped ({why})"),
        }
    }
}

impl Outcome {
    /// Reads it from the output of the program, which was to run one test.
    pub(super) fn read(output: &str, is_success: bool) -> Self {
        let ran_well = output.lines().any(|line| line.contains(" 1 Passed"));
        if is_success && ran_well {
            return Self::Passed;
        }
        let message = |mark: &str| {
            let lines = output.lines().skip_while(|line| !begins(line, mark));
            let text = lines.take_while(|line| !line.trim_start().starts_with("In ["));
            let words: Vec<&str> = text.flat_map(str::split_whitespace).collect();
            let text = words.join(" ");
            let text = text.strip_prefix(mark.trim_end()).unwrap_or(&text).trim();
            (!text.is_empty()).then(|| shortened(text))
        };
        if is_success && let Some(why) = message(SKIPPED) {
            return Self::Skipped(why);
        }
        let why = FAILURES.into_iter().find_map(message);
        Self::Failed(why.unwrap_or_else(|| "the output does not say why".to_owned()))
    }
}

/// Returns whether a message begins in a line. The headline of a test has the mark, too, with a time behind it, and so has its timeline, with a place.
fn begins(line: &str, mark: &str) -> bool {
    let rest = line.trim_start().strip_prefix(mark);
    rest.is_some_and(|rest| !rest.starts_with('[') && !rest.starts_with("in ["))
}

fn shortened(text: &str) -> String {
    text[..text.floor_char_boundary(LONGEST)].to_owned()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const PASSED: &str = "\u{2022} [1.062 seconds]\n\nRan 1 of 7137 Specs in 1.1 seconds\n\
        SUCCESS! -- 1 Passed | 0 Failed | 0 Pending | 7136 Skipped\nPASS\n";
    const FAILED: &str = "\u{2022} [FAILED] [5.012 seconds]\n[sig-x] y [It] z\n  [FAILED] in [It] - x.go:1\n  << Timeline\n\n  [FAILED] expected\n      1\n  \
        In [It] at: x.go:1 @ 11/26/26\nFAIL! -- 0 Passed | 1 Failed | 0 Pending | 7136 Skipped\n";
    const SKIPPED: &str = "S [SKIPPED] [0.5 seconds]\n[sig-x] y [BeforeEach]\n  [SKIPPED] Only for gce\n  In [BeforeEach] at: x.go:1\n\
        SUCCESS! -- 0 Passed | 0 Failed | 0 Pending | 7137 Skipped\n";

    #[rstest]
    #[case::passed(PASSED, true, Outcome::Passed)]
    #[case::passed_and_then_the_program_failed(PASSED, false, Outcome::Failed("the output does not say why".to_owned()))]
    #[case::failed(FAILED, false, Outcome::Failed("expected 1".to_owned()))]
    #[case::skipped(SKIPPED, true, Outcome::Skipped("Only for gce".to_owned()))]
    #[case::nothing_ran("", true, Outcome::Failed("the output does not say why".to_owned()))]
    fn outcome_is_that_of_the_one_test(
        #[case] output: &str,
        #[case] is_success: bool,
        #[case] expected: Outcome,
    ) {
        assert_eq!(Outcome::read(output, is_success), expected);
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let output = format!("  [FAILED] {}\n", "\u{e4}".repeat(500));
        let Outcome::Failed(why) = Outcome::read(&output, false) else {
            panic!("it did not fail");
        };
        assert_eq!(why.len(), LONGEST);
    }
}
