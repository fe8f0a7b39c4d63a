//! Structured logs on stderr, in klog's text or in Kubernetes' JSON. `lines` writes a line, `fields` what it says.

use std::str::FromStr;

use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt as _;

use self::lines::{Lines, SpanFields};

mod fields;
mod lines;

/// Format of log lines. The names are those of the flag `--logging-format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// klog's text: `I1124 15:04:05.000000       1 file.rs:12] "message" key="value"`.
    #[default]
    Text,
    /// One JSON object per line, with the keys of Kubernetes' components: `ts`, `caller`, `msg`, `v`, `err`.
    Json,
}

/// The text does not name a format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unsupported log format {0:?}: permitted are text and json")]
pub struct UnknownFormat(String);

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(text: &str) -> Result<Self, UnknownFormat> {
        match text {
            "" | "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(UnknownFormat(other.to_owned())),
        }
    }
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
/// 6 and more (scheduler.md 8). An event that upstream shows only from another number on has that number as its field `v`.
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
    let (filter, v) = match EnvFilter::try_from_default_env() {
        Ok(filter) => (filter, i32::MAX),
        Err(_) => (EnvFilter::new(directives(v)), v),
    };
    subscriber(format, v, filter, std::io::stderr)
        .try_init()
        .map_err(|error| Error::Install(Box::new(error)))
}

fn subscriber<W>(
    format: Format,
    v: i32,
    filter: EnvFilter,
    writer: W,
) -> impl Subscriber + Send + Sync
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        .fmt_fields(SpanFields(format))
        .event_format(Lines {
            format,
            // what is always shown is shown at a negative verbosity, too
            verbosity: v.max(0),
        })
        .finish()
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
    use std::io;
    use std::sync::Arc;

    use parking_lot::Mutex;
    use serde_json::{Value, json};

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

    /// Collects what is logged.
    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns what is logged at this verbosity.
    fn logged(format: Format, v: i32, log: impl FnOnce()) -> String {
        let page = Page::default();
        let writer = page.clone();
        let filter = EnvFilter::new(directives(v));
        let subscriber = subscriber(format, v, filter, move || writer.clone());
        tracing::subscriber::with_default(subscriber, log);
        let bytes = page.0.lock();
        String::from_utf8(bytes.clone()).expect("logs are UTF-8")
    }

    fn story() {
        let span = tracing::info_span!("reconcile", controller = "c", object = %"o");
        span.in_scope(|| {
            let (count, names) = (3, ["a", "b"]);
            tracing::info!(pod = %"ns/p", count, ok = true, names = ?names, "All \"caches\" are synced");
        });
        tracing::warn!("Nothing to do");
        let error = io::Error::other("no route");
        tracing::error!(node = "n", %error, "Cannot bind");
        tracing::debug!(text = "one\ntwo\n", "Details");
    }

    #[test]
    fn text_has_the_form_of_klog() {
        let text = logged(Format::Text, 4, story);
        let (heads, rests): (Vec<&str>, Vec<&str>) = text
            .lines()
            .filter_map(|line| line.split_once("] "))
            .unzip();
        let rest = [
            r#""All \"caches\" are synced" pod="ns/p" count=3 ok=true names=["a", "b"] controller="c" object="o""#,
            r#""Nothing to do""#,
            r#""Cannot bind" err="no route" node="n""#,
            r#""Details" text=<"#,
        ];
        assert_eq!(rests, rest);
        assert!(text.ends_with("text=<\n\tone\n\ttwo\n >\n"), "{text}");
        let process = format!("{:>7}", std::process::id());
        for (head, severity) in heads.iter().zip(['I', 'W', 'E', 'I']) {
            // I1124 15:04:05.000000       1 log.rs:12
            let shape: String = head
                .chars()
                .map(|c| if c.is_ascii_digit() { '9' } else { c })
                .collect();
            let beginning = format!("{severity}9999 99:99:99.999999 ");
            assert!(shape.starts_with(&beginning), "{head}");
            assert!(
                head[beginning.len()..].starts_with(&format!("{process} log.rs:")),
                "{head}"
            );
        }
    }

    #[test]
    fn json_has_the_keys_of_kubernetes_components() {
        let text = logged(Format::Json, 4, story);
        let mut lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("one object a line"))
            .collect();
        for line in &mut lines {
            let line = line.as_object_mut().expect("an object");
            let time = line.remove("ts").and_then(|time| time.as_f64());
            assert!(
                time.is_some_and(|time| time > 1.7e12),
                "milliseconds: {time:?}"
            );
            let caller = line.remove("caller").unwrap_or_default();
            assert!(
                caller
                    .as_str()
                    .is_some_and(|it| it.starts_with("src/log.rs:")),
                "{caller}"
            );
        }
        let expected = json!([
            {"msg": "All \"caches\" are synced", "v": 0, "pod": "ns/p", "count": 3, "ok": true,
             "names": "[\"a\", \"b\"]", "controller": "c", "object": "o"},
            {"msg": "Nothing to do", "v": 0, "severity": "warning"},
            {"msg": "Cannot bind", "err": "no route", "node": "n"},
            {"msg": "Details", "v": 4, "text": "one\ntwo\n"},
        ]);
        assert_eq!(Value::from(lines), expected);
    }

    #[rstest::rstest]
    #[case::always(-1, "start warning")]
    #[case::nothing_more(1, "start warning")]
    #[case::decisions(2, "start warning bound")]
    #[case::attempts(3, "start warning bound attempt")]
    #[case::reasons(4, "start warning bound attempt reason")]
    #[case::more_reasons(5, "start warning bound attempt reason more")]
    fn a_verbosity_shows_what_it_shows_in_klog(#[case] v: i32, #[case] expected: &str) {
        let text = logged(Format::Text, v, || {
            tracing::info!("start");
            tracing::warn!("warning");
            tracing::info!(v = 2, "bound");
            tracing::info!(v = 3, "attempt");
            tracing::debug!("reason");
            tracing::debug!(v = 5, "more");
        });
        let words: Vec<&str> = text.split('"').skip(1).step_by(2).collect();
        assert_eq!(words.join(" "), expected);
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
