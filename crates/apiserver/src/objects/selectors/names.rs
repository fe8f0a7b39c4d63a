//! The formats of names, label keys and label values, and a real server's messages about wrong ones.

/// The format of a DNS subdomain.
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
/// The format of the name part of a label key.
const KEY: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
/// The format of a label value.
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

fn begins_and_ends(text: &str, edge: impl Fn(char) -> bool, inside: impl Fn(char) -> bool) -> bool {
    text.starts_with(&edge) && text.ends_with(&edge) && text.chars().all(|c| edge(c) || inside(c))
}

fn lower(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

fn alphanumeric(c: char) -> bool {
    c.is_ascii_alphanumeric()
}

/// Returns what is wrong with a DNS subdomain; empty when it is valid.
pub(crate) fn subdomain(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if text.len() > 253 {
        faults.push("must be no more than 253 bytes".to_owned());
    }
    if !text
        .split('.')
        .all(|part| begins_and_ends(part, lower, |c| c == '-'))
    {
        faults.push(SUBDOMAIN.to_owned());
    }
    faults
}

/// Returns what is wrong with a label key: a name, optionally with a domain and a slash before it.
pub(crate) fn label_key(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                faults.push("prefix part must be non-empty".to_owned());
            } else {
                faults.extend(
                    subdomain(prefix)
                        .iter()
                        .map(|fault| format!("prefix part {fault}")),
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
        faults.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        faults.push("name part must be no more than 63 bytes".to_owned());
    }
    if !begins_and_ends(name, alphanumeric, |c| "-_.".contains(c)) {
        faults.push(format!("name part {KEY}"));
    }
    faults
}

/// Returns what is wrong with a label value.
pub(crate) fn label_value(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if text.len() > 63 {
        faults.push("must be no more than 63 bytes".to_owned());
    }
    if !text.is_empty() && !begins_and_ends(text, alphanumeric, |c| "-_.".contains(c)) {
        faults.push(VALUE.to_owned());
    }
    faults
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::plain("app", 0)]
    #[case::with_domain("example.com/app_x", 0)]
    #[case::upper_domain("Example.com/app", 1)]
    #[case::no_name("example.com/", 2)]
    #[case::two_slashes("a/b/c", 1)]
    fn keys_are_judged(#[case] key: &str, #[case] faults: usize) {
        assert_eq!(label_key(key).len(), faults, "{:?}", label_key(key));
    }

    #[test]
    fn values_may_be_empty_but_not_begin_with_a_dash() {
        assert!(label_value("").is_empty());
        assert_eq!(label_value("-a"), [VALUE]);
        assert_eq!(
            label_value(&"a".repeat(64)),
            ["must be no more than 63 bytes"]
        );
    }
}
