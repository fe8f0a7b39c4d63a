//! Validation rules of custom resources in CEL: `x-kubernetes-validations`.
//!
//! The rules of each part of a schema are compiled separately, so that the old value of a part is found as in a real server: items of keyed
//! lists by their keys.

use std::collections::BTreeMap;

use kube_cel::{CompiledSchema, ErrorKind, ValidationError, Validator};
use serde_json::{Value, json};

use super::room;
use super::source::with_optional_old_self;
use crate::failure::{Cause, NO_PATH};
use crate::values::fields::{elements, members};

/// The keyword of rules in schemas.
const RULES: &str = "x-kubernetes-validations";
/// The variable with the old value in rules.
const OLD_SELF: &str = "oldSelf";

thread_local! {
    /// The validator with the functions that rules may use. Each thread has its own, because it cannot be shared.
    static VALIDATOR: Validator = Validator::new();
}

/// The rules of a schema and of its parts.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    /// Rules about the value itself, with their original texts.
    own: Option<(CompiledSchema, Vec<Value>)>,
    properties: BTreeMap<String, Rules>,
    items: Option<Box<Rules>>,
    additional: Option<Box<Rules>>,
    /// Keys that identify the items of a list.
    keys: Vec<String>,
    /// Whether all rules fit on the stack of every thread.
    are_small: bool,
}

impl Rules {
    /// Compiles the rules of a schema. A definition with rules that do not compile is refused before.
    pub(crate) fn compile(schema: &Value) -> Self {
        let are_small = are_small(schema);
        let compiled = room::work_on(are_small, || Self::compiled(schema));
        Self {
            are_small,
            ..compiled
        }
    }

    fn compiled(schema: &Value) -> Self {
        let inner = |schema: &Value| {
            Some(Box::new(Self::compiled(schema))).filter(|rules| !rules.is_empty())
        };
        let properties = members(&schema["properties"]);
        let keys = elements(&schema["x-kubernetes-list-map-keys"]);
        Self {
            own: compile_own(schema),
            properties: properties
                .map(|(name, schema)| (name.clone(), Self::compiled(schema)))
                .filter(|(_, rules)| !rules.is_empty())
                .collect(),
            items: schema.get("items").and_then(inner),
            additional: schema.get("additionalProperties").and_then(inner),
            keys: keys.filter_map(Value::as_str).map(str::to_owned).collect(),
            are_small: true,
        }
    }

    /// Returns whether there is no rule.
    pub(crate) fn is_empty(&self) -> bool {
        self.own.is_none()
            && self.properties.is_empty()
            && self.items.is_none()
            && self.additional.is_none()
    }

    /// Returns the violated rules of an object; transition rules use the old value `before`.
    pub(crate) fn validate(&self, before: Option<&Value>, object: &Value) -> Vec<Cause> {
        room::work_on(self.are_small, || {
            let mut causes = Vec::new();
            self.walk(before, object, "", &mut causes);
            causes
        })
    }

    fn walk(&self, before: Option<&Value>, value: &Value, path: &str, causes: &mut Vec<Cause>) {
        if let Some((schema, written)) = &self.own {
            let result = room::evaluate(|| {
                VALIDATOR.with(|validator| validator.validate_compiled(schema, value, before))
            });
            // an unchanged value is checked by transition rules only
            let is_unchanged = before == Some(value);
            match result {
                Some(result) => {
                    let broken = result.err().into_iter().flatten();
                    causes.extend(
                        broken
                            .filter(|error| !is_unchanged || error.rule.contains(OLD_SELF))
                            .map(|error| cause(&error, written, path, value)),
                    );
                }
                None if is_unchanged => {}
                None => causes.push(not_evaluated(written, path, value)),
            }
        }
        match value {
            Value::Object(fields) => {
                for (name, inner) in fields {
                    let before = before.and_then(|before| before.get(name));
                    if let Some(rules) = self.properties.get(name) {
                        let path = if path.is_empty() {
                            name.clone()
                        } else {
                            format!("{path}.{name}")
                        };
                        rules.walk(before, inner, &path, causes);
                    } else if let Some(rules) = &self.additional {
                        rules.walk(before, inner, &format!("{path}[{name}]"), causes);
                    }
                }
            }
            Value::Array(list) => {
                let Some(rules) = &self.items else {
                    return;
                };
                for (index, item) in list.iter().enumerate() {
                    let before = self.same_item(before, item);
                    rules.walk(before, item, &format!("{path}[{index}]"), causes);
                }
            }
            _ => {}
        }
    }

    /// Returns the old value of a list item; only keys identify it.
    fn same_item<'v>(&self, before: Option<&'v Value>, item: &Value) -> Option<&'v Value> {
        if self.keys.is_empty() {
            return None;
        }
        let mut known = before?.as_array()?.iter();
        known.find(|known| self.keys.iter().all(|key| known.get(key) == item.get(key)))
    }
}

/// Returns whether all expressions of a schema and of its parts are small.
fn are_small(schema: &Value) -> bool {
    match schema {
        Value::Object(words) => words.iter().all(|(word, inner)| match inner {
            Value::String(text) if word == "rule" || word == "messageExpression" => {
                room::is_small(text)
            }
            inner => are_small(inner),
        }),
        Value::Array(list) => list.iter().all(are_small),
        _ => true,
    }
}

/// Compiles the rules of a schema, without those of its parts.
fn compile_own(schema: &Value) -> Option<(CompiledSchema, Vec<Value>)> {
    let written = schema[RULES].as_array().filter(|rules| !rules.is_empty())?;
    let mut alone = without_rules(schema);
    alone[RULES] = written.iter().map(runnable).collect();
    Some((kube_cel::compile_schema(&alone), written.clone()))
}

/// Returns a rule that the interpreter can run: an old value that may be missing is made optional.
fn runnable(rule: &Value) -> Value {
    let mut rule = rule.clone();
    if rule["optionalOldSelf"] == true {
        for field in ["rule", "messageExpression"] {
            if let Some(text) = rule[field].as_str() {
                rule[field] = json!(with_optional_old_self(text));
            }
        }
    }
    rule
}

fn without_rules(schema: &Value) -> Value {
    match schema {
        Value::Object(words) => {
            let words = words.iter().filter(|(word, _)| *word != RULES);
            words
                .map(|(word, inner)| (word.clone(), without_rules(inner)))
                .collect()
        }
        Value::Array(list) => list.iter().map(without_rules).collect(),
        other => other.clone(),
    }
}

/// Returns the field of a cause.
fn field_of(path: &str) -> String {
    if path.is_empty() {
        return NO_PATH.to_owned();
    }
    path.trim_start_matches('.').to_owned()
}

/// Returns the cause for rules at which the interpreter gave up; which of them it was is not known.
fn not_evaluated(written: &[Value], path: &str, value: &Value) -> Cause {
    let rules: Vec<&str> = written
        .iter()
        .filter_map(|rule| rule["rule"].as_str())
        .collect();
    let text = format!("{} evaluating rule: {}", room::PANICKED, rules.join(" or "));
    Cause::invalid(field_of(path), &Value::from(kind_of(value)), &text)
}

/// Returns the cause for a violated rule; `path` is the path of the value.
fn cause(error: &ValidationError, written: &[Value], path: &str, value: &Value) -> Cause {
    let is_broken = error.kind != ErrorKind::ValidationFailure;
    // only a rule that was evaluated says which field is wrong
    let inner = if is_broken { "" } else { &*error.field_path };
    let field = field_of(&format!("{path}{inner}"));
    let whole = written
        .iter()
        .find(|rule| runnable(rule)["rule"] == error.rule.as_str());
    let written_rule = whole.and_then(|rule| rule["rule"].as_str());
    let written_rule = written_rule.unwrap_or(&error.rule);
    if is_broken {
        let message = whole.and_then(|rule| rule["message"].as_str());
        let rule = message.map(str::trim).filter(|text| !text.is_empty());
        let rule = rule.unwrap_or_else(|| written_rule.trim());
        let why = std::error::Error::source(error)
            .map_or_else(|| error.message.clone(), ToString::to_string);
        let text = format!("{} evaluating rule: {rule}", go_error(&why));
        return Cause::invalid(field, &Value::from(kind_of(value)), &text);
    }
    let message = error.message.replace(&error.rule, written_rule);
    match error.reason.as_deref() {
        Some("FieldValueForbidden") => Cause::forbidden(field, &message),
        Some("FieldValueRequired") => Cause::required(field, &message),
        Some("FieldValueDuplicate") => Cause::duplicate(field, value),
        // the message does not repeat an object or a list
        _ if !value.is_object() && !value.is_array() => Cause::invalid(field, value, &message),
        _ => Cause {
            reason: "FieldValueInvalid",
            message: format!("Invalid value: {message}"),
            field,
        },
    }
}

/// Returns why a rule failed, in the words of Go's interpreter as far as they are known.
pub(crate) fn go_error(why: &str) -> String {
    for (ours, theirs) in [
        ("Division by zero", "division by zero"),
        ("Remainder by zero", "modulus by zero"),
        ("Overflow from", "integer overflow"),
        ("Unsupported binary operator", "no such overload"),
        (
            "Error executing function 'int': string parse error",
            "type conversion error from 'string' to 'int'",
        ),
    ] {
        if why.starts_with(ours) {
            return theirs.to_owned();
        }
    }
    if let Some(index) = why.strip_prefix("Index out of bounds: Int(") {
        return format!("index out of bounds: {}", index.trim_end_matches(')'));
    }
    let mut letters = why.chars();
    let first = letters.next().map(char::to_lowercase);
    first.into_iter().flatten().chain(letters).collect()
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        _ => "object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn broken(before: Option<&Value>, object: &Value) -> Vec<String> {
        let schema = Rules::compile(&json!({"type": "object", "properties": {"spec": {
            "type": "object",
            "x-kubernetes-validations": [
                {"rule": "self.a <= self.b", "message": "a must not exceed b"},
                {"rule": "!has(self.c) || self.c == 'x'", "messageExpression": "'c is ' + self.c",
                    "reason": "FieldValueForbidden", "fieldPath": ".c"},
                {"rule": "self.a >= oldSelf.a"}],
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}, "c": {"type": "string"},
                "j": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "immutable"}]}},
        }}}));
        assert!(!schema.is_empty());
        schema
            .validate(before, object)
            .iter()
            .map(|cause| format!("{}: {}", cause.field, cause.message))
            .collect()
    }

    #[test]
    fn rules_tell_what_is_wrong_as_the_real_server_does() {
        let spec = |spec: Value| json!({"spec": spec});
        assert_eq!(
            broken(None, &spec(json!({"a": 2, "b": 1}))),
            ["spec: Invalid value: a must not exceed b"]
        );
        assert_eq!(
            broken(None, &spec(json!({"a": 2, "b": 2, "c": "ab"}))),
            ["spec.c: Forbidden: c is ab"]
        );
        let before = spec(json!({"a": 4, "b": 9, "j": "x"}));
        assert_eq!(
            broken(Some(&before), &spec(json!({"a": 2, "b": 9, "j": "y"}))),
            [
                "spec: Invalid value: failed rule: self.a >= oldSelf.a",
                "spec.j: Invalid value: \"y\": immutable"
            ]
        );
        assert_eq!(
            broken(None, &spec(json!({"b": 1}))),
            [
                "spec: Invalid value: \"object\": no such key: a evaluating rule: a must not exceed b"
            ]
        );
        assert!(broken(Some(&before), &before).is_empty());
        assert!(broken(None, &before).is_empty());
    }

    #[test]
    fn amounts_that_the_interpreter_cannot_hold_break_the_rule_and_nothing_else() {
        let rules = Rules::compile(&json!({"type": "object", "properties": {"spec": {
            "type": "object",
            "x-kubernetes-validations": [{"rule": "quantity(self.c).isGreaterThan(quantity('1Gi'))"}],
            "properties": {"c": {"type": "string"}},
        }}}));
        for amount in ["1e100", "1e-100"] {
            let causes = rules.validate(None, &json!({"spec": {"c": amount}}));
            let messages: Vec<String> = causes.into_iter().map(|cause| cause.message).collect();
            assert_eq!(
                messages,
                [
                    "Invalid value: \"object\": internal error evaluating rule: quantity(self.c).isGreaterThan(quantity('1Gi'))"
                ]
            );
        }
        let fits = json!({"spec": {"c": "2Gi"}});
        assert!(rules.validate(None, &fits).is_empty());
    }

    mod fuzz {
        use super::*;

        /// What definitions have: comparisons, functions of lists, maps and texts, optional and old values, amounts and addresses.
        const EXPRESSIONS: &[&str] = &[
            "self.a <= self.b && self.list.all(i, i.k.size() < 9)",
            "has(self.c) ? self.c.matches('^[a-z]+$') : true",
            "self.list.map(i, i.v).sum() < 100 && self.list.exists_one(i, i.k == 'x')",
            "self.map.exists(k, k.startsWith('a') && self.map[k] != '')",
            "self.a >= oldSelf.a || oldSelf.list.size() == 0",
            "quantity(self.c).isGreaterThan(quantity('1Gi')) && isQuantity(self.c)",
            "cidr('10.0.0.0/8').containsIP(ip(self.c)) && duration('1h') > duration(self.c)",
            "string(self.a) + self.c.replace('a', 'b').split(',').join('-')",
            "self.list.filter(i, i.v > 1).map(i, [i.k, i.k]).isSorted() || self.list[0].v / self.a == 0",
        ];

        fn are_endless(schema: &Value) -> bool {
            match schema {
                Value::Object(words) => words.values().any(are_endless),
                Value::Array(list) => list.iter().any(are_endless),
                Value::String(text) => room::refusal(text).is_some(),
                _ => false,
            }
        }

        #[test]
        fn no_rule_and_no_value_stops_the_validator() {
            let value = json!({"spec": {"a": 1, "b": 2, "c": "abc", "list": [{"k": "x", "v": 1}, {"k": "y", "v": 2}], "map": {"a": "b"}}});
            ::fuzz::run(file!(), |input| {
                let rule = ::fuzz::mutate::text(input.choose(EXPRESSIONS)?, input)?;
                let message = ::fuzz::mutate::text(input.choose(EXPRESSIONS)?, input)?;
                let item = json!({"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}});
                let mut schema = json!({"type": "object", "properties": {"spec": {
                    "type": "object",
                    "x-kubernetes-validations": [{"rule": rule, "messageExpression": message, "optionalOldSelf": input.arbitrary::<bool>()?}],
                    "properties": {
                        "a": {"type": "integer"}, "b": {"type": "integer"}, "c": {"type": "string"},
                        "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": item},
                        "map": {"type": "object", "additionalProperties": {"type": "string"}},
                    },
                }}});
                ::fuzz::mutate::document(&mut schema, input)?;
                let (mut before, mut now) = (value.clone(), value.clone());
                ::fuzz::mutate::document(&mut before, input)?;
                ::fuzz::mutate::document(&mut now, input)?;
                // definitions with other ones are refused
                if are_endless(&schema) {
                    return Ok(());
                }
                let rules = Rules::compile(&schema);
                drop(rules.validate(None, &now));
                drop(rules.validate(Some(&before), &now));
                Ok(())
            });
        }
    }
}
