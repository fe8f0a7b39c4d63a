//! Configurations of admission webhooks.

use serde_json::{Value, json};

use super::checks::{indexed, label_selector, one_of, text};
use super::definitions::rules::policies::Variables;
use super::{clients, names, policies};
use crate::admission::webhooks::MUTATING;
use crate::failure::Cause;
use crate::registry::Resource;
use crate::values::fields::elements;

/// Versions of reviews that a real server speaks.
const REVIEWS: [&str; 2] = ["v1", "v1beta1"];
/// What side effects webhooks may have.
const SIDE_EFFECTS: [&str; 2] = ["None", "NoneOnDryRun"];

/// Checks a configuration.
pub(super) fn check(resource: &Resource, configuration: &Value, causes: &mut Vec<Cause>) {
    let is_mutating = resource.storage == MUTATING;
    let mut seen = Vec::new();
    for (path, hook) in indexed(&configuration["webhooks"], "webhooks") {
        webhook(hook, &path, is_mutating, causes);
        let versions = &hook["admissionReviewVersions"];
        review_versions(versions, &format!("{path}.admissionReviewVersions"), causes);
        let name = text(&hook["name"]);
        if !name.is_empty() {
            if seen.contains(&name) {
                causes.push(Cause::duplicate(format!("{path}.name"), &hook["name"]));
            }
            seen.push(name);
        }
    }
}

fn webhook(hook: &Value, path: &str, is_mutating: bool, causes: &mut Vec<Cause>) {
    let at = |field: &str| format!("{path}.{field}");
    full_name(&hook["name"], &at("name"), causes);
    for (path, rule) in indexed(&hook["rules"], &at("rules")) {
        policies::check_rule(rule, &path, causes);
    }
    for (field, known) in [
        ("failurePolicy", ["Fail", "Ignore"]),
        ("matchPolicy", ["Equivalent", "Exact"]),
    ] {
        one_of(&hook[field], &known, &at(field), causes);
    }
    if hook["sideEffects"].is_null() {
        let why = format!("must specify one of {}", SIDE_EFFECTS.join(", "));
        causes.push(Cause::required(at("sideEffects"), &why));
    } else {
        one_of(
            &hook["sideEffects"],
            &SIDE_EFFECTS,
            &at("sideEffects"),
            causes,
        );
    }
    let timeout = &hook["timeoutSeconds"];
    if timeout
        .as_i64()
        .is_some_and(|seconds| !(1..=30).contains(&seconds))
    {
        let why = "the timeout value must be between 1 and 30 seconds";
        causes.push(Cause::invalid(at("timeoutSeconds"), timeout, why));
    }
    for field in ["namespaceSelector", "objectSelector"] {
        label_selector(&hook[field], &at(field), causes);
    }
    if is_mutating {
        let (policy, known) = (&hook["reinvocationPolicy"], ["IfNeeded", "Never"]);
        one_of(policy, &known, &at("reinvocationPolicy"), causes);
    }
    clients::check(&hook["clientConfig"], &at("clientConfig"), causes);
    let variables = Variables::new(false);
    policies::conditions(
        &hook["matchConditions"],
        &at("matchConditions"),
        &variables,
        causes,
    );
}

fn full_name(name: &Value, path: &str, causes: &mut Vec<Cause>) {
    let text = text(name);
    if text.is_empty() {
        causes.push(Cause::required(path, ""));
        return;
    }
    let wrong = names::subdomain(text);
    if !wrong.is_empty() {
        causes.push(Cause::invalid(path, name, &wrong.join(",")));
    } else if text.split('.').count() < 3 {
        let why = "should be a domain with at least three segments separated by dots";
        causes.push(Cause::invalid(path, name, why));
    }
}

fn review_versions(versions: &Value, path: &str, causes: &mut Vec<Cause>) {
    let known = REVIEWS.join(", ");
    let list: Vec<&str> = elements(versions).map(text).collect();
    if list.is_empty() {
        causes.push(Cause::required(
            path,
            &format!("must specify one of {known}"),
        ));
        return;
    }
    for (index, version) in list.iter().enumerate() {
        let path = format!("{path}[{index}]");
        if list[..index].contains(version) {
            causes.push(Cause::invalid(path, &json!(version), "duplicate version"));
            continue;
        }
        let wrong = names::service(version).into_iter();
        causes.extend(wrong.map(|why| Cause::invalid(path.clone(), &json!(version), &why)));
    }
    if !list.iter().any(|version| REVIEWS.contains(version)) {
        let why = format!("must include at least one of {known}");
        causes.push(Cause::invalid(path, versions, &why));
    }
}
