//! Patches. The patched object is written as a replacement.

use json_patch::{AddOperation, PatchOperation};
use serde_json::{Map, Value};

use super::body::{go_json_error, go_type, go_yaml_error};
use super::create::CreatedBy;
use super::repeated::repeated_key;
use super::request::{Answer, Request};
use crate::access::target::is_true;
use crate::admission::validation::{self, meta};
use crate::failure::{Cause, Failure, Subject};
use crate::objects::apply::Tracker;
use crate::schema::decode::decode;
use crate::schema::{strategic, unstructured};
use crate::storage::State;
use crate::values::go::go_text;
use crate::values::times::now;

const STRATEGIC: &str = "application/strategic-merge-patch+json";
/// Content types of patches.
const PATCHES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    STRATEGIC,
    "application/apply-patch+yaml",
];

/// Changes an object by the operations of a JSON patch; `None` when one of them fails.
fn change(object: &mut Value, patch: Value) -> Option<()> {
    let operations: Vec<PatchOperation> = serde_json::from_value(patch).ok()?;
    for operation in operations {
        // a missing field can be replaced if its parent exists
        let operation = match operation {
            PatchOperation::Replace(replace) if object.pointer(replace.path.as_str()).is_none() => {
                PatchOperation::Add(AddOperation {
                    path: replace.path,
                    value: replace.value,
                })
            }
            other => other,
        };
        json_patch::patch(object, &[operation]).ok()?;
    }
    Some(())
}

/// Returns a refusal that names no object.
fn no_object(cause: &Cause) -> Failure {
    let nothing = Subject {
        group: "",
        resource: "",
        name: "",
    };
    Failure::invalid(&nothing, std::slice::from_ref(cause))
}

impl Request<'_> {
    /// Applies any kind of patch to an object.
    pub(crate) fn patch(&self, state: &mut State) -> Result<Answer, Failure> {
        if self.applies() {
            return self.apply(state);
        }
        let before = self.in_requested_version(self.existing(state)?);
        let object = self.changed(&before)?;
        self.write(state, object)
    }

    /// Returns an existing object after any kind of patch.
    pub(super) fn patched_object(&self, before: &Value) -> Result<Value, Failure> {
        if self.applies() {
            self.applied(Some(before))
        } else {
            self.changed(before)
        }
    }

    fn changed(&self, before: &Value) -> Result<Value, Failure> {
        let object = self.patched(before.clone())?;
        self.check_decodable(&object)?;
        self.check_name_and_namespace(&object)?;
        self.check_untouched(before, &object)?;
        Ok(object)
    }

    /// Returns an object after a patch that is not an apply.
    pub(super) fn patched(&self, mut object: Value) -> Result<Value, Failure> {
        let unreadable = |error: &dyn std::fmt::Display| {
            Failure::bad_request(format!("error decoding patch: {error}"))
        };
        match self.content_type {
            "application/json-patch+json" => {
                let patch = self.read_patch("[]handlers.jsonPatchOp", Value::is_array)?;
                change(&mut object, patch).ok_or_else(|| {
                    Failure::unprocessable(
                        "the server rejected our request due to an error in our request",
                    )
                })?;
            }
            "application/merge-patch+json" => {
                let patch = self.read_patch("map[string]interface {}", Value::is_object)?;
                json_patch::merge(&mut object, &patch);
            }
            STRATEGIC if self.resource.custom.is_none() => {
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
                            Failure::internal_without_reason(error.to_string())
                        }
                    })?;
            }
            _ => {
                if self.resource.custom.is_none() && !PATCHES.contains(&self.content_type) {
                    return Err(Failure::media_type_refused());
                }
                let known: Vec<&str> = PATCHES
                    .iter()
                    .copied()
                    .filter(|known| self.resource.custom.is_none() || !known.contains("strategic"))
                    .collect();
                return Err(Failure::unsupported_media_type(&known));
            }
        }
        Ok(object)
    }

    /// Parses the body of a patch that must have a certain JSON type.
    fn read_patch(&self, go_name: &str, is: fn(&Value) -> bool) -> Result<Value, Failure> {
        let refuse = |why: String| Failure::bad_request(format!("error decoding patch: {why}"));
        let patch: Value = serde_json::from_slice(self.body)
            .map_err(|error| refuse(go_json_error(self.body, &error)))?;
        if is(&patch) {
            Ok(patch)
        } else {
            Err(refuse(format!(
                "json: cannot unmarshal {} into Go value of type {go_name}",
                go_type(&patch)
            )))
        }
    }

    /// Checks that a patched object still decodes as its kind.
    fn check_decodable(&self, object: &Value) -> Result<(), Failure> {
        if self.resource.custom.is_some() {
            return Ok(());
        }
        let schema = self.resource.schema();
        let why = if self.content_type == STRATEGIC {
            unstructured::problem(schema, object)
        } else {
            self.unknown_kind(object)
        };
        let findings = || decode(schema, &mut object.clone()).undecodable;
        match why.or_else(findings) {
            Some(why) => Err(self.unfit(object, &why)),
            None => Ok(()),
        }
    }

    /// Returns the refusal of what a patch has made of an object, for a reason that lies in the result.
    pub(super) fn unfit(&self, object: &Value, why: &str) -> Failure {
        let text = if self.content_type == STRATEGIC {
            let patch: Value = serde_json::from_slice(self.body).unwrap_or_default();
            go_text(&patch)
        } else {
            object.to_string()
        };
        no_object(&Cause::invalid("patch", &Value::String(text), why))
    }

    /// Refuses a patch that changes fields which only the server writes.
    fn check_untouched(&self, before: &Value, object: &Value) -> Result<(), Failure> {
        for field in ["uid", "deletionTimestamp"] {
            let path = format!("metadata.{field}");
            let (was, is) = (&before["metadata"][field], &object["metadata"][field]);
            if was != is && !is.is_null() {
                let cause = Cause::invalid(path, is, "field is immutable");
                // the checks of the kind report it, if they look at the metadata, and then a check for all kinds
                let mut causes = vec![cause.clone(); meta::change_checks(self.resource)];
                causes.extend(validation::of_change(
                    self.resource,
                    self.subresource,
                    before,
                    object,
                ));
                causes.push(cause);
                return Err(self.invalid(before, &causes));
            }
        }
        Ok(())
    }

    /// Applies a configuration (server-side apply); creates the object if it does not exist.
    fn apply(&self, state: &mut State) -> Result<Answer, Failure> {
        self.applier()?;
        let before = match self.existing(state) {
            Ok(before) => Some(self.in_requested_version(before)),
            Err(missing) if !self.subresource.is_empty() => return Err(missing),
            Err(_) => None,
        };
        let object = self.applied(before.as_ref())?;
        if before.is_some() {
            return self.write(state, object);
        }
        if let Some(uid) = object["metadata"]["uid"].as_str() {
            let why = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            );
            return Err(Failure::conflict(&self.subject(), &why));
        }
        self.create_object(state, object, CreatedBy::Update)
    }

    /// Returns the field manager of an apply, which is required.
    fn applier(&self) -> Result<&str, Failure> {
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
        Ok(manager)
    }

    /// Returns an object after an apply.
    fn applied(&self, before: Option<&Value>) -> Result<Value, Failure> {
        let manager = self.applier()?;
        let configuration: Value = serde_yaml::from_slice(self.body).map_err(|error| {
            Failure::bad_request(format!(
                "error decoding YAML: error converting YAML to JSON: {}",
                go_yaml_error(&error)
            ))
        })?;
        if self.parameter("fieldValidation") == "Strict"
            && let Some(problem) = repeated_key(self.body)
        {
            let message = format!(
                "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  {problem}"
            );
            return Err(Failure::bad_request(message));
        }
        self.check_applied(&configuration)?;
        let force = is_true(self.parameter("force"));
        let now = now();
        let tracker = Tracker::new(self.resource, self.subresource, &now);
        tracker.apply(before, &configuration, manager, force)
    }
}
