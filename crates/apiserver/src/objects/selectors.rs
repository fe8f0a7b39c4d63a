//! Label and field selectors, as query parameters and as `LabelSelector` values.

use serde_json::Value;

pub(crate) use self::fields::{FieldSelector, required_name};
use self::labels::Operator;
use crate::failure::Failure;
use crate::values::fields::{elements, members};

mod fields;
mod labels;
mod names;

/// Requirements on labels; all of them must be met.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LabelSelector(Vec<(String, Operator)>);

impl LabelSelector {
    /// Parses the selector of a query: `a=b,c!=d,e in (f,g),!h,i`.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        labels::parse(text).map(Self).map_err(Failure::bad_request)
    }

    /// Returns whether there are no requirements, so that every object matches.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether an object's labels meet all requirements.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.0.iter().all(|(key, operator)| {
            let value = labels.get(key).and_then(Value::as_str);
            match operator {
                Operator::In(values) => value.is_some_and(|value| values.contains(value)),
                Operator::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
                Operator::Exists => value.is_some(),
                Operator::Absent => value.is_none(),
                Operator::Above(bound) => number(value).is_some_and(|value| value > *bound),
                Operator::Below(bound) => number(value).is_some_and(|value| value < *bound),
            }
        })
    }
}

fn number(value: Option<&str>) -> Option<i64> {
    value.and_then(|value| value.parse().ok())
}

/// Returns whether a `LabelSelector` selects these labels; a missing one selects nothing, an empty one everything.
pub(crate) fn selects(selector: &Value, labels: &Value) -> bool {
    if !selector.is_object() {
        return false;
    }
    let pairs = members(&selector["matchLabels"]);
    let mut expressions = elements(&selector["matchExpressions"]);
    pairs
        .into_iter()
        .all(|(key, value)| labels.get(key) == Some(value))
        && expressions.all(|expression| {
            let value = labels.get(expression["key"].as_str().unwrap_or_default());
            let listed = || {
                let values = elements(&expression["values"]);
                values.into_iter().any(|listed| Some(listed) == value)
            };
            match expression["operator"].as_str() {
                Some("In") => listed(),
                Some("NotIn") => !listed(),
                Some("Exists") => value.is_some(),
                Some("DoesNotExist") => value.is_none(),
                _ => false,
            }
        })
}

/// Returns a `LabelSelector` in the form of a query.
pub(crate) fn text(selector: &Value) -> String {
    let mut parts = Vec::new();
    for (key, value) in members(&selector["matchLabels"]) {
        parts.push((
            key.clone(),
            format!("{key}={}", value.as_str().unwrap_or_default()),
        ));
    }
    for expression in elements(&selector["matchExpressions"]) {
        let key = expression["key"].as_str().unwrap_or_default();
        let mut values: Vec<&str> = elements(&expression["values"])
            .filter_map(Value::as_str)
            .collect();
        values.sort_unstable();
        let values = values.join(",");
        let part = match expression["operator"].as_str() {
            Some("In") => format!("{key} in ({values})"),
            Some("NotIn") => format!("{key} notin ({values})"),
            Some("Exists") => key.to_owned(),
            _ => format!("!{key}"),
        };
        parts.push((key.to_owned(), part));
    }
    parts.sort();
    let parts: Vec<String> = parts.into_iter().map(|(_, part)| part).collect();
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::equal("a=b", true)]
    #[case::double("a==b", true)]
    #[case::unequal("a!=b", false)]
    #[case::absent_is_unequal("z!=b", true)]
    #[case::one_of("a in (x, b),n", true)]
    #[case::none_of("a notin (x,y)", true)]
    #[case::missing("!z", true)]
    #[case::above("n>3", true)]
    #[case::below("n<3", false)]
    #[case::in_as_a_key("!in", true)]
    #[case::empty_set("z in ()", false)]
    fn labels_are_selected(#[case] selector: &str, #[case] expected: bool) {
        let object = json!({"metadata": {"labels": {"a": "b", "n": "4"}}});
        assert_eq!(
            LabelSelector::parse(selector).unwrap().matches(&object),
            expected
        );
    }
}
