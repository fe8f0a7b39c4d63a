//! Events have two forms, one in each of their groups. They are stored in the form of the core group.

use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::registry::Resource;
use crate::schema::{Node, shape};

const GROUP: &str = "events.k8s.io";
/// Fields of the newer form, with the names under which they are stored.
const FIELDS: [(&str, &str); 7] = [
    ("note", "message"),
    ("regarding", "involvedObject"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

static SCHEMA: LazyLock<Value> = LazyLock::new(|| json!({"$ref": "io.k8s.api.core.v1.Event"}));

/// Returns whether a resource shows events in the newer form.
pub(crate) fn is_in_events_group(resource: &Resource) -> bool {
    resource.group == GROUP && resource.plural == "events"
}

fn rename(object: &mut Value, names: impl Iterator<Item = (&'static str, &'static str)>) {
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    for (from, to) in names {
        if let Some(value) = fields.remove(from) {
            fields.insert(to.to_owned(), value);
        }
    }
}

/// Converts an event of a request to the stored form.
pub(crate) fn to_core_form(resource: &Resource, object: &mut Value) {
    if is_in_events_group(resource) && object["apiVersion"] != "v1" {
        rename(object, FIELDS.into_iter());
        object["apiVersion"] = json!("v1");
        tidy(object);
    }
}

/// Brings a stored event into its shape.
pub(crate) fn tidy(object: &mut Value) {
    shape::tidy(Node::new(&SCHEMA), object);
}

/// Converts a stored event to the form of a resource.
pub(crate) fn from_core_form(resource: &Resource, object: &mut Value) {
    if is_in_events_group(resource) {
        rename(object, FIELDS.into_iter().map(|(new, old)| (old, new)));
        object["apiVersion"] = json!(resource.api_version());
        shape::tidy(resource.schema(), object);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_names_of_a_field_come_back() {
        let mut event =
            json!({"apiVersion": "events.k8s.io/v1", "note": "n", "regarding": {"name": "p"}});
        rename(&mut event, FIELDS.into_iter());
        assert_eq!(
            event,
            json!({"apiVersion": "events.k8s.io/v1", "message": "n", "involvedObject": {"name": "p"}})
        );
        rename(&mut event, FIELDS.into_iter().map(|(new, old)| (old, new)));
        assert_eq!(event["note"], "n");
        assert_eq!(event["regarding"]["name"], "p");
    }
}
