//! Flags of kube-scheduler that change nothing here (scheduler.md 7.9). They are taken, so that its command lines work, and named in a
//! warning, so that nobody relies on them.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use goflags::klog;

/// A flag without effect.
struct Accepted {
    name: &'static str,
    /// What follows its name.
    kind: Kind,
    /// What happens instead.
    instead: &'static str,
}

/// What follows the name of a flag.
#[derive(Clone, Copy)]
enum Kind {
    /// A value.
    Value,
    /// Nothing, or a boolean after `=`. The boolean here is what happens anyway, so that it needs no warning.
    Switch(Option<bool>),
}

const fn value(name: &'static str, instead: &'static str) -> Accepted {
    Accepted {
        name,
        kind: Kind::Value,
        instead,
    }
}

const fn switch(name: &'static str, anyway: bool, instead: &'static str) -> Accepted {
    Accepted {
        name,
        kind: Kind::Switch(Some(anyway)),
        instead,
    }
}

const BY_TOKEN: &str = "clients are known by their tokens alone";
const NO_GATES: &str = "this scheduler has no feature gates";
const ALL_METRICS: &str = "all metrics are served with all their labels";
const ONE_STREAM: &str = "every line is written to stderr at once";
const NO_PROFILES: &str = "no profiles are served";
const HTTP1: &str = "HTTP/1.1 is served";

/// The flags.
const FLAGS: &[Accepted] = &[
    value("cert-dir", "a certificate of its own is kept in memory"),
    switch("disable-http2-serving", true, HTTP1),
    value("http2-max-streams-per-connection", HTTP1),
    switch(
        "permit-address-sharing",
        true,
        "addresses are always shared",
    ),
    switch("authentication-skip-lookup", true, BY_TOKEN),
    switch("authentication-tolerate-lookup-failure", true, BY_TOKEN),
    value("client-ca-file", BY_TOKEN),
    value("requestheader-allowed-names", BY_TOKEN),
    value("requestheader-client-ca-file", BY_TOKEN),
    value("requestheader-extra-headers-prefix", BY_TOKEN),
    value("requestheader-group-headers", BY_TOKEN),
    value("requestheader-uid-headers", BY_TOKEN),
    value("requestheader-username-headers", BY_TOKEN),
    switch("profiling", false, NO_PROFILES),
    switch("contention-profiling", false, NO_PROFILES),
    value(
        "kube-api-content-type",
        "the API server is spoken to in JSON",
    ),
    value(
        "pod-max-in-unschedulable-pods-duration",
        "a pod is tried again after podMaxBackoffSeconds at the latest",
    ),
    value("emulated-version", NO_GATES),
    value("feature-gates", NO_GATES),
    value("min-compatibility-version", NO_GATES),
    value("allow-metric-labels", ALL_METRICS),
    value("allow-metric-labels-manifest", ALL_METRICS),
    value("disabled-metrics", ALL_METRICS),
    value("show-hidden-metrics-for-version", ALL_METRICS),
    value("log-flush-frequency", ONE_STREAM),
    value("log-json-info-buffer-size", ONE_STREAM),
    switch("log-json-split-stream", false, ONE_STREAM),
    value("log-text-info-buffer-size", ONE_STREAM),
    switch("log-text-split-stream", false, ONE_STREAM),
];

/// Adds the flags to a command, and those of klog, which kube-scheduler had until 1.25.
pub(super) fn add_to(command: Command) -> Command {
    let own = FLAGS.iter().map(|flag| argument(flag.name, flag.kind));
    let klog = klog::FLAGS.iter().map(|flag| {
        let kind = match flag.kind {
            klog::Kind::Switch => Kind::Switch(None),
            klog::Kind::Number | klog::Kind::Text => Kind::Value,
        };
        argument(flag.name, kind)
    });
    command.args(own).args(klog)
}

fn argument(name: &'static str, kind: Kind) -> Arg {
    let argument = Arg::new(name)
        .long(name)
        .hide(true)
        .action(ArgAction::Append)
        .allow_hyphen_values(true);
    match kind {
        Kind::Value => argument,
        Kind::Switch(_) => argument
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .value_parser(super::boolean),
    }
}

/// Returns a warning for each given flag that asks for something that does not happen.
pub(super) fn warnings(given: &ArgMatches) -> Vec<String> {
    let is_given = |name| given.value_source(name) == Some(ValueSource::CommandLine);
    let own = FLAGS
        .iter()
        .filter(|flag| {
            is_given(flag.name)
                && match flag.kind {
                    Kind::Value => last(given, flag.name) != Some(String::new()),
                    Kind::Switch(anyway) => last::<bool>(given, flag.name) != anyway,
                }
        })
        .map(|flag| format!("flag --{} has no effect: {}", flag.name, flag.instead));
    let klog = klog::FLAGS
        .iter()
        .filter(|flag| is_given(flag.name))
        .filter_map(|flag| match flag.kind {
            klog::Kind::Switch => flag.warning(&last::<bool>(given, flag.name)?.to_string()),
            klog::Kind::Number | klog::Kind::Text => {
                flag.warning(&last::<String>(given, flag.name)?)
            }
        });
    own.chain(klog).collect()
}

/// Returns the last value that a flag is given.
fn last<T: Clone + Send + Sync + 'static>(given: &ArgMatches, name: &str) -> Option<T> {
    given.get_many(name)?.next_back().cloned()
}
