//! Creation of objects.

use serde_json::{Value, json};

use super::body::given_version;
use super::certificates;
use super::request::{Answer, Request};
use crate::admission::policies::Operation;
use crate::admission::validation::{self, custom, meta};
use crate::admission::{extent, plugins, strategy};
use crate::failure::{Failure, Subject};
use crate::objects::events;
use crate::schema::shape;
use crate::storage::State;
use crate::values::draws;
use crate::values::go::whole_numbers;
use crate::values::names::suffix;
use crate::values::times::now;

/// Longest prefix of a generated name: with the characters that are added it is still a label.
const LONGEST_PREFIX: usize = 58;
/// Kinds whose new objects are stored without the defaults of their status, although every read shows them.
const STORED_WITHOUT_DEFAULTS: &[&str] = &["persistentvolumeclaims"];

/// How an object is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CreatedBy {
    /// By a POST.
    Post,
    /// By a replacement or an apply of an object that did not exist.
    Update,
}

/// How many names are tried when a generated one is taken.
const MAX_NAME_ATTEMPTS: usize = 8;

impl Request<'_> {
    /// Creates an object.
    pub(crate) fn create(&self, state: &mut State) -> Result<Answer, Failure> {
        let object = self.parse()?;
        self.create_object(state, object, CreatedBy::Post)
    }

    /// Creates an object that was parsed already.
    pub(super) fn create_object(
        &self,
        state: &mut State,
        mut object: Value,
        created_by: CreatedBy,
    ) -> Result<Answer, Failure> {
        remove_fields(
            &mut object,
            &["deletionTimestamp", "deletionGracePeriodSeconds"],
        );
        let mut warnings = self.admit(&mut object)?;
        self.track(None, &mut object);
        events::to_core_form(self.resource, &mut object);
        self.set_namespace(&mut object)?;
        let is_generated = self.name(state, &mut object);
        let name = object["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let named = Request {
            name: &name,
            ..*self
        };
        named.check_place(state)?;
        if object["metadata"]["uid"].as_str().is_none_or(str::is_empty) || !self.is_subresource() {
            object["metadata"]["uid"] = json!(draws::id().to_string());
        }
        object["metadata"]["creationTimestamp"] = json!(now());
        let attempt = named.attempt(None);
        // a real server names and numbers an object after it was changed
        let hidden: &[&str] = if is_generated {
            &["uid", "creationTimestamp", "name"]
        } else {
            &["uid", "creationTimestamp"]
        };
        let unnamed = Request {
            unnamed: is_generated,
            ..named
        };
        let told = unnamed.change(state, &attempt, Operation::Create, &mut object, hidden);
        warnings.extend(told.map_err(|failure| failure.after_all(&warnings))?);
        let told = strategy::prepare_create(self.resource, state, &mut object, self.dry_run())?;
        warnings.extend(told);
        certificates::prepare_create(self.resource, self.identity, &mut object);
        self.tidy(&mut object);
        let valid = self.validate_new(state, &object);
        valid.map_err(|failure| failure.after_all(&warnings))?;
        // a request that is only tried does not come as far as the storage, which reads the version
        if created_by == CreatedBy::Post && !self.dry_run() && given_version(&object)? > 0 {
            return Err(Failure::internal_without_reason(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        remove_fields(&mut object, &["resourceVersion"]);
        if self.resource.custom.is_some() {
            warnings.extend(meta::finalizer_warnings(None, &object));
        }
        warnings.extend(validation::warnings::of(self.resource, None, &object));
        let asked = named.ask_policies(state, attempt, Operation::Create, Some(&object));
        warnings.extend(asked.map_err(|failure| failure.after_all(&warnings))?);
        warnings.extend(extent::check(self.ignored, self.resource, None, &object)?);
        named.check_name_is_free(state, is_generated)?;
        plugins::charge(state, &attempt, &object, self.dry_run())?;
        whole_numbers(&mut object);
        let body = if self.dry_run() {
            object
        } else {
            named.store_new(state, object)
        };
        Ok(Answer {
            code: 201,
            body: self.in_requested_version(&body),
            warnings,
        })
    }

    /// Checks that the place for the object takes new ones: its namespace and its kind are there and not about to go.
    fn check_place(&self, state: &State) -> Result<(), Failure> {
        if self.resource.namespaced {
            self.check_namespace(state)?;
        }
        let custom = self.resource.custom.as_ref();
        if custom.is_some_and(|custom| custom.terminating) {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(Failure::forbidden(&self.subject(), why));
        }
        Ok(())
    }

    fn validate_new(&self, state: &State, object: &Value) -> Result<(), Failure> {
        let mut causes = validation::of_new(self.resource, object);
        if let Some(namespace) = state.get("namespaces", "", self.namespace) {
            causes.extend(validation::of_place(self.resource, object, namespace));
        }
        causes.extend(custom::validate(
            self.resource,
            self.subresource,
            None,
            object,
            &causes,
        ));
        if causes.is_empty() {
            Ok(())
        } else {
            Err(self.invalid(object, &causes))
        }
    }

    /// Checks that no object has the name yet.
    fn check_name_is_free(&self, state: &State, is_generated: bool) -> Result<(), Failure> {
        let Some(taken) = state.get(&self.resource.storage, self.namespace, self.name) else {
            return Ok(());
        };
        let mut failure = Failure::already_exists(&self.subject());
        if taken["metadata"]["deletionTimestamp"].is_string() {
            failure.message.insert_str(0, "object is being deleted: ");
        }
        if is_generated {
            failure
                .message
                .push_str(", the server was not able to generate a unique name for the object");
        }
        Err(failure)
    }

    /// Stores a new object; returns it as it is stored.
    fn store_new(&self, state: &mut State, object: Value) -> Value {
        let written = Value::clone(&state.put(self.key(), self.in_storage_version(object)));
        if STORED_WITHOUT_DEFAULTS.contains(&self.resource.storage.as_str()) {
            state.mark_stored_without_defaults(&self.key());
        }
        written
    }

    fn is_subresource(&self) -> bool {
        !self.subresource.is_empty()
    }

    /// Sets the namespace to that of the path.
    fn set_namespace(&self, object: &mut Value) -> Result<(), Failure> {
        if self.resource.namespaced {
            match object["metadata"]["namespace"].as_str() {
                Some(given) if !given.is_empty() && given != self.namespace => {
                    return Err(Failure::bad_request(
                        "the namespace of the provided object does not match the namespace sent on the request",
                    ));
                }
                _ => object["metadata"]["namespace"] = json!(self.namespace),
            }
        } else if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("namespace");
        }
        Ok(())
    }

    /// Generates a name from a prefix if there is no name; returns whether it did.
    fn name(&self, state: &State, object: &mut Value) -> bool {
        let metadata = &mut object["metadata"];
        if metadata["name"]
            .as_str()
            .is_some_and(|name| !name.is_empty())
        {
            return false;
        }
        let Some(prefix) = metadata["generateName"]
            .as_str()
            .filter(|prefix| !prefix.is_empty())
            .map(str::to_owned)
        else {
            if self.resource.storage == "limitranges" {
                metadata["name"] = json!(draws::id().to_string());
            }
            return false;
        };
        let prefix: String = prefix.chars().take(LONGEST_PREFIX).collect();
        for _ in 0..MAX_NAME_ATTEMPTS {
            let name = format!("{prefix}{}", suffix());
            let taken = state.get(&self.resource.storage, self.namespace, &name);
            metadata["name"] = json!(name);
            if taken.is_none() {
                break;
            }
        }
        if self.resource.storage == "namespaces" {
            metadata["labels"]["kubernetes.io/metadata.name"] = metadata["name"].clone();
        }
        true
    }

    fn check_namespace(&self, state: &State) -> Result<(), Failure> {
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
            let mut failure = Failure::forbidden(&self.subject(), &why);
            failure.details["causes"] = json!([{
                "reason": "NamespaceTerminating",
                "message": format!("namespace {} is being terminated", self.namespace),
                "field": "metadata.namespace",
            }]);
            return Err(failure);
        }
        Ok(())
    }

    /// Brings a built-in object into its stored form.
    pub(super) fn tidy(&self, object: &mut Value) {
        if events::is_in_events_group(self.resource) && object["apiVersion"] == "v1" {
            events::tidy(object);
        } else if self.resource.custom.is_none() {
            shape::tidy_stored(self.resource.schema(), object);
        }
    }
}

/// Removes fields of an object's metadata.
fn remove_fields(object: &mut Value, fields: &[&str]) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in fields {
            metadata.remove(*field);
        }
    }
}
