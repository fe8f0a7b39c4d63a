//! Patches: what they make of an object is written as a replacement.

use serde_json::{Map, Value};

use super::{Answer, Request};
use crate::failure::Failure;
use crate::store::State;
use crate::strategic;

impl Request<'_> {
    /// A JSON patch, a merge patch or a strategic merge patch of an object.
    pub(crate) fn patch(&self, state: &mut State) -> Result<Answer, Failure> {
        let mut object = self.present(self.existing(state)?);
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
        self.write(state, object)
    }
}
