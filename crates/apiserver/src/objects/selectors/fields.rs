//! Field selectors: `metadata.name=a,spec.nodeName!=b`, with the fields that each kind supports.

use serde_json::Value;

use crate::failure::Failure;
use crate::registry::Resource;
use crate::values::fields::elements;

const NAME: &str = "metadata.name";
const NAMESPACE: &str = "metadata.namespace";
const RESOURCE_SLICES: &str = "resourceslices.resource.k8s.io";

/// Built-in kinds with selectable fields besides the name. Namespaced kinds also have `metadata.namespace`.
const KINDS: &[(&str, &[&str])] = &[
    (
        "pods",
        &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
    ),
    ("nodes", &["spec.unschedulable"]),
    ("replicationcontrollers", &["status.replicas"]),
    (
        "events",
        &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
    ),
    ("namespaces", &["status.phase"]),
    ("secrets", &["type"]),
    ("services", &["spec.clusterIP", "spec.type"]),
    ("jobs.batch", &["status.successful"]),
    (
        "certificatesigningrequests.certificates.k8s.io",
        &["spec.signerName"],
    ),
    (RESOURCE_SLICES, &["spec.driver", "spec.nodeName"]),
];

/// Requirements on fields; all of them must be met.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FieldSelector(Vec<(String, String, bool)>);

impl FieldSelector {
    /// Parses the selector of a query for objects of a resource.
    pub(crate) fn parse(text: &str, resource: &Resource) -> Result<Self, Failure> {
        let mut terms = split(text);
        terms.sort_unstable();
        let mut list = Vec::new();
        for term in terms.into_iter().filter(|term| !term.is_empty()) {
            let Some((field, value, equal)) = split_requirement(term) else {
                return Err(Failure::bad_request(format!(
                    "invalid selector: '{text}'; can't understand '{term}'"
                )));
            };
            let value = unescape(value).map_err(Failure::bad_request)?;
            list.push((field, value, equal));
        }
        let stored = list
            .into_iter()
            .map(|(field, value, equal)| Ok((stored_path(field, resource)?, value, equal)));
        stored.collect::<Result<_, _>>().map(Self)
    }

    /// Returns whether there are no requirements, so that every object matches.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether an object's fields meet all requirements.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|(path, wanted, equal)| {
            if path == "status.podIPs" {
                let list = elements(&object["status"]["podIPs"]);
                let has = list.into_iter().any(|ip| ip["ip"] == wanted.as_str());
                return has == *equal;
            }
            if path == "source" {
                // the source of an event is its component, or else who reported it
                let component = &object["source"]["component"];
                let component = component.as_str().filter(|name| !name.is_empty());
                let source = component.or_else(|| object["reportingComponent"].as_str());
                return (source.unwrap_or_default() == wanted) == *equal;
            }
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

/// Returns the name that a selector requires, if any. Authorization uses it for users who may read only named objects.
pub(crate) fn required_name(text: &str) -> Option<&str> {
    split(text)
        .into_iter()
        .filter_map(split_requirement)
        .find(|(field, _, equal)| *field == NAME && *equal)
        .map(|(_, value, _)| value)
}

/// Returns the name of the field in objects; the error says that the kind does not support it.
fn stored_path(field: &str, resource: &Resource) -> Result<String, Failure> {
    let refused = || {
        Err(Failure::bad_request(format!(
            "field label not supported: {field}"
        )))
    };
    if let Some(custom) = &resource.custom {
        let is_known = field == NAME
            || (field == NAMESPACE && resource.namespaced)
            || custom.selectable.iter().any(|known| known == field);
        return if is_known {
            Ok(field.to_owned())
        } else {
            refused()
        };
    }
    if resource.group == "events.k8s.io" && resource.plural == "events" {
        return match field {
            NAME | NAMESPACE | "reason" | "type" => Ok(field.to_owned()),
            "reportingController" => Ok("reportingComponent".to_owned()),
            other => match other.strip_prefix("regarding.") {
                Some(inner) => Ok(format!("involvedObject.{inner}")),
                None => refused(),
            },
        };
    }
    let Some((_, fields)) = KINDS.iter().find(|(kind, _)| *kind == resource.storage) else {
        return if field == NAME || field == NAMESPACE {
            Ok(field.to_owned())
        } else {
            Err(Failure::bad_request(format!(
                "{field:?} is not a known field selector: only {NAME:?}, {NAMESPACE:?}"
            )))
        };
    };
    if resource.storage == "pods" && field == "spec.host" {
        return Ok("spec.nodeName".to_owned());
    }
    if field == NAME || (field == NAMESPACE && resource.namespaced) || fields.contains(&field) {
        return Ok(field.to_owned());
    }
    if resource.storage == "jobs.batch" {
        return Err(Failure::bad_request(format!(
            "field label {field:?} not supported for Job"
        )));
    }
    if resource.storage == RESOURCE_SLICES {
        return Err(Failure::bad_request(format!(
            "field label not supported for {}, Kind={}: {field}",
            resource.api_version(),
            resource.kind
        )));
    }
    refused()
}

/// Splits at commas without a backslash before them.
fn split(text: &str) -> Vec<&str> {
    let mut escaped = false;
    text.split(|c| {
        let splits = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        splits
    })
    .collect()
}

fn split_requirement(term: &str) -> Option<(&str, &str, bool)> {
    let at = term.char_indices().find_map(|(at, _)| {
        let rest = &term[at..];
        ["!=", "==", "="]
            .into_iter()
            .find(|sign| rest.starts_with(sign))
            .map(|sign| (at, sign))
    });
    let (at, sign) = at?;
    Some((&term[..at], &term[at + sign.len()..], sign != "!="))
}

fn unescape(text: &str) -> Result<String, String> {
    let mut value = String::new();
    let mut rest = text.chars();
    while let Some(letter) = rest.next() {
        match letter {
            '\\' => match rest.next() {
                Some(escaped @ ('\\' | ',' | '=')) => value.push(escaped),
                other => {
                    let sequence: String = "\\".chars().chain(other).collect();
                    return Err(format!(
                        "invalid field selector: invalid escape sequence: {sequence}"
                    ));
                }
            },
            ',' | '=' => {
                return Err(format!(
                    "invalid field selector: unescaped character in value: {letter}"
                ));
            }
            other => value.push(other),
        }
    }
    Ok(value)
}
