//! The two text formats of metrics, and which of them a client gets.
//!
//! The package that collects metrics writes OpenMetrics only. Clients that do not ask for it, scripts above all, get the text format that
//! Go's programs serve: counters are named in full in comments as well, and there is no end mark.

/// Content type of the OpenMetrics text format.
pub(super) const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Content type of the text format.
pub(super) const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns whether a client prefers OpenMetrics, by the values of its `Accept` headers. Without any, it does not.
pub(super) fn wants_open_metrics<'a>(accept: impl Iterator<Item = &'a str>) -> bool {
    let (mut open, mut plain) = (0.0_f32, 0.0_f32);
    for item in accept.flat_map(|value| value.split(',')) {
        let mut parts = item.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        let weight = parts
            .find_map(|part| part.strip_prefix("q="))
            .map_or(1.0, |weight| weight.parse().unwrap_or(0.0));
        match kind.as_str() {
            "application/openmetrics-text" => open = open.max(weight),
            "text/plain" | "text/*" | "*/*" => plain = plain.max(weight),
            _ => {}
        }
    }
    open > 0.0 && open >= plain
}

/// Turns OpenMetrics text into the text format. There are no exemplars in it.
pub(super) fn plain(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help = None;
    for line in open_metrics.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), Some(_), explanation) => {
                help = Some(explanation.unwrap_or_default());
            }
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                let (suffix, kind) = match kind {
                    "counter" => ("_total", kind),
                    "info" => ("_info", "gauge"),
                    "unknown" => ("", "untyped"),
                    kind => ("", kind),
                };
                if let Some(help) = help.take() {
                    text.extend(["# HELP ", name, suffix, " ", help, "\n"]);
                }
                text.extend(["# TYPE ", name, suffix, " ", kind, "\n"]);
            }
            // units and the end mark
            (Some("#"), ..) => {}
            _ => {
                text.push_str(&bound(line));
                text.push('\n');
            }
        }
    }
    text
}

/// Writes the bound of a bucket as Go does, because rules match it: `le="1"`, not `le="1.0"`.
fn bound(sample: &str) -> String {
    let labels = ["{le=\"", ",le=\""];
    let start = labels
        .iter()
        .find_map(|label| Some(sample.find(label)? + label.len()));
    let Some(start) = start else {
        return sample.to_owned();
    };
    let Some(end) = sample[start..].find('"').map(|at| at + start) else {
        return sample.to_owned();
    };
    match sample[start..end].strip_suffix(".0") {
        Some(whole) => [&sample[..start], whole, &sample[end..]].concat(),
        None => sample.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::EncodeLabelSet;
    use prometheus_client::encoding::text::encode;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family::Family;
    use prometheus_client::metrics::gauge::Gauge;
    use prometheus_client::metrics::histogram::Histogram;
    use prometheus_client::registry::Registry;
    use rstest::rstest;

    use super::*;

    #[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
    struct Labels {
        file: &'static str,
    }

    #[test]
    fn the_text_format_is_that_of_go_programs() {
        let mut registry = Registry::default();
        let scans = Family::<Labels, Counter>::default();
        registry.register("scans", "Scans of a node", scans.clone());
        scans.get_or_create(&Labels { file: "1.0" }).inc();
        let left = Gauge::<i64>::default();
        registry.register("left", "What is left", left.clone());
        left.set(-2);
        let seconds = Histogram::new([0.5, 1.0]);
        registry.register("scan_seconds", "Time of a scan", seconds.clone());
        seconds.observe(0.75);
        let mut text = String::new();
        encode(&mut text, &registry).expect("encodes");
        let expected = [
            "# HELP scans_total Scans of a node.",
            "# TYPE scans_total counter",
            r#"scans_total{file="1.0"} 1"#,
            "# HELP left What is left.",
            "# TYPE left gauge",
            "left -2",
            "# HELP scan_seconds Time of a scan.",
            "# TYPE scan_seconds histogram",
            "scan_seconds_sum 0.75",
            "scan_seconds_count 1",
            r#"scan_seconds_bucket{le="0.5"} 0"#,
            r#"scan_seconds_bucket{le="1"} 1"#,
            r#"scan_seconds_bucket{le="+Inf"} 1"#,
        ];
        let found = plain(&text);
        assert_eq!(found.lines().collect::<Vec<_>>(), expected, "{text}");
    }

    #[rstest]
    #[case::nothing(&[], false)]
    #[case::anything(&["*/*"], false)]
    #[case::curl_with_the_type(&["application/openmetrics-text"], true)]
    #[case::prometheus(&["application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"], true)]
    #[case::the_text_rather(&["application/openmetrics-text; q=0.3", "text/plain; q=0.5"], false)]
    #[case::refused(&["application/openmetrics-text;q=0"], false)]
    #[case::a_browser(&["text/html,application/xhtml+xml,*/*;q=0.8"], false)]
    fn open_metrics_is_for_clients_that_ask_for_it(#[case] accept: &[&str], #[case] wanted: bool) {
        assert_eq!(wants_open_metrics(accept.iter().copied()), wanted);
    }
}
