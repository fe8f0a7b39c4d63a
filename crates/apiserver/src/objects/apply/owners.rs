//! Field owners: the entries of `metadata.managedFields`, and how writes change them.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::compare::{self, Comparison};
use super::fields::{Element, FieldSet, path_text};
use super::types::Type;
use super::{merge, walk};
use crate::values::fields::elements;

/// How an owner took its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    /// Server-side apply.
    Apply,
    /// Any other write.
    Update,
}

/// The identity of an owner.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Owner {
    /// Name of the field manager.
    pub(crate) manager: String,
    /// How it writes.
    pub(crate) operation: Operation,
    /// API version of its writes; empty for appliers, who have one entry for all versions.
    pub(crate) version: String,
    /// Subresource through which it writes.
    pub(crate) subresource: String,
}

impl Owner {
    /// Returns the owner as messages about conflicts show it.
    fn shown(&self) -> String {
        let mut text = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            text = format!("{text} with subresource {:?}", self.subresource);
        }
        if self.operation == Operation::Update {
            text = format!("{text} using {}", self.version);
        }
        text
    }
}

/// What an owner owns.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Share {
    /// Its fields.
    pub(crate) set: FieldSet,
    /// API version in which it wrote them.
    pub(crate) version: String,
    /// When it last took fields.
    pub(crate) time: Option<String>,
}

/// A field that another owner has set to another value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Conflict {
    /// The other owner.
    pub(crate) owner: Owner,
    /// The field.
    pub(crate) path: Vec<Element>,
}

impl Conflict {
    /// Returns the conflict as a cause of the refusal.
    pub(crate) fn cause(&self) -> Value {
        json!({
            "reason": "FieldManagerConflict",
            "message": format!("conflict with {}", self.owner.shown()),
            "field": path_text(&self.path),
        })
    }

    /// Returns the message of the refusal.
    pub(crate) fn message(conflicts: &[Self]) -> String {
        if let [one] = conflicts {
            return format!(
                "Apply failed with 1 conflict: conflict with {}: {}",
                one.owner.shown(),
                path_text(&one.path)
            );
        }
        let mut lines: Vec<String> = Vec::new();
        let mut last = None;
        for conflict in conflicts {
            if last != Some(&conflict.owner) {
                lines.push(format!("conflicts with {}:", conflict.owner.shown()));
                last = Some(&conflict.owner);
            }
            lines.push(format!("- {}", path_text(&conflict.path)));
        }
        format!(
            "Apply failed with {} conflicts: {}",
            conflicts.len(),
            lines.join("\n")
        )
    }
}

/// All field owners of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Owners(pub(crate) BTreeMap<Owner, Share>);

/// Largest number of owners with operation Update; older ones are merged.
const MAX_UPDATERS: usize = 10;

impl Owners {
    /// Returns the owners in `managedFields`; `None` when an entry cannot be parsed.
    pub(crate) fn decode(entries: &Value) -> Option<Self> {
        let mut owners = BTreeMap::new();
        for entry in elements(entries) {
            let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
            let operation = match entry["operation"].as_str() {
                Some("Apply") => Operation::Apply,
                Some("Update") => Operation::Update,
                _ => return None,
            };
            let version = text("apiVersion");
            if version.is_empty() || text("fieldsType") != "FieldsV1" {
                return None;
            }
            let owner = Owner {
                manager: text("manager"),
                operation,
                version: if operation == Operation::Apply {
                    String::new()
                } else {
                    version.clone()
                },
                subresource: text("subresource"),
            };
            let share = Share {
                set: FieldSet::decode(&entry["fieldsV1"])?,
                version,
                time: entry["time"].as_str().map(str::to_owned),
            };
            owners.insert(owner, share);
        }
        Some(Self(owners))
    }

    /// Returns the owners as `managedFields`; `None` when there are none.
    pub(crate) fn encode(&self) -> Option<Value> {
        let mut list: Vec<(&Owner, &Share)> = self.0.iter().collect();
        list.sort_by_key(|(owner, share)| {
            (
                owner.operation,
                share.time.clone(),
                owner.manager.clone(),
                share.version.clone(),
                owner.subresource.clone(),
            )
        });
        let entries: Vec<Value> = list
            .into_iter()
            .map(|(owner, share)| {
                let mut entry = Map::new();
                entry.insert("manager".into(), json!(owner.manager));
                let operation = match owner.operation {
                    Operation::Apply => "Apply",
                    Operation::Update => "Update",
                };
                entry.insert("operation".into(), json!(operation));
                entry.insert("apiVersion".into(), json!(share.version));
                if let Some(time) = &share.time {
                    entry.insert("time".into(), json!(time));
                }
                entry.insert("fieldsType".into(), json!("FieldsV1"));
                entry.insert("fieldsV1".into(), share.set.encode());
                if !owner.subresource.is_empty() {
                    entry.insert("subresource".into(), json!(owner.subresource));
                }
                Value::Object(entry)
            })
            .collect();
        (!entries.is_empty()).then_some(Value::Array(entries))
    }

    /// Takes away from all other owners the fields that a writer sets to other values or removes.
    fn release_fields(&mut self, writer: Option<&Owner>, difference: &Comparison) {
        let set = difference.set();
        for (owner, share) in &mut self.0 {
            if writer != Some(owner) {
                share.set = share.set.difference(&set).difference(&difference.removed);
            }
        }
        self.0.retain(|_, share| !share.set.is_empty());
    }

    /// Records the owners after a write other than apply.
    pub(crate) fn update(&mut self, writer: &Owner, written: &Write<'_>) {
        let full = compare::compare(written.ty, written.before, written.after);
        self.release_fields(None, &full.excluding(written.ignored));
        let set = full
            .set()
            .recursive_difference(written.ignored)
            .difference(written.server_fields);
        if !set.is_empty() {
            let share = self.0.entry(writer.clone()).or_default();
            share.set = share.set.union(&set);
            share.version.clone_from(&written.version.to_owned());
            share.time = Some(written.now.to_owned());
        }
        self.merge_oldest_updaters();
    }

    /// Merges the oldest updaters when there are too many.
    fn merge_oldest_updaters(&mut self) {
        let mut updaters: Vec<Owner> = self
            .0
            .keys()
            .filter(|owner| owner.operation == Operation::Update)
            .cloned()
            .collect();
        let mut count = updaters.len();
        if count <= MAX_UPDATERS {
            return;
        }
        updaters.sort_by_key(|owner| (self.0[owner].time.clone(), owner.clone()));
        let mut first: BTreeMap<String, Owner> = BTreeMap::new();
        for owner in updaters {
            if count <= MAX_UPDATERS {
                return;
            }
            let version = owner.version.clone();
            let bucket = Owner {
                manager: "ancient-changes".into(),
                operation: Operation::Update,
                version: version.clone(),
                subresource: String::new(),
            };
            let Some(earlier) = first.get(&version) else {
                first.insert(version, owner);
                continue;
            };
            if !self.0.contains_key(&bucket)
                && let Some(share) = self.0.remove(earlier)
            {
                self.0.insert(bucket.clone(), share);
            }
            if let Some(share) = self.0.remove(&owner) {
                let joined = self.0.entry(bucket).or_default();
                joined.set = joined.set.union(&share.set);
                joined.version = share.version;
                joined.time = share.time;
                count -= 1;
            }
        }
    }

    /// Applies a configuration; returns the new object, or `None` when nothing in it changes.
    pub(crate) fn apply(
        &mut self,
        applier: &Owner,
        written: &Write<'_>,
        force: bool,
    ) -> Result<Option<Value>, ApplyError> {
        let ty = written.ty;
        let mut object =
            merge::merge(ty, written.before, written.after).map_err(ApplyError::Merge)?;
        let set = walk::fields(ty, written.after).recursive_difference(written.ignored);
        let last = self.0.insert(
            applier.clone(),
            Share {
                set,
                version: written.version.to_owned(),
                time: None,
            },
        );
        if let Some(last) = last.as_ref().filter(|last| !last.set.is_empty()) {
            object = self.prune(ty, &object, &last.set);
        }
        let difference = compare::compare(ty, written.before, &object).excluding(written.ignored);
        if !force {
            let set = difference.set();
            let conflicts: Vec<Conflict> = self
                .0
                .iter()
                .filter(|(owner, _)| *owner != applier)
                .flat_map(|(owner, share)| {
                    let paths = share.set.intersection(&set).paths();
                    paths.into_iter().map(|path| Conflict {
                        owner: owner.clone(),
                        path,
                    })
                })
                .collect();
            if !conflicts.is_empty() {
                return Err(ApplyError::Conflicts(conflicts));
            }
        }
        self.release_fields(Some(applier), &difference);
        let is_changed = object != *written.before;
        if let Some(share) = self.0.get_mut(applier) {
            share.set = share.set.difference(written.server_fields);
            share.time = if is_changed {
                Some(written.now.to_owned())
            } else {
                last.and_then(|last| last.time)
            };
        }
        self.0.retain(|_, share| !share.set.is_empty());
        Ok(is_changed.then_some(object))
    }

    /// Removes what the applier applied before and no longer applies, unless another owner has it.
    fn prune(&self, ty: Type<'_>, merged: &Value, last: &FieldSet) -> Value {
        let named = |set: &FieldSet| walk::with_named(Some(ty), set);
        let last = named(last);
        let without = |removed: &FieldSet| walk::remove(ty, merged, removed).unwrap_or(Value::Null);
        let merged_set = named(&walk::fields(ty, merged));
        let pruned_set = named(&walk::fields(ty, &without(&last)));
        let owned = self
            .0
            .values()
            .fold(FieldSet::default(), |all, share| all.union(&share.set));
        let kept = without(&merged_set.difference(&pruned_set.union(&named(&owned))));
        // items without an owner that were removed only because something above them was removed
        let kept_set = named(&walk::fields(ty, &kept));
        without(&merged_set.difference(&kept_set).intersection(&last))
    }
}

/// Why an apply is refused.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ApplyError {
    /// Others own fields with other values.
    Conflicts(Vec<Conflict>),
    /// The configuration cannot be merged.
    Merge(String),
}

/// A write, with all that tracking its owners needs.
pub(crate) struct Write<'a> {
    /// Type of the object.
    pub(crate) ty: Type<'a>,
    /// API version, such as `apps/v1`.
    pub(crate) version: &'a str,
    /// The object before.
    pub(crate) before: &'a Value,
    /// The object after, or the applied configuration.
    pub(crate) after: &'a Value,
    /// Fields that this resource or subresource does not write.
    pub(crate) ignored: &'a FieldSet,
    /// Fields that the server sets and that have no owner.
    pub(crate) server_fields: &'a FieldSet,
    /// Time of the write.
    pub(crate) now: &'a str,
}
