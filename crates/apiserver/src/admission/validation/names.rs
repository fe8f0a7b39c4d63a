//! The formats of names, labels and keys. Each function returns what is wrong; empty when nothing is.

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const SERVICE: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const KEY: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

const WILDCARD: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const HEADER: &str = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')";
const UNDERSCORES: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')";
const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

const LONGEST_PORT: usize = 15;
const LONGEST_LABEL: usize = 63;
const LONGEST_SUBDOMAIN: usize = 253;

fn edge(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

fn is_label(text: &str) -> bool {
    text.starts_with(edge) && text.ends_with(edge) && text.chars().all(|c| edge(c) || c == '-')
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

fn too_long(length: usize) -> String {
    format!("must be no more than {length} characters")
}

/// The same of keys and values of labels.
fn too_many_bytes(length: usize) -> String {
    format!("must be no more than {length} bytes")
}

/// Checks a DNS label.
pub(crate) fn label(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > LONGEST_LABEL {
        wrong.push(too_long(LONGEST_LABEL));
    }
    if !is_label(text) {
        if is_subdomain(text) {
            wrong.push("must not contain dots".to_owned());
        } else {
            wrong.push(LABEL.to_owned());
        }
    }
    wrong
}

/// Checks a DNS subdomain.
pub(crate) fn subdomain(text: &str) -> Vec<String> {
    subdomain_within(text, too_long)
}

/// Checks a DNS subdomain where a real server counts bytes.
pub(crate) fn long_name(text: &str) -> Vec<String> {
    subdomain_within(text, too_many_bytes)
}

/// Checks a DNS subdomain; `why` is what is said of one that is too long.
fn subdomain_within(text: &str, why: fn(usize) -> String) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > LONGEST_SUBDOMAIN {
        wrong.push(why(LONGEST_SUBDOMAIN));
    }
    if !is_subdomain(text) {
        wrong.push(SUBDOMAIN.to_owned());
    }
    wrong
}

/// Checks the name of a service.
pub(crate) fn service(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > LONGEST_LABEL {
        wrong.push(too_long(LONGEST_LABEL));
    }
    if !is_label(text) || !text.starts_with(|c: char| c.is_ascii_lowercase()) {
        wrong.push(SERVICE.to_owned());
    }
    wrong
}

/// Checks the name of a port.
pub(crate) fn port(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > LONGEST_PORT {
        wrong.push(too_long(LONGEST_PORT));
    }
    if text.is_empty() || !text.chars().all(|c| edge(c) || c == '-') {
        wrong.push(
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned(),
        );
    }
    if !text.contains(|c: char| c.is_ascii_lowercase()) {
        wrong.push("must contain at least one letter (a-z)".to_owned());
    }
    if text.contains("--") {
        wrong.push("must not contain consecutive hyphens".to_owned());
    }
    if text.starts_with('-') || text.ends_with('-') {
        wrong.push("must not begin or end with a hyphen".to_owned());
    }
    wrong
}

/// Checks a subdomain after `*.`.
pub(crate) fn wildcard(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > LONGEST_SUBDOMAIN {
        wrong.push(too_long(LONGEST_SUBDOMAIN));
    }
    if !text.strip_prefix("*.").is_some_and(is_subdomain) {
        wrong.push(WILDCARD.to_owned());
    }
    wrong
}

/// Checks a percentage.
pub(crate) fn percent(text: &str) -> Vec<String> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if text.strip_suffix('%').is_some_and(is_number) {
        Vec::new()
    } else {
        vec![PERCENT.to_owned()]
    }
}

/// Checks the name of a variable of a container.
pub(crate) fn variable(text: &str) -> Vec<String> {
    let is_printable = |c: char| matches!(c, ' '..='~') && c != '=';
    if text.is_empty() {
        vec!["environment variable name must be non-empty".to_owned()]
    } else if text.chars().all(is_printable) {
        Vec::new()
    } else {
        vec!["a valid environment variable name must consist only of printable ASCII characters other than '='".to_owned()]
    }
}

/// Checks the name of a header.
pub(crate) fn header(text: &str) -> Vec<String> {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if !text.is_empty() && text.chars().all(good) {
        Vec::new()
    } else {
        vec![HEADER.to_owned()]
    }
}

/// Checks the begin of a name: it may end with a dash, because something follows.
pub(crate) fn prefix(text: &str) -> Vec<String> {
    match text.strip_suffix('-') {
        Some(begin) if !begin.is_empty() => subdomain(&format!("{begin}a")),
        _ => subdomain(text),
    }
}

/// Checks a subdomain whose labels may have underscores.
pub(crate) fn subdomain_with_underscores(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > LONGEST_SUBDOMAIN {
        wrong.push(too_long(LONGEST_SUBDOMAIN));
    }
    let is_right = |label: &str| {
        let label = label.strip_prefix('_').unwrap_or(label);
        label.starts_with(edge)
            && label.ends_with(edge)
            && label.chars().all(|c| edge(c) || c == '-' || c == '_')
    };
    if !text.split('.').all(is_right) {
        wrong.push(UNDERSCORES.to_owned());
    }
    wrong
}

/// Checks a key of a config map or secret.
pub(crate) fn config_key(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > LONGEST_SUBDOMAIN {
        wrong.push(too_long(LONGEST_SUBDOMAIN));
    }
    let good = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if text.is_empty() || !text.chars().all(good) {
        wrong.push(CONFIG_KEY.to_owned());
    }
    match text {
        "." => wrong.push("must not be '.'".to_owned()),
        ".." => wrong.push("must not be '..'".to_owned()),
        text if text.starts_with("..") => wrong.push("must not start with '..'".to_owned()),
        _ => {}
    }
    wrong
}

/// Checks a domain with at least two parts, which may end with a dot.
pub(crate) fn full_domain(text: &str) -> Vec<String> {
    let text = text.strip_suffix('.').unwrap_or(text);
    let wrong = subdomain(text);
    if !wrong.is_empty() {
        return vec![wrong.join(",")];
    }
    if !text.contains('.') {
        return vec!["should be a domain with at least two segments separated by dots".to_owned()];
    }
    Vec::new()
}

/// Checks the name of a CSI driver.
pub(crate) fn driver(text: &str) -> Vec<String> {
    subdomain(&text.to_lowercase())
}

/// Checks a segment of a path.
pub(crate) fn path_segment(text: &str) -> Vec<String> {
    if text == "." || text == ".." {
        return vec![format!("may not be '{text}'")];
    }
    ["/", "%"]
        .into_iter()
        .filter(|part| text.contains(part))
        .map(|part| format!("may not contain '{part}'"))
        .collect()
}

fn is_key(text: &str) -> bool {
    let edge = |c: char| c.is_ascii_alphanumeric();
    text.starts_with(edge)
        && text.ends_with(edge)
        && text.chars().all(|c| edge(c) || "-_.".contains(c))
}

/// Checks a key of labels and annotations: a name with an optional prefix.
pub(crate) fn key(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                wrong.push("prefix part must be non-empty".to_owned());
            } else {
                wrong.extend(
                    long_name(prefix)
                        .into_iter()
                        .map(|text| format!("prefix part {text}")),
                );
            }
            *name
        }
        _ => {
            return vec![format!(
                "a valid label key {KEY} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    } else if name.len() > LONGEST_LABEL {
        wrong.push(format!("name part {}", too_many_bytes(LONGEST_LABEL)));
    }
    if !is_key(name) {
        wrong.push(format!("name part {KEY}"));
    }
    wrong
}

/// Checks a value of a label.
pub(crate) fn value(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > LONGEST_LABEL {
        wrong.push(too_many_bytes(LONGEST_LABEL));
    }
    if !text.is_empty() && !is_key(text) {
        wrong.push(VALUE.to_owned());
    }
    wrong
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::plain("a-1", true)]
    #[case::dot("a.b", false)]
    #[case::upper("A", false)]
    #[case::dash("-a", false)]
    #[case::empty("", false)]
    fn labels_are_lower_case(#[case] text: &str, #[case] right: bool) {
        assert_eq!(label(text).is_empty(), right);
    }

    #[rstest]
    #[case::plain("app", true)]
    #[case::prefix("example.com/App_1", true)]
    #[case::two_slashes("a/b/c", false)]
    #[case::no_name("a/", false)]
    #[case::blank("a b", false)]
    fn keys_may_have_a_prefix(#[case] text: &str, #[case] right: bool) {
        assert_eq!(key(text).is_empty(), right);
    }
}
