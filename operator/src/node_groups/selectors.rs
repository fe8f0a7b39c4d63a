//! Validates, prints and applies label selectors like Kubernetes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::core::{Selector, SelectorExt as _};

/// Returns whether a selector matches these labels. An invalid selector matches nothing.
pub fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    Selector::try_from(selector.clone()).is_ok_and(|selector| selector.matches(labels))
}

/// Returns the errors of a selector, with the messages of Kubernetes.
pub fn problems(selector: &LabelSelector) -> Vec<String> {
    let requirements = selector.match_expressions.iter().flatten();
    requirements.filter_map(problem).collect()
}

fn problem(requirement: &LabelSelectorRequirement) -> Option<String> {
    let values = requirement.values.as_deref().unwrap_or_default();
    match requirement.operator.as_str() {
        "In" | "NotIn" if values.is_empty() => Some(
            "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"
                .into(),
        ),
        "Exists" | "DoesNotExist" if !values.is_empty() => Some(format!(
            "values: Invalid value: {values:?}: values set must be empty for exists and does not exist"
        )),
        "In" | "NotIn" | "Exists" | "DoesNotExist" => None,
        other => Some(format!("{other:?} is not a valid label selector operator")),
    }
}

/// Formats a selector like Go, because messages quote that form.
pub fn text(selector: &LabelSelector) -> String {
    let mut text = String::from("&LabelSelector{MatchLabels:map[string]string{");
    for (key, value) in selector.match_labels.iter().flatten() {
        // writing to a string cannot fail
        let _ = write!(text, "{key}: {value},");
    }
    text.push_str("},MatchExpressions:[]LabelSelectorRequirement{");
    for requirement in selector.match_expressions.iter().flatten() {
        let _ = write!(
            text,
            "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{}],}},",
            requirement.key,
            requirement.operator,
            requirement.values.as_deref().unwrap_or_default().join(" ")
        );
    }
    text.push_str("},}");
    text
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn selector(value: Value) -> LabelSelector {
        serde_json::from_value(value).unwrap()
    }

    fn requirement(operator: &str, values: &[&str]) -> LabelSelector {
        selector(
            json!({"matchExpressions": [{"key": "k", "operator": operator, "values": values}]}),
        )
    }

    #[test]
    fn text_is_that_of_go() {
        assert_eq!(
            text(&selector(json!({"matchLabels": {"b": "2", "a": ""}}))),
            "&LabelSelector{MatchLabels:map[string]string{a: ,b: 2,},MatchExpressions:[]LabelSelectorRequirement{},}"
        );
        assert_eq!(
            text(&requirement("In", &["x", "y"])),
            "&LabelSelector{MatchLabels:map[string]string{},MatchExpressions:[]LabelSelectorRequirement{\
             LabelSelectorRequirement{Key:k,Operator:In,Values:[x y],},},}"
        );
    }

    #[rstest]
    #[case::operator(requirement("Near", &[]), "\"Near\" is not a valid label selector operator")]
    #[case::no_values(requirement("In", &[]), "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty")]
    #[case::values(requirement("Exists", &["x"]), "values: Invalid value: [\"x\"]: values set must be empty for exists and does not exist")]
    fn broken_requirements_are_named(#[case] selector: LabelSelector, #[case] message: &str) {
        assert_eq!(problems(&selector), [message]);
    }

    #[test]
    fn labels_and_expressions_have_to_match() {
        let labels = BTreeMap::from([("k".to_owned(), "x".to_owned())]);
        assert!(matches(&LabelSelector::default(), &labels));
        assert!(matches(
            &selector(json!({"matchLabels": {"k": "x"}})),
            &labels
        ));
        assert!(matches(&requirement("In", &["x"]), &labels));
        assert!(!matches(&requirement("NotIn", &["x"]), &labels));
        assert!(!matches(&requirement("Near", &[]), &labels));
    }
}
