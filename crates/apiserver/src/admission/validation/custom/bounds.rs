//! Bounds of values of custom resources: listed values, counts, patterns, formats of texts, ranges of numbers.

use std::collections::HashMap;
use std::sync::LazyLock;

use parking_lot::Mutex;
use regex::Regex;
use serde_json::Value;

use super::formats;
use crate::failure::Cause;
use crate::schema::Node;
use crate::values::go::go_quoted;

/// Most compiled patterns that are kept: definitions come and go, and each may bring its own.
const MOST_PATTERNS: usize = 1_024;

/// Checks that a value is one of those that are listed.
pub(super) fn enumerated(schema: Node<'_>, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let allowed = schema.keyword("enum").and_then(Value::as_array);
    if let Some(allowed) = allowed.filter(|allowed| !allowed.contains(value)) {
        let names: Vec<String> = allowed
            .iter()
            .map(|value| {
                value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned)
            })
            .collect();
        causes.push(Cause::unsupported(path, value, &names));
    }
}

/// Checks the number of items or fields.
pub(super) fn counts(
    schema: Node<'_>,
    suffix: &str,
    noun: &str,
    count: usize,
    path: &str,
    causes: &mut Vec<Cause>,
) {
    let bound = |prefix: &str| {
        schema
            .keyword(&format!("{prefix}{suffix}"))
            .and_then(Value::as_u64)
            .map(|bound| bound as usize)
    };
    if let Some(max) = bound("max").filter(|max| count > *max) {
        causes.push(Cause::too_many(path, count, max));
    }
    if let Some(min) = bound("min").filter(|min| count < *min) {
        let detail = format!("{path} in body should have at least {min} {noun}");
        causes.push(Cause::invalid(path, &count.into(), &detail));
    }
}

pub(super) fn string(schema: Node<'_>, text: &str, path: &str, causes: &mut Vec<Cause>) {
    let value = Value::from(text);
    let bound = |word: &str| {
        let bound = schema.keyword(word).and_then(Value::as_u64);
        bound.map(|bound| bound as usize)
    };
    let length = text.chars().count();
    if let Some(max) = bound("maxLength").filter(|max| length > *max) {
        causes.push(Cause::too_long(path, max));
    }
    if let Some(min) = bound("minLength").filter(|min| length < *min) {
        let detail = format!("{path} in body should be at least {min} chars long");
        causes.push(Cause::invalid(path, &value, &detail));
    }
    let pattern = schema.keyword("pattern").and_then(Value::as_str);
    if let Some(pattern) = pattern.filter(|pattern| !matches(pattern, text)) {
        let detail = format!("{path} in body should match '{pattern}'");
        causes.push(Cause::invalid(path, &value, &detail));
    }
    let format = schema.format();
    if !formats::fits(format, text) {
        let detail = format!(
            "{path} in body must be of type {format}: {}",
            go_quoted(text)
        );
        causes.push(Cause::of_type(path, &value, &detail));
    }
}

/// Returns whether a text matches a pattern; a pattern that is not valid matches nothing.
fn matches(pattern: &str, text: &str) -> bool {
    static CACHE: LazyLock<Mutex<HashMap<String, Option<Regex>>>> = LazyLock::new(Mutex::default);
    let mut cache = CACHE.lock();
    if cache.len() >= MOST_PATTERNS && !cache.contains_key(pattern) {
        cache.clear();
    }
    cache
        .entry(pattern.to_owned())
        .or_insert_with(|| Regex::new(pattern).ok())
        .as_ref()
        .is_some_and(|regex| regex.is_match(text))
}

pub(super) fn number(schema: Node<'_>, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let Some(found) = value.as_f64() else {
        return;
    };
    let bound = |word: &str| {
        let bound = schema.keyword(word)?;
        Some((bound.as_f64()?, bound))
    };
    let is_exclusive = |word: &str| schema.keyword(word) == Some(&Value::Bool(true));
    if let Some((max, shown)) = bound("maximum") {
        let exclusive = is_exclusive("exclusiveMaximum");
        if found > max || exclusive && found >= max {
            let how = if exclusive {
                "less than"
            } else {
                "less than or equal to"
            };
            let detail = format!("{path} in body should be {how} {shown}");
            causes.push(Cause::invalid(path, value, &detail));
        }
    }
    if let Some((min, shown)) = bound("minimum") {
        let exclusive = is_exclusive("exclusiveMinimum");
        if found < min || exclusive && found <= min {
            let how = if exclusive {
                "greater than"
            } else {
                "greater than or equal to"
            };
            let detail = format!("{path} in body should be {how} {shown}");
            causes.push(Cause::invalid(path, value, &detail));
        }
    }
    if let Some((factor, shown)) = bound("multipleOf")
        && factor != 0.0
        && (found / factor).fract() != 0.0
    {
        let detail = format!("{path} in body should be a multiple of {shown}");
        causes.push(Cause::invalid(path, value, &detail));
    }
}
