//! Label and node selectors.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::state::node::Node;

type Labels = BTreeMap<String, String>;

/// Returns whether the labels are selected. An absent selector selects nothing, an empty one everything.
pub fn labels(selector: Option<&LabelSelector>, labels: &Labels) -> bool {
    let Some(selector) = selector else {
        return false;
    };
    let equal = selector
        .match_labels
        .iter()
        .flatten()
        .all(|(key, value)| labels.get(key) == Some(value));
    equal
        && selector
            .match_expressions
            .iter()
            .flatten()
            .all(|requirement| {
                let values = requirement.values.as_deref().unwrap_or_default();
                satisfies(&requirement.operator, values, labels.get(&requirement.key))
            })
}

/// Returns whether a selector is absent or has no requirements.
pub fn is_empty(selector: Option<&LabelSelector>) -> bool {
    let is_given = |selector: &LabelSelector| {
        selector.match_labels.iter().flatten().next().is_some()
            || selector.match_expressions.iter().flatten().next().is_some()
    };
    !selector.is_some_and(is_given)
}

/// Returns whether any term selects the node. A term without requirements selects nothing.
pub fn any_term(terms: &[NodeSelectorTerm], node: &Node) -> bool {
    terms.iter().any(|term| self::term(term, node))
}

/// Returns whether any term selects a node by its labels alone, which is how the terms of volumes are evaluated.
pub fn any_term_by_labels(terms: &[NodeSelectorTerm], labels: &Labels) -> bool {
    terms.iter().any(|term| selects(term, labels, None))
}

/// Returns whether a term selects the node.
pub fn term(term: &NodeSelectorTerm, node: &Node) -> bool {
    selects(term, &node.labels, Some(&node.name))
}

fn selects(term: &NodeSelectorTerm, labels: &Labels, name: Option<&String>) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let requirement = |requirement: &NodeSelectorRequirement, value: Option<&String>| {
        satisfies(
            &requirement.operator,
            requirement.values.as_deref().unwrap_or_default(),
            value,
        )
    };
    !(expressions.is_empty() && fields.is_empty())
        && expressions
            .iter()
            .all(|item| requirement(item, labels.get(&item.key)))
        && fields
            .iter()
            .all(|item| item.key == "metadata.name" && requirement(item, name))
}

fn satisfies(operator: &str, values: &[String], value: Option<&String>) -> bool {
    let compare = |wanted: fn(i64, i64) -> bool| {
        let [limit] = values else { return false };
        match (
            value.and_then(|value| value.parse().ok()),
            limit.parse().ok(),
        ) {
            (Some(value), Some(limit)) => wanted(value, limit),
            _ => false,
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    #[rstest]
    #[case("In", &["a", "b"], true)]
    #[case("In", &["b"], false)]
    #[case("NotIn", &["b"], true)]
    #[case("NotIn", &["a"], false)]
    #[case("Exists", &[], true)]
    #[case("DoesNotExist", &[], false)]
    #[case("Gt", &["1"], false)]
    #[case("Near", &["a"], false)]
    fn operators_on_a_label(
        #[case] operator: &str,
        #[case] values: &[&str],
        #[case] expected: bool,
    ) {
        let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
        assert_eq!(
            satisfies(operator, &values, Some(&"a".to_owned())),
            expected
        );
    }

    #[rstest]
    #[case("In", false)]
    #[case("NotIn", true)]
    #[case("Exists", false)]
    #[case("DoesNotExist", true)]
    #[case("Gt", false)]
    fn operators_on_a_missing_label(#[case] operator: &str, #[case] expected: bool) {
        assert_eq!(satisfies(operator, &["1".to_owned()], None), expected);
    }

    #[rstest]
    #[case("Gt", "3", true)]
    #[case("Gt", "4", false)]
    #[case("Lt", "5", true)]
    #[case("Lt", "x", false)]
    fn numbers_are_compared_as_such(
        #[case] operator: &str,
        #[case] limit: &str,
        #[case] expected: bool,
    ) {
        assert_eq!(
            satisfies(operator, &[limit.to_owned()], Some(&"4".to_owned())),
            expected
        );
    }

    #[test]
    fn an_empty_selector_selects_all_and_none_selects_nothing() {
        let map = Labels::from([("app".to_owned(), "x".to_owned())]);
        assert!(labels(Some(&LabelSelector::default()), &map));
        assert!(!labels(None, &map));
        let selector =
            serde_json::from_value(json!({"matchLabels": {"app": "y"}})).expect("selector");
        assert!(!labels(Some(&selector), &map));
    }

    #[test]
    fn terms_are_alternatives_and_fields_know_only_the_name() {
        let node = Node {
            name: "n".to_owned(),
            ..Node::default()
        };
        let mk = |value| serde_json::from_value::<Vec<NodeSelectorTerm>>(value).expect("terms");
        assert!(!any_term(&mk(json!([{}])), &node));
        let named =
            json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]});
        assert!(any_term(&mk(json!([{}, named])), &node));
        let other =
            json!({"matchFields": [{"key": "metadata.uid", "operator": "In", "values": ["n"]}]});
        assert!(!any_term(&mk(json!([other])), &node));
    }
}
