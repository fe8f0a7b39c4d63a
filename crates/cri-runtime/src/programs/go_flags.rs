//! Parses flags like Go's `flag` package: `-name value`, `-name=value`, one or two dashes, booleans without a value.

use std::collections::BTreeMap;

/// Why flags are invalid; the texts are those of Go's package.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The program has no such flag.
    #[error("flag provided but not defined: -{0}")]
    Unknown(String),
    /// The last flag lacks its value.
    #[error("flag needs an argument: -{0}")]
    MissingValue(String),
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

/// Parses `arguments` (without the program's name) into values of the known flags. A later value replaces an earlier one; a switch without
/// a value is `"true"`.
pub fn parse<'a>(
    arguments: impl IntoIterator<Item = &'a str>,
    known: &[(&str, Kind)],
) -> Result<BTreeMap<String, String>, Error> {
    let mut values = BTreeMap::new();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let Some(flag) = argument
            .strip_prefix("--")
            .or_else(|| argument.strip_prefix('-'))
            .filter(|flag| !flag.is_empty())
        else {
            return Err(Error::Unexpected(argument.to_owned()));
        };
        let (name, given) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (flag, None),
        };
        let Some((_, kind)) = known.iter().find(|(known, _)| *known == name) else {
            return Err(Error::Unknown(name.to_owned()));
        };
        let value = match (given, kind) {
            (Some(value), _) => value,
            (None, Kind::Switch) => "true",
            (None, Kind::Value) => arguments
                .next()
                .ok_or_else(|| Error::MissingValue(name.to_owned()))?,
        };
        values.insert(name.to_owned(), value.to_owned());
    }
    Ok(values)
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
    #[case::unknown(&["-w"], Error::Unknown("w".to_owned()))]
    #[case::no_value(&["-v"], Error::MissingValue("v".to_owned()))]
    #[case::word(&["v"], Error::Unexpected("v".to_owned()))]
    fn what_go_refuses(#[case] arguments: &[&str], #[case] expected: Error) {
        assert_eq!(parse(arguments.iter().copied(), KNOWN), Err(expected));
    }
}
