//! Values in the words of tables for users: times, labels, selectors, shortened lists.

use jiff::Timestamp;
use serde_json::Value;

use crate::values::fields::members;

/// Returns how long ago a time was, for users.
pub(crate) fn since(time: Timestamp) -> String {
    duration(Timestamp::now().duration_since(time).as_secs_f64())
}

/// Returns how long ago the time in a field was; `<unknown>` without one.
pub(crate) fn age(time: &Value) -> String {
    parsed(time).map_or_else(|| "<unknown>".to_owned(), since)
}

/// Parses the time in a field.
pub(crate) fn parsed(time: &Value) -> Option<Timestamp> {
    time.as_str()?.parse().ok()
}

/// Returns a number of seconds as a duration for users.
pub(crate) fn duration(exact: f64) -> String {
    let seconds = exact as i64;
    if seconds < -1 {
        return "<invalid>".into();
    }
    if exact < 0.0 {
        return "0s".into();
    }
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let days = hours / 24;
    // the smaller unit is shown only where it is not zero
    let pair = |large: i64, unit: &str, small: i64, small_unit: &str| {
        if small == 0 {
            format!("{large}{unit}")
        } else {
            format!("{large}{unit}{small}{small_unit}")
        }
    };
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => pair(minutes, "m", seconds % 60, "s"),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => pair(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if hours < 192 => pair(days, "d", hours % 24, "h"),
        () if days < 730 => format!("{days}d"),
        () if days < 2920 => pair(days / 365, "y", days % 365, "d"),
        () => format!("{}y", days / 365),
    }
}

/// Returns a text, or a substitute for an empty or missing one.
pub(crate) fn or(value: &Value, other: &str) -> String {
    match value.as_str() {
        Some(text) if !text.is_empty() => text.to_owned(),
        _ => other.to_owned(),
    }
}

/// Returns a text; empty when it is missing.
pub(crate) fn text(value: &Value) -> String {
    or(value, "")
}

/// Returns a number; 0 when it is missing.
pub(crate) fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

/// Returns the items of a list; none when it is missing.
pub(crate) fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns labels as `a=b,c=d`.
pub(crate) fn labels(labels: &Value) -> String {
    let mut pairs: Vec<String> = members(labels)
        .map(|(key, value)| format!("{key}={}", text(value)))
        .collect();
    pairs.sort();
    none_if_empty(pairs.join(","))
}

/// Returns `<none>` for an empty text.
pub(crate) fn none_if_empty(text: String) -> String {
    if text.is_empty() {
        "<none>".into()
    } else {
        text
    }
}

/// Returns a label selector in the notation of queries; empty when it selects everything or nothing.
pub(crate) fn selector(selector: &Value) -> String {
    let equal = members(&selector["matchLabels"]);
    let mut parts: Vec<(String, String)> = equal
        .map(|(key, value)| (key.clone(), format!("{key}={}", text(value))))
        .collect();
    for requirement in items(&selector["matchExpressions"]) {
        let key = text(&requirement["key"]);
        let mut values: Vec<String> = items(&requirement["values"]).iter().map(text).collect();
        values.sort();
        let values = values.join(",");
        let shown = match requirement["operator"].as_str() {
            Some("In") => format!("{key} in ({values})"),
            Some("NotIn") => format!("{key} notin ({values})"),
            Some("Exists") => key.clone(),
            _ => format!("!{key}"),
        };
        parts.push((key, shown));
    }
    parts.sort();
    let shown: Vec<String> = parts.into_iter().map(|(_, shown)| shown).collect();
    shown.join(",")
}

/// Returns names and images of containers, each joined by commas.
pub(crate) fn containers(list: &Value) -> [String; 2] {
    ["name", "image"].map(|field| {
        let all: Vec<String> = items(list).iter().map(|one| text(&one[field])).collect();
        all.join(",")
    })
}

/// Returns the first three items of a list and the number of the others.
pub(crate) fn cut(list: &[String]) -> String {
    const SHOWN: usize = 3;
    let shown = list[..list.len().min(SHOWN)].join(",");
    if list.len() > SHOWN {
        format!("{shown} + {} more...", list.len() - SHOWN)
    } else {
        shown
    }
}

/// Returns a boolean as cells show it.
pub(crate) fn boolean(value: &Value) -> String {
    match value.as_bool() {
        Some(true) => "True".into(),
        Some(false) => "False".into(),
        None => "<unset>".into(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case(-5.0, "<invalid>")]
    #[case(-0.5, "0s")]
    #[case(119.0, "119s")]
    #[case(150.0, "2m30s")]
    #[case(180.0, "3m")]
    #[case(3600.0, "60m")]
    #[case(4.0 * 3600.0 + 60.0, "4h1m")]
    #[case(30.0 * 3600.0, "30h")]
    #[case(73.0 * 3600.0, "3d1h")]
    #[case(100.0 * 86400.0, "100d")]
    #[case(800.0 * 86400.0, "2y70d")]
    fn durations_are_told_coarser_the_longer_they_are(
        #[case] seconds: f64,
        #[case] expected: &str,
    ) {
        assert_eq!(duration(seconds), expected);
    }

    #[test]
    fn selectors_are_told_as_queries() {
        let given = json!({"matchLabels": {"b": "c"}, "matchExpressions": [
            {"key": "a", "operator": "In", "values": ["y", "x"]}, {"key": "d", "operator": "DoesNotExist"}]});
        assert_eq!(selector(&given), "a in (x,y),b=c,!d");
    }
}
