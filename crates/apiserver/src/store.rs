//! The objects of a cluster with a single sequence of resource versions, and the history that watches read.
//!
//! Everything is in memory behind one lock. A request reads, decides and writes in one transaction, so a write is never based on an older
//! state than the one it replaces.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::body::Bytes;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::registry::DEFINITIONS;

/// The key of an object. Keys are sorted by the paths `namespace/name`, as lists are, so `a-b/x` is before `a/x`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// Resource and group: `pods`, `deployments.apps`.
    pub(crate) resource: String,
    /// Empty for cluster-scoped objects.
    pub(crate) namespace: String,
    /// Name of the object.
    pub(crate) name: String,
}

impl Key {
    /// Makes the key of an object.
    pub(crate) fn new(resource: &str, namespace: &str, name: &str) -> Self {
        Self {
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        fn path(key: &Key) -> impl Iterator<Item = u8> + '_ {
            let slash = (!key.namespace.is_empty()).then_some(b'/');
            let name = key.name.bytes();
            key.namespace.bytes().chain(slash).chain(name)
        }
        self.resource.cmp(&other.resource).then_with(|| {
            if self.namespace == other.namespace {
                self.name.cmp(&other.name)
            } else {
                path(self).cmp(path(other))
            }
        })
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Number of newest changes whose objects are kept as values. Older ones are kept as texts, which take a tenth of the memory.
const MAX_VALUES: usize = 1024;

/// Largest total size of the history's texts, in bytes, so that large objects do not make it take more memory than small ones.
const MAX_HISTORY_BYTES: usize = 32 << 20;

/// An object in the history.
#[derive(Clone, Debug)]
pub(crate) enum HistoricObject {
    /// As a value.
    Value(Arc<Value>),
    /// As JSON.
    Text(Bytes),
}

impl HistoricObject {
    /// Returns the object, parsed from the text if necessary.
    pub(crate) fn value(&self) -> Arc<Value> {
        match self {
            Self::Value(value) => Arc::clone(value),
            // the text was encoded by this server, so it can be parsed
            Self::Text(text) => Arc::new(serde_json::from_slice(text).unwrap_or_default()),
        }
    }

    fn text(&self) -> Bytes {
        match self {
            Self::Value(value) => Bytes::from(value.to_string()),
            Self::Text(text) => text.clone(),
        }
    }

    fn shrink(&mut self) {
        *self = Self::Text(self.text());
    }

    /// Returns the size of the text in bytes; 0 for a value.
    fn size(&self) -> usize {
        match self {
            Self::Value(_) => 0,
            Self::Text(text) => text.len(),
        }
    }
}

/// A change of one object.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// Resource version of the change.
    pub(crate) version: u64,
    /// Key of the object.
    pub(crate) key: Key,
    /// The object after the change; for a deletion, its last state with the version of the deletion.
    pub(crate) object: HistoricObject,
    /// The object before the change; `None` for a new one.
    pub(crate) before: Option<HistoricObject>,
    /// Whether the object was deleted.
    pub(crate) deleted: bool,
}

/// The state behind the lock.
#[derive(Debug)]
pub(crate) struct State {
    objects: BTreeMap<Key, Arc<Value>>,
    version: u64,
    history: VecDeque<Change>,
    /// Size of the texts of changed objects, in bytes. The text before a change is shared with the change that made it.
    texts: usize,
    compacted: u64,
    /// Version of the newest change of each resource that was dropped from the history.
    newest_dropped: BTreeMap<String, u64>,
    max_changes: usize,
    max_bytes: usize,
    /// Version of the latest change of each resource; see [`State::version_of`].
    last_changed: BTreeMap<String, u64>,
    /// Versions at which the definitions of custom resources were created.
    defined: BTreeMap<String, u64>,
    /// Objects of which a real server stores less than it shows.
    stored_without_defaults: BTreeSet<Key>,
}

impl State {
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
    pub(crate) fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<&Arc<Value>> {
        self.objects.get(&Key::new(resource, namespace, name))
    }

    /// Returns all objects of a resource in a namespace, or in all namespaces when it is empty.
    pub(crate) fn list<'a>(
        &'a self,
        resource: &'a str,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<Value>)> + 'a {
        self.objects
            .range(Key::new(resource, namespace, "")..)
            .take_while(move |(key, _)| {
                key.resource == resource && (namespace.is_empty() || key.namespace == namespace)
            })
    }

    /// Writes an object with a new resource version.
    pub(crate) fn put(&mut self, key: Key, mut object: Value) -> Arc<Value> {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let object = Arc::new(object);
        self.stored_without_defaults.remove(&key);
        let before = self.objects.insert(key.clone(), Arc::clone(&object));
        if before.is_none() && key.resource == DEFINITIONS {
            self.defined.insert(key.name.clone(), self.version);
        }
        self.record(key, Arc::clone(&object), before, false);
        object
    }

    /// Removes an object; returns its last state with the version of the deletion.
    pub(crate) fn remove(&mut self, key: &Key) -> Option<Arc<Value>> {
        let before = self.objects.remove(key)?;
        self.stored_without_defaults.remove(key);
        self.version += 1;
        let mut last = Value::clone(&before);
        last["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let last = Arc::new(last);
        self.record(key.clone(), Arc::clone(&last), Some(before), true);
        Some(last)
    }

    fn record(&mut self, key: Key, object: Arc<Value>, before: Option<Arc<Value>>, deleted: bool) {
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

    /// Converts a change to texts. The text before the change is that of the change that made it, if that one is still in the history.
    fn shrink(&mut self, index: usize) {
        let made = self.history.get(index).and_then(|change| {
            let before = change.before.as_ref()?.value();
            let version = before["metadata"]["resourceVersion"].as_str()?;
            let version: u64 = version.parse().ok()?;
            let history = &self.history;
            let earlier = history.binary_search_by_key(&version, |earlier| earlier.version);
            let earlier = history.get(earlier.ok()?)?;
            (earlier.key == change.key).then(|| earlier.object.text())
        });
        if let Some(change) = self.history.get_mut(index) {
            change.object.shrink();
            self.texts += change.object.size();
            if let Some(before) = &mut change.before {
                match made {
                    Some(text) => *before = HistoricObject::Text(text),
                    None => before.shrink(),
                }
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
        let mut objects: BTreeMap<Key, Arc<Value>> = self
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
            history: VecDeque::new(),
            texts: 0,
            compacted: self.compacted,
            newest_dropped: BTreeMap::new(),
            max_changes: 0,
            max_bytes: 0,
            last_changed: BTreeMap::new(),
            defined: BTreeMap::new(),
            stored_without_defaults: BTreeSet::new(),
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

    /// Drops the whole history.
    pub(crate) fn compact(&mut self) {
        for change in std::mem::take(&mut self.history) {
            self.note_dropped(change);
        }
        self.texts = 0;
        self.compacted = self.version;
    }
}

/// Largest number of cached texts of changes.
const MAX_CACHED_TEXTS: usize = 1024;

/// The store.
#[derive(Debug)]
pub(crate) struct Store {
    state: Mutex<State>,
    newest: watch::Sender<u64>,
    /// Like `newest`, for each watched resource: most writes concern only a few watches.
    newest_by_resource: Mutex<BTreeMap<String, watch::Sender<u64>>>,
    /// The latest changed objects as JSON, by version: all watches send the same text.
    texts: Mutex<BTreeMap<u64, Bytes>>,
}

impl Store {
    /// Makes an empty store that keeps the newest `max_changes` changes for watches.
    pub(crate) fn new(max_changes: usize) -> Self {
        Self {
            state: Mutex::new(State {
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
            }),
            newest: watch::Sender::new(1),
            newest_by_resource: Mutex::default(),
            texts: Mutex::default(),
        }
    }

    /// Returns the object of a change as JSON.
    pub(crate) fn text(&self, change: &Change) -> Bytes {
        let texts = || self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(text) = texts().get(&change.version) {
            return text.clone();
        }
        let text = change.object.text();
        let mut texts = texts();
        texts.insert(change.version, text.clone());
        while texts.len() > MAX_CACHED_TEXTS {
            texts.pop_first();
        }
        text
    }

    /// Locks the state for one transaction. Watches are notified of its writes when the guard is dropped.
    pub(crate) fn lock(&self) -> Transaction<'_> {
        // a panic in a transaction ends its request; the state is replaced in whole values, so it stays consistent
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Transaction {
            since: state.version,
            state,
            store: self,
        }
    }

    /// Returns a receiver of the version of each newest write.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// Returns a receiver of the versions of writes to one resource.
    pub(crate) fn subscribe_to(&self, resource: &str) -> watch::Receiver<u64> {
        let mut newest_by_resource = self.newest_by_resource();
        if let Some(newest) = newest_by_resource.get(resource) {
            return newest.subscribe();
        }
        let newest = watch::Sender::new(1);
        let receiver = newest.subscribe();
        newest_by_resource.insert(resource.to_owned(), newest);
        receiver
    }

    fn newest_by_resource(&self) -> MutexGuard<'_, BTreeMap<String, watch::Sender<u64>>> {
        self.newest_by_resource
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The locked state.
pub(crate) struct Transaction<'a> {
    state: MutexGuard<'a, State>,
    store: &'a Store,
    /// The version at the time of locking.
    since: u64,
}

impl std::ops::Deref for Transaction<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl std::ops::DerefMut for Transaction<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        let version = self.state.version;
        if version == self.since {
            return;
        }
        self.store.newest.send_replace(version);
        let newest_by_resource = self.store.newest_by_resource();
        let last_changed = self.state.last_changed.iter();
        for (resource, at) in last_changed.filter(|(_, at)| **at > self.since) {
            if let Some(newest) = newest_by_resource.get(resource) {
                newest.send_replace(*at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str) -> Value {
        json!({"metadata": {"name": name}})
    }

    #[test]
    fn versions_rise_over_all_resources_and_deletions_have_their_own() {
        let store = Store::new(10);
        let mut state = store.lock();
        state.put(Key::new("pods", "a", "one"), object("one"));
        state.put(Key::new("nodes", "", "n"), object("n"));
        let last = state.remove(&Key::new("pods", "a", "one")).unwrap();
        assert_eq!(last["metadata"]["resourceVersion"], "4");
        let versions = |resource| -> Vec<u64> {
            let changes = state.changes_after(resource, 1).unwrap();
            changes.map(|change| change.version).collect()
        };
        assert_eq!(versions("pods"), [2, 4]);
        assert_eq!(versions("nodes"), [3]);
    }

    #[test]
    fn old_changes_say_the_same_as_new_ones() {
        let store = Store::new(3 * MAX_VALUES);
        let mut state = store.lock();
        for number in 0..2 * MAX_VALUES {
            let mut written = object("one");
            written["number"] = json!(number);
            state.put(Key::new("pods", "a", "one"), written);
        }
        let mut numbers = Vec::new();
        for change in state.changes_after("pods", 0).unwrap() {
            assert_eq!(
                change.object.value()["metadata"]["resourceVersion"],
                change.version.to_string()
            );
            numbers.push(change.object.value()["number"].clone());
            let before = change
                .before
                .as_ref()
                .map(|before| before.value()["number"].clone());
            assert_eq!(before, numbers.iter().rev().nth(1).cloned());
        }
        assert_eq!(
            numbers,
            (0..2 * MAX_VALUES)
                .map(|number| json!(number))
                .collect::<Vec<_>>()
        );
        let mut last: Option<Bytes> = None;
        let mut count = 0;
        for change in state.changes_after("pods", 0).unwrap() {
            let HistoricObject::Text(text) = &change.object else {
                break;
            };
            if let Some(HistoricObject::Text(before)) = &change.before {
                // the memory is shared, not copied
                assert_eq!(Some(before.as_ptr()), last.map(|last| last.as_ptr()));
            }
            last = Some(text.clone());
            count += 1;
        }
        assert_eq!(count, MAX_VALUES);
    }

    #[test]
    fn a_resource_can_be_read_as_it_was() {
        let store = Store::new(10);
        let mut state = store.lock();
        state.put(Key::new("pods", "a", "kept"), object("kept"));
        state.put(Key::new("pods", "a", "gone"), object("gone"));
        let then = state.version();
        state.remove(&Key::new("pods", "a", "gone"));
        state.put(Key::new("pods", "a", "new"), object("new"));
        state.put(
            Key::new("pods", "a", "kept"),
            json!({"metadata": {"name": "kept"}, "changed": true}),
        );
        let past = state.at_version("pods", then);
        assert_eq!(past.version(), then);
        let names: Vec<&str> = past.list("pods", "").map(|(key, _)| &*key.name).collect();
        assert_eq!(names, ["gone", "kept"]);
        assert_eq!(
            past.get("pods", "a", "kept").unwrap()["changed"],
            Value::Null
        );
    }

    #[test]
    fn history_beyond_the_limit_is_gone() {
        let store = Store::new(2);
        let mut state = store.lock();
        for name in ["a", "b", "c"] {
            state.put(Key::new("pods", "x", name), object(name));
        }
        assert!(state.changes_after("pods", 1).is_none());
        assert_eq!(state.changes_after("pods", 2).unwrap().count(), 2);
        state.compact();
        assert!(state.changes_after("pods", 2).is_none());
        assert_eq!(state.changes_after("pods", 4).unwrap().count(), 0);
    }

    #[test]
    fn what_is_forgotten_of_one_resource_is_no_loss_to_another() {
        let store = Store::new(2);
        let mut state = store.lock();
        state.put(Key::new("nodes", "", "n"), object("n"));
        let then = state.version();
        for name in ["a", "b", "c"] {
            state.put(Key::new("pods", "x", name), object(name));
        }
        assert_eq!(state.changes_after("nodes", then).unwrap().count(), 0);
        assert!(state.changes_after("nodes", then - 1).is_none());
        assert!(state.changes_after("pods", then).is_none());
        state.put(Key::new("nodes", "", "n"), object("n"));
        assert_eq!(state.changes_after("nodes", then).unwrap().count(), 1);
        state.compact();
        assert!(state.changes_after("nodes", then).is_none());
        assert_eq!(state.changes_after("nodes", then + 4).unwrap().count(), 0);
    }

    #[test]
    fn only_who_watches_a_resource_hears_of_its_writes() {
        let store = Store::new(10);
        let [mut pods, mut nodes] = ["pods", "nodes"].map(|name| store.subscribe_to(name));
        let all = store.subscribe();
        store.lock().put(Key::new("pods", "x", "a"), object("a"));
        let heard = |receiver: &watch::Receiver<u64>| receiver.has_changed().unwrap();
        assert_eq!([&pods, &nodes, &all].map(heard), [true, false, true]);
        pods.mark_unchanged();
        // locking without writing does not notify
        drop(store.lock());
        assert_eq!([&pods, &nodes].map(heard), [false, false]);
        let mut state = store.lock();
        state.put(Key::new("pods", "x", "b"), object("b"));
        state.put(Key::new("nodes", "", "n"), object("n"));
        drop(state);
        assert_eq!([&pods, &nodes].map(heard), [true, true]);
        assert_eq!(*nodes.borrow_and_update(), 4);
    }

    #[test]
    fn large_objects_shorten_the_history() {
        let store = Store::new(usize::MAX);
        let mut state = store.lock();
        state.max_bytes = 10_000;
        let mut large = object("a");
        large["data"] = json!("x".repeat(1000));
        for _ in 0..MAX_VALUES + 20 {
            state.put(Key::new("pods", "x", "a"), large.clone());
        }
        let newest = state.version();
        let texts = newest - MAX_VALUES as u64 - state.compacted();
        assert_eq!(texts, 9, "of 1,100 bytes each");
        assert_eq!(state.changes_after("pods", newest - 1).unwrap().count(), 1);
        assert!(state.changes_after("pods", 10).is_none());
    }

    #[test]
    fn lists_are_in_the_order_of_paths() {
        let store = Store::new(10);
        let mut state = store.lock();
        for (namespace, name) in [("a", "x"), ("a-b", "x"), ("a", "x.y"), ("a", "x-y")] {
            state.put(Key::new("pods", namespace, name), object(name));
        }
        let paths: Vec<String> = state
            .list("pods", "")
            .map(|(key, _)| format!("{}/{}", key.namespace, key.name))
            .collect();
        assert_eq!(paths, ["a-b/x", "a/x", "a/x-y", "a/x.y"]);
    }

    #[test]
    fn a_list_of_a_namespace_does_not_reach_its_neighbours() {
        let store = Store::new(10);
        let mut state = store.lock();
        for (namespace, name) in [("a", "x"), ("ab", "x"), ("b", "x")] {
            state.put(Key::new("pods", namespace, name), object(name));
        }
        state.put(Key::new("podtemplates", "a", "x"), object("x"));
        assert_eq!(state.list("pods", "a").count(), 1);
        assert_eq!(state.list("pods", "").count(), 3);
    }
}
