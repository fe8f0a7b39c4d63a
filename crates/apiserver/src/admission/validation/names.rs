//! The formats of names, labels and keys. Each function returns what is wrong; empty when nothing is.

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const SERVICE: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const KEY: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

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
    let mut wrong = Vec::new();
    if text.len() > LONGEST_SUBDOMAIN {
        wrong.push(too_long(LONGEST_SUBDOMAIN));
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
                    subdomain(prefix)
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
        wrong.push(format!("name part {}", too_long(LONGEST_LABEL)));
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
        wrong.push(too_long(LONGEST_LABEL));
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
