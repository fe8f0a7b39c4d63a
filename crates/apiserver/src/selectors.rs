//! Label and field selectors as query parameters and as `LabelSelector` values.

use serde_json::Value;

use super::failure::Failure;

#[derive(Clone, Debug, PartialEq)]
enum Operator {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    Above(i64),
    Below(i64),
}

/// Requirements on labels; all have to hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LabelSelector(Vec<(String, Operator)>);

impl LabelSelector {
    /// The selector of a query: `a=b,c!=d,e in (f,g),!h,i`.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let refuse = || {
            Failure::bad_request(format!(
                "unable to parse requirement: found '{}', expected: !, identifier, or 'end of string'",
                text.trim_start_matches(|c: char| c.is_alphanumeric())
                    .get(..1)
                    .unwrap_or("")
            ))
        };
        let mut list = Vec::new();
        for part in split(text) {
            let part = part.trim();
            if part.is_empty() {
                continue;
            }
            list.push(requirement(part).ok_or_else(refuse)?);
        }
        Ok(Self(list))
    }

    /// Whether an object's labels meet all requirements.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.0.iter().all(|(key, operator)| {
            let value = labels.get(key).and_then(Value::as_str);
            match operator {
                Operator::In(values) => {
                    value.is_some_and(|value| values.iter().any(|v| v == value))
                }
                Operator::NotIn(values) => {
                    value.is_none_or(|value| values.iter().all(|v| v != value))
                }
                Operator::Exists => value.is_some(),
                Operator::Absent => value.is_none(),
                Operator::Above(bound) => number(value).is_some_and(|value| value > *bound),
                Operator::Below(bound) => number(value).is_some_and(|value| value < *bound),
            }
        })
    }
}

/// Whether a `LabelSelector` selects these labels; none selects nothing, an empty one everything.
pub(crate) fn selects(selector: &Value, labels: &Value) -> bool {
    if !selector.is_object() {
        return false;
    }
    let pairs = selector["matchLabels"].as_object().into_iter().flatten();
    let mut expressions = selector["matchExpressions"]
        .as_array()
        .into_iter()
        .flatten();
    pairs
        .into_iter()
        .all(|(key, value)| labels.get(key) == Some(value))
        && expressions.all(|expression| {
            let value = labels.get(expression["key"].as_str().unwrap_or_default());
            let listed = || {
                let values = expression["values"].as_array().into_iter().flatten();
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

/// A `LabelSelector` as it stands in a query.
pub(crate) fn text(selector: &Value) -> String {
    let mut parts = Vec::new();
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        parts.push((
            key.clone(),
            format!("{key}={}", value.as_str().unwrap_or_default()),
        ));
    }
    for expression in selector["matchExpressions"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let key = expression["key"].as_str().unwrap_or_default();
        let mut values: Vec<&str> = expression["values"]
            .as_array()
            .into_iter()
            .flatten()
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

fn number(value: Option<&str>) -> Option<i64> {
    value.and_then(|value| value.parse().ok())
}

/// Splits at commas outside of parentheses.
fn split(text: &str) -> Vec<&str> {
    let mut depth = 0;
    text.split(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
    .collect()
}

fn requirement(part: &str) -> Option<(String, Operator)> {
    let one = |key: &str, value: &str, make: fn(Vec<String>) -> Operator| {
        let (key, value) = (key.trim(), value.trim());
        (is_key(key) && is_value(value)).then(|| (key.to_owned(), make(vec![value.to_owned()])))
    };
    if let Some(key) = part.strip_prefix('!') {
        let key = key.trim();
        return is_key(key).then(|| (key.to_owned(), Operator::Absent));
    }
    if let Some((key, value)) = part.split_once("!=") {
        return one(key, value, Operator::NotIn);
    }
    if let Some((key, value)) = part.split_once("==") {
        return one(key, value, Operator::In);
    }
    if let Some((key, value)) = part.split_once('=') {
        return one(key, value, Operator::In);
    }
    if let Some((key, value)) = part.split_once('>') {
        return Some((
            key.trim().to_owned(),
            Operator::Above(value.trim().parse().ok()?),
        ));
    }
    if let Some((key, value)) = part.split_once('<') {
        return Some((
            key.trim().to_owned(),
            Operator::Below(value.trim().parse().ok()?),
        ));
    }
    if let Some((head, values)) = part.split_once('(') {
        let values = values.strip_suffix(')')?;
        let values: Vec<String> = values.split(',').map(|v| v.trim().to_owned()).collect();
        let mut words = head.split_whitespace();
        let key = words.next()?.to_owned();
        let operator = match words.next()? {
            "in" => Operator::In(values),
            "notin" => Operator::NotIn(values),
            _ => return None,
        };
        return words.next().is_none().then_some((key, operator));
    }
    is_key(part).then(|| (part.to_owned(), Operator::Exists))
}

fn is_key(text: &str) -> bool {
    !text.is_empty()
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c))
}

fn is_value(text: &str) -> bool {
    text.chars()
        .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// Requirements on fields; all have to hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FieldSelector(Vec<(String, String, bool)>);

impl FieldSelector {
    /// The selector of a query: `metadata.name=a,spec.nodeName!=b`. Only `supported` fields and the object's own names may be
    /// used.
    pub(crate) fn parse(text: &str, supported: &[&str], namespaced: bool) -> Result<Self, Failure> {
        let mut list = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (key, value, equal) = if let Some((key, value)) = part.split_once("!=") {
                (key, value, false)
            } else if let Some((key, value)) = part.split_once("==") {
                (key, value, true)
            } else if let Some((key, value)) = part.split_once('=') {
                (key, value, true)
            } else {
                return Err(Failure::bad_request(format!(
                    "invalid selector: {text:?}; can't understand {part:?}"
                )));
            };
            let known = key == "metadata.name"
                || (key == "metadata.namespace" && namespaced)
                || supported.contains(&key);
            if !known {
                return Err(Failure::bad_request(format!(
                    "field label not supported: {key}"
                )));
            }
            list.push((key.to_owned(), value.to_owned(), equal));
        }
        Ok(Self(list))
    }

    /// Whether an object's fields meet all requirements.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|(path, wanted, equal)| {
            let mut value = object;
            for step in path.split('.') {
                value = &value[step];
            }
            let seen = match value {
                Value::Null => match path.as_str() {
                    "spec.unschedulable" | "spec.hostNetwork" => "false".to_owned(),
                    "status.replicas" | "status.successful" => "0".to_owned(),
                    _ => String::new(),
                },
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            (seen == *wanted) == *equal
        })
    }
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
    fn labels_are_selected(#[case] selector: &str, #[case] expected: bool) {
        let object = json!({"metadata": {"labels": {"a": "b", "n": "4"}}});
        assert_eq!(
            LabelSelector::parse(selector).unwrap().matches(&object),
            expected
        );
    }

    #[test]
    fn unknown_fields_are_refused() {
        let refused = FieldSelector::parse("spec.color=red", &["spec.nodeName"], true).unwrap_err();
        assert_eq!(refused.message, "field label not supported: spec.color");
    }
}
