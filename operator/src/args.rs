//! The command line: the flags of operator.md 2, in the syntax of Go's `flag` package.

use std::collections::BTreeMap;

use goflags::CommandLine;
use goflags::command_line::{self, Flag};

/// Type of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Switch,
    Text,
    Number,
}

/// A flag of the command line.
struct Spec {
    name: &'static str,
    kind: Kind,
    default: &'static str,
    /// Why the value changes nothing; absent for the flags that [`Args`] reads.
    without_effect: Option<&'static str>,
}

impl Flag for Spec {
    fn name(&self) -> &str {
        self.name
    }

    fn takes_value(&self) -> bool {
        self.kind != Kind::Switch
    }
}

const fn flag(name: &'static str, kind: Kind, default: &'static str) -> Spec {
    Spec {
        name,
        kind,
        default,
        without_effect: None,
    }
}

/// A flag of the original that command lines may have, and that changes nothing here.
const fn unused(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    reason: &'static str,
) -> Spec {
    Spec {
        without_effect: Some(reason),
        ..flag(name, kind, default)
    }
}

const NO_WEBHOOK: &str = "no webhook is served, because versions are converted without one";
const LOG: &str = "the log goes to stderr, as JSON";

/// Every flag with its default. The last block contains klog's flags, of which only `v` has an effect.
const FLAGS: &[Spec] = &[
    flag("metrics-bind-address", Kind::Text, ":8080"),
    flag("enable-metrics", Kind::Switch, "true"),
    flag("health-probe-bind-address", Kind::Text, ":8081"),
    flag("leader-elect", Kind::Switch, "true"),
    flag("platform", Kind::Text, ""),
    flag("platform-version", Kind::Text, ""),
    flag("detect-platform-only", Kind::Switch, "false"),
    flag("inspect-features", Kind::Switch, "false"),
    flag("version", Kind::Switch, "false"),
    flag("render", Kind::Switch, "false"),
    flag("render-nrt-crd", Kind::Switch, "false"),
    flag("render-namespace", Kind::Text, "numaresources-operator"),
    flag("render-image", Kind::Text, ""),
    flag("render-image-scheduler", Kind::Text, ""),
    flag("enable-scheduler", Kind::Switch, "true"),
    unused("enable-webhooks", Kind::Switch, "false", NO_WEBHOOK),
    unused("webhook-port", Kind::Number, "9443", NO_WEBHOOK),
    unused("enable-http2", Kind::Switch, "false", NO_WEBHOOK),
    flag("enable-mcp-conds-fwd", Kind::Switch, "false"),
    flag("image-exporter", Kind::Text, ""),
    unused(
        "image-scheduler",
        Kind::Text,
        "",
        "the scheduler's image is in its resource",
    ),
    flag("handle-lifecycle-event", Kind::Text, ""),
    flag("kubeconfig", Kind::Text, ""),
    flag("v", Kind::Number, "0"),
    unused("vmodule", Kind::Text, "", "-v counts for all modules"),
    unused("logtostderr", Kind::Switch, "true", LOG),
    unused("alsologtostderr", Kind::Switch, "false", LOG),
    unused("log_dir", Kind::Text, "", LOG),
    unused("log_file", Kind::Text, "", LOG),
    unused("log_file_max_size", Kind::Number, "1800", LOG),
    unused("add_dir_header", Kind::Switch, "false", LOG),
    unused("skip_headers", Kind::Switch, "false", LOG),
    unused("one_output", Kind::Switch, "false", LOG),
    unused("skip_log_headers", Kind::Switch, "false", LOG),
    unused("stderrthreshold", Kind::Text, "2", LOG),
    unused("log_backtrace_at", Kind::Text, "", LOG),
];

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
    /// No hook reports this event.
    #[error("invalid value {0:?} for flag -handle-lifecycle-event: unknown event")]
    LifecycleEvent(String),
}

/// The values of all flags: given values override the defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Args {
    /// Those that have an effect.
    values: BTreeMap<&'static str, String>,
    /// Those that were set to something, and why that changes nothing.
    without_effect: BTreeMap<&'static str, &'static str>,
}

impl Args {
    /// Parses the arguments that follow the program's name. The words behind the flags have no meaning.
    pub fn parse<I: IntoIterator<Item = String>>(arguments: I) -> Result<Self, Error> {
        let mut values: BTreeMap<&'static str, String> = FLAGS
            .iter()
            .filter(|spec| spec.without_effect.is_none())
            .map(|spec| (spec.name, spec.default.to_owned()))
            .collect();
        let mut without_effect = BTreeMap::new();
        for given in CommandLine::new(FLAGS, arguments) {
            let (spec, value) = given?;
            let value = checked(spec.name, spec.kind, value)?;
            match spec.without_effect {
                None => {
                    values.insert(spec.name, value);
                }
                Some(reason) if value != spec.default => {
                    without_effect.insert(spec.name, reason);
                }
                // the default is what happens
                Some(_) => {
                    without_effect.remove(spec.name);
                }
            }
        }
        Ok(Self {
            values,
            without_effect,
        })
    }

    /// Names the flags that were set to something and change nothing, each with the reason; `None` when there are none.
    pub fn without_effect(&self) -> Option<String> {
        let named = self.without_effect.iter();
        let named: Vec<String> = named
            .map(|(name, reason)| format!("-{name} ({reason})"))
            .collect();
        (!named.is_empty()).then(|| named.join(", "))
    }

    /// Returns the value of a flag.
    ///
    /// # Panics
    /// If no flag of that name has an effect, which is an error of the caller.
    pub fn text(&self, name: &str) -> &str {
        self.values
            .get(name)
            .map(String::as_str)
            .expect("every flag that is asked for is in the table, as one that has an effect")
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
    for spec in FLAGS {
        let (name, default) = (spec.name, spec.default);
        let kind = match spec.kind {
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
        if let Some(reason) = spec.without_effect {
            text.push_str(" (no effect: ");
            text.push_str(reason);
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
            None => Err(wrong(value)),
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
            "--enable-mcp-conds-fwd",
            "--",
            "-nonsense",
        ])
        .unwrap();
        assert_eq!(args.verbosity(), 4);
        assert_eq!(args.text("platform"), "kubernetes");
        assert!(!args.is_on("leader-elect"));
        assert!(args.is_on("enable-mcp-conds-fwd"));
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

    #[rstest]
    #[case::none(&["-v=4", "-enable-metrics=false"], None)]
    #[case::as_it_is_anyway(&["-webhook-port=9443", "-logtostderr=true", "-image-scheduler="], None)]
    #[case::back_to_what_it_is_anyway(&["-webhook-port=1", "-webhook-port=9443"], None)]
    #[case::several(
        &["-webhook-port=1", "-image-scheduler", "i"],
        Some(
            "-image-scheduler (the scheduler's image is in its resource), \
             -webhook-port (no webhook is served, because versions are converted without one)"
        )
    )]
    fn flags_that_change_nothing_are_named(
        #[case] arguments: &[&str],
        #[case] expected: Option<&str>,
    ) {
        let found = parse(arguments).unwrap().without_effect();
        assert_eq!(found.as_deref(), expected);
    }

    #[test]
    fn usage_names_every_flag() {
        let text = usage("numaresources-operator");
        assert!(
            FLAGS
                .iter()
                .all(|spec| text.contains(&format!("  -{}", spec.name)))
        );
    }
}
