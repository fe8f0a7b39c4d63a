//! The command line: the flags of operator.md 2, in the syntax of Go's `flag` package.

use std::collections::BTreeMap;

use daemon::log::{Format, UnknownFormat};
use goflags::CommandLine;
use goflags::command_line::{self, Flag};
use goflags::klog::{self, Kind};

/// A flag: its name, its type and its default.
#[derive(Clone, Copy)]
struct Spec(&'static str, Kind, &'static str);

impl Flag for Spec {
    fn name(&self) -> &str {
        self.0
    }

    fn takes_value(&self) -> bool {
        self.1 != Kind::Switch
    }
}

/// Flag of the format of the log; the original always writes text.
const LOGGING_FORMAT: &str = "logging-format";

/// Every flag with its default, without those of klog that change nothing.
const FLAGS: &[Spec] = &[
    Spec("metrics-bind-address", Kind::Text, ":8080"),
    Spec("enable-metrics", Kind::Switch, "true"),
    Spec("metrics-auth", Kind::Switch, "false"),
    Spec("health-probe-bind-address", Kind::Text, ":8081"),
    Spec("leader-elect", Kind::Switch, "true"),
    Spec("platform", Kind::Text, ""),
    Spec("platform-version", Kind::Text, ""),
    Spec("detect-platform-only", Kind::Switch, "false"),
    Spec("inspect-features", Kind::Switch, "false"),
    Spec("version", Kind::Switch, "false"),
    Spec("render", Kind::Switch, "false"),
    Spec("render-nrt-crd", Kind::Switch, "false"),
    Spec("render-namespace", Kind::Text, "numaresources-operator"),
    Spec("render-image", Kind::Text, ""),
    Spec("render-image-scheduler", Kind::Text, ""),
    Spec("enable-scheduler", Kind::Switch, "true"),
    Spec("enable-webhooks", Kind::Switch, "false"),
    Spec("webhook-port", Kind::Number, "9443"),
    Spec("enable-http2", Kind::Switch, "false"),
    Spec("enable-mcp-conds-fwd", Kind::Switch, "false"),
    Spec("image-exporter", Kind::Text, ""),
    Spec("image-scheduler", Kind::Text, ""),
    Spec("handle-lifecycle-event", Kind::Text, ""),
    Spec("kubeconfig", Kind::Text, ""),
    Spec("v", Kind::Number, "0"),
    Spec(LOGGING_FORMAT, Kind::Text, "text"),
];

const NO_WEBHOOK: &str = "no webhook is served, because versions are converted without one";
/// Flags of the original that change nothing here, each with the reason. The default is what happens.
const WITHOUT_EFFECT: [(&str, &str); 4] = [
    ("enable-webhooks", NO_WEBHOOK),
    ("webhook-port", NO_WEBHOOK),
    ("enable-http2", NO_WEBHOOK),
    (
        "image-scheduler",
        "the scheduler's image is in its resource",
    ),
];

/// Returns all flags.
fn specs() -> Vec<Spec> {
    let klog = klog::FLAGS.map(|flag| Spec(flag.name, flag.kind, flag.default));
    FLAGS.iter().copied().chain(klog).collect()
}

/// Events that the lifecycle hooks of the pod report.
const LIFECYCLE_EVENTS: [&str; 2] = ["postStart", "preStop"];

/// The command line is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The arguments are not flags of this program, or ask for help.
    #[error(transparent)]
    Flags(#[from] command_line::Error),
    /// The value does not have the type of the flag.
    #[error("invalid value {value:?} for flag -{name}: parse error")]
    Value {
        /// Name of the flag.
        name: String,
        /// Value of the flag.
        value: String,
    },
    /// The value of a switch is no boolean.
    #[error("invalid boolean value {value:?} for -{name}: parse error")]
    Switch {
        /// Name of the flag.
        name: String,
        /// Value of the flag.
        value: String,
    },
    /// No hook reports this event.
    #[error("invalid value {0:?} for flag -handle-lifecycle-event: unknown event")]
    LifecycleEvent(String),
    /// The log has no such format.
    #[error("invalid value for flag -{LOGGING_FORMAT}")]
    LogFormat(#[source] UnknownFormat),
}

/// The values of all flags: given values override the defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Args(BTreeMap<&'static str, String>);

impl Args {
    /// Parses the arguments that follow the program's name. The words behind the flags have no meaning.
    pub fn parse<I: IntoIterator<Item = String>>(arguments: I) -> Result<Self, Error> {
        let specs = specs();
        let mut values: BTreeMap<&'static str, String> = specs
            .iter()
            .map(|Spec(name, _, default)| (*name, (*default).to_owned()))
            .collect();
        for flag in CommandLine::new(&specs, arguments) {
            let (Spec(name, kind, _), value) = flag?;
            values.insert(name, checked(name, *kind, value)?);
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

    /// Returns a warning for each flag that asks for something that does not happen here.
    pub fn warnings(&self) -> Vec<String> {
        let own = FLAGS.iter().filter_map(|Spec(name, _, default)| {
            let (_, reason) = WITHOUT_EFFECT.iter().find(|(flag, _)| flag == name)?;
            (self.text(name) != *default).then(|| format!("flag -{name} has no effect: {reason}"))
        });
        let klog = klog::FLAGS
            .iter()
            .filter_map(|flag| flag.warning(self.text(flag.name)));
        own.chain(klog).collect()
    }

    /// Returns the format of the log.
    pub fn log_format(&self) -> Format {
        // other values are refused by `parse`
        self.text(LOGGING_FORMAT).parse().unwrap_or_default()
    }

    /// Returns the verbosity, as a klog number.
    pub fn verbosity(&self) -> i32 {
        self.text("v").parse().unwrap_or(0)
    }
}

/// Returns the usage text, with one line per flag.
pub fn usage(program: &str) -> String {
    let mut text = format!("Usage of {program}:\n");
    for Spec(name, kind, default) in specs() {
        let kind = match kind {
            Kind::Switch => "",
            Kind::Text => " string",
            Kind::Number => " int",
        };
        text.push_str("  -");
        text.push_str(name);
        text.push_str(kind);
        if !default.is_empty() && default != "false" {
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
        Kind::Switch => match goflags::boolean(&value) {
            Some(on) => Ok(on.to_string()),
            None => Err(Error::Switch {
                name: name.into(),
                value,
            }),
        },
        Kind::Number if value.parse::<i32>().is_err() => Err(wrong(value)),
        Kind::Text
            if name == "handle-lifecycle-event" && !LIFECYCLE_EVENTS.contains(&value.as_str()) =>
        {
            Err(Error::LifecycleEvent(value))
        }
        Kind::Text if name == LOGGING_FORMAT => {
            let format: Result<Format, UnknownFormat> = value.parse();
            format.map(|_| value).map_err(Error::LogFormat)
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
    #[case::no_switch_value(&["-leader-elect=maybe"], "invalid boolean value \"maybe\" for -leader-elect: parse error")]
    #[case::no_number(&["-v", "x"], "invalid value \"x\" for flag -v: parse error")]
    #[case::three_dashes(&["---v"], "bad flag syntax: ---v")]
    #[case::event(&["-handle-lifecycle-event", "lunch"], "invalid value \"lunch\" for flag -handle-lifecycle-event: unknown event")]
    #[case::format(&["-logging-format=xml"], "invalid value for flag -logging-format")]
    #[case::help(&["-h"], "help requested")]
    fn wrong_flags_are_refused(#[case] arguments: &[&str], #[case] message: &str) {
        assert_eq!(parse(arguments).unwrap_err().to_string(), message);
    }

    #[test]
    fn reading_stops_at_the_first_word_that_is_no_flag() {
        assert_eq!(parse(&["word", "-nonsense"]).unwrap(), parse(&[]).unwrap());
    }

    #[rstest]
    #[case::none(&["-v=4", "-enable-metrics=false"], &[])]
    #[case::as_it_is_anyway(&["-webhook-port=9443", "-logtostderr=true", "-image-scheduler="], &[])]
    #[case::back_to_what_it_is_anyway(&["-webhook-port=1", "-webhook-port=9443"], &[])]
    #[case::several(
        &["-image-scheduler", "i", "-webhook-port=1"],
        &[
            "flag -webhook-port has no effect: no webhook is served, because versions are converted without one",
            "flag -image-scheduler has no effect: the scheduler's image is in its resource",
        ]
    )]
    fn flags_that_change_nothing_are_named(#[case] arguments: &[&str], #[case] expected: &[&str]) {
        assert_eq!(parse(arguments).unwrap().warnings(), expected);
    }

    #[test]
    fn flags_of_klog_are_taken_and_those_that_change_nothing_are_named() {
        let args = parse(&[
            "-logtostderr",
            "-vmodule=cache=6",
            "-log_file",
            "/x",
            "-v=2",
        ])
        .unwrap();
        let warnings = args.warnings();
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        for (warning, flag) in warnings.iter().zip(["-vmodule", "-log_file"]) {
            assert!(warning.contains(flag), "{warning}");
        }
    }

    #[test]
    fn usage_names_every_flag() {
        let text = usage("numaresources-operator");
        assert!(
            specs()
                .iter()
                .all(|Spec(name, _, _)| text.contains(&format!("  -{name}")))
        );
    }
}
