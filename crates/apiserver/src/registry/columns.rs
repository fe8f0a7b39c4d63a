//! Columns of tables: those of built-in kinds, as a real server names them, and those of `CustomResourceDefinition`s.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};
use serde_json_path::JsonPath;

/// By storage name: name, type, format, priority and description of each column.
static BUILT_IN: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../corpus/facts/columns.json")).unwrap_or_default()
});

/// A column of a custom resource.
#[derive(Debug)]
pub(crate) struct PrinterColumn {
    /// The column as tables show it.
    definition: Value,
    /// Path of its value; `None` for a path that is not valid.
    path: Option<JsonPath>,
}

impl PrinterColumn {
    /// Returns the columns of a version of a definition.
    pub(crate) fn of_version(version: &Value) -> Vec<Self> {
        let given = version["additionalPrinterColumns"].as_array();
        let age = || {
            vec![
                json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp",
                "description": described("Age")}),
            ]
        };
        let given = given
            .filter(|given| !given.is_empty())
            .cloned()
            .unwrap_or_else(age);
        given
            .iter()
            .map(|column| {
                let text = |field: &str| column[field].as_str().unwrap_or_default();
                let path = text("jsonPath");
                let description = match text("description") {
                    "" => format!("Custom resource definition column (in JSONPath format): {path}"),
                    given => given.to_owned(),
                };
                Self {
                    definition: definition(
                        text("name"),
                        text("type"),
                        text("format"),
                        &description,
                        &column["priority"],
                    ),
                    path: JsonPath::parse(&standard(path)).ok(),
                }
            })
            .collect()
    }

    /// Returns the column as tables show it.
    pub(crate) fn definition(&self) -> &Value {
        &self.definition
    }

    /// Returns the cell of an object.
    pub(crate) fn cell(&self, object: &Value) -> Value {
        let found = self
            .path
            .as_ref()
            .and_then(|path| path.query(object).first());
        let Some(value) = found.filter(|value| !value.is_null()) else {
            return Value::Null;
        };
        match (self.definition["type"].as_str().unwrap_or_default(), value) {
            ("string", Value::String(text)) => json!(text),
            ("string", other) => json!(other.to_string()),
            ("integer", Value::Number(number)) => number
                .as_i64()
                .or_else(|| number.as_f64().map(|number| number as i64))
                .map_or(Value::Null, Value::from),
            ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
            ("date", Value::String(text)) => json!(
                text.parse()
                    .map_or_else(|_| "<invalid>".to_owned(), crate::values::words::since)
            ),
            _ => Value::Null,
        }
    }
}

/// Converts a path of Kubernetes to the standard notation: names are quoted, and `\.` is part of a name.
fn standard(path: &str) -> String {
    let mut out = String::from("$");
    let mut rest = path
        .trim()
        .trim_start_matches('{')
        .trim_end_matches('}')
        .chars()
        .peekable();
    while let Some(letter) = rest.next() {
        match letter {
            '.' if rest.peek() == Some(&'.') => {
                rest.next();
                out.push_str("..");
                if rest.peek().is_some_and(|next| *next != '[') {
                    out.push_str(&quoted(&mut rest));
                }
            }
            '.' => out.push_str(&quoted(&mut rest)),
            '[' => {
                out.push('[');
                let mut depth = 1;
                let mut quote = None;
                for letter in rest.by_ref() {
                    out.push(letter);
                    match (letter, quote) {
                        ('"' | '\'', None) => quote = Some(letter),
                        (letter, Some(open)) if letter == open => quote = None,
                        ('[', None) => depth += 1,
                        (']', None) => depth -= 1,
                        _ => {}
                    }
                    if depth == 0 {
                        break;
                    }
                }
            }
            _ => out.push(letter),
        }
    }
    out
}

fn quoted(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> String {
    let mut name = String::new();
    while let Some(letter) = rest.next_if(|letter| *letter != '.' && *letter != '[') {
        if letter == '\\' {
            name.extend(rest.next());
        } else {
            name.push(letter);
        }
    }
    match name.as_str() {
        "" => String::new(),
        "*" => "[*]".to_owned(),
        _ => format!("[{}]", Value::from(name)),
    }
}

fn definition(name: &str, kind: &str, format: &str, description: &str, priority: &Value) -> Value {
    json!({
        "name": name, "type": kind, "format": format, "description": description,
        "priority": priority.as_i64().unwrap_or(0),
    })
}

/// Returns the description of a column that many kinds have.
fn described(name: &str) -> &'static str {
    let columns = BUILT_IN.get("configmaps").and_then(Value::as_array);
    let column = columns
        .into_iter()
        .flatten()
        .find(|column| column[0] == name);
    column
        .and_then(|column| column[4].as_str())
        .unwrap_or_default()
}

/// Returns the columns of a built-in resource by its storage name; `None` for a resource without columns of its own.
pub(crate) fn of_built_in(storage: &str) -> Option<Value> {
    let columns = BUILT_IN.get(storage)?.as_array()?.iter();
    let shown = columns.map(|column| {
        let text = |index: usize| column[index].as_str().unwrap_or_default();
        definition(text(0), text(1), text(2), text(4), &column[3])
    });
    Some(shown.collect())
}

/// Returns the column of the names.
pub(crate) fn name() -> Value {
    definition("Name", "string", "name", described("Name"), &Value::Null)
}

/// Returns the column of the times of creation, of kinds without columns of their own.
pub(crate) fn created_at() -> Value {
    definition("Created At", "date", "", described("Age"), &Value::Null)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(".spec.size", json!("integer"), json!(3))]
    #[case(".status.conditions[?(@.type==\"Ready\")].status", json!("string"), json!("True"))]
    #[case(".metadata.annotations.example\\.com/who", json!("string"), json!("me"))]
    #[case(".spec.list[0]", json!("string"), json!("a"))]
    #[case(".spec.list", json!("string"), json!("[\"a\"]"))]
    #[case(".spec.none", json!("string"), Value::Null)]
    fn cells_are_found_by_paths(#[case] path: &str, #[case] kind: Value, #[case] expected: Value) {
        let object = json!({"metadata": {"annotations": {"example.com/who": "me"}}, "spec": {"size": 3, "list": ["a"]},
            "status": {"conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]}});
        let version =
            json!({"additionalPrinterColumns": [{"name": "C", "type": kind, "jsonPath": path}]});
        assert_eq!(
            PrinterColumn::of_version(&version)[0].cell(&object),
            expected
        );
    }
}
