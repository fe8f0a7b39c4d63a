//! Requests for objects: read, create, replace, patch, delete. Each function is one transaction on the state.
//!
//! This file has the parts that they share: the request, decoding and checking of its body.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::admission::Attempt;
use super::apply::{self, Tracker};
use super::authn::Identity;
use super::decode::{Findings, decode};
use super::defaults;
use super::definitions::objects;
use super::events;
use super::failure::{Cause, Failure, Subject};
use super::faults::Effects;
use super::occurrences;
use super::registry::Resource;
use super::shape;
use super::store::{Key, State};

pub(crate) use self::create::suffix;
pub(crate) use self::delete::mark_for_deletion;
pub(crate) use self::read::{Filter, Page, is_true};

mod binding;
mod body;
mod create;
mod delete;
mod patch;
mod read;
mod scale;
mod token;
mod update;

/// A request for a resource.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    /// The user of the request.
    pub(crate) identity: &'a Identity,
    /// Names of the disabled admission plugins.
    pub(crate) disabled: &'a [String],
    pub(crate) resource: &'a Resource,
    pub(crate) subresource: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) query: &'a HashMap<String, String>,
    pub(crate) body: &'a [u8],
    pub(crate) content_type: &'a str,
    pub(crate) user_agent: &'a str,
    /// What faults do to the request.
    pub(crate) effects: Option<&'a Effects>,
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Value,
    pub(crate) warnings: Vec<String>,
}

impl Answer {
    /// Makes a 200 with a body.
    pub(crate) fn ok(body: Value) -> Self {
        Self {
            code: 200,
            body,
            warnings: Vec::new(),
        }
    }
}

impl Request<'_> {
    /// Returns the state that a fault makes the request read instead of the present one.
    pub(crate) fn past_state(&self, state: &State) -> Option<State> {
        self.effects?.past_state(state, &self.resource.storage)
    }

    fn parameter(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }

    fn subject(&self) -> Subject<'_> {
        Subject {
            group: &self.resource.group,
            resource: &self.resource.plural,
            name: self.name,
        }
    }

    /// Returns the write as admission sees it.
    fn attempt<'a>(&'a self, before: Option<&'a Value>) -> Attempt<'a> {
        Attempt {
            resource: self.resource,
            subresource: self.subresource,
            namespace: self.namespace,
            name: self.name,
            identity: self.identity,
            before,
            disabled: self.disabled,
        }
    }

    /// Returns the same request, with the resource in which its subresource is written.
    fn for_subresource_kind(&self) -> Result<Self, Failure> {
        let resource = self
            .resource
            .subresource_kind(self.subresource)
            .ok_or_else(Failure::resource_not_found)?;
        Ok(Self { resource, ..*self })
    }

    fn key(&self) -> Key {
        Key::new(&self.resource.storage, self.namespace, self.name)
    }

    fn dry_run(&self) -> bool {
        self.parameter("dryRun") == "All"
    }

    /// Returns the body if it is JSON with the fields of an object, and if field validation is not off.
    fn json(&self) -> Option<&[u8]> {
        let types = [
            "application/json",
            "application/merge-patch+json",
            "application/strategic-merge-patch+json",
        ];
        let is_read = self.parameter("fieldValidation") != "Ignore";
        (is_read && types.contains(&self.content_type)).then_some(self.body)
    }

    /// Returns whether the request is a server-side apply.
    fn applies(&self) -> bool {
        self.content_type == "application/apply-patch+yaml"
    }

    /// Returns the name of the request's field manager.
    fn manager(&self) -> String {
        apply::manager_name(self.parameter("fieldManager"), self.user_agent)
    }

    /// Records in the object which fields the request takes; an apply has recorded them already.
    fn track(&self, before: Option<&Value>, after: &mut Value) {
        if !self.applies() {
            let now = now();
            // fields that are always written but were not given have no owner
            if self.resource.custom.is_none() && before.is_none() {
                let mut blank = json!({});
                shape::tidy(self.resource.schema(), &mut blank);
                remove_blanks(after, &blank);
            }
            let tracker = Tracker::new(self.resource, self.subresource, &now);
            tracker.update(before, after, &self.manager());
            if !objects::can_keep_owners(self.resource, before, after)
                && let Some(metadata) = after["metadata"].as_object_mut()
            {
                metadata.remove("managedFields");
            }
            if self.resource.custom.is_none() {
                shape::tidy(self.resource.schema(), after);
            }
        }
    }

    /// Returns an object in the requested version.
    pub(crate) fn in_requested_version(&self, object: &Value) -> Value {
        let mut object = objects::in_requested_version(self.resource, object).into_owned();
        object["apiVersion"] = json!(self.resource.api_version());
        object["kind"] = json!(self.resource.kind);
        events::from_core_form(self.resource, &mut object);
        object
    }

    /// Returns an object in its stored form.
    fn in_storage_version(&self, object: Value) -> Value {
        match &self.resource.custom {
            Some(custom) => objects::in_storage_version(self.resource, custom, object),
            None => object,
        }
    }

    /// Returns the present object before a write, in the version that is written.
    fn object_before_write(&self, state: &State) -> Result<Arc<Value>, Failure> {
        let stored = self.existing(state)?;
        Ok(match &self.resource.custom {
            Some(_) => Arc::new(self.in_requested_version(stored)),
            None => Arc::clone(stored),
        })
    }

    fn existing<'s>(&self, state: &'s State) -> Result<&'s Arc<Value>, Failure> {
        state
            .get(&self.resource.storage, self.namespace, self.name)
            .ok_or_else(|| Failure::not_found(&self.subject()))
    }

    /// Normalises and checks an object; returns the warnings.
    fn admit(&self, object: &mut Value) -> Result<Vec<String>, Failure> {
        if !object.is_object() {
            return Err(Failure::unprocessable(
                "the server rejected our request due to an error in our request",
            ));
        }
        let kind = &self.resource.kind;
        let version = &self.resource.version;
        self.check_kind(object)?;
        let custom = self.resource.custom.is_some();
        let Findings {
            unknown,
            undecodable,
        } = if custom {
            objects::normalise(self.resource.schema().raw(), object)
        } else {
            decode(self.resource.schema(), object)
        };
        let cannot = |why: &str| {
            Failure::bad_request(format!(
                "{kind} in version {version:?} cannot be handled as a {kind}: {why}"
            ))
        };
        if let Some(why) = undecodable {
            return Err(cannot(&why));
        }
        let mut warnings = occurrences::problems(self.json(), &unknown, custom);
        match self.parameter("fieldValidation") {
            "Strict" if !warnings.is_empty() => {
                return Err(cannot(&format!(
                    "strict decoding error: {}",
                    warnings.join(", ")
                )));
            }
            "Ignore" => warnings.clear(),
            _ => {}
        }
        if !custom {
            shape::tidy(self.resource.schema(), object);
            defaults::apply(self.resource, object);
        }
        Ok(warnings)
    }

    fn invalid(&self, object: &Value, causes: &[Cause]) -> Failure {
        let group = if events::is_in_events_group(self.resource) {
            ""
        } else {
            &self.resource.group
        };
        let subject = Subject {
            group,
            resource: &self.resource.kind,
            name: object["metadata"]["name"].as_str().unwrap_or_default(),
        };
        Failure::invalid(&subject, causes)
    }

    /// Returns the body of a review with its field owner, and the warnings.
    pub(crate) fn review(&self) -> Result<(Value, Vec<String>), Failure> {
        let mut object = self.parse()?;
        let warnings = self.admit(&mut object)?;
        match self.resource.kind.as_str() {
            "SelfSubjectRulesReview" => {}
            "SelfSubjectReview" => object["metadata"]["creationTimestamp"] = json!(now()),
            _ => self.track(None, &mut object),
        }
        Ok((object, warnings))
    }
}

/// Returns whether finalizers hold an object that is being deleted.
pub(crate) fn has_finalizers(object: &Value) -> bool {
    let filled = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
    filled(&object["metadata"]["finalizers"])
        || object["kind"] == "Namespace" && filled(&object["spec"]["finalizers"])
}

/// Removes empty values that an object has although nothing was given for them.
fn remove_blanks(value: &mut Value, blank: &Value) {
    if let (Some(fields), Some(blanks)) = (value.as_object_mut(), blank.as_object()) {
        for (name, blank) in blanks {
            match fields.get_mut(name) {
                Some(field) if blank.is_object() => remove_blanks(field, blank),
                Some(field) if field == blank && is_nothing(blank) => {
                    fields.remove(name);
                }
                _ => {}
            }
        }
    }
}

fn is_nothing(value: &Value) -> bool {
    value.is_null() || value == "" || value == 0 || value == false
}

/// Returns the present time in the format of the API.
pub(crate) fn now() -> String {
    instant(Timestamp::now())
}

/// Returns a time in the format of the API.
fn instant(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
