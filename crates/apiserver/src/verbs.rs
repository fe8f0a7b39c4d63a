//! What can be done with objects: read, create, replace, patch, delete. Each function is one transaction on the state.
//!
//! This file has what they share: the request, its body taken in and judged.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::admission::Attempt;
use super::apply::{self, Tracker};
use super::authn::Identity;
use super::decode::{Findings, decode};
use super::defaults;
use super::failure::{Cause, Failure, Subject};
use super::faults::Effects;
use super::registry::{self, Resource};
use super::store::{Key, State};

pub(crate) use self::create::suffix;
pub(crate) use self::read::{Filter, is_true};

mod binding;
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
    /// Who asks.
    pub(crate) who: &'a Identity,
    /// Admission plugins that are switched off.
    pub(crate) disabled: &'a [String],
    pub(crate) resource: &'a Resource,
    pub(crate) subresource: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) query: &'a HashMap<String, String>,
    pub(crate) body: &'a [u8],
    pub(crate) content_type: &'a str,
    pub(crate) user_agent: &'a str,
    /// What faults do to it.
    pub(crate) effects: Option<&'a Effects>,
}

/// What is answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Value,
    pub(crate) warnings: Vec<String>,
}

impl Answer {
    /// 200 with a body.
    pub(crate) fn ok(body: Value) -> Self {
        Self {
            code: 200,
            body,
            warnings: Vec::new(),
        }
    }
}

impl Request<'_> {
    /// The state that a fault makes it read instead of the present one.
    pub(crate) fn past(&self, state: &State) -> Option<State> {
        self.effects?.past(state, &self.resource.storage)
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

    /// What admission has to know of a write.
    fn attempt<'a>(&'a self, before: Option<&'a Value>) -> Attempt<'a> {
        Attempt {
            resource: self.resource,
            subresource: self.subresource,
            namespace: self.namespace,
            name: self.name,
            who: self.who,
            before,
            disabled: self.disabled,
        }
    }

    fn key(&self) -> Key {
        Key::new(&self.resource.storage, self.namespace, self.name)
    }

    fn dry_run(&self) -> bool {
        self.parameter("dryRun") == "All"
    }

    /// Whether the body is applied rather than written.
    fn applies(&self) -> bool {
        self.content_type == "application/apply-patch+yaml"
    }

    /// Name of the manager that the request writes for.
    fn manager(&self) -> String {
        apply::manager_name(self.parameter("fieldManager"), self.user_agent)
    }

    /// Records in the object what the request takes of it; what was applied is recorded already.
    fn track(&self, before: Option<&Value>, after: &mut Value) {
        if !self.applies() {
            let now = now();
            let tracker = Tracker::new(self.resource, self.subresource, &now);
            tracker.update(before, after, &self.manager());
        }
    }

    /// An object in the version that was asked for.
    pub(crate) fn present(&self, object: &Value) -> Value {
        let mut object = object.clone();
        object["apiVersion"] = json!(self.resource.api_version());
        object["kind"] = json!(self.resource.kind);
        object
    }

    fn existing<'s>(&self, state: &'s State) -> Result<&'s Arc<Value>, Failure> {
        state
            .get(&self.resource.storage, self.namespace, self.name)
            .ok_or_else(|| Failure::not_found(&self.subject()))
    }

    /// Refuses options of a write that do not exist. `kind` is that of the options.
    pub(crate) fn check_write_options(&self, kind: &str) -> Result<(), Failure> {
        const LONGEST_MANAGER: usize = 128;
        let mut causes = Vec::new();
        let dry_run = self.parameter("dryRun");
        if !dry_run.is_empty() && dry_run != "All" {
            causes.push(Cause::unsupported(
                "dryRun",
                &json!([dry_run]),
                &["All".to_owned()],
            ));
        }
        if self.parameter("fieldManager").len() > LONGEST_MANAGER {
            causes.push(Cause::too_long("fieldManager", LONGEST_MANAGER));
        }
        let validation = self.parameter("fieldValidation");
        let known = ["", "Ignore", "Strict", "Warn"];
        if !known.contains(&validation) {
            causes.push(Cause::unsupported(
                "fieldValidation",
                &json!(validation),
                &known.map(str::to_owned),
            ));
        }
        if causes.is_empty() {
            return Ok(());
        }
        let subject = Subject {
            group: "meta.k8s.io",
            resource: kind,
            name: "",
        };
        Err(Failure::invalid(&subject, &causes))
    }

    fn parse(&self) -> Result<Value, Failure> {
        let mut readable = vec!["application/json", "application/yaml"];
        if !readable.contains(&self.content_type) {
            if self.resource.custom.is_none() {
                readable.push("application/vnd.kubernetes.protobuf");
            }
            return Err(Failure::unsupported_media_type(&readable));
        }
        let parsed = if self.content_type.contains("yaml") {
            serde_yaml::from_slice(self.body).map_err(|error| format!("yaml: {error}"))
        } else {
            serde_json::from_slice(self.body).map_err(|error| {
                let why = json_error(self.body, &error);
                format!("couldn't get version/kind; json parse error: {why}")
            })
        };
        let why = match parsed {
            Ok(value @ Value::Object(_)) => return Ok(value),
            Ok(Value::Null) => return Ok(json!({})),
            Ok(other) => {
                let given = match other {
                    Value::Array(_) => "array",
                    Value::String(_) => "string",
                    Value::Bool(_) => "bool",
                    _ => "number",
                };
                format!(
                    "couldn't get version/kind; json parse error: json: cannot unmarshal {given} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
                )
            }
            Err(why) => why,
        };
        let bytes: String = self.body.iter().map(|byte| format!("{byte:02x}")).collect();
        // what is hardly longer than nothing is shown as it is
        let shown = match self.body {
            [b'{' | b'[', ..] if self.body.len() == 1 => {
                String::from_utf8_lossy(self.body).into_owned()
            }
            _ => bytes,
        };
        Err(Failure::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): {why} ({shown})",
            self.resource.kind
        )))
    }

    /// Tidies an object and judges it; the answer is the warnings.
    fn admit(&self, object: &mut Value) -> Result<Vec<String>, Failure> {
        if !object.is_object() {
            return Err(Failure::unprocessable(
                "the server rejected our request due to an error in our request",
            ));
        }
        let kind = &self.resource.kind;
        let version = &self.resource.version;
        for (field, expected) in [
            ("apiVersion", self.resource.api_version()),
            ("kind", kind.clone()),
        ] {
            if object[field]
                .as_str()
                .is_some_and(|given| given != expected)
            {
                return Err(self.other_kind(object));
            }
            object[field] = json!(expected);
        }
        let custom = self.resource.custom.is_some();
        let Findings {
            unknown,
            undecodable,
            invalid,
        } = decode(self.resource.schema(), object, custom);
        let cannot = |why: &str| {
            Failure::bad_request(format!(
                "{kind} in version {version:?} cannot be handled as a {kind}: {why}"
            ))
        };
        if let Some(why) = undecodable {
            return Err(cannot(&why));
        }
        let mut warnings: Vec<String> = unknown
            .iter()
            .map(|path| format!("unknown field {path:?}"))
            .collect();
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
        if !invalid.is_empty() {
            return Err(self.invalid(object, &invalid));
        }
        if !custom {
            self.tidy(object);
            defaults::apply(self.resource, object);
        }
        if let Some(warning) = self
            .resource
            .custom
            .as_ref()
            .and_then(|custom| custom.deprecation.clone())
        {
            warnings.push(warning);
        }
        Ok(warnings)
    }

    /// The refusal of an object of another kind than the path's.
    fn other_kind(&self, object: &Value) -> Failure {
        let given = object["kind"].as_str().unwrap_or_default();
        let given = if given.is_empty() {
            self.resource.kind.as_str()
        } else {
            given
        };
        let api_version = object["apiVersion"].as_str().unwrap_or_default();
        let wanted = &self.resource.kind;
        let version = api_version.rsplit('/').next().unwrap_or_default();
        if self.resource.custom.is_some() {
            return Failure::bad_request(format!(
                "the API version or kind in the data ({api_version}, {given}) does not match the expected ({}, {wanted})",
                self.resource.api_version()
            ));
        }
        let known = given == "DeleteOptions" || registry::has_kind(api_version, given);
        let why = if known {
            let part = |group: &str| match group.split('.').next() {
                Some("") | None => "core".to_owned(),
                Some(part) => part.to_owned(),
            };
            format!(
                "converting ({version}.{given}) to ({}.{wanted}): unknown conversion",
                part(&self.resource.group)
            )
        } else {
            format!(
                "no kind {given:?} is registered for version {api_version:?} in scheme \"pkg/runtime/scheme.go:111\""
            )
        };
        Failure::bad_request(format!(
            "{given} in version {version:?} cannot be handled as a {wanted}: {why}"
        ))
    }

    fn invalid(&self, object: &Value, causes: &[Cause]) -> Failure {
        let subject = Subject {
            group: &self.resource.group,
            resource: &self.resource.kind,
            name: object["metadata"]["name"].as_str().unwrap_or_default(),
        };
        Failure::invalid(&subject, causes)
    }

    /// The body of a review, with who wrote it, and the warnings.
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

fn has_finalizers(object: &Value) -> bool {
    let filled = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
    filled(&object["metadata"]["finalizers"])
        || object["kind"] == "Namespace" && filled(&object["spec"]["finalizers"])
}

/// A parse error in the words of Go's decoder, as far as they are known here.
fn json_error(body: &[u8], error: &serde_json::Error) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
    match first {
        Some(byte) if !b"{[\"-0123456789tfn".contains(byte) => format!(
            "invalid character '{}' looking for beginning of value",
            char::from(*byte)
        ),
        _ => error.to_string(),
    }
}

/// The present time as objects have it.
pub(crate) fn now() -> String {
    instant(Timestamp::now())
}

/// A time as objects have it.
fn instant(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
