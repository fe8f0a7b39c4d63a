//! Patches: what they make of an object is written as a replacement.

use serde_json::{Map, Value};

use super::{Answer, Request, now};
use crate::apply::Tracker;
use crate::failure::{Cause, Failure, Subject};
use crate::store::State;
use crate::strategic;

impl Request<'_> {
    /// A JSON patch, a merge patch or a strategic merge patch of an object.
    pub(crate) fn patch(&self, state: &mut State) -> Result<Answer, Failure> {
        if self.applies() {
            return self.apply(state);
        }
        let object = self.present(self.existing(state)?);
        let object = self.patched(object)?;
        self.write(state, object)
    }

    /// What the patch makes of an object.
    pub(super) fn patched(&self, mut object: Value) -> Result<Value, Failure> {
        let unreadable = |error: &dyn std::fmt::Display| {
            Failure::bad_request(format!("error decoding patch: {error}"))
        };
        match self.content_type {
            "application/json-patch+json" => {
                let patch: json_patch::Patch =
                    serde_json::from_slice(self.body).map_err(|error| unreadable(&error))?;
                json_patch::patch(&mut object, &patch).map_err(|_| {
                    Failure::unprocessable(
                        "the server rejected our request due to an error in our request",
                    )
                })?;
            }
            "application/merge-patch+json" => {
                let patch: Value =
                    serde_json::from_slice(self.body).map_err(|error| unreadable(&error))?;
                json_patch::merge(&mut object, &patch);
            }
            "application/strategic-merge-patch+json" if self.resource.custom.is_none() => {
                let patch: Map<String, Value> =
                    serde_json::from_slice(self.body).map_err(|error| unreadable(&error))?;
                let fields = std::mem::take(&mut object)
                    .as_object()
                    .cloned()
                    .unwrap_or_default();
                let schema = self.resource.schema();
                object = strategic::apply(schema, fields, patch)
                    .map(Value::Object)
                    .map_err(|error| {
                        if error.is_bad_request() {
                            Failure::bad_request(error.to_string())
                        } else {
                            Failure::unnamed(error.to_string())
                        }
                    })?;
            }
            _ => {
                let mut known = vec![
                    "application/json-patch+json",
                    "application/merge-patch+json",
                    "application/apply-patch+yaml",
                ];
                if self.resource.custom.is_none() {
                    known.insert(2, "application/strategic-merge-patch+json");
                }
                return Err(Failure::unsupported_media_type(&known));
            }
        }
        Ok(object)
    }

    /// A server-side apply: it makes the object where there is none.
    fn apply(&self, state: &mut State) -> Result<Answer, Failure> {
        let manager = self.parameter("fieldManager");
        if manager.is_empty() {
            let subject = Subject {
                group: "meta.k8s.io",
                resource: "PatchOptions",
                name: "",
            };
            let cause = Cause::required("fieldManager", "is required for apply patch");
            return Err(Failure::invalid(&subject, &[cause]));
        }
        let configuration: Value = serde_yaml::from_slice(self.body)
            .map_err(|error| Failure::bad_request(format!("error decoding YAML: {error}")))?;
        let force = self.parameter("force") == "true";
        let now = now();
        let tracker = Tracker::new(self.resource, self.subresource, &now);
        let before = match self.existing(state) {
            Ok(before) => Some(self.present(before)),
            Err(missing) if !self.subresource.is_empty() => return Err(missing),
            Err(_) => None,
        };
        let object = tracker.apply(before.as_ref(), &configuration, manager, force)?;
        if before.is_some() {
            return self.write(state, object);
        }
        if let Some(uid) = object["metadata"]["uid"].as_str() {
            let why = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            );
            return Err(Failure::conflict(&self.subject(), &why));
        }
        self.create_object(state, object)
    }
}
