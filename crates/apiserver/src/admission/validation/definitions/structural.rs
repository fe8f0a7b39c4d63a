//! Schemas must be structural: each value gets its type outside of `allOf`, `anyOf`, `oneOf` and `not`, and those only restrict it. Fields
//! that only these restrictions name are accepted, because a real server accepts them, too.

use serde_json::{Value, json};

use super::parts::{numbered, schemas, text};
use crate::failure::Cause;
use crate::registry::definition::texts;

/// The position of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Keywords that no structural schema may have.
const UNSUPPORTED: [&str; 6] = [
    "id",
    "additionalItems",
    "patternProperties",
    "definitions",
    "dependencies",
    "$ref",
];

/// Returns whether a schema has the form of a structural one at all. A schema without it is refused for the keywords that it uses.
pub(super) fn has_structural_form(schema: &Value) -> bool {
    let holds = |word: &str| !schema[word].is_null();
    if UNSUPPORTED.iter().any(|word| holds(word))
        || schema["items"].is_array()
        || schema["type"] == "null"
    {
        return false;
    }
    let lists = ["allOf", "anyOf", "oneOf"].into_iter();
    let one = ["items", "not", "additionalProperties"].into_iter();
    lists
        .flat_map(|list| numbered(&schema[list]))
        .all(|(_, inner)| has_structural_form(inner))
        && one
            .map(|word| &schema[word])
            .filter(|inner| inner.is_object())
            .all(has_structural_form)
        && schemas(&schema["properties"]).all(|(_, inner)| has_structural_form(inner))
}

/// Returns what keeps a schema from being structural, sorted by text.
pub(super) fn check(schema: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    invariants(schema, Level::Root, path, &mut causes);
    causes.sort_by_cached_key(Cause::text);
    causes
}

fn is(schema: &Value, word: &str) -> bool {
    schema[word] == true
}

fn invariants(schema: &Value, level: Level, path: &str, causes: &mut Vec<Cause>) {
    let kind = text(&schema["type"]);
    let items = &schema["items"];
    if kind == "array" && items.is_null() {
        causes.push(Cause::required(
            format!("{path}.items"),
            "must be specified",
        ));
    }
    if items.is_object() {
        invariants(items, Level::Item, &format!("{path}.items"), causes);
    }
    for (name, inner) in schemas(&schema["properties"]) {
        invariants(
            inner,
            Level::Field,
            &format!("{path}.properties[{name}]"),
            causes,
        );
    }
    additional(schema, level, path, causes);
    extensions(schema, path, causes);
    let exempt = Exempt::of(schema);
    restrictions(schema, exempt, path, causes);
    check_type(schema, level, path, causes);
    let embedded = is(schema, "x-kubernetes-embedded-resource");
    if embedded && !schema["additionalProperties"].is_null() {
        let why = "must not be used if x-kubernetes-embedded-resource is set";
        causes.push(Cause::forbidden(
            format!("{path}.additionalProperties"),
            why,
        ));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        let cause = Cause::invalid(
            format!("{path}.type"),
            &json!(kind),
            "must be object at the root",
        );
        causes.push(cause);
    }
    if level == Level::Root || embedded {
        for (field, wanted) in [
            ("kind", "string"),
            ("apiVersion", "string"),
            ("metadata", "object"),
        ] {
            let Some(inner) = schema["properties"].get(field) else {
                continue;
            };
            let found = text(&inner["type"]);
            if found != wanted {
                let path = format!("{path}.properties[{field}].type");
                causes.push(Cause::invalid(
                    path,
                    &json!(found),
                    &format!("must be {wanted}"),
                ));
            }
        }
    }
    if level == Level::Root
        && let Some(metadata) = schema["properties"].get("metadata")
        && !is_plain_metadata(metadata)
    {
        let why = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        causes.push(Cause::forbidden(
            format!("{path}.properties[metadata]"),
            why,
        ));
    }
    if embedded
        && !is(schema, "x-kubernetes-preserve-unknown-fields")
        && schemas(&schema["properties"]).next().is_none()
    {
        let why = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        causes.push(Cause::required(format!("{path}.properties"), why));
    }
}

fn additional(schema: &Value, level: Level, path: &str, causes: &mut Vec<Cause>) {
    let additional = &schema["additionalProperties"];
    let path = format!("{path}.additionalProperties");
    if !additional.is_null() && level == Level::Root {
        causes.push(Cause::forbidden(
            path.clone(),
            "must not be used at the root",
        ));
    }
    if additional.is_object() {
        invariants(additional, Level::Field, &path, causes);
    }
}

fn extensions(schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    if !is(schema, "x-kubernetes-int-or-string") {
        return;
    }
    for word in [
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
    ] {
        if is(schema, word) {
            let why = "must be false if x-kubernetes-int-or-string is true";
            causes.push(Cause::invalid(format!("{path}.{word}"), &json!(true), why));
        }
    }
}

fn check_type(schema: &Value, level: Level, path: &str, causes: &mut Vec<Cause>) {
    let kind = text(&schema["type"]);
    let path = format!("{path}.type");
    if is(schema, "x-kubernetes-embedded-resource") && kind != "object" {
        let why = "must be object if x-kubernetes-embedded-resource is true";
        causes.push(if kind.is_empty() {
            Cause::required(path, why)
        } else {
            Cause::invalid(path, &json!(kind), why)
        });
    } else if kind.is_empty()
        && !is(schema, "x-kubernetes-int-or-string")
        && !is(schema, "x-kubernetes-preserve-unknown-fields")
    {
        let why = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        causes.push(Cause::required(path, why));
    }
}

/// Returns whether the metadata schema at the root restricts nothing but names.
fn is_plain_metadata(metadata: &Value) -> bool {
    let only_names =
        schemas(&metadata["properties"]).all(|(name, _)| name == "name" || name == "generateName");
    let known = ["type", "properties", "default"];
    only_names && schemas(metadata).all(|(word, _)| known.contains(&word.as_str()))
}

/// The one exception: the schema of a value that may be a number or a text may contain types in an `anyOf`.
#[derive(Clone, Copy, Debug)]
struct Exempt {
    any_of: bool,
    first_all_of: bool,
}

impl Exempt {
    const NONE: Self = Self {
        any_of: false,
        first_all_of: false,
    };

    fn of(schema: &Value) -> Self {
        let number_or_text = json!([{"type": "integer"}, {"type": "string"}]);
        Self {
            any_of: schema["anyOf"] == number_or_text,
            first_all_of: schema["allOf"][0]["anyOf"] == number_or_text,
        }
    }
}

fn restrictions(schema: &Value, exempt: Exempt, path: &str, causes: &mut Vec<Cause>) {
    if !exempt.any_of {
        for (index, inner) in numbered(&schema["anyOf"]) {
            nested(inner, false, &format!("{path}.anyOf[{index}]"), causes);
        }
    }
    for (index, inner) in numbered(&schema["allOf"]) {
        let skip = exempt.first_all_of && index == 0;
        nested(inner, skip, &format!("{path}.allOf[{index}]"), causes);
    }
    for (index, inner) in numbered(&schema["oneOf"]) {
        nested(inner, false, &format!("{path}.oneOf[{index}]"), causes);
    }
    if schema["not"].is_object() {
        nested(&schema["not"], false, &format!("{path}.not"), causes);
    }
    let pattern = text(&schema["pattern"]);
    if let Err(error) = regex::Regex::new(pattern) {
        let why = format!(
            "must be a valid regular expression, but isn't: error parsing regexp: {}",
            go_regex_error(pattern, &error)
        );
        causes.push(Cause::invalid(
            format!("{path}.pattern"),
            &json!(pattern),
            &why,
        ));
    }
}

/// Returns what is wrong with a pattern, in Go's words as far as they are known, otherwise in those of the `regex` crate.
fn go_regex_error(pattern: &str, error: &regex::Error) -> String {
    let text = error.to_string();
    let from = |open: char| {
        pattern
            .rfind(open)
            .map_or(pattern, |start| &pattern[start..])
    };
    if text.contains("unclosed character class") {
        format!("missing closing ]: `{}`", from('['))
    } else if text.contains("unclosed group") {
        format!("missing closing ): `{pattern}`")
    } else if text.contains("unopened group") {
        format!("unexpected ): `{pattern}`")
    } else if text.contains("repetition operator missing expression") {
        let operator = pattern
            .find(['*', '+', '?'])
            .map_or("", |at| &pattern[at..=at]);
        format!("missing argument to repetition operator: `{operator}`")
    } else if text.contains("look-around") {
        // Go parses a look-behind as a capture name that does not end
        ["(?=", "(?!"]
            .into_iter()
            .find(|group| pattern.contains(group))
            .map_or_else(
                || {
                    format!(
                        "invalid named capture: `{}`",
                        pattern.find("(?<").map_or(pattern, |at| &pattern[at..])
                    )
                },
                |group| format!("invalid or unsupported Perl syntax: `{group}`"),
            )
    } else if text.contains("incomplete escape sequence") {
        "trailing backslash at end of expression: ``".to_owned()
    } else {
        text
    }
}

/// Returns why a keyword may not be in a restriction; `None` when its value counts as absent.
fn forbidden_keyword(schema: &Value, word: &str) -> Option<&'static str> {
    const EMPTY: &str = "must be empty to be structural";
    const UNDEFINED: &str = "must be undefined to be structural";
    const FALSE: &str = "must be false to be structural";
    let value = &schema[word];
    let given = match value {
        Value::Null => false,
        Value::Bool(flag) => *flag || word == "additionalProperties" || word == "default",
        Value::String(text) => !text.is_empty() || word == "default",
        Value::Array(list) => !list.is_empty() || word == "default",
        _ => true,
    };
    given.then_some(match word {
        "additionalProperties" | "default" | "x-kubernetes-list-type" | "x-kubernetes-map-type" => {
            UNDEFINED
        }
        "nullable" => FALSE,
        word if word.ends_with("-fields")
            || word.ends_with("-resource")
            || word.ends_with("-string") =>
        {
            FALSE
        }
        _ => EMPTY,
    })
}

fn nested(schema: &Value, skip_any_of: bool, path: &str, causes: &mut Vec<Cause>) {
    let exempt = Exempt {
        any_of: skip_any_of,
        ..Exempt::NONE
    };
    restrictions(schema, exempt, path, causes);
    if schema["items"].is_object() {
        nested(&schema["items"], false, &format!("{path}.items"), causes);
    }
    for (name, inner) in schemas(&schema["properties"]) {
        nested(inner, false, &format!("{path}.properties[{name}]"), causes);
    }
    for word in [
        "type",
        "additionalProperties",
        "default",
        "title",
        "description",
        "nullable",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
        "x-kubernetes-validations",
    ] {
        if let Some(why) = forbidden_keyword(schema, word) {
            causes.push(Cause::forbidden(format!("{path}.{word}"), why));
        }
    }
    if schema["properties"].get("metadata").is_some() {
        let why = "must not be specified in a nested context";
        causes.push(Cause::forbidden(
            format!("{path}.properties[metadata]"),
            why,
        ));
    }
}

/// Returns the keys of a keyed list.
pub(super) fn list_keys(schema: &Value) -> impl Iterator<Item = &str> {
    texts(&schema["x-kubernetes-list-map-keys"])
}
