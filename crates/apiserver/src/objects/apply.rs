//! Server-side apply, and the field owners that every write records in `metadata.managedFields`.
//!
//! Reading order: [`Tracker`], `owners` (what writes change), `fields` and `types` (what a set of fields and a type are), `walk` (the fields of
//! a value), `check`, `compare`, `merge`, and `scale` (owners as the `scale` subresource shows them).

use serde_json::{Map, Value, json};

use self::fields::FieldSet;
use self::owners::{ApplyError, Conflict, Operation, Owner, Owners, Write};
pub(crate) use self::scale::{owners_of_scale, owners_with_scale};
use self::types::Type;
use crate::failure::Failure;
use crate::registry::Resource;
use crate::schema::Node;

mod check;
mod compare;
mod fields;
mod merge;
mod owners;
mod pairs;
mod scale;
mod types;
mod walk;

/// Annotation in which client-side apply keeps the configuration that it applied last.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Longest name of a field manager, in bytes.
const LONGEST_MANAGER: usize = 128;

/// Fields that the server sets and that therefore have no owner.
const SERVER_FIELDS: &[&str] = &[
    "apiVersion",
    "kind",
    "metadata",
    "metadata.name",
    "metadata.namespace",
    "metadata.creationTimestamp",
    "metadata.selfLink",
    "metadata.uid",
    "metadata.clusterName",
    "metadata.generation",
    "metadata.managedFields",
    "metadata.resourceVersion",
];

/// Tracks the field owners of the objects of one resource.
pub(crate) struct Tracker<'a> {
    resource: &'a Resource,
    subresource: &'a str,
    version: String,
    ignored: FieldSet,
    server_fields: FieldSet,
    now: &'a str,
}

impl<'a> Tracker<'a> {
    /// Makes a tracker of writes to a resource or one of its subresources; `now` is the time in the format of the API.
    pub(crate) fn new(resource: &'a Resource, subresource: &'a str, now: &'a str) -> Self {
        Self {
            resource,
            subresource,
            version: resource.api_version(),
            ignored: FieldSet::of_names(ignored(resource, subresource)),
            server_fields: FieldSet::of_names(SERVER_FIELDS),
            now,
        }
    }

    /// Records which fields a write other than apply takes and gives up; `before` is `None` for a new object.
    pub(crate) fn update(&self, before: Option<&Value>, after: &mut Value, manager: &str) {
        let given = match after.get_mut("metadata").and_then(Value::as_object_mut) {
            Some(metadata) => metadata.remove("managedFields"),
            None => None,
        };
        let earlier = || {
            before
                .and_then(|before| Owners::decode(&before["metadata"]["managedFields"]))
                .unwrap_or_default()
        };
        let mut owners = match given {
            _ if !self.subresource.is_empty() => earlier(),
            None => earlier(),
            Some(given) if is_reset(&given) => Owners::default(),
            Some(given) => Owners::decode(&given)
                .filter(|owners| !owners.0.is_empty())
                .unwrap_or_else(earlier),
        };
        // an object without owners is not tracked until it is applied
        if owners.0.is_empty() && before.is_some() {
            return;
        }
        let owner = self.owner(manager, Operation::Update);
        self.record(&mut owners, &owner, before, after);
        Self::put(&owners, after);
    }

    fn record(&self, owners: &mut Owners, owner: &Owner, before: Option<&Value>, after: &Value) {
        let before = self.completed(before);
        let after = self.completed(Some(after));
        owners.update(owner, &self.write(&before, &after));
    }

    /// Returns the object after an apply; the error is the refusal.
    pub(crate) fn apply(
        &self,
        before: Option<&Value>,
        configuration: &Value,
        manager: &str,
        force: bool,
    ) -> Result<Value, Failure> {
        self.check(configuration)?;
        let completed = self.completed(before);
        let mut owners = before
            .and_then(|before| Owners::decode(&before["metadata"]["managedFields"]))
            .unwrap_or_default();
        if owners.0.is_empty() && before.is_some() {
            let first_owner = self.owner("before-first-apply", Operation::Update);
            self.record(&mut owners, &first_owner, None, &completed);
        }
        let applier = self.owner(manager, Operation::Apply);
        let written = self.write(&completed, configuration);
        let mut tried = owners.clone();
        let merged = match tried.apply(&applier, &written, force) {
            Err(ApplyError::Conflicts(conflicts)) if manager == "kubectl" => {
                let rest = self.beyond_last_applied(&completed, conflicts);
                if !rest.is_empty() {
                    return Err(conflict(&rest));
                }
                tried = owners;
                tried.apply(&applier, &written, true)
            }
            other => other,
        };
        let mut object = match merged {
            Ok(changed) => changed.unwrap_or(completed),
            Err(ApplyError::Conflicts(conflicts)) => return Err(conflict(&conflicts)),
            Err(ApplyError::Merge(why)) => {
                return Err(Failure::internal_without_reason(format!(
                    "failed to merge config: {why}"
                )));
            }
        };
        if manager == "kubectl" && object["metadata"]["annotations"][LAST_APPLIED].is_string() {
            let mut applied = configuration.clone();
            // an index would make what is missing
            let annotations = applied.pointer_mut("/metadata/annotations");
            if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
                annotations.remove(LAST_APPLIED);
            }
            object["metadata"]["annotations"][LAST_APPLIED] = json!(format!("{applied}\n"));
        }
        Self::put(&tried, &mut object);
        Ok(object)
    }

    fn owner(&self, manager: &str, operation: Operation) -> Owner {
        Owner {
            manager: manager.to_owned(),
            operation,
            version: match operation {
                Operation::Apply => String::new(),
                Operation::Update => self.version.clone(),
            },
            subresource: self.subresource.to_owned(),
        }
    }

    fn write<'w>(&'w self, before: &'w Value, after: &'w Value) -> Write<'w> {
        Write {
            ty: Type::new(self.resource.schema()),
            version: &self.version,
            before,
            after,
            ignored: &self.ignored,
            server_fields: &self.server_fields,
            now: self.now,
        }
    }

    /// Returns an object without its owners; for a built-in kind, with the fields that its type always has. The result is empty when there
    /// is no object.
    fn completed(&self, object: Option<&Value>) -> Value {
        let mut object = object.cloned().unwrap_or_else(|| json!({}));
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        if self.resource.custom.is_none() {
            fill_in_zero_values(self.resource.schema(), &mut object);
        }
        object
    }

    fn put(owners: &Owners, object: &mut Value) {
        if let Some(entries) = owners.encode() {
            object["metadata"]["managedFields"] = entries;
        }
    }

    fn check(&self, configuration: &Value) -> Result<(), Failure> {
        let text = |field: &str| configuration[field].as_str().unwrap_or_default();
        let (version, kind) = (text("apiVersion"), text("kind"));
        let shown = |version: &str, kind: &str| {
            if version.contains('/') {
                format!("{version}, Kind={kind}")
            } else {
                format!("/{version}, Kind={kind}")
            }
        };
        if version != self.version || kind != self.resource.kind {
            return Err(Failure::bad_request(format!(
                "invalid object type: {}",
                shown(version, kind)
            )));
        }
        if !configuration["metadata"]["managedFields"].is_null() {
            return Err(Failure::bad_request("metadata.managedFields must be nil"));
        }
        let wrong = check::validate(Type::new(self.resource.schema()), configuration, false);
        let why = match wrong.as_slice() {
            [] => return Ok(()),
            [one] => one.clone(),
            many => format!("errors:\n  {}", many.join("\n  ")),
        };
        let meta = |field: &str| {
            configuration["metadata"][field]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        Err(Failure::internal_without_reason(format!(
            "failed to create typed patch object ({}/{}; {}): {why}",
            meta("namespace"),
            meta("name"),
            shown(version, kind)
        )))
    }

    /// Returns the conflicts about fields that do not come from the last client-side apply recorded in the object.
    fn beyond_last_applied(&self, object: &Value, conflicts: Vec<Conflict>) -> Vec<Conflict> {
        let remembered = object["metadata"]["annotations"][LAST_APPLIED]
            .as_str()
            .and_then(|text| serde_json::from_str::<Value>(text).ok())
            .filter(|last| last["apiVersion"] == self.version.as_str());
        let Some(last) = remembered else {
            return conflicts;
        };
        let ty = Type::new(self.resource.schema());
        let since = compare::compare(ty, &last, object);
        let unchanged = walk::fields(ty, &last)
            .difference(&since.set())
            .difference(&since.removed);
        conflicts
            .into_iter()
            .filter(|conflict| !unchanged.has(&conflict.path))
            .collect()
    }
}

fn conflict(conflicts: &[Conflict]) -> Failure {
    let causes: Vec<Value> = conflicts.iter().map(Conflict::cause).collect();
    Failure::apply_conflict(Conflict::message(conflicts), &causes)
}

/// Returns the fields that a resource or subresource does not write.
fn ignored(resource: &Resource, subresource: &str) -> &'static [&'static str] {
    match subresource {
        "" if resource.storage == "certificatesigningrequests.certificates.k8s.io" => {
            &["spec", "status"]
        }
        "" if resource.has_status() => &["status"],
        "status" => match resource.storage.as_str() {
            "pods" => &[
                "spec",
                "metadata.deletionTimestamp",
                "metadata.ownerReferences",
            ],
            "deployments.apps" => &["spec", "metadata.labels"],
            "customresourcedefinitions.apiextensions.k8s.io"
            | "flowschemas.flowcontrol.apiserver.k8s.io"
            | "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io"
            | "resourceclaims.resource.k8s.io"
            | "volumeattachments.storage.k8s.io" => &["metadata", "spec"],
            _ => &["spec"],
        },
        "finalize" => &["status"],
        "approval" => &["spec", "status"],
        _ => &[],
    }
}

/// Returns whether the given managed fields ask the server to clear the owners.
fn is_reset(given: &Value) -> bool {
    match given.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([one]) => one.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}

/// Adds the fields that a built-in type always has, given or not: embedded structures, and fields that are always written.
pub(crate) fn fill_in_zero_values(schema: Node<'_>, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, property) in schema.properties().into_iter().flatten() {
                let node = Node::new(property);
                if !fields.contains_key(name)
                    && let Some(zero) = zero(schema, name, node)
                {
                    fields.insert(name.clone(), zero);
                }
            }
            for (name, field) in fields.iter_mut() {
                if let Some(node) = schema.field(name) {
                    fill_in_zero_values(node, field);
                }
            }
        }
        Value::Array(items) => {
            if let Some(node) = schema.items() {
                for item in items {
                    fill_in_zero_values(node, item);
                }
            }
        }
        _ => {}
    }
}

/// Returns the value of a field that was not given; `None` when such a field is left out.
fn zero(schema: Node<'_>, name: &str, field: Node<'_>) -> Option<Value> {
    let default = field.default();
    if default.is_some_and(|default| default.as_object().is_some_and(Map::is_empty)) {
        return field.type_is("object").then(|| json!({}));
    }
    if !schema.required().any(|required| required == name) {
        return None;
    }
    let is_zero = |value: &Value| value == "" || value == &json!(0) || value == &json!(false);
    match default {
        Some(value) => is_zero(value).then(|| value.clone()),
        None => Some(Value::Null),
    }
}

/// Restores the times of the owners when nothing else changed, so that such a write changes nothing at all.
pub(crate) fn keep_times(before: &Value, after: &mut Value) {
    let (old, new) = (
        before["metadata"]["managedFields"].as_array(),
        after["metadata"]["managedFields"].as_array(),
    );
    let (Some(old), Some(new)) = (old, new) else {
        return;
    };
    let timeless = |entry: &Value| {
        let mut entry = entry.clone();
        if let Some(fields) = entry.as_object_mut() {
            fields.remove("time");
        }
        entry
    };
    let same_owners = old.len() == new.len()
        && old
            .iter()
            .zip(new)
            .all(|(old, new)| timeless(old) == timeless(new));
    if !same_owners || old == new {
        return;
    }
    let old = Value::Array(old.clone());
    let new = std::mem::replace(&mut after["metadata"]["managedFields"], old);
    if after != before {
        after["metadata"]["managedFields"] = new;
    }
}

/// Returns the name of a request's field manager: the parameter, or else the program in the user agent.
pub(crate) fn manager_name(parameter: &str, user_agent: &str) -> String {
    if !parameter.is_empty() {
        return parameter.to_owned();
    }
    let program = user_agent.split('/').next().unwrap_or_default();
    let mut name = String::new();
    for letter in program.chars().filter(|letter| !letter.is_control()) {
        if name.len() + letter.len_utf8() > LONGEST_MANAGER {
            break;
        }
        name.push(letter);
    }
    name
}

#[cfg(test)]
mod tests;
