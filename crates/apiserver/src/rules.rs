//! Rules of custom resources in CEL: `x-kubernetes-validations`.

use kube_cel::{CompiledSchema, ErrorKind, ValidationError, Validator};
use serde_json::Value;

use super::failure::Cause;
use super::values::{NOWHERE, at};

thread_local! {
    /// The functions that rules may use; made once for each thread, as they cannot be shared.
    static VALIDATOR: Validator = Validator::new();
}

/// Whether there is any rule.
pub(crate) fn has_any(schema: &CompiledSchema) -> bool {
    !schema.validations.is_empty()
        || schema.properties.values().any(has_any)
        || schema.items.as_deref().is_some_and(has_any)
        || schema.additional_properties.as_deref().is_some_and(has_any)
        || [&schema.all_of, &schema.any_of, &schema.one_of]
            .into_iter()
            .any(|branches| branches.iter().any(has_any))
}

/// The rules that an object breaks; rules about changes ask what it was `before`.
pub(crate) fn judge(schema: &CompiledSchema, before: Option<&Value>, object: &Value) -> Vec<Cause> {
    let judged = VALIDATOR.with(|validator| validator.validate_compiled(schema, object, before));
    let broken = judged.err().into_iter().flatten();
    broken.map(|error| cause(&error, object)).collect()
}

fn cause(error: &ValidationError, object: &Value) -> Cause {
    let value = at(object, &error.field_path);
    let field = match error.field_path.as_str() {
        "" => NOWHERE.to_owned(),
        path => path.to_owned(),
    };
    if error.kind != ErrorKind::ValidationFailure {
        let why = std::error::Error::source(error)
            .map_or_else(|| error.message.clone(), ToString::to_string);
        let mut letters = why.chars();
        let first = letters.next().map(char::to_lowercase);
        let why: String = first.into_iter().flatten().chain(letters).collect();
        let text = format!("{why} evaluating rule: {}", error.rule);
        return Cause::invalid(field, &Value::from(kind_of(value)), &text);
    }
    let message = error.message.clone();
    match error.reason.as_deref() {
        Some("FieldValueForbidden") => Cause::forbidden(field, &message),
        Some("FieldValueRequired") => Cause::required(field, &message),
        Some("FieldValueDuplicate") => Cause::duplicate(field, value.unwrap_or(&Value::Null)),
        // an object or a list is not repeated in the message
        _ => match value {
            Some(value) if !value.is_object() && !value.is_array() => {
                Cause::invalid(field, value, &message)
            }
            _ => Cause {
                reason: "FieldValueInvalid",
                message: format!("Invalid value: {message}"),
                field,
            },
        },
    }
}

fn kind_of(value: Option<&Value>) -> &'static str {
    match value {
        Some(Value::Array(_)) => "array",
        Some(Value::String(_)) => "string",
        Some(Value::Bool(_)) => "boolean",
        Some(Value::Number(_)) => "integer",
        _ => "object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn broken(before: Option<&Value>, object: &Value) -> Vec<String> {
        let schema = kube_cel::compile_schema(&json!({"type": "object", "properties": {"spec": {
            "type": "object",
            "x-kubernetes-validations": [
                {"rule": "self.a <= self.b", "message": "a must not exceed b"},
                {"rule": "!has(self.c) || self.c == 'x'", "messageExpression": "'c is ' + self.c",
                    "reason": "FieldValueForbidden", "fieldPath": ".c"},
                {"rule": "self.a >= oldSelf.a"}],
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}, "c": {"type": "string"},
                "j": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "immutable"}]}},
        }}}));
        assert!(has_any(&schema));
        judge(&schema, before, object)
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
        assert!(broken(Some(&before), &before).is_empty());
        assert!(broken(None, &before).is_empty());
    }
}
