//! The command line in the syntax of Go's `flag` package: one or two dashes, `-name value` or `-name=value`; a switch takes a value only
//! after `=` (operator.md 2).

use std::collections::BTreeMap;

/// Type of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Switch,
    Text,
    Number,
}

/// Every flag with its default. The last block contains klog's flags, of which only `v` has an effect.
const FLAGS: &[(&str, Kind, &str)] = &[
    ("metrics-bind-address", Kind::Text, ":8080"),
    ("enable-metrics", Kind::Switch, "true"),
    ("health-probe-bind-address", Kind::Text, ":8081"),
    ("leader-elect", Kind::Switch, "true"),
    ("platform", Kind::Text, ""),
    ("platform-version", Kind::Text, ""),
    ("detect-platform-only", Kind::Switch, "false"),
    ("inspect-features", Kind::Switch, "false"),
    ("version", Kind::Switch, "false"),
    ("render", Kind::Switch, "false"),
    ("render-nrt-crd", Kind::Switch, "false"),
    ("render-namespace", Kind::Text, "numaresources-operator"),
    ("render-image", Kind::Text, ""),
    ("render-image-scheduler", Kind::Text, ""),
    ("enable-scheduler", Kind::Switch, "true"),
    ("enable-webhooks", Kind::Switch, "false"),
    ("webhook-port", Kind::Number, "9443"),
    ("enable-http2", Kind::Switch, "false"),
    ("enable-mcp-conds-fwd", Kind::Switch, "false"),
    ("image-exporter", Kind::Text, ""),
    ("image-scheduler", Kind::Text, ""),
    ("handle-lifecycle-event", Kind::Text, ""),
    ("kubeconfig", Kind::Text, ""),
    ("v", Kind::Number, "0"),
    ("vmodule", Kind::Text, ""),
    ("logtostderr", Kind::Switch, "true"),
    ("alsologtostderr", Kind::Switch, "false"),
    ("log_dir", Kind::Text, ""),
    ("log_file", Kind::Text, ""),
    ("log_file_max_size", Kind::Number, "1800"),
    ("add_dir_header", Kind::Switch, "false"),
    ("skip_headers", Kind::Switch, "false"),
    ("one_output", Kind::Switch, "false"),
    ("skip_log_headers", Kind::Switch, "false"),
    ("stderrthreshold", Kind::Text, "2"),
    ("log_backtrace_at", Kind::Text, ""),
];

/// Events that the lifecycle hooks of the pod report.
const LIFECYCLE_EVENTS: [&str; 2] = ["postStart", "preStop"];

/// The command line is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The arguments ask for help.
    #[error("help requested")]
    Help,
    /// No such flag.
    #[error("flag provided but not defined: -{0}")]
    Unknown(String),
    /// The value is missing.
    #[error("flag needs an argument: -{0}")]
    NoValue(String),
    /// The value does not have the type of the flag.
    #[error("invalid value {value:?} for flag -{name}: parse error")]
    Value {
        /// Name of the flag.
        name: String,
        /// Value of the flag.
        value: String,
    },
    /// The argument is not a flag.
    #[error("bad flag syntax: {0}")]
    Syntax(String),
    /// No hook reports this event.
    #[error("invalid value {0:?} for flag -handle-lifecycle-event: unknown event")]
    LifecycleEvent(String),
}

/// The values of all flags: given values override the defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Args(BTreeMap<&'static str, String>);

impl Args {
    /// Parses the arguments that follow the program's name. As in Go, parsing stops at `--` or at the first word that is not a flag.
    pub fn parse<I: IntoIterator<Item = String>>(arguments: I) -> Result<Self, Error> {
        let mut values: BTreeMap<&'static str, String> = FLAGS
            .iter()
            .map(|(name, _, default)| (*name, (*default).to_owned()))
            .collect();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let Some(flag) = argument.strip_prefix('-') else {
                break;
            };
            if flag.is_empty() || argument == "--" {
                break;
            }
            let flag = flag.strip_prefix('-').unwrap_or(flag);
            let (name, given) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (flag, None),
            };
            if name.is_empty() || name.starts_with('-') {
                return Err(Error::Syntax(argument));
            }
            if matches!(name, "h" | "help") {
                return Err(Error::Help);
            }
            let Some((name, kind, _)) = FLAGS.iter().find(|(known, _, _)| *known == name) else {
                return Err(Error::Unknown(name.into()));
            };
            let value = match (given, kind) {
                (Some(value), _) => value,
                (None, Kind::Switch) => "true".into(),
                (None, _) => arguments
                    .next()
                    .ok_or_else(|| Error::NoValue((*name).into()))?,
            };
            let value = checked(name, *kind, value)?;
            values.insert(name, value);
        }
        Ok(Self(values))
    }

    /// Returns the value of a flag.
    ///
    /// # Panics
    /// If the name is not in the table, which is an error of the caller.
    pub fn text(&self, name: &str) -> &str {
        self.0
            .get(name)
            .map(String::as_str)
            .expect("every flag that is asked for is in the table")
    }

    /// Returns whether a switch is on.
    pub fn is_on(&self, name: &str) -> bool {
        self.text(name) == "true"
    }

    /// Returns the verbosity, as a klog number.
    pub fn verbosity(&self) -> i32 {
        self.text("v").parse().unwrap_or(0)
    }
}

/// Returns the usage text, with one line per flag.
pub fn usage(program: &str) -> String {
    let mut text = format!("Usage of {program}:\n");
    for (name, kind, default) in FLAGS {
        let kind = match kind {
            Kind::Switch => "",
            Kind::Text => " string",
            Kind::Number => " int",
        };
        text.push_str("  -");
        text.push_str(name);
        text.push_str(kind);
        if !default.is_empty() && *default != "false" {
            text.push_str(" (default ");
            text.push_str(default);
            text.push(')');
        }
        text.push('\n');
    }
    text
}

fn checked(name: &str, kind: Kind, value: String) -> Result<String, Error> {
    let wrong = |value: String| Error::Value {
        name: name.into(),
        value,
    };
    match kind {
        Kind::Switch => match value.as_str() {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok("true".into()),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok("false".into()),
            _ => Err(wrong(value)),
        },
        Kind::Number if value.parse::<i32>().is_err() => Err(wrong(value)),
        Kind::Text
            if name == "handle-lifecycle-event" && !LIFECYCLE_EVENTS.contains(&value.as_str()) =>
        {
            Err(Error::LifecycleEvent(value))
        }
        Kind::Number | Kind::Text => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn parse(arguments: &[&str]) -> Result<Args, Error> {
        Args::parse(arguments.iter().map(|argument| (*argument).to_owned()))
    }

    #[test]
    fn one_and_two_dashes_and_both_forms_of_values_are_read() {
        let args = parse(&[
            "-v=4",
            "--platform",
            "kubernetes",
            "-leader-elect=false",
            "--enable-webhooks",
            "--",
            "-nonsense",
        ])
        .unwrap();
        assert_eq!(args.verbosity(), 4);
        assert_eq!(args.text("platform"), "kubernetes");
        assert!(!args.is_on("leader-elect"));
        assert!(args.is_on("enable-webhooks"));
        assert!(args.is_on("enable-scheduler"));
        assert_eq!(args.text("metrics-bind-address"), ":8080");
    }

    #[rstest]
    #[case::unknown(&["-nonsense"], "flag provided but not defined: -nonsense")]
    #[case::no_value(&["-platform"], "flag needs an argument: -platform")]
    #[case::no_switch_value(&["-leader-elect=maybe"], "invalid value \"maybe\" for flag -leader-elect: parse error")]
    #[case::no_number(&["-v", "x"], "invalid value \"x\" for flag -v: parse error")]
    #[case::three_dashes(&["---v"], "bad flag syntax: ---v")]
    #[case::event(&["-handle-lifecycle-event", "lunch"], "invalid value \"lunch\" for flag -handle-lifecycle-event: unknown event")]
    #[case::help(&["-h"], "help requested")]
    fn wrong_flags_are_refused(#[case] arguments: &[&str], #[case] message: &str) {
        assert_eq!(parse(arguments).unwrap_err().to_string(), message);
    }

    #[test]
    fn reading_stops_at_the_first_word_that_is_no_flag() {
        assert_eq!(parse(&["word", "-nonsense"]).unwrap(), parse(&[]).unwrap());
    }

    #[test]
    fn usage_names_every_flag() {
        let text = usage("numaresources-operator");
        assert!(
            FLAGS
                .iter()
                .all(|(name, _, _)| text.contains(&format!("  -{name}")))
        );
    }
}
