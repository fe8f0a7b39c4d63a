//! What the embedded cluster does not act on: such objects are stored with a warning or refused, so that no test is green because nothing
//! happened.
//!
//! The lists are data, `corpus/extent.yaml`: README.tests.md shows the same. A server alone, without controllers, says nothing, as a real one.

use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value;

use crate::failure::{Failure, Subject};
use crate::registry::Resource;

/// What becomes of an object that the cluster would not act on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ignored {
    /// It is stored without a word, as by a real API server.
    #[default]
    Stored,
    /// It is stored, and the answer has a warning.
    Warned,
    /// It is refused.
    Refused,
}

#[derive(Debug, Deserialize)]
struct Extent {
    ignored: Vec<Row>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    resource: String,
    /// Path of the field that is ignored; without one the whole object is.
    field: Option<String>,
    /// The value of the field that is ignored; without one every value is.
    value: Option<Value>,
    why: String,
}

static EXTENT: LazyLock<Extent> = LazyLock::new(|| {
    let text = include_str!("../../corpus/extent.yaml");
    // a test reads the file, so the default is never used
    serde_yaml::from_str(text).unwrap_or(Extent {
        ignored: Vec::new(),
    })
});

impl Row {
    fn is_about(&self, resource: &Resource, object: &Value) -> bool {
        let given = || {
            let path = self.field.as_deref().unwrap_or_default();
            path.split('.').fold(object, |value, step| &value[step])
        };
        self.resource == resource.storage
            && match (&self.field, &self.value) {
                (None, _) => true,
                (Some(_), Some(value)) => given() == value,
                (Some(_), None) => !given().is_null(),
            }
    }

    fn message(&self) -> String {
        let what = match (&self.field, &self.value) {
            (None, _) => self.resource.clone(),
            (Some(field), None) => format!("{field} of {}", self.resource),
            (Some(field), Some(value)) => format!("{field}={value} of {}", self.resource),
        };
        format!("the embedded cluster ignores {what}: {}", self.why)
    }
}

/// Returns the warnings about what is ignored of an object, or refuses it. Of a change only that is told which was not ignored `before`. Custom
/// objects are nobody's business here.
pub(crate) fn check(
    ignored: Ignored,
    resource: &Resource,
    before: Option<&Value>,
    object: &Value,
) -> Result<Vec<String>, Failure> {
    if ignored == Ignored::Stored || resource.custom.is_some() {
        return Ok(Vec::new());
    }
    let rows = EXTENT.ignored.iter();
    let is_new = |row: &&Row| !before.is_some_and(|before| row.is_about(resource, before));
    let messages: Vec<String> = rows
        .filter(|row| row.is_about(resource, object))
        .filter(is_new)
        .map(Row::message)
        .collect();
    match messages.first() {
        Some(first) if ignored == Ignored::Refused => {
            let subject = Subject {
                group: &resource.group,
                resource: &resource.plural,
                name: object["metadata"]["name"].as_str().unwrap_or_default(),
            };
            let why = format!("{first}; a cluster that is not strict stores it with a warning");
            Err(Failure::forbidden(&subject, &why))
        }
        _ => Ok(messages),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::registry::built_in;

    fn warnings(ignored: Ignored, storage: &str, object: &Value) -> Result<Vec<String>, String> {
        check(ignored, resource(storage), None, object).map_err(|failure| failure.message)
    }

    fn resource(storage: &str) -> &'static Resource {
        let mut known = built_in().ordered.iter();
        known.find(|resource| resource.storage == storage).unwrap()
    }

    #[test]
    fn of_a_change_only_what_it_adds_is_told() {
        let of = |strategy: &str| json!({"spec": {"conversion": {"strategy": strategy}}});
        let (none, webhook) = (of("None"), of("Webhook"));
        let told = |before: &Value, object: &Value| {
            let storage = "customresourcedefinitions.apiextensions.k8s.io";
            let told = check(Ignored::Warned, resource(storage), Some(before), object);
            told.map_err(|failure| failure.message).unwrap().len()
        };
        assert_eq!(told(&none, &webhook), 1);
        assert_eq!(told(&webhook, &webhook), 0);
        assert_eq!(told(&webhook, &none), 0);
        let claims = resource("persistentvolumeclaims");
        let changed = check(Ignored::Refused, claims, Some(&none), &webhook);
        assert!(changed.is_ok_and(|told| told.is_empty()));
    }

    #[rstest]
    #[case::a_pod_with_claims("pods", json!({"spec": {"resourceClaims": []}}),
        Some("the embedded cluster ignores spec.resourceClaims of pods: the pod runs without the devices of its claims"))]
    #[case::a_pod("pods", json!({"spec": {}}), None)]
    #[case::a_token("secrets", json!({"type": "kubernetes.io/service-account-token"}),
        Some("the embedded cluster ignores type=\"kubernetes.io/service-account-token\" of secrets: no controller adds a token"))]
    #[case::a_conversion("customresourcedefinitions.apiextensions.k8s.io", json!({"spec": {"conversion": {"strategy": "Webhook"}}}),
        Some("the embedded cluster ignores spec.conversion.strategy=\"Webhook\" of customresourcedefinitions.apiextensions.k8s.io: objects keep their fields in every version and only their version is changed"))]
    #[case::no_conversion("customresourcedefinitions.apiextensions.k8s.io", json!({"spec": {"conversion": {"strategy": "None"}}}), None)]
    #[case::another_secret("secrets", json!({"type": "Opaque"}), None)]
    #[case::an_autoscaler("horizontalpodautoscalers.autoscaling", json!({}),
        Some("the embedded cluster ignores horizontalpodautoscalers.autoscaling: no controller scales"))]
    #[case::a_deployment("deployments.apps", json!({}), None)]
    fn what_is_ignored_is_told(
        #[case] storage: &str,
        #[case] object: Value,
        #[case] expected: Option<&str>,
    ) {
        let expected: Vec<String> = expected.map(str::to_owned).into_iter().collect();
        let silent = warnings(Ignored::Stored, storage, &object);
        assert_eq!(silent, Ok(Vec::new()));
        let refused = warnings(Ignored::Refused, storage, &object).is_err();
        assert_eq!(refused, !expected.is_empty());
        let told = warnings(Ignored::Warned, storage, &object);
        assert_eq!(told, Ok(expected));
    }

    #[test]
    fn every_built_in_resource_is_in_one_list() {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Lists {
            acts: Vec<String>,
            inert: Vec<Inert>,
            ignored: Vec<Row>,
        }
        #[derive(Deserialize)]
        struct Inert {
            resource: String,
        }
        let text = include_str!("../../corpus/extent.yaml");
        let lists: Lists = serde_yaml::from_str(text).unwrap();
        let whole = lists.ignored.iter();
        let whole = whole.filter(|row| row.field.is_none());
        let inert = lists.inert.iter().map(|row| &row.resource);
        let mut named: Vec<&str> = lists
            .acts
            .iter()
            .chain(inert)
            .chain(whole.map(|row| &row.resource))
            .map(String::as_str)
            .collect();
        named.sort_unstable();
        let known = built_in().ordered.iter();
        let known: BTreeSet<&str> = known.map(|resource| resource.storage.as_str()).collect();
        let known: Vec<&str> = known.into_iter().collect();
        assert_eq!(named, known);
        for row in &lists.ignored {
            assert!(known.contains(&row.resource.as_str()), "{}", row.resource);
        }
    }
}
