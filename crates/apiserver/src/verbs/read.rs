//! Reading: one object, pages of lists, and what selectors leave of them.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Answer, Request};
use crate::failure::Failure;
use crate::selectors::{FieldSelector, LabelSelector};
use crate::store::{Key, State};

/// Fields by which built-in kinds can be selected, beside their names.
const SELECTABLE: &[(&str, &[&str])] = &[
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
            "status.nominatedNodeName",
        ],
    ),
    ("nodes", &["spec.unschedulable"]),
    (
        "events",
        &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
    ),
    ("namespaces", &["status.phase"]),
    ("secrets", &["type"]),
    ("jobs.batch", &["status.successful"]),
];

/// The objects that a list or a watch is about.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    labels: LabelSelector,
    fields: FieldSelector,
    name: String,
}

impl Filter {
    /// Whether an object is among them.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        (self.name.is_empty() || object["metadata"]["name"] == self.name.as_str())
            && self.labels.matches(object)
            && self.fields.matches(object)
    }
}

impl Request<'_> {
    /// The selectors of the query.
    pub(crate) fn filter(&self) -> Result<Filter, Failure> {
        let mut fields: Vec<&str> = SELECTABLE
            .iter()
            .filter(|(storage, _)| *storage == self.resource.storage)
            .flat_map(|(_, fields)| fields.iter().copied())
            .collect();
        if let Some(custom) = &self.resource.custom {
            fields.extend(custom.selectable.iter().map(String::as_str));
        }
        Ok(Filter {
            labels: LabelSelector::parse(self.parameter("labelSelector"))?,
            fields: FieldSelector::parse(
                self.parameter("fieldSelector"),
                &fields,
                self.resource.namespaced,
            )?,
            name: self.name.to_owned(),
        })
    }

    /// One object.
    pub(crate) fn get(&self, state: &State) -> Result<Answer, Failure> {
        Ok(Answer::ok(self.present(self.existing(state)?)))
    }

    /// A page of a list.
    pub(crate) fn list(&self, state: &State) -> Result<Answer, Failure> {
        let filter = self.filter()?;
        if let Ok(wanted) = self.parameter("resourceVersion").parse::<u64>()
            && wanted > state.version()
        {
            return Err(Failure::future_version(wanted, state.version()));
        }
        let limit: usize = self.parameter("limit").parse().unwrap_or(0);
        let (start, version) = match self.parameter("continue") {
            "" => (None, state.version()),
            token => {
                let (version, key) = parse_continue(token).ok_or_else(|| {
                    Failure::bad_request("continue key is not valid: the token cannot be read")
                })?;
                // pages are read from the newest state, so a list may go on only while nothing of it changed
                if state.version_of(&self.resource.storage) > version || version < state.compacted()
                {
                    return Err(Failure::expired(
                        "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.",
                    ));
                }
                (Some(key), version)
            }
        };
        let rest: Vec<(&Key, &Arc<Value>)> = state
            .list(&self.resource.storage, self.namespace)
            .filter(|(key, _)| {
                start
                    .as_ref()
                    .is_none_or(|(namespace, name)| (&key.namespace, &key.name) > (namespace, name))
            })
            .filter(|(_, object)| filter.matches(object))
            .collect();
        let taken = if limit == 0 {
            rest.len()
        } else {
            limit.min(rest.len())
        };
        let mut items: Vec<Value> = rest[..taken]
            .iter()
            .map(|(_, object)| self.present(object))
            .collect();
        if self.resource.custom.is_none() {
            // built-in lists name the kind once
            for item in items.iter_mut().filter_map(Value::as_object_mut) {
                item.remove("apiVersion");
                item.remove("kind");
            }
        }
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if taken < rest.len() && taken > 0 {
            let last = rest[taken - 1].0;
            metadata["continue"] = json!(format!("{version}:{}/{}", last.namespace, last.name));
            metadata["remainingItemCount"] = json!(rest.len() - taken);
        }
        Ok(Answer::ok(json!({
            "kind": self.resource.list_kind, "apiVersion": self.resource.api_version(),
            "metadata": metadata, "items": items,
        })))
    }
}

/// The position that a continue token stands for: version, namespace, name.
fn parse_continue(token: &str) -> Option<(u64, (String, String))> {
    let (version, key) = token.split_once(':')?;
    let (namespace, name) = key.split_once('/')?;
    Some((
        version.parse().ok()?,
        (namespace.to_owned(), name.to_owned()),
    ))
}
