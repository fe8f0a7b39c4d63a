//! The fields of a JSON text in their original order, including repeated ones. Parsing into a map would lose both.

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

/// A field of a JSON text.
#[derive(Debug, PartialEq)]
pub(crate) struct Occurrence {
    /// Path, such as `spec.containers[0].name`.
    pub(crate) path: String,
    /// Whether its object had a field of this name before.
    pub(crate) is_duplicate: bool,
}

/// Returns all fields of a text, as far as it can be parsed. Fields inside an object come before what follows the object.
pub(crate) fn of(body: &[u8]) -> Vec<Occurrence> {
    let mut found = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(body);
    let collector = FieldCollector {
        path: String::new(),
        found: &mut found,
    };
    // a text that is not valid JSON is refused elsewhere
    let _ = collector.deserialize(&mut reader);
    found
}

struct FieldCollector<'f> {
    path: String,
    found: &'f mut Vec<Occurrence>,
}

impl<'de> DeserializeSeed<'de> for FieldCollector<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for FieldCollector<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut names = HashSet::new();
        while let Some(name) = map.next_key::<String>()? {
            let path = if self.path.is_empty() {
                name.clone()
            } else {
                format!("{}.{name}", self.path)
            };
            let is_duplicate = !names.insert(name);
            self.found.push(Occurrence {
                path: path.clone(),
                is_duplicate,
            });
            map.next_value_seed(FieldCollector {
                path,
                found: &mut *self.found,
            })?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        for index in 0.. {
            let item = FieldCollector {
                path: format!("{}[{index}]", self.path),
                found: &mut *self.found,
            };
            if list.next_element_seed(item)?.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// Returns the problems of a body: unknown fields, which were found before, and duplicate fields, in the order of the body. Custom objects
/// are parsed first and pruned afterwards, so their unknown fields follow their duplicate ones.
pub(crate) fn problems(body: Option<&[u8]>, unknown: &[String], custom: bool) -> Vec<String> {
    let named_unknown = |path: &String| format!("unknown field {path:?}");
    let all: Vec<String> = unknown.iter().map(named_unknown).collect();
    let Some(body) = body else {
        return all;
    };
    let is_unknown = |path: &str| {
        unknown.iter().any(|unknown| {
            path.strip_prefix(unknown.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        })
    };
    let mut problems: Vec<String> = Vec::new();
    for occurrence in of(body) {
        let text = if occurrence.is_duplicate && (custom || !is_unknown(&occurrence.path)) {
            format!("duplicate field {:?}", occurrence.path)
        } else if !custom && unknown.contains(&occurrence.path) {
            named_unknown(&occurrence.path)
        } else {
            continue;
        };
        if !problems.contains(&text) {
            problems.push(text);
        }
    }
    // unknown fields that come from a patch or a default are not in the body
    let rest: Vec<String> = all
        .into_iter()
        .filter(|text| !problems.contains(text))
        .collect();
    problems.extend(rest);
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_come_in_the_order_of_the_text() {
        let body = br#"{"z": {"n": 1, "n": 2, "m": {"a": 1, "a": 2}}, "b": [{"c": 1, "c": 1, "c": 2}], "a": 1}"#;
        let unknown = ["a".to_owned(), "z.m".to_owned()];
        assert_eq!(
            problems(Some(body), &unknown, false),
            [
                r#"duplicate field "z.n""#,
                r#"unknown field "z.m""#,
                r#"duplicate field "b[0].c""#,
                r#"unknown field "a""#,
            ]
        );
    }

    #[test]
    fn custom_objects_are_pruned_after_they_were_read() {
        let body = br#"{"a": 1, "b": 1, "b": 2}"#;
        assert_eq!(
            problems(Some(body), &["a".to_owned()], true),
            [r#"duplicate field "b""#, r#"unknown field "a""#]
        );
    }
}
