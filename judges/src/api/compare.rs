//! Comparison of two recordings of a conversation.

use std::fmt;

use serde_json::Value;

/// A place where two recordings differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Number of the answer and path of the field in it, such as `2.body.metadata.name`.
    pub path: String,
    /// What the real server answered; `None` when it has nothing there.
    pub real: Option<Value>,
    /// What this server answered; `None` when it has nothing there.
    pub ours: Option<Value>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |value: &Option<Value>| {
            let text = value
                .as_ref()
                .map_or_else(|| "-".to_owned(), Value::to_string);
            if text.chars().count() > 600 {
                text.chars().take(600).chain("...".chars()).collect()
            } else {
                text
            }
        };
        write!(
            f,
            "  {}\n    real: {}\n    ours: {}",
            self.path,
            show(&self.real),
            show(&self.ours)
        )
    }
}

/// Returns all differences between the answers of the real server and those of this one.
pub fn differences(real: &[Value], ours: &[Value]) -> Vec<Difference> {
    let mut found = Vec::new();
    for number in 0..real.len().max(ours.len()) {
        compare(
            real.get(number),
            ours.get(number),
            &number.to_string(),
            &mut found,
        );
    }
    found
}

fn compare(real: Option<&Value>, ours: Option<&Value>, path: &str, found: &mut Vec<Difference>) {
    match (real, ours) {
        (Some(Value::Object(real)), Some(Value::Object(ours))) => {
            let mut keys: Vec<&String> = real.keys().chain(ours.keys()).collect();
            keys.sort();
            keys.dedup();
            for key in keys {
                compare(
                    real.get(key),
                    ours.get(key),
                    &format!("{path}.{key}"),
                    found,
                );
            }
        }
        (Some(Value::Array(real)), Some(Value::Array(ours))) if real.len() == ours.len() => {
            for (index, (real, ours)) in real.iter().zip(ours).enumerate() {
                compare(Some(real), Some(ours), &format!("{path}.{index}"), found);
            }
        }
        (real, ours) if real == ours => {}
        (real, ours) => found.push(Difference {
            path: path.to_owned(),
            real: real.cloned(),
            ours: ours.cloned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_innermost_place_is_named() {
        let found = differences(
            &[json!({"a": {"b": [1, 2]}, "c": 1})],
            &[json!({"a": {"b": [1, 3]}})],
        );
        let paths: Vec<&str> = found.iter().map(|one| one.path.as_str()).collect();
        assert_eq!(paths, ["0.a.b.1", "0.c"]);
    }
}
