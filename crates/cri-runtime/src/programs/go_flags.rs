//! Flags in Go's syntax for the small programs, which take no other arguments.

use std::collections::BTreeMap;

use goflags::CommandLine;
use goflags::command_line::{self, Flag};

/// Why flags are invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The arguments cannot be split into flags.
    #[error(transparent)]
    Words(#[from] command_line::Error),
    /// An argument is not a flag.
    #[error("unexpected argument {0:?}")]
    Unexpected(String),
}

/// What a flag takes as its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing, or `=true` / `=false`.
    Switch,
    /// A value, after `=` or as the next argument.
    Value,
}

/// A flag of a program.
struct Known<'a>(&'a str, Kind);

impl Flag for Known<'_> {
    fn name(&self) -> &str {
        self.0
    }

    fn takes_value(&self) -> bool {
        self.1 == Kind::Value
    }
}

/// Parses `arguments` (without the program's name) into values of the known flags. A later value replaces an earlier one; a switch without
/// a value is `"true"`.
pub fn parse<'a>(
    arguments: impl IntoIterator<Item = &'a str>,
    known: &[(&str, Kind)],
) -> Result<BTreeMap<String, String>, Error> {
    let known: Vec<Known<'_>> = known
        .iter()
        .map(|(name, kind)| Known(name, *kind))
        .collect();
    let mut values = BTreeMap::new();
    let mut line = CommandLine::new(&known, arguments.into_iter().map(str::to_owned));
    for flag in &mut line {
        let (flag, value) = flag?;
        values.insert(flag.name().to_owned(), value);
    }
    match line.rest().into_iter().next() {
        Some(other) => Err(Error::Unexpected(other)),
        None => Ok(values),
    }
}

/// Returns the usage text of a program with these flags, sorted by name as Go does.
pub fn usage(program: &str, known: &[(&str, Kind)]) -> String {
    let mut known = known.to_vec();
    known.sort_unstable_by_key(|(name, _)| *name);
    let flags = known.iter().map(|(name, kind)| match kind {
        Kind::Switch => format!("  -{name}\n"),
        Kind::Value => format!("  -{name} value\n"),
    });
    let flags: String = flags.collect();
    format!("Usage of {program}:\n{flags}")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const KNOWN: &[(&str, Kind)] = &[
        ("v", Kind::Value),
        ("alsologtostderr", Kind::Switch),
        ("sysfs", Kind::Value),
    ];

    #[rstest]
    #[case::as_the_suite_starts_it(&["-alsologtostderr", "-v", "3"], &[("alsologtostderr", "true"), ("v", "3")])]
    #[case::two_dashes_and_equals(&["--sysfs=/host/sys"], &[("sysfs", "/host/sys")])]
    #[case::switch_off(&["-alsologtostderr=false"], &[("alsologtostderr", "false")])]
    #[case::last_one_wins(&["-v", "1", "-v=2"], &[("v", "2")])]
    #[case::terminator_alone(&["--"], &[])]
    #[case::terminator_after_flags(&["-v", "3", "--"], &[("v", "3")])]
    #[case::terminator_as_a_value(&["-v", "--"], &[("v", "--")])]
    fn go_forms(#[case] arguments: &[&str], #[case] expected: &[(&str, &str)]) {
        let expected = expected
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        assert_eq!(parse(arguments.iter().copied(), KNOWN), Ok(expected));
    }

    #[rstest]
    #[case::unknown(&["-w"], Error::Words(command_line::Error::Undefined("w".to_owned())))]
    #[case::no_value(&["-v"], Error::Words(command_line::Error::NoValue("v".to_owned())))]
    #[case::word(&["v"], Error::Unexpected("v".to_owned()))]
    fn what_go_refuses(#[case] arguments: &[&str], #[case] expected: Error) {
        assert_eq!(parse(arguments.iter().copied(), KNOWN), Err(expected));
    }

    #[rstest]
    #[case::lone_dash(&["-", "-v", "3"], "-")]
    #[case::flag_behind_the_terminator(&["--", "-v", "3"], "-v")]
    #[case::terminator_twice(&["--", "--"], "--")]
    #[case::help_behind_the_terminator(&["--", "-h"], "-h")]
    fn what_is_no_flag_in_go_is_unexpected(#[case] arguments: &[&str], #[case] word: &str) {
        let expected = Error::Unexpected(word.to_owned());
        assert_eq!(parse(arguments.iter().copied(), KNOWN), Err(expected));
    }

    #[rstest]
    #[case::letter(&["-h"])]
    #[case::letter_with_two_dashes(&["--h"])]
    #[case::word(&["-help"])]
    #[case::word_with_two_dashes(&["--help"])]
    #[case::with_a_value(&["-h=false"])]
    #[case::after_other_flags(&["-v", "3", "-h"])]
    #[case::before_a_bad_flag(&["-h", "---v"])]
    fn help_is_asked_for_as_in_go(#[case] arguments: &[&str]) {
        let expected = Error::Words(command_line::Error::Help);
        assert_eq!(parse(arguments.iter().copied(), KNOWN), Err(expected));
    }

    #[rstest]
    #[case::three_dashes(&["---v"], "bad flag syntax: ---v")]
    #[case::three_dashes_with_a_value(&["---v=3"], "bad flag syntax: ---v=3")]
    #[case::only_dashes(&["---"], "bad flag syntax: ---")]
    #[case::no_name(&["-=x"], "bad flag syntax: -=x")]
    #[case::no_name_with_two_dashes(&["--=x"], "bad flag syntax: --=x")]
    #[case::before_help(&["-=x", "-h"], "bad flag syntax: -=x")]
    fn bad_syntax_is_named_as_in_go(#[case] arguments: &[&str], #[case] expected: &str) {
        let error = parse(arguments.iter().copied(), KNOWN).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn usage_lists_the_flags_by_name() {
        assert_eq!(
            usage("p", KNOWN),
            "Usage of p:\n  -alsologtostderr\n  -sysfs value\n  -v value\n"
        );
    }
}
