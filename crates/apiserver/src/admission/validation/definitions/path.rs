//! Paths into objects, checked against a schema: `.spec.color`, `.labels['a.b']`.

use serde_json::Value;

/// Why a path is not valid, in the words of a real server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PathError {
    /// No such field.
    #[error("does not refer to a valid field")]
    NoField,
    /// Brackets where they are not allowed.
    #[error("array notation is not allowed")]
    Brackets,
    /// The path ends too early.
    #[error("unexpected end of JSON path")]
    End,
    /// The text in brackets is not quoted.
    #[error("expected single quoted string but got {0}")]
    Quotes(String),
    /// A bracket is not closed.
    #[error("expected ] but got {0}")]
    Open(String),
    /// A step does not start with a dot or a bracket.
    #[error("expected [ or . but got: {0}")]
    Start(String),
}

/// Returns the steps of a path and the schema that it leads to.
pub(super) fn find<'a>(
    path: &str,
    schema: &'a Value,
    brackets: bool,
) -> Result<(Vec<String>, &'a Value), PathError> {
    let mut steps = Vec::new();
    let mut here = schema;
    let mut tokens = tokens(path).into_iter();
    while let Some(token) = tokens.next() {
        let name = match token.as_str() {
            "[" if !brackets => return Err(PathError::Brackets),
            "[" => {
                let quoted = tokens.next().ok_or(PathError::End)?;
                let name = quoted
                    .strip_prefix('\'')
                    .and_then(|rest| rest.strip_suffix('\''))
                    .map(|name| name.replace("\\'", "'"));
                name.ok_or(PathError::Quotes(quoted))?
            }
            "." => tokens.next().ok_or(PathError::End)?,
            _ => return Err(PathError::Start(token)),
        };
        here = step(here, &name)?;
        steps.push(name);
        if token == "[" {
            match tokens.next() {
                None => return Err(PathError::End),
                Some(end) if end != "]" => return Err(PathError::Open(end)),
                Some(_) => {}
            }
        }
    }
    Ok((steps, here))
}

fn step<'a>(schema: &'a Value, name: &str) -> Result<&'a Value, PathError> {
    if let Some(properties) = schema["properties"].as_object() {
        return properties.get(name).ok_or(PathError::NoField);
    }
    match &schema["additionalProperties"] {
        found @ Value::Object(_) => Ok(found),
        _ => Err(PathError::NoField),
    }
}

/// Splits a path into delimiters and the texts between them. Delimiters in quotes count as text.
fn tokens(path: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut text = String::new();
    let mut quoted = false;
    for letter in path.chars() {
        if letter == '\'' {
            quoted = !quoted;
        }
        if !quoted && matches!(letter, '.' | '[' | ']') {
            tokens.extend((!text.is_empty()).then(|| std::mem::take(&mut text)));
            tokens.push(letter.to_string());
        } else {
            text.push(letter);
        }
    }
    tokens.extend((!text.is_empty()).then_some(text));
    tokens
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::field(".spec.color", Ok("string"))]
    #[case::map(".labels['a.b']", Ok("integer"))]
    #[case::unknown(".spec.nothing", Err("does not refer to a valid field"))]
    #[case::scalar(".spec.color.more", Err("does not refer to a valid field"))]
    #[case::no_dot("spec", Err("expected [ or . but got: spec"))]
    #[case::end(".spec.", Err("unexpected end of JSON path"))]
    #[case::unquoted(".labels[a]", Err("expected single quoted string but got a"))]
    #[case::unclosed(".labels['a'", Err("unexpected end of JSON path"))]
    fn paths_follow_the_schema(#[case] path: &str, #[case] expected: Result<&str, &str>) {
        let schema = json!({"properties": {
            "spec": {"properties": {"color": {"type": "string"}}},
            "labels": {"additionalProperties": {"type": "integer"}}}});
        let found = find(path, &schema, true)
            .map(|(_, schema)| schema["type"].as_str().unwrap_or_default().to_owned())
            .map_err(|error| error.to_string());
        assert_eq!(found.as_deref().map_err(String::as_str), expected);
    }
}
