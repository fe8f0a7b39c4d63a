//! What one policy, with one parameter, says of a write.

use std::collections::HashMap;

use kube_cel::cel::Value;
use serde_json::{Value as Json, json};

use super::Review;
use super::authorizer::{self, RequestResource};
use super::expressions::{self, Evaluator, Unevaluated};
use crate::values::fields::{copy, elements};

/// What all expressions of a policy may cost for one write, and what its match conditions may cost, in the units of a real server.
const BUDGET: u64 = 10_000_000;
const BUDGET_OF_CONDITIONS: u64 = 2_500_000;
/// Longest message that an expression may make, in bytes.
const LONGEST_MESSAGE: usize = 5 * 1024;
const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";
/// Fields of a namespace's metadata that expressions do not see.
const HIDDEN: [&str; 2] = ["managedFields", "ownerReferences"];

/// A validation that a write does not pass.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Denial {
    pub(super) reason: String,
    pub(super) message: String,
    /// Whether an audit annotation could not be made, which refuses the write whatever the binding says.
    pub(super) is_of_audit: bool,
}

impl Denial {
    fn new(reason: &str, message: String) -> Self {
        Self {
            reason: reason.to_owned(),
            message,
            is_of_audit: false,
        }
    }
}

/// What expressions see besides the write.
pub(super) struct Input<'a> {
    /// The version in which the policy sees the resource.
    pub(super) version: &'a str,
    /// The parameter, or `Null`.
    pub(super) param: &'a Json,
    /// The namespace of the object.
    pub(super) namespace: Option<&'a Json>,
}

/// Returns which validations of a policy a write does not pass.
pub(super) fn denials(
    evaluator: &mut Evaluator<'_>,
    review: &Review<'_>,
    spec: &Json,
    input: &Input<'_>,
) -> Vec<Denial> {
    let fails = spec["failurePolicy"] != "Ignore";
    let on_error = |message: String| {
        if fails {
            vec![Denial::new("", message)]
        } else {
            Vec::new()
        }
    };
    match meets(evaluator, review, &spec["matchConditions"], input) {
        Ok(true) => {}
        Ok(false) => return Vec::new(),
        Err(why) => return on_error(why),
    }
    evaluator.set("namespaceObject", namespace_object(input.namespace));
    evaluator.set_budget(BUDGET);
    let composed = match Composed::evaluate(evaluator, &spec["variables"]) {
        Ok(composed) => composed,
        Err(why) => return on_error(why),
    };
    let mut denials = Vec::new();
    for validation in elements(&spec["validations"]) {
        match composed.explain(evaluator.run(text(&validation["expression"]))) {
            Ok(Value::Bool(true)) => {}
            Ok(_) => {
                let reason = validation["reason"].as_str().unwrap_or("Invalid");
                denials.push(Denial::new(reason, message(evaluator, validation)));
            }
            Err(error) => match error.message() {
                Some(why) => denials.extend(on_error(why)),
                None => return on_error(OUT_OF_BUDGET.into()),
            },
        }
    }
    for annotation in elements(&spec["auditAnnotations"]) {
        let made = composed.explain(evaluator.run(text(&annotation["valueExpression"])));
        let why = match made {
            Ok(Value::String(_) | Value::Null) => continue,
            Ok(_) => format!(
                "valueExpression '{}' resulted in unsupported return type. Return type must be either string or null.",
                text(&annotation["valueExpression"])
            ),
            Err(error) => match error.message() {
                Some(why) => why,
                None => return on_error(OUT_OF_BUDGET.into()),
            },
        };
        denials.extend(on_error(why).into_iter().map(|denial| Denial {
            is_of_audit: true,
            ..denial
        }));
    }
    denials
}

/// Returns whether a write meets all conditions. The other variables are set afterwards.
pub(super) fn meets(
    evaluator: &mut Evaluator<'_>,
    review: &Review<'_>,
    conditions: &Json,
    input: &Input<'_>,
) -> Result<bool, String> {
    set_variables(evaluator, review, input);
    evaluator.set("namespaceObject", Value::Null);
    evaluator.set_budget(BUDGET_OF_CONDITIONS);
    meets_conditions(evaluator, conditions)
}

fn text(value: &Json) -> &str {
    value.as_str().unwrap_or_default()
}

fn set_variables(evaluator: &mut Evaluator<'_>, review: &Review<'_>, input: &Input<'_>) {
    let attempt = &review.attempt;
    let object = |object: Option<&Json>| {
        object.map_or(Value::Null, |object| {
            expressions::value(&versioned(review, input.version, object))
        })
    };
    evaluator.set("object", object(review.object));
    evaluator.set("oldObject", object(attempt.before));
    evaluator.set(
        "request",
        expressions::value(&request(review, input.version)),
    );
    evaluator.set("params", expressions::value(input.param));
    let of_request = RequestResource {
        group: &attempt.resource.group,
        resource: &attempt.resource.plural,
        subresource: attempt.subresource,
        namespace: review.namespace(),
        name: review.attempt.name,
    };
    evaluator.set("authorizer", authorizer::value(of_request));
}

/// Returns an object in the version in which a rule matches it, with its kind.
pub(crate) fn versioned(review: &Review<'_>, matched: &str, object: &Json) -> Json {
    let mut object = object.clone();
    let (group, version, kind) = review.kind();
    let version = if group == review.attempt.resource.group {
        matched
    } else {
        version
    };
    object["apiVersion"] = match group {
        "" => json!(version),
        group => json!(format!("{group}/{version}")),
    };
    object["kind"] = json!(kind);
    object
}

/// Returns the request as expressions and webhooks see it, in the version in which a rule matches it.
pub(crate) fn request(review: &Review<'_>, seen_version: &str) -> Json {
    let attempt = &review.attempt;
    let resource = attempt.resource;
    let (group, version, kind) = review.kind();
    let user = &attempt.identity.user;
    let mut user_info = json!({"username": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        user_info["uid"] = json!(user.uid);
    }
    if !attempt.identity.extra.is_empty() {
        user_info["extra"] = json!(attempt.identity.extra);
    }
    let of_kind = |version: &str| json!({"group": group, "version": version, "kind": kind});
    let of_resource = |version: &str| json!({"group": resource.group, "version": version, "resource": resource.plural});
    let seen_kind = if group == resource.group {
        of_kind(seen_version)
    } else {
        of_kind(version)
    };
    json!({
        "kind": seen_kind,
        "resource": of_resource(seen_version),
        "subResource": attempt.subresource,
        "requestKind": of_kind(version),
        "requestResource": of_resource(&resource.version),
        "requestSubResource": attempt.subresource,
        "name": if review.options.unnamed { "" } else { attempt.name },
        "namespace": review.namespace(),
        "operation": review.operation.name(),
        "userInfo": user_info,
        "dryRun": review.options.dry_run,
        "options": review.options(),
    })
}

fn namespace_object(namespace: Option<&Json>) -> Value {
    let Some(namespace) = namespace else {
        return Value::Null;
    };
    let mut seen = json!({});
    for part in ["metadata", "spec", "status"] {
        copy(namespace, &mut seen, part);
    }
    if let Some(metadata) = seen["metadata"].as_object_mut() {
        for field in HIDDEN {
            metadata.remove(field);
        }
    }
    expressions::value(&seen)
}

/// Returns whether a write meets all conditions. One that is not met counts more than one that fails.
fn meets_conditions(evaluator: &mut Evaluator<'_>, conditions: &Json) -> Result<bool, String> {
    let mut failed = Vec::new();
    for condition in elements(conditions) {
        match evaluator.run(text(&condition["expression"]).trim()) {
            Ok(Value::Bool(false)) => return Ok(false),
            Ok(_) => {}
            Err(error) => failed.push(error.message().ok_or(OUT_OF_BUDGET)?),
        }
    }
    match failed.as_slice() {
        [] => Ok(true),
        [one] => Err(one.clone()),
        many => Err(format!("[{}]", many.join(", "))),
    }
}

/// The variables that a policy composes, and why some of them have no value.
#[derive(Debug, Default)]
struct Composed {
    failed: Vec<(String, String)>,
}

impl Composed {
    /// Sets `variables`. One that fails matters only where an expression uses it.
    fn evaluate(evaluator: &mut Evaluator<'_>, variables: &Json) -> Result<Self, String> {
        let mut composed = Self::default();
        let mut values = HashMap::<String, Value>::new();
        evaluator.set("variables", Value::Map(values.clone().into()));
        for variable in elements(variables) {
            let name = text(&variable["name"]).to_owned();
            match composed.explain(evaluator.run(text(&variable["expression"]))) {
                Ok(value) => {
                    values.insert(name, value);
                    evaluator.set("variables", Value::Map(values.clone().into()));
                }
                Err(Unevaluated::Error { why, .. } | Unevaluated::Failed(why)) => {
                    composed.failed.push((name, why));
                }
                Err(Unevaluated::OutOfBudget) => return Err(OUT_OF_BUDGET.into()),
            }
        }
        Ok(composed)
    }

    /// Replaces the error of an expression that looks for a variable without value.
    fn explain(&self, result: Result<Value, Unevaluated>) -> Result<Value, Unevaluated> {
        let Err(Unevaluated::Error { expression, why }) = &result else {
            return result;
        };
        let missing = why.strip_prefix("no such key: ");
        match self.failed.iter().find(|(name, _)| missing == Some(name)) {
            Some((name, why)) => Err(Unevaluated::Error {
                expression: expression.clone(),
                why: format!("composited variable {name:?} fails to evaluate: {why}"),
            }),
            None => result,
        }
    }
}

/// Returns what is told about a validation that a write does not pass.
fn message(evaluator: &mut Evaluator<'_>, validation: &Json) -> String {
    let made = match text(&validation["messageExpression"]) {
        "" => None,
        expression => evaluator.run(expression).ok(),
    };
    if let Some(Value::String(made)) = made {
        let made = made.trim();
        if !made.is_empty() && made.len() <= LONGEST_MESSAGE && !made.contains('\n') {
            return made.to_owned();
        }
    }
    match text(&validation["message"]).trim() {
        "" => format!(
            "failed expression: {}",
            text(&validation["expression"]).trim()
        ),
        message => message.to_owned(),
    }
}
