//! Which writes a policy or a binding is about.

use serde_json::{Value, json};

use super::Review;
use crate::objects::selectors::selects;
use crate::storage::State;
use crate::values::fields::elements;

/// The version in which a policy sees the resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Matched {
    pub(super) version: String,
}

/// Returns in which version these `MatchResources` match a write; `None` where they do not. Missing ones match everything.
pub(super) fn matches(state: &State, review: &Review<'_>, resources: &Value) -> Option<Matched> {
    let requested = Matched {
        version: review.attempt.resource.version.clone(),
    };
    if !resources.is_object() {
        return Some(requested);
    }
    let is_exact = resources["matchPolicy"] == "Exact";
    if by_rules(review, &resources["excludeResourceRules"], is_exact).is_some() {
        return None;
    }
    let has_rules = resources["resourceRules"]
        .as_array()
        .is_some_and(|rules| !rules.is_empty());
    let matched = if has_rules {
        by_rules(review, &resources["resourceRules"], is_exact)?
    } else {
        requested
    };
    let matches = by_namespace(state, review, &resources["namespaceSelector"])
        && by_object(review, &resources["objectSelector"]);
    matches.then_some(matched)
}

/// Returns whether the namespace of a write is selected. Objects outside of namespaces always are.
fn by_namespace(state: &State, review: &Review<'_>, selector: &Value) -> bool {
    if is_empty(selector) || review.namespace().is_empty() {
        return true;
    }
    let labels = if review.is_about_namespaces() {
        review
            .object
            .or(review.attempt.before)
            .map(|object| &object["metadata"]["labels"])
    } else {
        state
            .get("namespaces", "", review.attempt.namespace)
            .map(|namespace| &namespace["metadata"]["labels"])
    };
    labels.is_some_and(|labels| selects(selector, labels))
}

/// Returns whether the object is selected as it was or as it will be.
fn by_object(review: &Review<'_>, selector: &Value) -> bool {
    let mut objects = review.object.into_iter().chain(review.attempt.before);
    is_empty(selector) || objects.any(|object| selects(selector, &object["metadata"]["labels"]))
}

fn is_empty(selector: &Value) -> bool {
    selector.is_null() || *selector == json!({})
}

fn by_rules(review: &Review<'_>, rules: &Value, is_exact: bool) -> Option<Matched> {
    let resource = review.attempt.resource;
    let list = || elements(rules);
    let in_version = |version: &str| {
        list()
            .any(|rule| matches_rule(review, rule, version))
            .then(|| Matched {
                version: version.to_owned(),
            })
    };
    let mut others = resource
        .custom
        .iter()
        .filter(|_| !is_exact)
        .flat_map(|custom| custom.versions.iter())
        .map(|(version, _)| version.as_str())
        .filter(|version| *version != resource.version);
    in_version(&resource.version).or_else(|| others.find_map(in_version))
}

fn matches_rule(review: &Review<'_>, rule: &Value, version: &str) -> bool {
    let attempt = &review.attempt;
    let has = |field: &str, wanted: &str| {
        let mut known = strings(&rule[field]);
        known.any(|known| known == "*" || known == wanted)
    };
    let is_clusters = review.is_about_namespaces() || attempt.namespace.is_empty();
    let in_scope = match rule["scope"].as_str() {
        Some("Cluster") => is_clusters,
        Some("Namespaced") => !is_clusters,
        _ => true,
    };
    let names = &rule["resourceNames"];
    let is_named = names.as_array().is_none_or(Vec::is_empty)
        || strings(names).any(|name| name == review.attempt.name);
    in_scope
        && is_named
        && has("operations", review.operation.name())
        && has("apiGroups", &attempt.resource.group)
        && has("apiVersions", version)
        && strings(&rule["resources"]).any(|known| {
            let (resource, subresource) = known.split_once('/').unwrap_or((known, ""));
            (resource == "*" || resource == attempt.resource.plural)
                && (subresource == "*" || subresource == attempt.subresource)
        })
}

fn strings(list: &Value) -> impl Iterator<Item = &str> {
    elements(list).filter_map(Value::as_str)
}
