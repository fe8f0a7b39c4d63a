//! Validation rules in CEL: their fields, and whether they compile for the values that they check.

use serde_json::{Value, json};

use self::budget::{Budget, Occurrences};
use self::check::Checker;
use self::cost::Declared;
use self::types::Type;
pub(in crate::admission::validation) use self::types::is_reserved;
use super::parts::{numbered, text};
use super::{go, path};
use crate::failure::Cause;

pub(super) mod budget;
mod check;
mod cost;
mod functions;
pub(in crate::admission::validation) mod policies;
mod types;

/// Reasons that a rule may give.
const REASONS: [&str; 4] = [
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
];

fn has_breaks(text: &str) -> bool {
    text.contains(['\n', '\r'])
}

/// Checks the fields of a schema's rules.
pub(super) fn check_fields(schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    for (index, rule) in numbered(&schema["x-kubernetes-validations"]) {
        let path = |field: &str| format!("{path}.x-kubernetes-validations[{index}].{field}");
        let given = |field: &str| text(&rule[field]);
        let (expression, message) = (given("rule").trim(), given("message").trim());
        let given_message = &rule["message"];
        if expression.is_empty() {
            causes.push(Cause::required(path("rule"), "rule is not specified"));
        } else if !given("message").is_empty() && message.is_empty() {
            let why = "must be non-empty if specified";
            causes.push(Cause::invalid(path("message"), given_message, why));
        } else if has_breaks(message) {
            let why = "must not contain line breaks";
            causes.push(Cause::invalid(path("message"), given_message, why));
        } else if has_breaks(expression) && message.is_empty() {
            let why = "message must be specified if rule contains line breaks";
            causes.push(Cause::required(path("message"), why));
        }
        let message = given("messageExpression");
        if !message.is_empty() && message.trim().is_empty() {
            let why = "messageExpression must be non-empty if specified";
            causes.push(Cause::required(path("messageExpression"), why));
        }
        if let Some(reason) = rule["reason"].as_str()
            && !REASONS.contains(&reason)
        {
            let known = REASONS.map(str::to_owned);
            causes.push(Cause::unsupported(path("reason"), &json!(reason), &known));
        }
        field_path(schema, given("fieldPath"), &path("fieldPath"), causes);
    }
}

fn field_path(schema: &Value, given: &str, path: &str, causes: &mut Vec<Cause>) {
    if given.is_empty() {
        return;
    }
    let mut refuse = |why: &str| causes.push(Cause::invalid(path, &json!(given), why));
    if given.trim().is_empty() {
        refuse("must be non-empty if specified");
    }
    if has_breaks(given) {
        refuse("must not contain line breaks");
    }
    if path::find(given, schema, true).is_err() {
        refuse("must be a valid path");
    }
}

/// The position of rules in a schema.
#[derive(Clone, Copy, Debug)]
pub(super) struct RulesContext<'a> {
    /// Whether they check the whole object.
    pub(super) is_root: bool,
    /// Path of the outermost schema below which old and new values cannot be correlated, so that `oldSelf` is not available.
    pub(super) uncorrelated: Option<&'a str>,
    /// How often the values that they check can occur in an object.
    pub(super) occurrences: Occurrences,
}

/// Checks that a schema's rules compile and do not cost too much.
pub(super) fn check(
    schema: &Value,
    path: &str,
    context: RulesContext<'_>,
    budget: &mut Budget,
    causes: &mut Vec<Cause>,
) {
    let rules = &schema["x-kubernetes-validations"];
    if numbered(rules).next().is_none() {
        return;
    }
    let is_object = context.is_root || schema["x-kubernetes-embedded-resource"] == true;
    let of_self = Type::of(schema, is_object).unwrap_or(Type::Unknown);
    let about = Declared::of(schema, is_object);
    for (index, rule) in numbered(rules) {
        let path = |field: &str| format!("{path}.x-kubernetes-validations[{index}].{field}");
        let refusal = |field: &str, why: &str| {
            let cause = Cause::invalid(path(field), &Value::Null, why);
            cause.with_value(&go::rule(rule))
        };
        let optional = rule["optionalOldSelf"] == true;
        // an expression whose cost cannot be estimated counts as free
        let max_cost = |text: &str| {
            let about = about.as_ref()?;
            Some((
                cost::max_cost(text, about, optional)?,
                about.max_occurrences(),
            ))
        };
        let checked = match Checker::compile(text(&rule["rule"]), &of_self, optional) {
            Ok(checked) => checked,
            Err(errors) => {
                causes.push(refusal("rule", &format!("compilation failed: {errors}")));
                continue;
            }
        };
        if !matches!(checked.result, Type::Bool | Type::Unknown) {
            causes.push(refusal("rule", "cel expression must evaluate to a bool"));
            continue;
        }
        if let Some((each, max_occurrences)) = max_cost(text(&rule["rule"])) {
            let cost = context.occurrences.cost(each, max_occurrences);
            budget.charge(cost, "rule", &path("rule"), causes);
        }
        let message = text(&rule["messageExpression"]);
        if !message.trim().is_empty() {
            match Checker::compile(message, &of_self, optional) {
                Err(errors) => {
                    let why = format!("messageExpression compilation failed: {errors}");
                    causes.push(refusal("messageExpression", &why));
                }
                Ok(message) if !matches!(message.result, Type::String | Type::Unknown) => {
                    let why = "messageExpression must evaluate to a string";
                    causes.push(refusal("messageExpression", why));
                }
                Ok(_) => {
                    let cost = max_cost(message).map_or(0, |(each, _)| each);
                    let path = path("messageExpression");
                    budget.charge(cost, "messageExpression", &path, causes);
                }
            }
        }
        if checked.uses_old_self {
            if let Some(part) = context.uncorrelated {
                let why = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {part}"
                );
                causes.push(Cause::invalid(path("rule"), &rule["rule"], &why));
            }
        } else if !rule["optionalOldSelf"].is_null() {
            let why = "may not be set if oldSelf is not used in rule";
            causes.push(Cause::invalid(
                path("optionalOldSelf"),
                &rule["optionalOldSelf"],
                why,
            ));
        }
    }
}
