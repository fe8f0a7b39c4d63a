//! The state behind the lock: the objects, and the history of their changes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde_json::{Value, json};

use super::change::{Change, HistoricObject};
use super::key::{DEFINITIONS, Key};
use super::object::Object;

/// Number of newest changes whose objects are kept as values. Older ones are kept as texts, which take a tenth of the memory.
pub(super) const MAX_VALUES: usize = 1024;

/// Largest total size of the history's texts, in bytes, so that large objects do not make it take more memory than small ones.
const MAX_HISTORY_BYTES: usize = 32 << 20;

/// The state behind the lock.
#[derive(Debug)]
pub(crate) struct State {
    objects: BTreeMap<Key, Arc<Object>>,
    version: u64,
    history: VecDeque<Change>,
    /// Size of the texts of changed objects, in bytes. The text before a change is shared with the change that made it.
    texts: usize,
    compacted: u64,
    /// Version of the newest change of each resource that was dropped from the history.
    newest_dropped: BTreeMap<String, u64>,
    max_changes: usize,
    pub(super) max_bytes: usize,
    /// Version of the latest change of each resource; see [`State::version_of`].
    pub(super) last_changed: BTreeMap<String, u64>,
    /// Versions at which the definitions of custom resources were created.
    defined: BTreeMap<String, u64>,
    /// Objects of which a real server stores less than it shows.
    stored_without_defaults: BTreeSet<Key>,
}

impl State {
    /// Makes an empty state that keeps the newest `max_changes` changes.
    pub(super) fn new(max_changes: usize) -> Self {
        Self {
            objects: BTreeMap::new(),
            // clients use 0 for "any version"; in a real server, the first objects do not start at 1 either
            version: 1,
            history: VecDeque::new(),
            texts: 0,
            compacted: 0,
            newest_dropped: BTreeMap::new(),
            max_changes,
            max_bytes: MAX_HISTORY_BYTES,
            last_changed: BTreeMap::new(),
            defined: BTreeMap::new(),
            stored_without_defaults: BTreeSet::new(),
        }
    }

    /// Returns the version of the newest write.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Returns the version at which a resource changed last; 0 when it never did.
    pub(crate) fn version_of(&self, resource: &str) -> u64 {
        self.last_changed.get(resource).copied().unwrap_or(0)
    }

    /// Returns the version before which a resource has no history: that of its definition, or 0 for built-in resources.
    pub(crate) fn defined_at(&self, resource: &str) -> u64 {
        self.defined.get(resource).copied().unwrap_or(0)
    }

    /// Returns the newest version that was dropped from the history; watches cannot start before it.
    pub(crate) fn compacted(&self) -> u64 {
        self.compacted
    }

    /// Returns an object.
    pub(crate) fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<&Arc<Object>> {
        self.objects.get(&Key::new(resource, namespace, name))
    }

    /// Returns all objects of a resource in a namespace, or in all namespaces when it is empty.
    pub(crate) fn list<'a>(
        &'a self,
        resource: &'a str,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<Object>)> + 'a {
        self.objects
            .range(Key::new(resource, namespace, "")..)
            .take_while(move |(key, _)| {
                key.resource == resource && (namespace.is_empty() || key.namespace == namespace)
            })
    }

    /// Writes an object with a new resource version.
    pub(crate) fn put(&mut self, key: Key, mut object: Value) -> Arc<Object> {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let object = Arc::new(Object::new(object));
        self.stored_without_defaults.remove(&key);
        let before = self.objects.insert(key.clone(), Arc::clone(&object));
        if before.is_none() && key.resource == DEFINITIONS {
            self.defined.insert(key.name.clone(), self.version);
        }
        self.record(key, Arc::clone(&object), before, false);
        object
    }

    /// Removes an object; returns its last state with the version of the deletion.
    pub(crate) fn remove(&mut self, key: &Key) -> Option<Arc<Object>> {
        let before = self.objects.remove(key)?;
        self.stored_without_defaults.remove(key);
        self.version += 1;
        let mut last = Value::clone(&before);
        last["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let last = Arc::new(Object::new(last));
        self.record(key.clone(), Arc::clone(&last), Some(before), true);
        Some(last)
    }

    fn record(
        &mut self,
        key: Key,
        object: Arc<Object>,
        before: Option<Arc<Object>>,
        deleted: bool,
    ) {
        self.last_changed.insert(key.resource.clone(), self.version);
        self.history.push_back(Change {
            version: self.version,
            key,
            object: HistoricObject::Value(object),
            before: before.map(HistoricObject::Value),
            deleted,
        });
        if let Some(old) = self.history.len().checked_sub(MAX_VALUES + 1) {
            self.shrink(old);
        }
        while self.history.len() > self.max_changes || self.texts > self.max_bytes {
            let Some(oldest) = self.history.pop_front() else {
                break;
            };
            self.texts -= oldest.object.size();
            self.note_dropped(oldest);
        }
    }

    fn note_dropped(&mut self, change: Change) {
        self.compacted = change.version;
        self.newest_dropped
            .insert(change.key.resource, change.version);
    }

    /// Converts a change to texts. The text before the change is that of the change that made it.
    fn shrink(&mut self, index: usize) {
        if let Some(change) = self.history.get_mut(index) {
            change.object.shrink();
            self.texts += change.object.size();
            if let Some(before) = &mut change.before {
                before.shrink();
            }
        }
    }

    /// Returns the changes of a resource after a version, oldest first; `None` when some of them have been dropped. Dropped changes of
    /// other resources do not matter.
    pub(crate) fn changes_after<'a>(
        &'a self,
        resource: &'a str,
        version: u64,
    ) -> Option<impl Iterator<Item = &'a Change>> {
        let newest_dropped = self.newest_dropped.get(resource).copied().unwrap_or(0);
        if version < newest_dropped {
            return None;
        }
        let start = self
            .history
            .partition_point(|change| change.version <= version);
        let changes = self.history.range(start..);
        Some(changes.filter(move |change| change.key.resource == resource))
    }

    /// Returns one resource as it was at a version, or as far back as the history goes. The result contains no other resources.
    pub(crate) fn at_version(&self, resource: &str, version: u64) -> Self {
        let version = version.clamp(self.compacted, self.version);
        let mut objects: BTreeMap<Key, Arc<Object>> = self
            .list(resource, "")
            .map(|(key, object)| (key.clone(), Arc::clone(object)))
            .collect();
        let later = self.history.iter().rev();
        for change in later.take_while(|change| change.version > version) {
            if change.key.resource != resource {
                continue;
            }
            match &change.before {
                Some(before) => objects.insert(change.key.clone(), before.value()),
                None => objects.remove(&change.key),
            };
        }
        Self {
            objects,
            version,
            compacted: self.compacted,
            max_bytes: 0,
            ..Self::new(0)
        }
    }

    /// Marks an object of which a real server stores less than it shows until the object is written again: the next write changes
    /// something.
    pub(crate) fn mark_stored_without_defaults(&mut self, key: &Key) {
        self.stored_without_defaults.insert(key.clone());
    }

    /// Returns whether a write of an object changes what is stored even when it changes nothing that is shown.
    pub(crate) fn is_stored_without_defaults(&self, key: &Key) -> bool {
        self.stored_without_defaults.contains(key)
    }

    /// Drops the history up to a version.
    pub(crate) fn compact_to(&mut self, version: u64) {
        while let Some(change) = self
            .history
            .pop_front_if(|oldest| oldest.version <= version)
        {
            self.texts -= change.object.size();
            self.note_dropped(change);
        }
        self.compacted = self.compacted.max(version);
    }

    /// Drops the whole history.
    pub(crate) fn compact(&mut self) {
        for change in std::mem::take(&mut self.history) {
            self.note_dropped(change);
        }
        self.texts = 0;
        self.compacted = self.version;
    }
}
