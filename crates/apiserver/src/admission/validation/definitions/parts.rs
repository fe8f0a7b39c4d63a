//! Parts of a definition: schemas, lists, texts, and words of a fixed set.

use serde_json::{Value, json};

use crate::failure::Cause;
use crate::values::fields::{elements, members};

/// Returns the entries of an object of schemas; none of anything else.
pub(super) fn schemas(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    members(value)
}

/// Returns the items of a list with their indexes.
pub(super) fn numbered(value: &Value) -> impl Iterator<Item = (usize, &Value)> {
    elements(value).enumerate()
}

/// Returns a text; empty for anything else.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Refuses a text that is not one of the known words.
pub(super) fn check_supported(given: &str, known: &[&str], path: &str, causes: &mut Vec<Cause>) {
    if given.is_empty() {
        causes.push(Cause::required(path, ""));
    } else if !known.contains(&given) {
        let known: Vec<String> = known.iter().map(|&word| word.to_owned()).collect();
        causes.push(Cause::unsupported(path, &json!(given), &known));
    }
}
