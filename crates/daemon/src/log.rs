//! Structured logs on stderr.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// One JSON object per line: for daemons.
    #[default]
    Json,
    /// Plain text: for people who read the output directly.
    Text,
}

/// Logging cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A subscriber is already installed.
    #[error("cannot install the log subscriber")]
    Install(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Returns the most detailed level that klog's verbosity number `v` shows.
///
/// klog has no debug or trace levels: upstream logs what an administrator reads at 0 to 3, explains decisions at 4 and 5, and dumps data at
/// 6 and more (scheduler.md 8).
pub fn level(v: i32) -> LevelFilter {
    match v {
        i32::MIN..=3 => LevelFilter::INFO,
        4..=5 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    }
}

/// Starts logging at klog verbosity `v`. `RUST_LOG` overrides it.
///
/// Below verbosity 8 the HTTP and Kubernetes client libraries log only warnings, because their debug output would hide ours.
pub fn init(format: Format, v: i32) -> Result<(), Error> {
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(directives(v)));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match format {
        Format::Json => builder.json().flatten_event(true).try_init(),
        Format::Text => builder.with_ansi(false).try_init(),
    }
    .map_err(Error::Install)
}

fn directives(v: i32) -> String {
    let level = level(v);
    if v >= 8 {
        return level.to_string();
    }
    let mut text = level.to_string();
    for library in [
        "hyper",
        "hyper_util",
        "rustls",
        "tower",
        "h2",
        "tonic",
        "kube",
        "kube_client",
        "kube_runtime",
    ] {
        text.push(',');
        text.push_str(library);
        text.push_str("=warn");
    }
    text
}

/// Formats an error and all its causes on one line, for log fields named `error`.
///
/// Leaves out causes that the text so far already contains: some libraries include the cause in their own text.
pub fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        if text.contains(&cause) {
            text
        } else {
            format!("{text}: {cause}")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case::negative(-1, LevelFilter::INFO)]
    #[case::normal(2, LevelFilter::INFO)]
    #[case::debug(4, LevelFilter::DEBUG)]
    #[case::trace(6, LevelFilter::TRACE)]
    #[case::trace_all(8, LevelFilter::TRACE)]
    fn verbosity_maps_to_a_level(#[case] v: i32, #[case] expected: LevelFilter) {
        assert_eq!(level(v), expected);
    }

    #[test]
    fn libraries_speak_only_at_the_highest_verbosity() {
        assert!(directives(6).contains("hyper=warn"));
        assert_eq!(directives(8), "trace");
    }

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Link {
        text: &'static str,
        source: Option<Box<Link>>,
    }

    #[rstest::rstest]
    #[case::alone(&["no pods"], "no pods")]
    #[case::all_causes(&["no pods", "no socket", "permission denied"], "no pods: no socket: permission denied")]
    #[case::repeated_by_its_library(&["no pods: no socket", "no socket", "permission denied"], "no pods: no socket: permission denied")]
    fn chain_says_each_cause_once(#[case] texts: &[&'static str], #[case] expected: &str) {
        let error = texts
            .iter()
            .rfold(None, |source, text| Some(Box::new(Link { text, source })));
        assert_eq!(chain(&error.unwrap()), expected);
    }
}
