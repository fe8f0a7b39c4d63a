//! The command line by the rules of Go's `flag` package (rte.md 2.1). Pure, and without knowledge of any particular flag.
//!
//! [`parse`] splits the words; [`boolean`], [`number`] and [`duration`] read values.

use std::fmt::Write as _;
use std::str::FromStr;

use goflags::command_line::{self, Flag};
use goflags::{CommandLine, GoDuration};

/// What follows the name of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing or `=true`, `=false`.
    Bool,
    /// A value, after `=` or as the next word.
    Value,
}

/// A known flag.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    /// Name without dashes.
    pub(crate) name: &'static str,
    /// What follows the name.
    pub(crate) kind: Kind,
    /// One line of the usage text.
    pub(crate) usage: &'static str,
}

/// The parsed command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Args {
    /// Flags in the given order, with their values; a boolean without a value has `true`.
    pub(crate) flags: Vec<(&'static str, String)>,
    /// All words after the flags.
    pub(crate) positional: Vec<String>,
}

impl Flag for Spec {
    fn name(&self) -> &str {
        self.name
    }

    fn takes_value(&self) -> bool {
        self.kind == Kind::Value
    }
}

/// The command line is not valid; the messages are those of Go.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// The words cannot be split into flags.
    #[error(transparent)]
    Words(#[from] command_line::Error),
    /// The value of a switch is no boolean.
    #[error("invalid boolean value \"{value}\" for -{flag}: {reason}")]
    Switch {
        /// The flag.
        flag: &'static str,
        /// The value given.
        value: String,
        /// Why it is not valid.
        reason: String,
    },
    /// The value is not valid for the flag.
    #[error("invalid value \"{value}\" for flag -{flag}: {reason}")]
    Value {
        /// The flag.
        flag: &'static str,
        /// The value given.
        value: String,
        /// Why it is not valid.
        reason: String,
    },
}

/// Parses `words`, which do not include the program's name.
pub(crate) fn parse(
    specs: &[Spec],
    words: impl IntoIterator<Item = String>,
) -> Result<Args, Error> {
    let mut args = Args::default();
    let mut line = CommandLine::new(specs, words);
    for flag in &mut line {
        let (spec, value) = flag?;
        args.flags.push((spec.name, value));
    }
    args.positional = line.rest();
    Ok(args)
}

/// Returns the usage text of all flags.
pub(crate) fn usage(program: &str, specs: &[Spec]) -> String {
    let mut text = format!("Usage of {program}:\n");
    for spec in specs {
        let value = match spec.kind {
            Kind::Bool => "",
            Kind::Value => " value",
        };
        writeln!(text, "  -{}{value}\n    \t{}", spec.name, spec.usage)
            .expect("writing to a string cannot fail");
    }
    text
}

/// Reads a boolean.
pub(crate) fn boolean(text: &str) -> Result<bool, String> {
    goflags::boolean(text).ok_or_else(parse_error)
}

/// Reads a whole number.
pub(crate) fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| parse_error())
}

/// Reads a duration such as `1m30s`.
pub(crate) fn duration(text: &str) -> Result<GoDuration, String> {
    text.parse().map_err(|_| parse_error())
}

fn parse_error() -> String {
    "parse error".to_owned()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const SPECS: &[Spec] = &[
        Spec {
            name: "debug",
            kind: Kind::Bool,
            usage: "",
        },
        Spec {
            name: "sysfs",
            kind: Kind::Value,
            usage: "",
        },
    ];

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[rstest]
    #[case::one_dash("-sysfs /x", &[("sysfs", "/x")], &[])]
    #[case::two_dashes("--sysfs=/x=y", &[("sysfs", "/x=y")], &[])]
    #[case::empty_value("--sysfs=", &[("sysfs", "")], &[])]
    #[case::value_like_a_flag("--sysfs --debug", &[("sysfs", "--debug")], &[])]
    #[case::bool_alone("-debug --sysfs x", &[("debug", "true"), ("sysfs", "x")], &[])]
    #[case::bool_with_value("--debug=false", &[("debug", "false")], &[])]
    #[case::bool_does_not_take_the_next_word("--debug false", &[("debug", "true")], &["false"])]
    #[case::flags_end_at_the_first_word("--debug /etc/rte --sysfs x", &[("debug", "true")], &["/etc/rte", "--sysfs", "x"])]
    #[case::terminator("-- --debug", &[], &["--debug"])]
    #[case::lone_dash("- -debug", &[], &["-", "-debug"])]
    fn command_line_splits_as_in_go(
        #[case] line: &str,
        #[case] flags: &[(&'static str, &str)],
        #[case] positional: &[&str],
    ) {
        let args = parse(SPECS, words(line)).unwrap();
        let expected: Vec<_> = flags
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect();
        assert_eq!(args.flags, expected);
        assert_eq!(args.positional, positional);
    }

    #[rstest]
    #[case::unknown("--nope=1", "flag provided but not defined: -nope")]
    #[case::gone(
        "--kubelet-state-dir=/x",
        "flag provided but not defined: -kubelet-state-dir"
    )]
    #[case::no_value("--debug --sysfs", "flag needs an argument: -sysfs")]
    #[case::three_dashes("---debug", "bad flag syntax: ---debug")]
    #[case::no_name("--=x", "bad flag syntax: --=x")]
    #[case::help("-h", "help requested")]
    fn other_command_lines_are_refused(#[case] line: &str, #[case] expected: &str) {
        assert_eq!(parse(SPECS, words(line)).unwrap_err().to_string(), expected);
    }
}
