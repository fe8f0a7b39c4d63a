//! Values as Go prints them in its messages, and writes them in JSON.

use serde_json::{Map, Value};

/// Returns a map as Go prints it: `map[a:1 b:2]`.
pub(crate) fn go_map(map: &Map<String, Value>) -> String {
    let mut fields: Vec<(&String, &Value)> = map.iter().collect();
    fields.sort_by_key(|(name, _)| *name);
    let fields: Vec<String> = fields
        .into_iter()
        .map(|(name, value)| format!("{name}:{}", go_text(value)))
        .collect();
    format!("map[{}]", fields.join(" "))
}

/// Returns a value as Go prints it.
pub(crate) fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(list) => {
            let list: Vec<String> = list.iter().map(go_text).collect();
            format!("[{}]", list.join(" "))
        }
        Value::Object(map) => go_map(map),
        other => other.to_string(),
    }
}

/// Returns a text in quotation marks, as Go prints it with `%q`.
pub(crate) fn go_quoted(text: &str) -> String {
    let inside: String = text.chars().map(go_escaped).collect();
    format!("\"{inside}\"")
}

fn go_escaped(character: char) -> String {
    let letter = match character {
        '\'' => return character.to_string(),
        '\u{7}' => 'a',
        '\u{8}' => 'b',
        '\u{b}' => 'v',
        '\u{c}' => 'f',
        '\0' => return "\\x00".to_owned(),
        _ => {
            let escaped = character.escape_debug();
            return match u32::from(character) {
                // itself, or behind a backslash
                _ if escaped.len() < 3 => escaped.to_string(),
                code @ ..0x80 => format!("\\x{code:02x}"),
                code @ ..0x1_0000 => format!("\\u{code:04x}"),
                code => format!("\\U{code:08x}"),
            };
        }
    };
    format!("\\{letter}")
}

/// Makes whole numbers integers that were written with a fraction or an exponent, as Go's encoder writes them: `1.0` and `1e0` become `1`.
pub(crate) fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let exact = number.as_f64().unwrap_or_default();
            // beyond that not every whole number is one of its own
            if exact.fract() == 0.0 && exact.abs() < 2_f64.powi(53) {
                *value = Value::from(exact as i64);
            }
        }
        Value::Array(list) => list.iter_mut().for_each(whole_numbers),
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

/// Go's name for the type of an object's first fields.
const TYPE_META: &str = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
/// Returns the type of a value, as Go's decoder names it.
pub(crate) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Returns the decoder's message about a value that is no object.
pub(crate) fn not_an_object(value: &Value) -> String {
    format!(
        "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type {TYPE_META}",
        go_type(value)
    )
}

/// Returns the decoder's message about an unknown kind.
pub(crate) fn not_registered(api_version: &str, kind: &str) -> String {
    format!(
        "no kind {kind:?} is registered for version {api_version:?} in scheme \"pkg/runtime/scheme.go:111\""
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_are_quoted_as_in_go() {
        assert_eq!(go_quoted("a'b\"c\\d"), r#""a'b\"c\\d""#);
        assert_eq!(go_quoted("\0\u{1b}\t\n\u{7f}"), r#""\x00\x1b\t\n\x7f""#);
        assert_eq!(go_quoted("ä☃\u{200b}\u{e0001}"), "\"ä☃\\u200b\\U000e0001\"");
    }

    #[test]
    fn whole_numbers_have_no_fraction() {
        let mut value = json!({"a": [1.0, 1.5, -2e3], "b": 1e21, "c": 3});
        whole_numbers(&mut value);
        assert_eq!(value.to_string(), r#"{"a":[1,1.5,-2000],"b":1e+21,"c":3}"#);
    }
}
