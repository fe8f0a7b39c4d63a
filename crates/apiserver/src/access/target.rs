//! The target of a request, parsed from its path and query.

use std::collections::HashMap;

use http::Method;
use http::request::Parts;

/// The parts of a resource path; missing parts are empty.
pub(crate) struct Target<'a> {
    pub(crate) group: &'a str,
    pub(crate) version: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) plural: &'a str,
    pub(crate) name: &'a str,
    pub(crate) subresource: &'a str,
    /// Whether the path has the older form of watches, `/api/v1/watch/pods`.
    pub(crate) old_watch: bool,
}

impl<'a> Target<'a> {
    pub(crate) fn parse(segments: &[&'a str]) -> Option<Self> {
        let (group, version, rest) = match segments {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let (old_watch, rest) = match rest {
            ["watch", rest @ ..] if !rest.is_empty() => (true, rest),
            _ => (false, rest),
        };
        let (namespace, rest) = match rest {
            ["namespaces", name, "status" | "finalize"] => (*name, rest),
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            ["namespaces", name] => (*name, rest),
            _ => ("", rest),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (*plural, "", ""),
            [plural, name] => (*plural, *name, ""),
            [plural, name, subresource, ..] => (*plural, *name, *subresource),
            [] => return None,
        };
        Some(Self {
            group,
            version,
            namespace,
            plural,
            name,
            subresource,
            old_watch,
        })
    }

    pub(crate) fn verb(&self, method: &Method, query: &HashMap<String, String>) -> &'static str {
        let watching = query.get("watch").is_some_and(|value| is_true(value));
        match (method.as_str(), self.name.is_empty()) {
            ("GET", _) if self.old_watch => "watch",
            ("GET", true) if watching => "watch",
            ("GET", true) => "list",
            ("GET", false) => "get",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("DELETE", true) => "deletecollection",
            ("DELETE", false) => "delete",
            _ => "",
        }
    }
}

/// Returns whether a request is a watch.
pub(crate) fn is_watch(parts: &Parts) -> bool {
    let segments: Vec<&str> = parts
        .uri
        .path()
        .split('/')
        .filter(|s| !s.is_empty())
        .collect();
    let query_watches = || {
        let query = parts.uri.query();
        query.is_some_and(|query| query.contains("watch="))
    };
    (segments.contains(&"watch") || query_watches())
        && Target::parse(&segments)
            .is_some_and(|target| target.verb(&parts.method, &query(parts)) == "watch")
}

/// Returns the query parameters of a request.
pub(crate) fn query(parts: &Parts) -> HashMap<String, String> {
    parse_query(parts.uri.query().unwrap_or_default())
}

pub(crate) fn parse_query(text: &str) -> HashMap<String, String> {
    let mut query = HashMap::new();
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        // the first of several values counts
        query
            .entry(unescape(key))
            .or_insert_with(|| unescape(value));
    }
    query
}

/// Decodes a path segment.
pub(crate) fn unescape_path(text: &str) -> String {
    // in a path, a plus sign has no special meaning
    unescape(&text.replace('+', "%2B"))
}

fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let hex = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let (high, low) = (hex(rest.next()), hex(rest.next()));
                if let (Some(high), Some(low)) = (high, low) {
                    bytes.push((high * 16 + low) as u8);
                }
            }
            other => bytes.push(other),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Parses a boolean of a query as real servers do: everything but an explicit no counts as true.
pub(crate) fn is_true(text: &str) -> bool {
    !text.is_empty() && text != "0" && !text.eq_ignore_ascii_case("false")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_no_is_no() {
        let no = ["", "0", "false", "False"].map(is_true);
        assert_eq!(no, [false; 4]);
        assert_eq!(["1", "true", "maybe"].map(is_true), [true; 3]);
    }
}
