//! Admission policies and their bindings.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::checks::{indexed, label_selector, one_of, text};
use super::definitions::rules::is_reserved;
use super::definitions::rules::policies::{Variables, Wanted};
use super::names;
use crate::failure::Cause;
use crate::values::fields::elements;

/// Reasons that a validation may give.
const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
/// Most match conditions of a policy.
const MAX_CONDITIONS: usize = 64;
/// Most audit annotations of a policy.
const MAX_ANNOTATIONS: usize = 20;

/// Checks a policy. Expressions that it had before are not compiled again.
pub(super) fn policy(policy: &Value, causes: &mut Vec<Cause>) {
    let spec = &policy["spec"];
    if spec["failurePolicy"].is_null() {
        causes.push(Cause::required("spec.failurePolicy", ""));
    } else {
        one_of(
            &spec["failurePolicy"],
            &["Fail", "Ignore"],
            "spec.failurePolicy",
            causes,
        );
    }
    let has_params = spec["paramKind"].is_object();
    if has_params {
        param_kind(&spec["paramKind"], causes);
    }
    let constraints = "spec.matchConstraints";
    if spec["matchConstraints"].is_object() {
        match_resources(&spec["matchConstraints"], constraints, causes);
        if is_empty(&spec["matchConstraints"]["resourceRules"]) {
            causes.push(Cause::required(format!("{constraints}.resourceRules"), ""));
        }
    } else {
        causes.push(Cause::required(constraints, ""));
    }
    let plain = Variables::new(has_params);
    conditions(
        &spec["matchConditions"],
        "spec.matchConditions",
        &plain,
        causes,
    );
    let mut composed = if is_empty(&spec["variables"]) {
        plain
    } else {
        plain.composing()
    };
    variables(&spec["variables"], &mut composed, causes);
    if is_empty(&spec["validations"]) && is_empty(&spec["auditAnnotations"]) {
        let why = "validations or auditAnnotations must contain at least one item";
        causes.push(Cause::required("spec.validations", why));
        causes.push(Cause::required("spec.auditAnnotations", why));
        return;
    }
    for (path, validation) in indexed(&spec["validations"], "spec.validations") {
        check_validation(validation, &path, &composed, causes);
    }
    annotations(policy, &composed, causes);
}

fn is_empty(list: &Value) -> bool {
    list.as_array().is_none_or(Vec::is_empty)
}

/// Refuses an expression that does not compile.
fn expression(given: &Value, path: String, result: Result<(), String>, causes: &mut Vec<Cause>) {
    if let Err(why) = result {
        causes.push(Cause::invalid(path, given, &why));
    }
}

fn param_kind(kind: &Value, causes: &mut Vec<Cause>) {
    let (api_version, name) = (text(&kind["apiVersion"]), text(&kind["kind"]));
    let at = "spec.paramKind.apiVersion";
    let mut refuse = |given: &str, found: Vec<String>| {
        if !found.is_empty() {
            causes.push(Cause::invalid(at, &json!(given), &found.join(",")));
        }
    };
    match api_version.split('/').collect::<Vec<_>>().as_slice() {
        [""] => causes.push(Cause::required(at, "")),
        [version] => refuse(version, names::service(version)),
        [group, version] => {
            if !group.is_empty() {
                refuse(group, names::subdomain(group));
            }
            if version.is_empty() {
                refuse(api_version, vec!["version must be specified".to_owned()]);
            } else {
                refuse(version, names::service(version));
            }
        }
        _ => {
            let why = format!("unexpected GroupVersion string: {api_version}");
            refuse(api_version, vec![why]);
        }
    }
    let at = "spec.paramKind.kind";
    let found = names::service(&name.to_lowercase());
    if name.is_empty() {
        causes.push(Cause::required(at, ""));
    } else if !found.is_empty() {
        let found = found.join(",");
        let why = format!("may have mixed case, but should otherwise match: {found}");
        causes.push(Cause::invalid(at, &json!(name), &why));
    }
}

/// Checks match conditions at a path.
pub(super) fn conditions(list: &Value, path: &str, variables: &Variables, causes: &mut Vec<Cause>) {
    let count = list.as_array().map_or(0, Vec::len);
    if count > MAX_CONDITIONS {
        causes.push(Cause::too_many(path, count, MAX_CONDITIONS));
    }
    let mut seen = Vec::new();
    for (path, condition) in indexed(list, path) {
        let at = format!("{path}.expression");
        match text(&condition["expression"]).trim() {
            "" => causes.push(Cause::required(at, "")),
            trimmed => {
                let result = variables.check(trimmed, true, Wanted::Bool);
                expression(&json!(trimmed), at, result, causes);
            }
        }
        let name = text(&condition["name"]);
        let at = format!("{path}.name");
        if name.is_empty() {
            causes.push(Cause::required(at, ""));
        } else {
            let wrong = names::key(name).into_iter();
            causes.extend(wrong.map(|why| Cause::invalid(at.clone(), &json!(name), &why)));
            if seen.contains(&name) {
                causes.push(Cause::duplicate(at, &json!(name)));
            }
            seen.push(name);
        }
    }
}

fn variables(list: &Value, composed: &mut Variables, causes: &mut Vec<Cause>) {
    for (path, variable) in indexed(list, "spec.variables") {
        let (name, given) = (text(&variable["name"]), text(&variable["expression"]));
        let at = format!("{path}.name");
        if name.trim().is_empty() {
            causes.push(Cause::required(at, "name is not specified"));
        } else if !is_identifier(name) {
            let why = "must be a valid CEL identifier";
            causes.push(Cause::invalid(at, &json!(name), why));
        }
        let at = format!("{path}.expression");
        if given.trim().is_empty() {
            causes.push(Cause::required(at, "expression is not specified"));
        } else {
            let result = composed.compose(name, given);
            expression(&variable["expression"], at, result, causes);
        }
    }
}

fn is_identifier(name: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphabetic() || letter == '_';
    name.starts_with(is_letter)
        && name
            .chars()
            .all(|letter| is_letter(letter) || letter.is_ascii_digit())
        && !is_reserved(name)
}

fn check_validation(
    validation: &Value,
    path: &str,
    variables: &Variables,
    causes: &mut Vec<Cause>,
) {
    let at = |field: &str| format!("{path}.{field}");
    let given = |field: &str| text(&validation[field]);
    if given("expression").trim().is_empty() {
        let why = "expression is not specified";
        causes.push(Cause::required(at("expression"), why));
    } else {
        let result = variables.check(given("expression"), true, Wanted::Bool);
        expression(&validation["expression"], at("expression"), result, causes);
    }
    let message = given("messageExpression");
    if !message.is_empty() {
        let result = if message.trim().is_empty() {
            Err("must be non-empty if specified".to_owned())
        } else {
            variables.check(message, false, Wanted::String)
        };
        let given = &validation["messageExpression"];
        expression(given, at("messageExpression"), result, causes);
    }
    let message = given("message");
    if !message.is_empty() && message.trim().is_empty() {
        let why = "must be non-empty if specified";
        causes.push(Cause::invalid(at("message"), &json!(message), why));
    } else if message.trim().contains(['\n', '\r']) {
        let why = "must not contain line breaks";
        causes.push(Cause::invalid(at("message"), &json!(message), why));
    }
    if !validation["reason"].is_null() {
        one_of(&validation["reason"], &REASONS, &at("reason"), causes);
    }
}

fn annotations(policy: &Value, variables: &Variables, causes: &mut Vec<Cause>) {
    let list = &policy["spec"]["auditAnnotations"];
    let path = "spec.auditAnnotations";
    if list
        .as_array()
        .is_some_and(|list| list.len() > MAX_ANNOTATIONS)
    {
        let why = format!("must not have more than {MAX_ANNOTATIONS} auditAnnotations");
        let items = elements(list);
        let shown: Value = items
            .map(|one| json!({"Key": one["key"], "ValueExpression": one["valueExpression"]}))
            .collect();
        causes.push(Cause::invalid(path, &shown, &why));
    }
    let mut seen = Vec::new();
    for (path, annotation) in indexed(list, path) {
        let key = text(&annotation["key"]);
        let at = format!("{path}.key");
        let name = text(&policy["metadata"]["name"]);
        let full = format!("{name}/{key}");
        if name.is_empty() {
            let why = "requires metadata.name be non-empty";
            causes.push(Cause::invalid(at.clone(), &json!(key), why));
        } else {
            let wrong = names::key(&full).into_iter();
            causes.extend(wrong.map(|why| Cause::invalid(at.clone(), &json!(full), &why)));
        }
        let given = &annotation["valueExpression"];
        let at_value = format!("{path}.valueExpression");
        match text(given).trim() {
            "" => {
                let why = "valueExpression is not specified";
                causes.push(Cause::required(at_value, why));
            }
            trimmed => {
                let result = variables.check(trimmed, true, Wanted::StringOrNull);
                expression(given, at_value, result, causes);
            }
        }
        if seen.contains(&key) {
            causes.push(Cause::duplicate(at, &json!(key)));
        }
        seen.push(key);
    }
}

fn match_resources(resources: &Value, path: &str, causes: &mut Vec<Cause>) {
    let policy = &resources["matchPolicy"];
    one_of(
        policy,
        &["Equivalent", "Exact"],
        &format!("{path}.matchPolicy"),
        causes,
    );
    for field in ["namespaceSelector", "objectSelector"] {
        label_selector(&resources[field], &format!("{path}.{field}"), causes);
    }
    for list in ["resourceRules", "excludeResourceRules"] {
        for (path, rule) in indexed(&resources[list], &format!("{path}.{list}")) {
            check_rule(rule, &path, causes);
        }
    }
}

/// Checks a rule that names operations and resources.
pub(super) fn check_rule(rule: &Value, path: &str, causes: &mut Vec<Cause>) {
    let mut seen = HashSet::new();
    for (at, name) in indexed(&rule["resourceNames"], &format!("{path}.resourceNames")) {
        let wrong = names::path_segment(text(name)).into_iter();
        causes.extend(wrong.map(|why| Cause::invalid(at.clone(), name, &why)));
        if !seen.insert(text(name)) {
            causes.push(Cause::duplicate(at, name));
        }
    }
    let operations = &rule["operations"];
    let at = format!("{path}.operations");
    if is_empty(operations) {
        causes.push(Cause::required(at.clone(), ""));
    }
    refuse_others_beside_all(operations, &at, "operations", causes);
    for (at, operation) in indexed(operations, &at) {
        let known = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
        one_of(operation, &known, &at, causes);
    }
    for (field, what) in [("apiGroups", "API groups"), ("apiVersions", "API versions")] {
        let at = format!("{path}.{field}");
        if is_empty(&rule[field]) {
            causes.push(Cause::required(at.clone(), ""));
        }
        refuse_others_beside_all(&rule[field], &at, what, causes);
    }
    for (at, version) in indexed(&rule["apiVersions"], &format!("{path}.apiVersions")) {
        if text(version).is_empty() {
            causes.push(Cause::required(at, ""));
        }
    }
    check_resources(&rule["resources"], &format!("{path}.resources"), causes);
    if !rule["scope"].is_null() {
        let known = ["*", "Cluster", "Namespaced"];
        one_of(&rule["scope"], &known, &format!("{path}.scope"), causes);
    }
}

/// Checks the resources of a rule: none may be named twice by patterns.
fn check_resources(list: &Value, path: &str, causes: &mut Vec<Cause>) {
    if is_empty(list) {
        causes.push(Cause::required(path, ""));
    }
    let (mut whole_resources, mut whole_subresources) = (Vec::new(), Vec::new());
    let given = |wanted: &dyn Fn(&str) -> bool| {
        let mut items = elements(list);
        items.any(|item| wanted(text(item)))
    };
    for (at, item) in indexed(list, path) {
        let name = text(item);
        if name.is_empty() {
            causes.push(Cause::required(at, ""));
            continue;
        }
        let Some((resource, subresource)) = name.split_once('/') else {
            continue;
        };
        let mut refuse = |pattern: String| {
            let why = format!("if '{pattern}' is present, must not specify {name}");
            causes.push(Cause::invalid(at.clone(), item, &why));
        };
        if whole_resources.contains(&resource) {
            refuse(format!("{resource}/*"));
        }
        if whole_subresources.contains(&subresource) {
            refuse(format!("*/{subresource}"));
        }
        if subresource == "*" {
            whole_resources.push(resource);
        }
        if resource == "*" {
            whole_subresources.push(subresource);
        }
    }
    if list.as_array().is_some_and(|list| list.len() > 1) && given(&|name| name == "*/*") {
        let why = "if '*/*' is present, must not specify other resources";
        causes.push(Cause::invalid(path, list, why));
    }
    let is_plain = |name: &str| !name.is_empty() && name != "*" && !name.contains('/');
    if given(&|name| name == "*") && given(&is_plain) {
        let why = "if '*' is present, must not specify other resources without subresources";
        causes.push(Cause::invalid(path, list, why));
    }
}

fn refuse_others_beside_all(list: &Value, path: &str, what: &str, causes: &mut Vec<Cause>) {
    let given: Vec<&str> = elements(list).map(text).collect();
    if given.len() > 1 && given.contains(&"*") {
        let why = format!("if '*' is present, must not specify other {what}");
        causes.push(Cause::invalid(path, list, &why));
    }
}

/// Checks a binding.
pub(super) fn binding(spec: &Value, causes: &mut Vec<Cause>) {
    let policy = text(&spec["policyName"]);
    if policy.is_empty() {
        causes.push(Cause::required("spec.policyName", ""));
    } else {
        let wrong = names::subdomain(policy).into_iter();
        causes.extend(wrong.map(|why| Cause::invalid("spec.policyName", &json!(policy), &why)));
    }
    if spec["paramRef"].is_object() {
        param_reference(&spec["paramRef"], causes);
    }
    if spec["matchResources"].is_object() {
        match_resources(&spec["matchResources"], "spec.matchResources", causes);
    }
    actions(&spec["validationActions"], causes);
}

fn param_reference(reference: &Value, causes: &mut Vec<Cause>) {
    let name = text(&reference["name"]);
    let has_selector = reference["selector"].is_object();
    let at_name = "spec.paramRef.name";
    let wrong = names::path_segment(name).into_iter();
    causes.extend(wrong.map(|why| Cause::invalid(at_name, &json!(name), &why)));
    if has_selector && !name.is_empty() {
        let why = "name and selector are mutually exclusive";
        causes.push(Cause::forbidden(at_name, why));
        causes.push(Cause::forbidden("spec.paramRef.selector", why));
    }
    if !has_selector && name.is_empty() {
        let why = "one of name or selector must be specified";
        causes.push(Cause::required("spec.paramRef", why));
    }
    let at = "spec.paramRef.parameterNotFoundAction";
    let action = &reference["parameterNotFoundAction"];
    if text(action).is_empty() {
        causes.push(Cause::required(at, ""));
    } else if !["Allow", "Deny"].contains(&text(action)) {
        let known = ["Deny", "Allow"].map(str::to_owned);
        causes.push(Cause::unsupported(at, action, &known));
    }
}

fn actions(list: &Value, causes: &mut Vec<Cause>) {
    let path = "spec.validationActions";
    let mut seen = Vec::new();
    for (at, action) in indexed(list, path) {
        one_of(action, &["Audit", "Deny", "Warn"], &at, causes);
        if seen.contains(&action) {
            causes.push(Cause::duplicate(at, action));
        }
        seen.push(action);
    }
    let has = |name: &str| seen.iter().any(|action| text(action) == name);
    if has("Deny") && has("Warn") {
        let why = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
        causes.push(Cause::invalid(path, list, why));
    }
    if seen.is_empty() {
        let why = "at least one validation action is required";
        causes.push(Cause::required(path, why));
    }
}
