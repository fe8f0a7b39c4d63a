//! A request for a resource, and the answer to it.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::access::identity::Identity;
use crate::admission::attempt::Attempt;
use crate::admission::extent::Ignored;
use crate::admission::policies::Options;
use crate::admission::webhooks::Calls;
use crate::failure::{Failure, Subject};
use crate::faults::Effects;
use crate::objects::{apply, custom, views};
use crate::registry::Resource;
use crate::storage::{Key, Object, State};

/// A request for a resource.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    /// The user of the request.
    pub(crate) identity: &'a Identity,
    /// Names of the disabled admission plugins.
    pub(crate) disabled: &'a [String],
    /// What becomes of objects that the cluster would not act on.
    pub(crate) ignored: Ignored,
    pub(crate) resource: &'a Resource,
    pub(crate) subresource: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// Whether admission sees no name: the server has yet to make it, or the object is one of a collection.
    pub(crate) unnamed: bool,
    pub(crate) query: &'a HashMap<String, String>,
    pub(crate) body: &'a [u8],
    pub(crate) content_type: &'a str,
    pub(crate) user_agent: &'a str,
    /// What faults do to the request.
    pub(crate) effects: Option<&'a Effects>,
    /// The calls of webhooks that the request needs.
    pub(crate) calls: &'a Calls,
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Value,
    pub(crate) warnings: Vec<String>,
}

impl Answer {
    /// Makes the status that answers a successful binding or eviction.
    pub(super) fn success() -> Self {
        Self {
            code: 201,
            body: json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}),
            warnings: Vec::new(),
        }
    }

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

    pub(super) fn parameter(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }

    pub(super) fn subject(&self) -> Subject<'_> {
        Subject {
            group: &self.resource.group,
            resource: &self.resource.plural,
            name: self.name,
        }
    }

    /// Returns the write as admission sees it.
    pub(super) fn attempt<'a>(&'a self, before: Option<&'a Value>) -> Attempt<'a> {
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

    /// Returns the options of the write as admission sees them.
    pub(super) fn options(&self) -> Options<'_> {
        Options {
            dry_run: self.dry_run(),
            field_manager: self.parameter("fieldManager"),
            field_validation: self.parameter("fieldValidation"),
            deletion: None,
            unnamed: self.unnamed,
        }
    }

    /// Returns the same request, with the resource in which its subresource is written.
    pub(super) fn for_subresource_kind(&self) -> Result<Self, Failure> {
        let resource = self
            .resource
            .subresource_kind(self.subresource)
            .ok_or_else(Failure::resource_not_found)?;
        Ok(Self { resource, ..*self })
    }

    pub(super) fn key(&self) -> Key {
        Key::new(&self.resource.storage, self.namespace, self.name)
    }

    pub(super) fn dry_run(&self) -> bool {
        self.parameter("dryRun") == "All"
    }

    /// Returns the body if it is JSON with the fields of an object, and if field validation is not off.
    pub(super) fn json(&self) -> Option<&[u8]> {
        let types = [
            "application/json",
            "application/merge-patch+json",
            "application/strategic-merge-patch+json",
        ];
        let is_read = self.parameter("fieldValidation") != "Ignore";
        (is_read && types.contains(&self.content_type)).then_some(self.body)
    }

    /// Returns whether the request is a server-side apply.
    pub(super) fn applies(&self) -> bool {
        self.content_type == "application/apply-patch+yaml"
    }

    /// Returns whether the request changes an object by a patch that is no apply.
    pub(super) fn changes_by_patch(&self) -> bool {
        self.content_type.contains("patch") && !self.applies()
    }

    /// Returns the name of the request's field manager.
    pub(super) fn manager(&self) -> String {
        apply::manager_name(self.parameter("fieldManager"), self.user_agent)
    }

    /// Returns an object in the requested version.
    pub(crate) fn in_requested_version(&self, object: &Value) -> Value {
        views::whole(self.resource, object).into_owned()
    }

    /// Returns an object in its stored form.
    pub(super) fn in_storage_version(&self, object: Value) -> Value {
        match &self.resource.custom {
            Some(custom) => custom::in_storage_version(self.resource, custom, object),
            None => object,
        }
    }

    /// Returns the present object before a write, in the version that is written.
    pub(super) fn object_before_write(&self, state: &State) -> Result<Arc<Object>, Failure> {
        let stored = self.existing(state)?;
        Ok(match &self.resource.custom {
            Some(_) => Arc::new(Object::new(self.in_requested_version(stored))),
            None => Arc::clone(stored),
        })
    }

    pub(super) fn existing<'s>(&self, state: &'s State) -> Result<&'s Arc<Object>, Failure> {
        state
            .get(&self.resource.storage, self.namespace, self.name)
            .ok_or_else(|| Failure::not_found(&self.subject()))
    }
}
