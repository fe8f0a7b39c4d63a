//! What can be done with objects: read, create, replace, patch, delete. Each function is one transaction on the state.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::decode::{Findings, decode};
use super::failure::{self, Cause, Failure, Subject};
use super::registry::{DEFINITIONS, Resource};
use super::selectors::{FieldSelector, LabelSelector};
use super::store::{Key, State};

/// Fields by which built-in kinds can be selected, beside their names.
const SELECTABLE: &[(&str, &[&str])] = &[
    (
        "pods",
        &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
    ),
    ("nodes", &["spec.unschedulable"]),
    (
        "events",
        &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
    ),
    ("namespaces", &["status.phase"]),
    ("secrets", &["type"]),
    ("jobs.batch", &["status.successful"]),
];

/// A request for a resource.
pub(crate) struct Request<'a> {
    pub(crate) resource: &'a Resource,
    pub(crate) subresource: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) query: &'a HashMap<String, String>,
    pub(crate) body: &'a [u8],
    pub(crate) content_type: &'a str,
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

/// The objects that a list or a watch is about.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    labels: LabelSelector,
    fields: FieldSelector,
    name: String,
}

impl Filter {
    /// Whether an object is among them.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        (self.name.is_empty() || object["metadata"]["name"] == self.name.as_str())
            && self.labels.matches(object)
            && self.fields.matches(object)
    }
}

impl Request<'_> {
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

    fn key(&self) -> Key {
        Key::new(&self.resource.storage, self.namespace, self.name)
    }

    fn dry_run(&self) -> bool {
        self.parameter("dryRun") == "All"
    }

    /// The selectors of the query.
    pub(crate) fn filter(&self) -> Result<Filter, Failure> {
        let mut fields: Vec<&str> = SELECTABLE
            .iter()
            .filter(|(storage, _)| *storage == self.resource.storage)
            .flat_map(|(_, fields)| fields.iter().copied())
            .collect();
        if let Some(custom) = &self.resource.custom {
            fields.extend(custom.selectable.iter().map(String::as_str));
        }
        Ok(Filter {
            labels: LabelSelector::parse(self.parameter("labelSelector"))?,
            fields: FieldSelector::parse(
                self.parameter("fieldSelector"),
                &fields,
                self.resource.namespaced,
            )?,
            name: self.name.to_owned(),
        })
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

    /// One object.
    pub(crate) fn get(&self, state: &State) -> Result<Answer, Failure> {
        Ok(Answer::ok(self.present(self.existing(state)?)))
    }

    /// A page of a list.
    pub(crate) fn list(&self, state: &State) -> Result<Answer, Failure> {
        let filter = self.filter()?;
        if let Ok(wanted) = self.parameter("resourceVersion").parse::<u64>()
            && wanted > state.version()
        {
            return Err(Failure::future_version(wanted, state.version()));
        }
        let limit: usize = self.parameter("limit").parse().unwrap_or(0);
        let (start, version) = match self.parameter("continue") {
            "" => (None, state.version()),
            token => {
                let (version, key) = parse_continue(token).ok_or_else(|| {
                    Failure::bad_request("continue key is not valid: the token cannot be read")
                })?;
                // pages are read from the newest state, so a list may go on only while nothing of it changed
                if state.version_of(&self.resource.storage) > version || version < state.compacted()
                {
                    return Err(Failure::expired(
                        "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.",
                    ));
                }
                (Some(key), version)
            }
        };
        let rest: Vec<(&Key, &Arc<Value>)> = state
            .list(&self.resource.storage, self.namespace)
            .filter(|(key, _)| {
                start
                    .as_ref()
                    .is_none_or(|(namespace, name)| (&key.namespace, &key.name) > (namespace, name))
            })
            .filter(|(_, object)| filter.matches(object))
            .collect();
        let taken = if limit == 0 {
            rest.len()
        } else {
            limit.min(rest.len())
        };
        let mut items: Vec<Value> = rest[..taken]
            .iter()
            .map(|(_, object)| self.present(object))
            .collect();
        if self.resource.custom.is_none() {
            // built-in lists name the kind once
            for item in items.iter_mut().filter_map(Value::as_object_mut) {
                item.remove("apiVersion");
                item.remove("kind");
            }
        }
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if taken < rest.len() && taken > 0 {
            let last = rest[taken - 1].0;
            metadata["continue"] = json!(format!("{version}:{}/{}", last.namespace, last.name));
            metadata["remainingItemCount"] = json!(rest.len() - taken);
        }
        Ok(Answer::ok(json!({
            "kind": self.resource.list_kind, "apiVersion": self.resource.api_version(),
            "metadata": metadata, "items": items,
        })))
    }

    fn parse(&self) -> Result<Value, Failure> {
        let readable = ["application/json", "application/yaml"];
        if !readable.contains(&self.content_type) {
            return Err(Failure::unsupported_media_type(&readable));
        }
        let parsed = if self.content_type.contains("yaml") {
            serde_yaml::from_slice(self.body).map_err(|error| error.to_string())
        } else {
            serde_json::from_slice(self.body).map_err(|error| error.to_string())
        };
        match parsed {
            Ok(value @ Value::Object(_)) => Ok(value),
            Ok(_) => Err(Failure::bad_request(
                "the body of the request is not an object",
            )),
            Err(error) => Err(Failure::bad_request(format!(
                "couldn't get version/kind; json parse error: {error}"
            ))),
        }
    }

    /// Tidies an object and judges it; the answer is the warnings.
    fn admit(&self, object: &mut Value) -> Result<Vec<String>, Failure> {
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
                return Err(Failure::bad_request(format!(
                    "the API version or kind in the data ({}, {}) does not match the expected ({}, {kind})",
                    object["apiVersion"].as_str().unwrap_or_default(),
                    object["kind"].as_str().unwrap_or_default(),
                    self.resource.api_version(),
                )));
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

    fn invalid(&self, object: &Value, causes: &[Cause]) -> Failure {
        let subject = Subject {
            group: &self.resource.group,
            resource: &self.resource.kind,
            name: object["metadata"]["name"].as_str().unwrap_or_default(),
        };
        Failure::invalid(&subject, causes)
    }

    fn check_name(&self, object: &Value) -> Result<(), Failure> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            return Err(self.invalid(
                object,
                &[Cause::required(
                    "metadata.name",
                    "name or generateName is required",
                )],
            ));
        }
        let rbac = self.resource.group == "rbac.authorization.k8s.io";
        let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let good = name.len() <= 253
            && name.chars().all(|c| edge(c) || c == '-' || c == '.')
            && name
                .split('.')
                .all(|part| part.starts_with(edge) && part.ends_with(edge));
        if good || rbac || self.resource.plural == "priorityclasses" {
            return Ok(());
        }
        Err(self.invalid(object, &[Cause::invalid(
            "metadata.name",
            &json!(name),
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        )]))
    }

    /// A new object.
    pub(crate) fn create(&self, state: &mut State) -> Result<Answer, Failure> {
        let object = self.parse()?;
        self.create_object(state, object)
    }

    fn create_object(&self, state: &mut State, mut object: Value) -> Result<Answer, Failure> {
        let warnings = self.admit(&mut object)?;
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

    /// Whether the specification is counted.
    fn has_generation(&self) -> bool {
        self.resource.custom.is_some()
            || [
                "apps",
                "batch",
                "policy",
                "apiextensions.k8s.io",
                "networking.k8s.io",
            ]
            .contains(&self.resource.group.as_str())
            || self.resource.storage == "pods"
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

    fn write(&self, state: &mut State, mut object: Value) -> Result<Answer, Failure> {
        let before = Arc::clone(self.existing(state)?);
        let warnings = self.admit(&mut object)?;
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
            let status = object["status"].clone();
            object = Value::clone(&before);
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

/// What the server adds to the definition of a custom resource.
fn establish(definition: &mut Value) {
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

/// The position that a continue token stands for: version, namespace, name.
fn parse_continue(token: &str) -> Option<(u64, (String, String))> {
    let (version, key) = token.split_once(':')?;
    let (namespace, name) = key.split_once('/')?;
    Some((
        version.parse().ok()?,
        (namespace.to_owned(), name.to_owned()),
    ))
}

fn has_finalizers(object: &Value) -> bool {
    let filled = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
    filled(&object["metadata"]["finalizers"])
        || object["kind"] == "Namespace" && filled(&object["spec"]["finalizers"])
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

fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Five characters as generated names end with.
fn suffix() -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    uuid::Uuid::new_v4().as_bytes()[..5]
        .iter()
        .map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]))
        .collect()
}
