//! Label selectors.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

type Labels = BTreeMap<String, String>;

/// Returns whether a selector matches the labels; an empty one matches everything.
pub(crate) fn selects(selector: &LabelSelector, labels: &Labels) -> bool {
    let equal = |map: &Labels| {
        map.iter()
            .all(|(key, value)| labels.get(key) == Some(value))
    };
    selector.match_labels.as_ref().is_none_or(equal)
        && selector
            .match_expressions
            .iter()
            .flatten()
            .all(|requirement| {
                holds(
                    &requirement.operator,
                    requirement.values.as_deref().unwrap_or_default(),
                    labels.get(&requirement.key),
                )
            })
}

/// Returns whether a selector has no requirements.
pub(crate) fn is_empty(selector: &LabelSelector) -> bool {
    selector
        .match_labels
        .as_ref()
        .is_none_or(BTreeMap::is_empty)
        && selector
            .match_expressions
            .as_ref()
            .is_none_or(Vec::is_empty)
}

/// Returns whether a requirement holds for the value of a label, or for its absence (`None`).
pub(crate) fn holds(operator: &str, values: &[String], value: Option<&String>) -> bool {
    let compare = |wanted: fn(i64, i64) -> bool| {
        let [limit] = values else { return false };
        value
            .and_then(|value| value.parse().ok())
            .zip(limit.parse().ok())
            .is_some_and(|(value, limit)| wanted(value, limit))
    };
    match operator {
        "In" => value.is_some_and(|value| values.contains(value)),
        "NotIn" => value.is_none_or(|value| !values.contains(value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(|value, limit| value > limit),
        "Lt" => compare(|value, limit| value < limit),
        _ => false,
    }
}
