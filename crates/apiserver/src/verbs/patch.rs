//! Patches: what they make of an object is written as a replacement.

use serde_json::Value;

use super::{Answer, Request};
use crate::failure::Failure;
use crate::store::State;

impl Request<'_> {
    /// A JSON patch or a merge patch of an object.
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
            _ => {
                return Err(Failure::unsupported_media_type(&[
                    "application/json-patch+json",
                    "application/merge-patch+json",
                ]));
            }
        }
        self.write(state, object)
    }
}
