//! Values in refusals, in the form in which Go prints the server's own types: every field, under its name in Go.

use serde_json::Value;

use crate::values::fields::members;

/// How a field is written.
#[derive(Clone, Copy)]
enum Form {
    /// Unchanged; `null` when missing.
    Plain,
    /// A text; empty when missing.
    Text,
    /// A boolean; `false` when missing.
    Flag,
    /// A number; `0` when missing.
    Number,
    /// A schema.
    Schema,
    /// A list of schemas.
    Schemas,
    /// Schemas by name.
    Map,
    /// A schema or a list of them.
    Items,
    /// A schema or a boolean.
    OrBool,
    /// Rules.
    Rules,
}

/// Fields of a schema: name in Go, name in JSON, and how they are written.
const SCHEMA: &[(&str, &str, Form)] = &[
    ("ID", "id", Form::Text),
    ("Schema", "$schema", Form::Text),
    ("Ref", "$ref", Form::Plain),
    ("Description", "description", Form::Text),
    ("Type", "type", Form::Text),
    ("Nullable", "nullable", Form::Flag),
    ("Format", "format", Form::Text),
    ("Title", "title", Form::Text),
    ("Default", "default", Form::Plain),
    ("Maximum", "maximum", Form::Plain),
    ("ExclusiveMaximum", "exclusiveMaximum", Form::Flag),
    ("Minimum", "minimum", Form::Plain),
    ("ExclusiveMinimum", "exclusiveMinimum", Form::Flag),
    ("MaxLength", "maxLength", Form::Plain),
    ("MinLength", "minLength", Form::Plain),
    ("Pattern", "pattern", Form::Text),
    ("MaxItems", "maxItems", Form::Plain),
    ("MinItems", "minItems", Form::Plain),
    ("UniqueItems", "uniqueItems", Form::Flag),
    ("MultipleOf", "multipleOf", Form::Plain),
    ("Enum", "enum", Form::Plain),
    ("MaxProperties", "maxProperties", Form::Plain),
    ("MinProperties", "minProperties", Form::Plain),
    ("Required", "required", Form::Plain),
    ("Items", "items", Form::Items),
    ("AllOf", "allOf", Form::Schemas),
    ("OneOf", "oneOf", Form::Schemas),
    ("AnyOf", "anyOf", Form::Schemas),
    ("Not", "not", Form::Schema),
    ("Properties", "properties", Form::Map),
    ("AdditionalProperties", "additionalProperties", Form::OrBool),
    ("PatternProperties", "patternProperties", Form::Map),
    ("Dependencies", "dependencies", Form::Plain),
    ("AdditionalItems", "additionalItems", Form::OrBool),
    ("Definitions", "definitions", Form::Map),
    ("ExternalDocs", "externalDocs", Form::Plain),
    ("Example", "example", Form::Plain),
    (
        "XPreserveUnknownFields",
        "x-kubernetes-preserve-unknown-fields",
        Form::Plain,
    ),
    (
        "XEmbeddedResource",
        "x-kubernetes-embedded-resource",
        Form::Flag,
    ),
    ("XIntOrString", "x-kubernetes-int-or-string", Form::Flag),
    ("XListMapKeys", "x-kubernetes-list-map-keys", Form::Plain),
    ("XListType", "x-kubernetes-list-type", Form::Plain),
    ("XMapType", "x-kubernetes-map-type", Form::Plain),
    ("XValidations", "x-kubernetes-validations", Form::Rules),
];

const RULE: &[(&str, &str, Form)] = &[
    ("Rule", "rule", Form::Text),
    ("Message", "message", Form::Text),
    ("MessageExpression", "messageExpression", Form::Text),
    ("Reason", "reason", Form::Plain),
    ("FieldPath", "fieldPath", Form::Text),
    ("OptionalOldSelf", "optionalOldSelf", Form::Plain),
];

const COLUMN: &[(&str, &str, Form)] = &[
    ("Name", "name", Form::Text),
    ("Type", "type", Form::Text),
    ("Format", "format", Form::Text),
    ("Description", "description", Form::Text),
    ("Priority", "priority", Form::Number),
    ("JSONPath", "jsonPath", Form::Text),
];

const SCALE: &[(&str, &str, Form)] = &[
    ("SpecReplicasPath", "specReplicasPath", Form::Text),
    ("StatusReplicasPath", "statusReplicasPath", Form::Text),
    ("LabelSelectorPath", "labelSelectorPath", Form::Plain),
];

const SELECTABLE: &[(&str, &str, Form)] = &[("JSONPath", "jsonPath", Form::Text)];

/// Returns the Go names of the fields that a schema sets, in the order of the Go type.
pub(super) fn fields(schema: &Value) -> impl Iterator<Item = &'static str> {
    SCHEMA
        .iter()
        .filter(|(_, name, _)| !is_zero(&schema[name]))
        .map(|(field, ..)| *field)
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

/// Returns a schema as Go prints it.
pub(super) fn schema(schema: &Value) -> String {
    fields_of(schema, SCHEMA)
}

/// Returns a rule of a schema as Go prints it.
pub(super) fn rule(rule: &Value) -> String {
    fields_of(rule, RULE)
}

/// Returns the versions of a definition as Go prints them.
pub(super) fn versions(spec: &super::hub::Spec<'_>) -> String {
    let texts = spec.versions.iter().map(|version| {
        let own = version.own;
        let raw = version.raw;
        let schema = match own.schema {
            Value::Null => "null".to_owned(),
            _ => format!("{{\"OpenAPIV3Schema\":{}}}", one(own.open_api(), Form::Schema)),
        };
        let subresources = match own.subresources {
            Value::Null => "null".to_owned(),
            given => {
                let status = if given["status"].is_object() { "{}" } else { "null" };
                let scale = match &given["scale"] {
                    Value::Null => "null".to_owned(),
                    scale => fields_of(scale, SCALE),
                };
                format!("{{\"Status\":{status},\"Scale\":{scale}}}")
            }
        };
        format!(
            "{{\"Name\":{},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":{},\"Schema\":{schema},\"Subresources\":{subresources},\"AdditionalPrinterColumns\":{},\"SelectableFields\":{}}}",
            json(&Value::from(version.name())),
            version.is("served"),
            version.is("storage"),
            version.is("deprecated"),
            json(&raw["deprecationWarning"]),
            each(own.columns, |column| fields_of(column, COLUMN)),
            each(own.selectable, |field| fields_of(field, SELECTABLE)),
        )
    });
    format!("[{}]", texts.collect::<Vec<_>>().join(","))
}

fn fields_of(value: &Value, fields: &[(&str, &str, Form)]) -> String {
    let texts: Vec<String> = fields
        .iter()
        .map(|(go, name, form)| format!("\"{go}\":{}", one(&value[name], *form)))
        .collect();
    format!("{{{}}}", texts.join(","))
}

fn each(list: &Value, text: impl Fn(&Value) -> String) -> String {
    match list.as_array() {
        None => "null".to_owned(),
        Some(list) => format!("[{}]", list.iter().map(text).collect::<Vec<_>>().join(",")),
    }
}

fn one(value: &Value, form: Form) -> String {
    if value.is_null() {
        return match form {
            Form::Text => "\"\"",
            Form::Flag => "false",
            Form::Number => "0",
            _ => "null",
        }
        .to_owned();
    }
    match form {
        Form::Plain | Form::Text | Form::Flag | Form::Number => json(value),
        Form::Schema => schema(value),
        Form::Schemas => each(value, schema),
        Form::Rules => each(value, rule),
        Form::Map => {
            let fields = members(value);
            let texts: Vec<String> = fields
                .map(|(name, inner)| {
                    format!("{}:{}", json(&Value::from(name.as_str())), schema(inner))
                })
                .collect();
            format!("{{{}}}", texts.join(","))
        }
        Form::Items if value.is_array() => {
            format!(
                "{{\"Schema\":null,\"JSONSchemas\":{}}}",
                each(value, schema)
            )
        }
        Form::Items => format!("{{\"Schema\":{},\"JSONSchemas\":null}}", schema(value)),
        Form::OrBool => match value {
            Value::Bool(allows) => format!("{{\"Allows\":{allows},\"Schema\":null}}"),
            _ => format!("{{\"Allows\":true,\"Schema\":{}}}", schema(value)),
        },
    }
}

/// Returns JSON as Go's encoder writes it: whole numbers without a fraction, and `<`, `>` and `&` escaped for HTML.
pub(super) fn json(value: &Value) -> String {
    match value {
        Value::Number(number) if number.is_f64() => {
            let number = number.as_f64().unwrap_or_default();
            format!("{number}")
        }
        Value::Array(list) => {
            format!("[{}]", list.iter().map(json).collect::<Vec<_>>().join(","))
        }
        Value::Object(fields) => {
            let texts: Vec<String> = fields
                .iter()
                .map(|(name, inner)| {
                    format!("{}:{}", json(&Value::from(name.as_str())), json(inner))
                })
                .collect();
            format!("{{{}}}", texts.join(","))
        }
        other => other
            .to_string()
            .replace('<', "\\u003c")
            .replace('>', "\\u003e")
            .replace('&', "\\u0026"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rules_have_all_their_fields() {
        assert_eq!(
            rule(&json!({"rule": "self < 3", "reason": "FieldValueInvalid"})),
            r#"{"Rule":"self \u003c 3","Message":"","MessageExpression":"","Reason":"FieldValueInvalid","FieldPath":"","OptionalOldSelf":null}"#
        );
    }

    #[test]
    fn schemas_are_written_to_the_depth() {
        let text = schema(
            &json!({"type": "object", "maximum": 2.0, "properties": {"a": {"type": "string"}},
            "additionalProperties": false, "items": {"type": "integer"}}),
        );
        assert!(
            text.starts_with(r#"{"ID":"","Schema":"","Ref":null,"Description":"","Type":"object""#)
        );
        assert!(text.contains(r#""Maximum":2,"#));
        assert!(text.contains(r#""Properties":{"a":{"ID":"""#));
        assert!(text.contains(r#""AdditionalProperties":{"Allows":false,"Schema":null}"#));
        assert!(text.contains(r#""Items":{"Schema":{"ID":"""#));
    }

    #[test]
    fn the_given_fields_of_a_schema_are_named_as_in_go() {
        let given = json!({"x-kubernetes-validations": [], "type": "object", "nullable": false});
        assert_eq!(fields(&given).collect::<Vec<_>>(), ["Type", "XValidations"]);
    }
}
