//! Removes from answers what differs from run to run: uids, times, versions, generated names and addresses. Each is replaced by a
//! placeholder that is numbered in the order of first appearance, so that equal values stay equal and different ones stay different.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::{Value, json};

/// What was replaced so far in one conversation.
#[derive(Debug, Default)]
pub(super) struct Normaliser {
    uids: BTreeMap<String, usize>,
    versions: BTreeMap<String, usize>,
    /// Texts that differ from run to run, with their placeholders.
    hidden: Vec<(String, String)>,
    names: Vec<(String, String)>,
    tokens: BTreeMap<String, usize>,
    addresses: BTreeMap<String, usize>,
}

fn pattern(text: &str) -> Option<Regex> {
    Regex::new(text).ok()
}

static UID: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"));
static TIME: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)"));
static TOKEN: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+"));
/// Current versions in messages.
static CURRENT_VERSION: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"(current: |too old resource version: \d+ \()\d+"));
/// Versions of objects in messages.
static OBJECT_VERSION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"(ResourceVersion in (?:object meta: |(?:the )?precondition(?:: | \()|record \())(\d+)",
    )
});
/// Whole objects in messages: the order of their fields and their versions vary.
static OBJECT_DUMP: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r#"Invalid value: "\{.*\}": "#));
/// Names of volumes that admission adds.
static VOLUME_NAME: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"kube-api-access-[a-z0-9]{5}\b"));
/// Ages of more than a day, in the three forms in which tables have them.
static LONG_AGE: LazyLock<Option<Regex>> = LazyLock::new(|| pattern(r"^(\d+d|\d+y|\d+y\d+d)$"));
static SERVICE_ADDRESS: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"\b10\.96\.\d+\.\d+\b"));

fn number(seen: &mut BTreeMap<String, usize>, text: &str) -> usize {
    let next = seen.len() + 1;
    *seen.entry(text.to_owned()).or_insert(next)
}

impl Normaliser {
    /// Replaces a text wherever it occurs.
    pub(super) fn hide(&mut self, text: &str, placeholder: &str) {
        self.hidden.push((text.to_owned(), placeholder.to_owned()));
    }

    /// Returns an answer without what differs from run to run.
    pub(super) fn normalise(&mut self, mut answer: Value) -> Value {
        self.collect_generated_names(&answer);
        self.value(&mut answer, "");
        answer
    }

    fn collect_generated_names(&mut self, value: &Value) {
        match value {
            Value::Array(list) => list
                .iter()
                .for_each(|item| self.collect_generated_names(item)),
            Value::Object(map) => {
                if let (Some(prefix), Some(name)) = (
                    map.get("generateName").and_then(Value::as_str),
                    map.get("name").and_then(Value::as_str),
                ) && name.len() > prefix.len()
                    && name.starts_with(prefix)
                    && !self.names.iter().any(|(known, _)| known == name)
                {
                    let placeholder = format!("{prefix}<generated {}>", self.names.len() + 1);
                    self.names.push((name.to_owned(), placeholder));
                }
                map.values()
                    .for_each(|item| self.collect_generated_names(item));
            }
            _ => {}
        }
    }

    fn value(&mut self, value: &mut Value, key: &str) {
        match value {
            Value::String(text) => {
                let shown = self.text(text, key);
                *text = shown;
            }
            Value::Number(_) if key == "nodePort" || key == "healthCheckNodePort" => {
                *value = json!("<port>");
            }
            Value::Array(list) => {
                for item in list {
                    self.value(item, key);
                }
            }
            Value::Object(map) => {
                let is_list = map.contains_key("items") || map.contains_key("rows");
                let is_bookmark = map.get("type") == Some(&json!("BOOKMARK"));
                // the order of an object's fields has no meaning, so the placeholders are numbered by sorted names
                let mut keys: Vec<String> = map.keys().cloned().collect();
                keys.sort();
                for inner in keys {
                    let Some(item) = map.get_mut(&inner) else {
                        continue;
                    };
                    if is_list && inner == "metadata" && item["resourceVersion"].is_string() {
                        item["resourceVersion"] = json!("<list version>");
                    }
                    if is_bookmark && inner == "object" {
                        item["metadata"]["resourceVersion"] = json!("<bookmark version>");
                    }
                    self.value(item, &inner);
                    if inner == "managedFields" {
                        sort_managers(item);
                    }
                    // owners of owners are told by uid
                    if inner.starts_with("k:{\"uid\"")
                        && let Some(item) = map.remove(&inner)
                    {
                        map.insert(self.text(&inner, ""), item);
                    }
                }
            }
            _ => {}
        }
    }

    fn text(&mut self, text: &str, key: &str) -> String {
        match key {
            "resourceVersion" if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) => {
                return if text == "0" {
                    text.to_owned()
                } else {
                    format!("<version {}>", number(&mut self.versions, text))
                };
            }
            "serverAddress" => return "<address>".into(),
            // the age that all recordings have
            "cells" if is_age_in_seconds(text) => return "0s".into(),
            "cells" if is_long_age(text) => return "<long age>".into(),
            "continue" if !text.is_empty() => return "<continue>".into(),
            _ => {}
        }
        let mut text = text.to_owned();
        for (name, placeholder) in self.hidden.iter().chain(&self.names) {
            if text.contains(name.as_str()) {
                text = text.replace(name.as_str(), placeholder);
            }
        }
        let mut replace =
            |regex: &LazyLock<Option<Regex>>, with: &mut dyn FnMut(&Captures<'_>) -> String| {
                if let Some(regex) = regex.as_ref()
                    && regex.is_match(&text)
                {
                    text = regex
                        .replace_all(&text, |found: &Captures<'_>| with(found))
                        .into_owned();
                }
            };
        replace(&TOKEN, &mut |found| {
            format!("<token {}>", number(&mut self.tokens, &found[0]))
        });
        replace(&UID, &mut |found| {
            format!("<uid {}>", number(&mut self.uids, &found[0]))
        });
        replace(&TIME, &mut |_| "<time>".into());
        replace(&CURRENT_VERSION, &mut |found| format!("{}<now>", &found[1]));
        replace(&OBJECT_VERSION, &mut |found| {
            format!(
                "{}<version {}>",
                &found[1],
                number(&mut self.versions, &found[2])
            )
        });
        replace(&OBJECT_DUMP, &mut |_| "Invalid value: <object>: ".into());
        replace(&VOLUME_NAME, &mut |_| "kube-api-access-<generated>".into());
        replace(&SERVICE_ADDRESS, &mut |found| {
            format!("<address {}>", number(&mut self.addresses, &found[0]))
        });
        text
    }
}

/// Whether a cell of a table is an age in whole seconds, which depends on how fast the conversation goes on.
fn is_age_in_seconds(cell: &str) -> bool {
    cell.strip_suffix('s').is_some_and(|seconds| {
        !seconds.is_empty() && seconds.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Whether a cell of a table is the age of something that a request gave a date of long ago, which is another one tomorrow.
fn is_long_age(cell: &str) -> bool {
    LONG_AGE.as_ref().is_some_and(|form| form.is_match(cell))
}

/// Sorts managers. Their order is that of their times in whole seconds, then of their names, so it varies from run to run.
fn sort_managers(managers: &mut Value) {
    if let Some(list) = managers.as_array_mut() {
        list.sort_by_cached_key(|entry| {
            ["operation", "manager", "subresource", "apiVersion"]
                .map(|field| entry[field].as_str().unwrap_or_default().to_owned())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_in_tables_depend_neither_on_the_pace_nor_on_the_day() {
        let row = |cells: [&str; 6]| json!({"rows": [{"cells": cells}]});
        let ages = row(["12s", "330d", "2y", "3y17d", "d", "1dy"]);
        let shown = ["0s", "<long age>", "<long age>", "<long age>", "d", "1dy"];
        assert_eq!(Normaliser::default().normalise(ages), row(shown));
    }

    #[test]
    fn equal_things_keep_one_mark_over_all_answers() {
        let mut normaliser = Normaliser::default();
        let uid = "0f3c3b4e-9a9e-4c55-8d3a-2a2b2c2d2e2f";
        let first = normaliser.normalise(
            json!({"metadata": {"uid": uid, "resourceVersion": "12", "name": "a-x7k2p",
            "generateName": "a-", "creationTimestamp": "2026-01-02T03:04:05Z"}}),
        );
        assert_eq!(
            first,
            json!({"metadata": {"uid": "<uid 1>", "resourceVersion": "<version 1>", "name": "a-<generated 1>",
                "generateName": "a-", "creationTimestamp": "<time>"}})
        );
        let second = normaliser.normalise(
            json!({"message": format!("pods \"a-x7k2p\" {uid}"), "resourceVersion": "13"}),
        );
        assert_eq!(
            second,
            json!({"message": "pods \"a-<generated 1>\" <uid 1>", "resourceVersion": "<version 2>"})
        );
    }

    #[test]
    fn fields_that_are_named_by_a_uid_are_named_by_its_mark() {
        let uid = "0f3c3b4e-9a9e-4c55-8d3a-2a2b2c2d2e2f";
        let owned = json!({"uid": uid, "fieldsV1": {format!("k:{{\"uid\":\"{uid}\"}}"): {}}});
        assert_eq!(
            Normaliser::default().normalise(owned),
            json!({"uid": "<uid 1>", "fieldsV1": {"k:{\"uid\":\"<uid 1>\"}": {}}})
        );
    }

    #[test]
    fn ages_in_seconds_are_equal_in_tables_only() {
        let table = |age: &str| {
            let rows = json!({"rows": [{"cells": ["p0", "1/1", "s", age]}], "message": age});
            Normaliser::default().normalise(rows)
        };
        assert_eq!(table("0s")["rows"], table("12s")["rows"]);
        assert_ne!(table("0s")["rows"], table("5d")["rows"]);
        assert_ne!(table("0s")["rows"], table("<unknown>")["rows"]);
        assert_ne!(table("0s")["message"], table("12s")["message"]);
    }

    #[test]
    fn versions_of_lists_are_not_those_of_objects() {
        let list = json!({"items": [{"metadata": {"resourceVersion": "7"}}], "metadata": {"resourceVersion": "9"}});
        assert_eq!(
            Normaliser::default().normalise(list),
            json!({"items": [{"metadata": {"resourceVersion": "<version 1>"}}], "metadata": {"resourceVersion": "<list version>"}})
        );
    }
}
