//! Deletion: at once, or marked while finalizers hold the object.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Answer, Request, has_finalizers, now};
use crate::failure::{self, Failure};
use crate::store::{Key, State};

impl Request<'_> {
    /// Removes an object, or marks it when finalizers hold it.
    pub(crate) fn delete(&self, state: &mut State) -> Result<Answer, Failure> {
        let before = Arc::clone(self.existing(state)?);
        let options: Value = if self.body.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(self.body).unwrap_or(Value::Null)
        };
        for (field, word) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
            if let Some(wanted) = options["preconditions"][field].as_str()
                && before["metadata"][field] != wanted
            {
                let seen = before["metadata"][field].as_str().unwrap_or_default();
                let why = format!(
                    "Precondition failed: {word} in precondition: {wanted}, {word} in object meta: {seen}"
                );
                return Err(Failure::conflict(&self.subject(), &why));
            }
        }
        if self.dry_run() {
            return Ok(Answer::ok(failure::deleted(
                &self.subject(),
                &before["metadata"]["uid"],
            )));
        }
        if has_finalizers(&before) {
            if before["metadata"]["deletionTimestamp"].is_string() {
                return Ok(Answer::ok(self.present(&before)));
            }
            let mut object = Value::clone(&before);
            object["metadata"]["deletionTimestamp"] = json!(now());
            object["metadata"]["deletionGracePeriodSeconds"] = json!(0);
            if self.resource.storage == "namespaces" {
                object["status"]["phase"] = json!("Terminating");
            }
            let written = state.put(self.key(), object);
            return Ok(Answer::ok(self.present(&written)));
        }
        state.remove(&self.key());
        Ok(Answer::ok(failure::deleted(
            &self.subject(),
            &before["metadata"]["uid"],
        )))
    }

    /// Removes every selected object.
    pub(crate) fn delete_collection(&self, state: &mut State) -> Result<Answer, Failure> {
        let filter = self.filter()?;
        let keys: Vec<Key> = state
            .list(&self.resource.storage, self.namespace)
            .filter(|(_, object)| filter.matches(object))
            .map(|(key, _)| key.clone())
            .collect();
        let answer = self.list(state)?;
        for key in keys {
            Request {
                namespace: &key.namespace,
                name: &key.name,
                ..*self
            }
            .delete(state)?;
        }
        Ok(answer)
    }
}
