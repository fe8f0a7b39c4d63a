//! New objects.

use serde_json::{Value, json};

use super::{Answer, Request, now};
use crate::failure::{Failure, Subject};
use crate::registry::DEFINITIONS;
use crate::store::{Key, State};

impl Request<'_> {
    /// A new object.
    pub(crate) fn create(&self, state: &mut State) -> Result<Answer, Failure> {
        let object = self.parse()?;
        self.create_object(state, object)
    }

    pub(super) fn create_object(
        &self,
        state: &mut State,
        mut object: Value,
    ) -> Result<Answer, Failure> {
        let warnings = self.admit(&mut object)?;
        self.track(None, &mut object);
        let name = match object["metadata"]["name"].as_str() {
            Some(name) if !name.is_empty() => name.to_owned(),
            _ => match object["metadata"]["generateName"].as_str() {
                Some(prefix) if !prefix.is_empty() => format!("{prefix}{}", suffix()),
                _ => String::new(),
            },
        };
        object["metadata"]["name"] = json!(name);
        if self.resource.namespaced {
            match object["metadata"]["namespace"].as_str() {
                Some(given) if !given.is_empty() && given != self.namespace => {
                    return Err(Failure::bad_request(
                        "the namespace of the provided object does not match the namespace sent on the request",
                    ));
                }
                _ => object["metadata"]["namespace"] = json!(self.namespace),
            }
            self.check_namespace(state, &name)?;
        } else if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("namespace");
        }
        let subject = Subject {
            name: &name,
            ..self.subject()
        };
        let key = Key::new(&self.resource.storage, self.namespace, &name);
        self.check_name(&object)?;
        if state
            .get(&key.resource, &key.namespace, &key.name)
            .is_some()
        {
            return Err(Failure::already_exists(&subject));
        }
        if object["metadata"]["resourceVersion"]
            .as_str()
            .is_some_and(|version| !version.is_empty())
        {
            return Err(Failure::internal(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        object["metadata"]["uid"] = json!(uuid::Uuid::new_v4().to_string());
        object["metadata"]["creationTimestamp"] = json!(now());
        if self.has_generation() {
            object["metadata"]["generation"] = json!(1);
        }
        if self.resource.has_status()
            && let Some(fields) = object.as_object_mut()
            && self.resource.plural != "nodes"
        {
            fields.remove("status");
        }
        self.initialise(&mut object);
        self.complete(&mut object);
        let body = if self.dry_run() {
            object
        } else {
            Value::clone(&state.put(key, object))
        };
        Ok(Answer {
            code: 201,
            body: self.present(&body),
            warnings,
        })
    }

    fn check_namespace(&self, state: &State, name: &str) -> Result<(), Failure> {
        let Some(namespace) = state.get("namespaces", "", self.namespace) else {
            return Err(Failure::not_found(&Subject {
                group: "",
                resource: "namespaces",
                name: self.namespace,
            }));
        };
        if namespace["metadata"]["deletionTimestamp"].is_string() {
            let why = format!(
                "unable to create new content in namespace {} because it is being terminated",
                self.namespace
            );
            return Err(Failure::forbidden(
                &Subject {
                    name,
                    ..self.subject()
                },
                &why,
            ));
        }
        Ok(())
    }

    /// What the server itself puts into new objects.
    fn initialise(&self, object: &mut Value) {
        match self.resource.storage.as_str() {
            "namespaces" => {
                let name = object["metadata"]["name"].clone();
                object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
                object["spec"]["finalizers"] = json!(["kubernetes"]);
                object["status"] = json!({"phase": "Active"});
            }
            "pods" => object["status"] = json!({"phase": "Pending"}),
            DEFINITIONS => establish(object),
            _ => {}
        }
    }
}

/// What the server adds to the definition of a custom resource.
pub(super) fn establish(definition: &mut Value) {
    let kind = definition["spec"]["names"]["kind"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let names = &mut definition["spec"]["names"];
    if names["singular"].as_str().is_none_or(str::is_empty) {
        names["singular"] = json!(kind.to_lowercase());
    }
    if names["listKind"].as_str().is_none_or(str::is_empty) {
        names["listKind"] = json!(format!("{kind}List"));
    }
    let names = names.clone();
    let stored: Vec<Value> = definition["spec"]["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|version| version["storage"] == true)
        .map(|version| version["name"].clone())
        .collect();
    if definition["spec"]["conversion"].is_null() {
        definition["spec"]["conversion"] = json!({"strategy": "None"});
    }
    let at = now();
    let condition = |kind: &str, reason: &str, message: &str| json!({"type": kind, "status": "True", "lastTransitionTime": at, "reason": reason, "message": message});
    definition["status"] = json!({
        "acceptedNames": names, "storedVersions": stored,
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
    });
}

/// Five characters as generated names end with.
fn suffix() -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    uuid::Uuid::new_v4().as_bytes()[..5]
        .iter()
        .map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]))
        .collect()
}
