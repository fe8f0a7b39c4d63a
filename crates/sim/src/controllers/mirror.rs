//! A mirror of all objects of one kind: filled by one watch, read by every controller that needs the kind.
//!
//! A controller's own writes go into the mirror at once ([`Mirror::observe`], [`Mirror::mark_deleted`]), so that it never acts twice because
//! its watch is late. Real controllers keep "expectations" for this purpose.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Debug;
use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ApiResource, DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher::{self, Config, Event};
use kube::{Client, Resource};
use parking_lot::{Mutex, RwLock};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;

use self::any::AnyObject;
use super::objects;

mod any;

/// Namespace (empty for cluster-scoped objects) and name of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectKey {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl ObjectKey {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Returns the key of the object with this metadata.
    pub(crate) fn of(meta: &ObjectMeta) -> Self {
        Self::new(
            meta.namespace.as_deref().unwrap_or_default(),
            meta.name.as_deref().unwrap_or_default(),
        )
    }
}

impl std::fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// A kind that can be mirrored.
pub(crate) trait Kind:
    Resource<DynamicType = ()> + Clone + DeserializeOwned + Serialize + Debug + Send + Sync + 'static
{
}

impl<K> Kind for K where
    K: Resource<DynamicType = ()>
        + Clone
        + DeserializeOwned
        + Serialize
        + Debug
        + Send
        + Sync
        + 'static
{
}

type Listener<K> = Box<dyn Fn(Option<&Arc<K>>, Option<&Arc<K>>) + Send + Sync>;

struct Content<K> {
    objects: BTreeMap<ObjectKey, Arc<K>>,
    index: HashMap<String, BTreeSet<ObjectKey>>,
    /// Highest resource version that the watch has reported.
    newest: u64,
    /// UIDs whose deletion was accepted but not yet reported by the watch.
    deletion_accepted: HashSet<String>,
}

/// A mirror of all objects of a kind.
pub(crate) struct Mirror<K> {
    client: Client,
    manager: &'static str,
    index: fn(&K) -> Vec<String>,
    content: RwLock<Content<K>>,
    listeners: RwLock<Vec<Listener<K>>>,
    /// Held while a change is stored and published, so that listeners see changes in order.
    order: Mutex<()>,
    synced: watch::Sender<bool>,
}

fn version(meta: &ObjectMeta) -> u64 {
    meta.resource_version
        .as_deref()
        .and_then(|version| version.parse().ok())
        .unwrap_or(0)
}

/// Returns whether an answer tells that our write took the last finalizer of an object that was to be deleted: it has the version from before,
/// because the last state of an object is never stored.
fn is_end<K: Kind>(before: &K, answer: &K) -> bool {
    let finalizers = |object: &K| object.meta().finalizers.as_ref().map_or(0, Vec::len);
    answer.meta().deletion_timestamp.is_some() && finalizers(answer) == 0 && finalizers(before) > 0
}

impl<K: Kind> Mirror<K> {
    /// Creates an empty mirror. `index` returns the words by which an object can be looked up; `manager` is the field manager of writes.
    pub(crate) fn new(client: Client, manager: &'static str, index: fn(&K) -> Vec<String>) -> Self {
        Self {
            client,
            manager,
            index,
            content: RwLock::new(Content {
                objects: BTreeMap::new(),
                index: HashMap::new(),
                newest: 0,
                deletion_accepted: HashSet::new(),
            }),
            listeners: RwLock::new(Vec::new()),
            order: Mutex::new(()),
            synced: watch::Sender::new(false),
        }
    }

    /// Calls `listener` for each change with the state before and after. A listener must not change this mirror.
    pub(crate) fn listen(
        &self,
        listener: impl Fn(Option<&Arc<K>>, Option<&Arc<K>>) + Send + Sync + 'static,
    ) {
        self.listeners.write().push(Box::new(listener));
    }

    /// Follows the API server; never returns by itself.
    pub(crate) async fn follow(self: Arc<Self>, config: Config) {
        let mut events = any::follow(self.client.clone(), &ApiResource::erase::<K>(&()), config);
        let mut listed = HashSet::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(object)) => {
                    listed.insert(ObjectKey::of(&object.metadata));
                    self.apply_from_watch(object);
                }
                Ok(Event::InitDone) => {
                    for key in self.keys() {
                        if !listed.contains(&key) {
                            self.remove(&key, None);
                        }
                    }
                    listed.clear();
                    self.synced.send_replace(true);
                }
                Ok(Event::Apply(object)) => self.apply_from_watch(object),
                Ok(Event::Delete(object)) => {
                    let meta = &object.metadata;
                    self.raise_version(version(meta));
                    self.remove(&ObjectKey::of(meta), meta.uid.as_deref());
                }
                Err(error) => report(&error, K::kind(&()).as_ref()),
            }
        }
    }

    /// Returns once the mirror is filled.
    pub(crate) async fn synced(&self) {
        // The sender is a field of the mirror itself, so it cannot be gone.
        let _ = self.synced.subscribe().wait_for(|synced| *synced).await;
    }

    fn read(&self) -> parking_lot::RwLockReadGuard<'_, Content<K>> {
        self.content.read()
    }

    fn write(&self) -> parking_lot::RwLockWriteGuard<'_, Content<K>> {
        self.content.write()
    }

    fn raise_version(&self, version: u64) {
        let mut content = self.write();
        content.newest = content.newest.max(version);
    }

    fn apply_from_watch(&self, object: AnyObject) {
        self.raise_version(version(&object.metadata));
        let key = ObjectKey::of(&object.metadata);
        match object.parse() {
            Ok(object) => {
                self.store(object, true);
            }
            Err(error) => {
                let kind = K::kind(&());
                tracing::warn!(%kind, %key, %error, "Object not followed: it does not have the form of its kind");
            }
        }
    }

    /// Stores the answer to a write of our own.
    pub(crate) fn observe(&self, object: K) -> Arc<K> {
        self.store(object, false)
    }

    fn store(&self, mut object: K, from_watch: bool) -> Arc<K> {
        let _order = self.order.lock();
        let key = ObjectKey::of(object.meta());
        let (before, after) = {
            let mut content = self.write();
            object.meta_mut().managed_fields = None;
            let before = content.objects.get(&key).cloned();
            let held = before.as_ref().map_or(0, |before| version(before.meta()));
            let new = version(object.meta());
            let is_known = new == held
                && (from_watch
                    || !before
                        .as_ref()
                        .is_some_and(|before| is_end(&**before, &object)));
            let is_old = new != 0 && (new < held || is_known);
            if is_old || before.is_none() && !from_watch && new <= content.newest {
                // The watch was faster, and what it reported is newer than this answer.
                return before.unwrap_or_else(|| Arc::new(object));
            }
            let is_deleted = object
                .meta()
                .uid
                .as_ref()
                .is_some_and(|uid| content.deletion_accepted.contains(uid));
            if is_deleted && object.meta().deletion_timestamp.is_none() {
                object.meta_mut().deletion_timestamp = Some(objects::now());
            }
            let after = Arc::new(object);
            if let Some(before) = &before {
                content.unindex(&key, (self.index)(before));
            }
            content.reindex(&key, (self.index)(&after));
            content.objects.insert(key, Arc::clone(&after));
            (before, after)
        };
        self.notify(before.as_ref(), Some(&after));
        after
    }

    fn remove(&self, key: &ObjectKey, uid: Option<&str>) {
        let _order = self.order.lock();
        let before = {
            let mut content = self.write();
            if let Some(uid) = uid {
                content.deletion_accepted.remove(uid);
                let held = content.objects.get(key);
                if held.is_some_and(|held| held.meta().uid.as_deref() != Some(uid)) {
                    return;
                }
            }
            let Some(before) = content.objects.remove(key) else {
                return;
            };
            content.unindex(key, (self.index)(&before));
            before
        };
        self.notify(Some(&before), None);
    }

    /// Records that the deletion of an object was accepted.
    fn mark_deleted(&self, key: &ObjectKey, uid: &str) {
        let held = {
            let mut content = self.write();
            let held = content
                .objects
                .get(key)
                .filter(|held| held.meta().uid.as_deref() == Some(uid))
                .cloned();
            if held.is_some() {
                content.deletion_accepted.insert(uid.to_owned());
            }
            held
        };
        if let Some(held) = held.filter(|held| held.meta().deletion_timestamp.is_none()) {
            let _order = self.order.lock();
            let mut object = K::clone(&held);
            object.meta_mut().deletion_timestamp = Some(objects::now());
            let after = Arc::new(object);
            {
                let mut content = self.write();
                match content.objects.get_mut(key) {
                    Some(place) if Arc::ptr_eq(place, &held) => *place = Arc::clone(&after),
                    // The watch was faster.
                    _ => return,
                }
            }
            self.notify(Some(&held), Some(&after));
        }
    }

    fn notify(&self, before: Option<&Arc<K>>, after: Option<&Arc<K>>) {
        let listeners = self.listeners.read();
        for listener in listeners.iter() {
            listener(before, after);
        }
    }

    fn keys(&self) -> Vec<ObjectKey> {
        self.read().objects.keys().cloned().collect()
    }

    /// Returns one object.
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.read().objects.get(key).cloned()
    }

    /// Returns all objects, sorted by namespace and name.
    pub(crate) fn all(&self) -> Vec<Arc<K>> {
        self.read().objects.values().cloned().collect()
    }

    /// Returns all objects of a namespace.
    pub(crate) fn within(&self, namespace: &str) -> Vec<Arc<K>> {
        self.read()
            .objects
            .range(ObjectKey::new(namespace, "")..)
            .take_while(|(key, _)| key.namespace == namespace)
            .map(|(_, object)| Arc::clone(object))
            .collect()
    }

    /// Returns all objects with a word of the index.
    pub(crate) fn indexed(&self, word: &str) -> Vec<Arc<K>> {
        let content = self.read();
        content
            .index
            .get(word)
            .into_iter()
            .flatten()
            .filter_map(|key| content.objects.get(key).cloned())
            .collect()
    }

    fn post(&self) -> PostParams {
        PostParams {
            field_manager: Some(self.manager.to_owned()),
            ..PostParams::default()
        }
    }
}

impl<K: Kind + Resource<Scope = NamespaceResourceScope>> Mirror<K> {
    fn api(&self, namespace: &str) -> Api<AnyObject> {
        let resource = ApiResource::erase::<K>(&());
        Api::namespaced_with(self.client.clone(), namespace, &resource)
    }

    fn api_of(&self, object: &K) -> (Api<AnyObject>, ObjectKey) {
        let key = ObjectKey::of(object.meta());
        (self.api(&key.namespace), key)
    }

    /// Stores the answer to a write.
    fn observe_answer(&self, answer: AnyObject) -> Result<Arc<K>, kube::Error> {
        Ok(self.observe(answer.parse()?))
    }

    /// Reads an object from the server.
    pub(crate) async fn fetch(&self, key: &ObjectKey) -> Result<Option<K>, kube::Error> {
        let found = self.api(&key.namespace).get_opt(&key.name).await?;
        found.map(AnyObject::parse).transpose()
    }

    /// Creates an object.
    pub(crate) async fn create(&self, namespace: &str, object: &K) -> Result<Arc<K>, kube::Error> {
        let new = AnyObject::of(object)?;
        let made = self.api(namespace).create(&self.post(), &new).await?;
        self.observe_answer(made)
    }

    /// Replaces an object.
    pub(crate) async fn replace(&self, object: &K) -> Result<Arc<K>, kube::Error> {
        let (api, key) = self.api_of(object);
        let new = AnyObject::of(object)?;
        let written = api.replace(&key.name, &self.post(), &new).await?;
        self.observe_answer(written)
    }

    /// Replaces the status of an object.
    pub(crate) async fn replace_status(&self, object: &K) -> Result<Arc<K>, kube::Error> {
        let (api, key) = self.api_of(object);
        let new = AnyObject::of(object)?;
        let written = api.replace_status(&key.name, &self.post(), &new).await?;
        self.observe_answer(written)
    }

    /// Patches an object with a merge patch.
    pub(crate) async fn patch(&self, object: &K, patch: &Value) -> Result<Arc<K>, kube::Error> {
        let (api, key) = self.api_of(object);
        let params = PatchParams {
            field_manager: Some(self.manager.to_owned()),
            ..PatchParams::default()
        };
        let written = api.patch(&key.name, &params, &Patch::Merge(patch)).await?;
        self.observe_answer(written)
    }

    /// Patches the status of an object with a merge patch.
    pub(crate) async fn patch_status(
        &self,
        object: &K,
        patch: &Value,
    ) -> Result<Arc<K>, kube::Error> {
        let (api, key) = self.api_of(object);
        let params = PatchParams {
            field_manager: Some(self.manager.to_owned()),
            ..PatchParams::default()
        };
        let written = api
            .patch_status(&key.name, &params, &Patch::Merge(patch))
            .await?;
        self.observe_answer(written)
    }

    /// Deletes an object. It is no error if the object is gone already.
    pub(crate) async fn delete(
        &self,
        object: &K,
        params: &DeleteParams,
    ) -> Result<(), kube::Error> {
        let (api, key) = self.api_of(object);
        match api.delete(&key.name, params).await {
            Ok(_) => {
                self.mark_deleted(&key, object.meta().uid.as_deref().unwrap_or_default());
                Ok(())
            }
            Err(error) if objects::code(&error) == 404 => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl<K> Content<K> {
    fn reindex(&mut self, key: &ObjectKey, words: Vec<String>) {
        for word in words {
            self.index.entry(word).or_default().insert(key.clone());
        }
    }

    fn unindex(&mut self, key: &ObjectKey, words: Vec<String>) {
        for word in words {
            if let Some(keys) = self.index.get_mut(&word) {
                keys.remove(key);
                if keys.is_empty() {
                    self.index.remove(&word);
                }
            }
        }
    }
}

/// Logs that a watch failed and starts again. This is expected where tests inject faults, hence the level debug.
pub(crate) fn report(error: &watcher::Error, kind: &str) {
    tracing::debug!(%error, %kind, "Watch failed; trying again");
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    /// A pod that is to be deleted.
    fn leaving(finalizers: &[&str]) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.name = Some("p".to_owned());
        pod.metadata.uid = Some("u".to_owned());
        pod.metadata.resource_version = Some("7".to_owned());
        pod.metadata.deletion_timestamp = Some(Time("2026-01-01T00:00:00Z".parse().unwrap()));
        pod.metadata.finalizers = Some(finalizers.iter().map(ToString::to_string).collect());
        pod
    }

    /// A controller would otherwise take its finalizer away, and count the pod, again.
    #[tokio::test]
    async fn the_answer_that_ends_an_object_counts_although_its_version_is_known() {
        let config = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
        let client = Client::try_from(config).unwrap();
        let mirror = Mirror::<Pod>::new(client, "test", |_| Vec::new());
        mirror.apply_from_watch(AnyObject::of(&leaving(&["f"])).unwrap());
        mirror.observe(leaving(&[]));
        // the watch is late
        mirror.apply_from_watch(AnyObject::of(&leaving(&["f"])).unwrap());
        let held = mirror.get(&ObjectKey::new("", "p")).unwrap();
        assert_eq!(held.metadata.finalizers, Some(Vec::new()));
    }
}
