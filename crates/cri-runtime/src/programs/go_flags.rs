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
}
