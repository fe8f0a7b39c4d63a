//! The specification of a pod and other structures in the server's internal form, and the difference of two of them, which the refusal of a
//! change shows.
//!
//! `corpus/facts/internal.json` lists the fields of each structure in order: internal name, name in the API (after `^`, it is a field of
//! the specification), and kind: `s` text, `i` number, `b` boolean, `*` optional, `[` list of, `{` map to, `#` structure, `@` metadata, whose
//! fields stand among the others, `l` selector of labels, `~` as in the API.

use std::fmt::Write as _;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::diff;

static STRUCTURES: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../../corpus/facts/internal.json")).unwrap_or_default()
});

/// The fields of metadata in the order of their type, as far as templates have them.
const METADATA: [&str; 15] = [
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
];
/// The fields of a selector of labels, with their kinds.
const SELECTOR: &[(&str, &str)] = &[("matchLabels", "{s"), ("matchExpressions", "[r")];
/// The fields of an expression of such a selector.
const REQUIREMENT: &[(&str, &str)] = &[("key", "s"), ("operator", "s"), ("values", "[s")];

/// Returns the difference of two specifications of a pod.
pub(super) fn difference(before: &Value, after: &Value) -> String {
    difference_of("PodSpec", before, after)
}

/// Returns the difference of two structures.
pub(super) fn difference_of(structure: &str, before: &Value, after: &Value) -> String {
    let kind = format!("#{structure}");
    diff::unified(&lines(&kind, before), &lines(&kind, after))
}

/// Writes a structure in one line, as messages show it.
pub(super) fn written(structure: &str, value: &Value) -> String {
    if value.is_null() {
        return "null".to_owned();
    }
    compact(&format!("#{structure}"), value)
}

/// Writes a selector of labels in one line, with its fields in the order of its type.
pub(super) fn selector(selector: &Value) -> String {
    compact("l", selector)
}

/// Writes a value of a kind in one line.
fn compact(kind: &str, value: &Value) -> String {
    let lines = lines(kind, value).into_iter();
    let compact = |line: String| line.trim().replacen("\": ", "\":", 1);
    lines.map(compact).collect()
}

/// Returns a value of a kind as lines of indented JSON.
fn lines(kind: &str, value: &Value) -> Vec<String> {
    let mut writer = Writer {
        spec: value,
        text: String::new(),
    };
    writer.value(kind, value, 0);
    writer
        .text
        .lines()
        .map(|line| format!("{line}\n"))
        .collect()
}

struct Writer<'a> {
    spec: &'a Value,
    text: String,
}

impl<'a> Writer<'a> {
    fn line(&mut self, depth: usize) {
        self.text.push('\n');
        self.text.extend(std::iter::repeat_n(' ', depth));
    }

    fn raw(&mut self, value: &'a Value, depth: usize) {
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                self.enclosed(['{', '}'], depth, fields.iter(), |writer, (name, value)| {
                    // writing to a `String` cannot fail
                    let _ = write!(writer.text, "{}: ", Value::from(name.as_str()));
                    writer.raw(value, depth + 1);
                });
            }
            Value::Array(items) if !items.is_empty() => {
                self.enclosed(['[', ']'], depth, items.iter(), |writer, item| {
                    writer.raw(item, depth + 1);
                });
            }
            other => {
                let _ = write!(self.text, "{other}");
            }
        }
    }

    fn enclosed<T>(
        &mut self,
        [open, close]: [char; 2],
        depth: usize,
        items: impl Iterator<Item = T>,
        mut write_item: impl FnMut(&mut Self, T),
    ) {
        self.text.push(open);
        let mut is_first = true;
        for item in items {
            if !std::mem::take(&mut is_first) {
                self.text.push(',');
            }
            self.line(depth + 1);
            write_item(self, item);
        }
        if !is_first {
            self.line(depth);
        }
        self.text.push(close);
    }

    fn value(&mut self, kind: &str, value: &'a Value, depth: usize) {
        let inner = kind.get(1..).unwrap_or_default();
        match (kind.chars().next(), value) {
            (Some('*' | '[' | '{' | '~' | 'l'), Value::Null) => self.text.push_str("null"),
            (Some('*'), value) => self.value(inner, value, depth),
            (Some('['), Value::Array(items)) => {
                self.enclosed(['[', ']'], depth, items.iter(), |writer, item| {
                    writer.value(inner, item, depth + 1);
                });
            }
            (Some('{'), Value::Object(fields)) => {
                self.enclosed(['{', '}'], depth, fields.iter(), |writer, (name, value)| {
                    let _ = write!(writer.text, "{}: ", Value::from(name.as_str()));
                    writer.value(inner, value, depth + 1);
                });
            }
            (Some('#'), value) => self.structure(inner, value, depth),
            (Some('l'), value) => self.ordered(SELECTOR, value, depth),
            (Some('r'), value) => self.ordered(REQUIREMENT, value, depth),
            (Some('s'), Value::Null) => self.text.push_str("\"\""),
            (Some('i'), Value::Null) => self.text.push('0'),
            (Some('b'), Value::Null) => self.text.push_str("false"),
            (_, value) => self.raw(value, depth),
        }
    }

    fn structure(&mut self, name: &str, value: &'a Value, depth: usize) {
        if name == "PodSpec" {
            self.spec = value;
        }
        let fields = STRUCTURES.get(name).and_then(Value::as_array);
        let spec = self.spec;
        let mut entries: Vec<(&str, &str, &'a Value)> = Vec::new();
        for field in fields.into_iter().flatten() {
            let text = |index: usize| field[index].as_str().unwrap_or_default();
            let value = match text(1).strip_prefix('^') {
                Some(name) => &spec[name],
                None => &value[text(1)],
            };
            if text(2) == "@" {
                let given = METADATA.iter().filter(|name| !value[**name].is_null());
                entries.extend(given.map(|name| (*name, "~", &value[*name])));
            } else {
                entries.push((text(0), text(2), value));
            }
        }
        self.entries(entries, depth);
    }

    /// Writes those fields of a structure that are there, in an order.
    fn ordered(&mut self, fields: &[(&str, &str)], value: &'a Value, depth: usize) {
        let is_there = |field: &Value| match field {
            Value::Null => false,
            Value::Object(fields) => !fields.is_empty(),
            Value::Array(items) => !items.is_empty(),
            _ => true,
        };
        let given = fields
            .iter()
            .filter(|(name, kind)| *kind == "s" || is_there(&value[*name]));
        let entries = given.map(|(name, kind)| (*name, *kind, &value[*name]));
        self.entries(entries.collect(), depth);
    }

    fn entries(&mut self, entries: Vec<(&str, &str, &'a Value)>, depth: usize) {
        self.enclosed(
            ['{', '}'],
            depth,
            entries.into_iter(),
            |writer, (name, kind, value)| {
                // writing to a `String` cannot fail
                let _ = write!(writer.text, "{name:?}: ");
                writer.value(kind, value, depth + 1);
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_difference_names_fields_as_the_server_does() {
        let before =
            json!({"containers": [], "restartPolicy": "Always", "dnsPolicy": "ClusterFirst"});
        let mut after = before.clone();
        after["restartPolicy"] = json!("Never");
        let text = difference(&before, &after);
        assert!(
            text.contains("- \"RestartPolicy\": \"Always\",\n+ \"RestartPolicy\": \"Never\",\n"),
            "{text}"
        );
    }

    #[test]
    fn what_is_missing_is_shown_as_what_it_is_without_a_value() {
        let lines = lines(
            "#PodSpec",
            &json!({"containers": [{"name": "c"}], "hostNetwork": true, "securityContext": {}}),
        )
        .concat();
        for part in [
            "\"Volumes\": null",
            "   \"Name\": \"c\"",
            "   \"Args\": null",
            "\"NodeName\": \"\"",
            "  \"HostNetwork\": true",
        ] {
            assert!(lines.contains(part), "{part} in {lines}");
        }
    }
}
