//! New states of objects that exist.

use std::sync::Arc;

use serde_json::{Value, json};

use super::create::establish;
use super::{Answer, Request, has_finalizers};
use crate::apply::keep_times;
use crate::failure::Failure;
use crate::registry::DEFINITIONS;
use crate::store::State;

impl Request<'_> {
    /// A new state of an object. Replacing what does not exist fails.
    pub(crate) fn replace(&self, state: &mut State) -> Result<Answer, Failure> {
        let object = self.parse()?;
        if object["metadata"]["name"].as_str() != Some(self.name) {
            return Err(Failure::bad_request(format!(
                "the name of the object ({}) does not match the name on the URL ({})",
                object["metadata"]["name"].as_str().unwrap_or_default(),
                self.name
            )));
        }
        self.write(state, object)
    }

    pub(super) fn write(&self, state: &mut State, mut object: Value) -> Result<Answer, Failure> {
        let before = Arc::clone(self.existing(state)?);
        let warnings = self.admit(&mut object)?;
        self.track(Some(&before), &mut object);
        let given = object["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or_default();
        if !given.is_empty() && Some(given) != before["metadata"]["resourceVersion"].as_str() {
            return Err(Failure::modified(&self.subject()));
        }
        if object["metadata"]["uid"]
            .as_str()
            .is_some_and(|uid| !uid.is_empty() && before["metadata"]["uid"] != uid)
        {
            let why = format!(
                "Precondition failed: UID in precondition: {}, UID in object meta: {}",
                object["metadata"]["uid"].as_str().unwrap_or_default(),
                before["metadata"]["uid"].as_str().unwrap_or_default()
            );
            return Err(Failure::conflict(&self.subject(), &why));
        }
        for field in [
            "uid",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "generation",
            "resourceVersion",
            "namespace",
        ] {
            copy(&before["metadata"], &mut object["metadata"], field);
        }
        if self.subresource == "status" {
            let status = object["status"].take();
            let owners = object["metadata"]["managedFields"].take();
            object = Value::clone(&before);
            if !owners.is_null() {
                object["metadata"]["managedFields"] = owners;
            }
            if !status.is_null() {
                object["status"] = status;
            }
        } else if self.resource.has_status() {
            copy(&before, &mut object, "status");
        }
        if self.resource.storage == DEFINITIONS && self.subresource.is_empty() {
            establish(&mut object);
        }
        if self.has_generation() && without_meta(&before) != without_meta(&object) {
            let generation = before["metadata"]["generation"].as_i64().unwrap_or(0);
            object["metadata"]["generation"] = json!(generation + 1);
        }
        object["apiVersion"] = before["apiVersion"].clone();
        self.complete(&mut object);
        keep_times(&before, &mut object);
        if object == *before || self.dry_run() {
            return Ok(Answer {
                code: 200,
                body: self.present(&object),
                warnings,
            });
        }
        if object["metadata"]["deletionTimestamp"].is_string() && !has_finalizers(&object) {
            let last = state
                .remove(&self.key())
                .map_or(object, |last| Value::clone(&last));
            return Ok(Answer {
                code: 200,
                body: self.present(&last),
                warnings,
            });
        }
        let written = state.put(self.key(), object);
        Ok(Answer {
            code: 200,
            body: self.present(&written),
            warnings,
        })
    }
}

fn copy(from: &Value, to: &mut Value, field: &str) {
    let Some(fields) = to.as_object_mut() else {
        return;
    };
    match from.get(field) {
        Some(value) => fields.insert(field.to_owned(), value.clone()),
        None => fields.remove(field),
    };
}

/// The parts whose changes count as a new generation.
fn without_meta(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        for field in ["metadata", "status", "apiVersion"] {
            fields.remove(field);
        }
    }
    object
}
