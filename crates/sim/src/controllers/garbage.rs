//! The garbage collector: deletes objects whose owners are gone, with the propagation policy of the deletion.
//!
//! It watches every kind that can be listed, watched and deleted, follows the definitions of custom resources, and keeps the owners of all
//! objects in a [`graph`]. Events are left out, as in the real collector.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions,
    PropagationPolicy,
};
use kube::core::PartialObjectMeta;
use kube::discovery::{Discovery, Scope, verbs};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Client, ResourceExt as _};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use self::graph::{Entry, Graph};
use super::events::Recorder;
use super::mirror::{self, Kind, Mirror, ObjectKey};
use super::queue::Queue;
use super::world::World;
use super::{MANAGER, objects};

mod graph;

/// Finalizer of an owner whose deletion waits for its dependents.
const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer of an owner whose dependents are orphaned.
const ORPHAN: &str = "orphan";
/// Interval after which an owner of an unknown kind is looked up again.
const UNKNOWN_KIND: Duration = Duration::from_secs(30);

/// A kind that is watched.
#[derive(Clone, Debug)]
pub(crate) struct WatchedKind {
    api: ApiResource,
    namespaced: bool,
}

impl WatchedKind {
    /// Returns `<plural>.<group>`; the dot is also there if the group is empty.
    pub(crate) fn group_resource(&self) -> String {
        format!("{}.{}", self.api.plural, self.api.group)
    }

    /// Returns whether the kind is pods.
    pub(crate) fn is_pods(&self) -> bool {
        self.api.plural == "pods" && self.api.group.is_empty()
    }

    /// Returns an API handle for the objects of a namespace.
    pub(crate) fn api_in(&self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(client.clone(), namespace, &self.api)
    }
}

pub(crate) struct Controller {
    client: Client,
    events: Recorder,
    queue: Arc<Queue<String>>,
    graph: Arc<Mutex<Graph>>,
    kinds: Mutex<HashMap<String, Arc<WatchedKind>>>,
    /// Kinds whose changes arrive through the mirrors of the world.
    mirrored: Mutex<HashSet<String>>,
    definitions: Arc<Mirror<CustomResourceDefinition>>,
    changed: Arc<tokio::sync::Notify>,
    /// Whether discovery is complete.
    discovered: watch::Sender<bool>,
}

/// What to do with an object.
enum Verdict {
    Keep,
    Later,
    Forget,
    Delete(PropagationPolicy),
    /// Remove these owners: they are gone, but others are not.
    Drop(Vec<String>),
    /// Break the deadlock of two foreground deletions that wait for each other.
    Unblock,
}

impl Controller {
    /// Subscribes to the mirrors of the world.
    pub(crate) fn new(world: &Arc<World>) -> Arc<Self> {
        let definitions = Arc::new(Mirror::new(
            world.client.clone(),
            MANAGER,
            |_: &CustomResourceDefinition| Vec::new(),
        ));
        let this = Arc::new(Self {
            client: world.client.clone(),
            events: world.events.of("garbage-collector-controller"),
            queue: Arc::new(Queue::default()),
            graph: Arc::default(),
            kinds: Mutex::default(),
            mirrored: Mutex::default(),
            definitions: Arc::clone(&definitions),
            changed: Arc::default(),
            discovered: watch::Sender::new(false),
        });
        let changed = Arc::clone(&this.changed);
        definitions
            .listen(move |_: Option<&Arc<CustomResourceDefinition>>, _| changed.notify_one());
        this.share(&definitions, false);
        this.share(&world.pods, true);
        this.share(&world.nodes, false);
        this.share(&world.namespaces, false);
        this.share(&world.service_accounts, true);
        this.share(&world.deployments, true);
        this.share(&world.replica_sets, true);
        this.share(&world.daemon_sets, true);
        this.share(&world.revisions, true);
        this
    }

    /// Follows a kind through a mirror instead of a watch of its own.
    pub(crate) fn share<K: Kind>(&self, mirror: &Arc<Mirror<K>>, namespaced: bool) {
        let kind = Arc::new(WatchedKind {
            api: ApiResource::erase::<K>(&()),
            namespaced,
        });
        let name = kind.group_resource();
        lock(&self.mirrored).insert(name.clone());
        lock(&self.kinds).insert(name, Arc::clone(&kind));
        let (graph, queue) = (Arc::clone(&self.graph), Arc::clone(&self.queue));
        mirror.listen(move |before, after| {
            let mut graph = lock(&graph);
            let work = match (before, after) {
                (_, Some(object)) => graph.observe(&kind, object.meta()),
                (Some(object), None) => graph.forget(objects::uid(&**object)),
                (None, None) => Vec::new(),
            };
            drop(graph);
            for uid in work {
                queue.add(uid);
            }
        });
    }

    /// Returns once all served kinds are known.
    pub(crate) async fn discovered(&self) {
        // The sender is a field of the collector itself, so it cannot be gone.
        let _ = self.discovered.subscribe().wait_for(|done| *done).await;
    }

    /// Returns all namespaced kinds, including events (which neither own nor are owned, and are therefore not in the graph).
    pub(crate) fn namespaced_kinds(&self) -> Vec<Arc<WatchedKind>> {
        let events = WatchedKind {
            api: ApiResource::erase::<k8s_openapi::api::core::v1::Event>(&()),
            namespaced: true,
        };
        let kinds = lock(&self.kinds);
        let namespaced = kinds.values().filter(|kind| kind.namespaced).cloned();
        namespaced.chain([Arc::new(events)]).collect()
    }

    /// Runs the controller; never returns by itself.
    pub(crate) async fn run(self: Arc<Self>) {
        let queue = Arc::clone(&self.queue);
        let this = Arc::clone(&self);
        let follow = Arc::clone(&self.definitions).follow(Config::default());
        let work = queue.work("garbage", 10, move |uid| {
            let this = Arc::clone(&this);
            async move { this.collect(&uid).await }
        });
        tokio::join!(follow, self.watch_all(), work);
    }

    /// Watches every served kind, and starts and stops watches when definitions change.
    async fn watch_all(&self) {
        let mut watches: JoinSet<()> = JoinSet::new();
        let mut running: HashMap<String, AbortHandle> = HashMap::new();
        self.definitions.synced().await;
        let builtin = loop {
            match self.discover().await {
                Ok(kinds) => break kinds,
                Err(error) => {
                    tracing::debug!(%error, "Discovery failed; trying again");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        };
        loop {
            let custom: Vec<WatchedKind> = self
                .definitions
                .all()
                .iter()
                .filter_map(|definition| served(definition))
                .collect();
            let wanted: HashMap<String, Arc<WatchedKind>> = builtin
                .iter()
                .cloned()
                .chain(custom)
                .map(|kind| (kind.group_resource(), Arc::new(kind)))
                .collect();
            for (name, handle) in &running {
                if !wanted.contains_key(name) {
                    handle.abort();
                    lock(&self.kinds).remove(name);
                    let freed = lock(&self.graph).forget_kind(name);
                    for uid in freed {
                        self.queue.add(uid);
                    }
                }
            }
            running.retain(|name, _| wanted.contains_key(name));
            for (name, kind) in wanted {
                if running.contains_key(&name) || lock(&self.mirrored).contains(&name) {
                    continue;
                }
                lock(&self.kinds).insert(name.clone(), Arc::clone(&kind));
                let (graph, queue) = (Arc::clone(&self.graph), Arc::clone(&self.queue));
                let task = watch(self.client.clone(), kind, graph, queue);
                running.insert(name, watches.spawn(task));
            }
            tracing::trace!(watches = running.len(), "Watching all kinds");
            self.discovered.send_replace(true);
            while watches.try_join_next().is_some() {}
            self.changed.notified().await;
        }
    }

    /// Returns the built-in kinds of the server.
    async fn discover(&self) -> Result<Vec<WatchedKind>, kube::Error> {
        let discovery = Discovery::new(self.client.clone()).run().await?;
        let mut kinds = Vec::new();
        for group in discovery.groups() {
            for (api, can) in group.recommended_resources() {
                let events = api.plural == "events";
                let all = [verbs::LIST, verbs::WATCH, verbs::DELETE];
                if events || !all.iter().all(|verb| can.supports_operation(verb)) {
                    continue;
                }
                let kind = WatchedKind {
                    api,
                    namespaced: can.scope == Scope::Namespaced,
                };
                // A definition has the name `<plural>.<group>`.
                let definition = ObjectKey::new("", &kind.group_resource());
                if self.definitions.get(&definition).is_none() {
                    kinds.push(kind);
                }
            }
        }
        Ok(kinds)
    }

    fn watched_kind(&self, api_version: &str, kind: &str) -> Option<Arc<WatchedKind>> {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        lock(&self.kinds)
            .values()
            .find(|watched| watched.api.group == group && watched.api.kind == kind)
            .cloned()
    }

    fn api(&self, kind: &WatchedKind, namespace: &str) -> Api<DynamicObject> {
        if kind.namespaced {
            Api::namespaced_with(self.client.clone(), namespace, &kind.api)
        } else {
            Api::all_with(self.client.clone(), &kind.api)
        }
    }

    async fn collect(&self, uid: &str) -> Result<(), kube::Error> {
        let Some(entry) = lock(&self.graph).get(uid).cloned() else {
            return Ok(());
        };
        let api = self.api(&entry.kind, &entry.key.namespace);
        if entry.orphaning {
            return self.orphan(&api, &entry, uid).await;
        }
        if entry.deleting && !entry.foreground {
            return Ok(());
        }
        let Some(latest) = api
            .get_opt(&entry.key.name)
            .await?
            .filter(|latest| latest.uid().as_deref() == Some(uid))
        else {
            for uid in lock(&self.graph).forget(uid) {
                self.queue.add(uid);
            }
            return Ok(());
        };
        if entry.foreground {
            let blocking = lock(&self.graph).blocking(uid);
            if blocking.is_empty() {
                return self.remove_finalizer(&api, &latest, FOREGROUND).await;
            }
            for dependent in blocking {
                self.queue.add(dependent);
            }
            return Ok(());
        }
        match self.judge(&entry, &latest, uid).await? {
            Verdict::Keep => Ok(()),
            Verdict::Later => {
                self.queue.add_after(uid.to_owned(), UNKNOWN_KIND);
                Ok(())
            }
            Verdict::Forget => {
                self.record_invalid_owner(&entry, uid);
                Ok(())
            }
            Verdict::Drop(gone) => self.drop_owners(&api, &latest, &gone).await,
            Verdict::Unblock => {
                let mut owners = latest.owner_references().to_vec();
                for owner in &mut owners {
                    owner.block_owner_deletion = Some(false);
                }
                self.write_owners(&api, &latest, &owners).await?;
                self.delete(&api, &entry, uid, None, PropagationPolicy::Foreground)
                    .await
            }
            Verdict::Delete(policy) => {
                self.delete(&api, &entry, uid, latest.resource_version(), policy)
                    .await
            }
        }
    }

    async fn judge(
        &self,
        entry: &Entry,
        latest: &DynamicObject,
        uid: &str,
    ) -> Result<Verdict, kube::Error> {
        let owners = latest.owner_references();
        if owners.is_empty() {
            return Ok(Verdict::Keep);
        }
        let (mut solid, mut gone, mut waiting) = (false, Vec::new(), false);
        for owner in owners {
            let Some(kind) = self.watched_kind(&owner.api_version, &owner.kind) else {
                return Ok(Verdict::Later);
            };
            if kind.namespaced && entry.key.namespace.is_empty() {
                return Ok(Verdict::Forget);
            }
            match self.owner_state(&kind, owner, &entry.key.namespace).await? {
                None => gone.push(owner.uid.clone()),
                Some(true) => {
                    waiting = true;
                    gone.push(owner.uid.clone());
                }
                Some(false) => solid = true,
            }
        }
        if solid {
            return Ok(if gone.is_empty() {
                Verdict::Keep
            } else {
                Verdict::Drop(gone)
            });
        }
        let (any, foreground) = lock(&self.graph).dependents(uid);
        if waiting && any {
            return Ok(if foreground {
                Verdict::Unblock
            } else {
                Verdict::Delete(PropagationPolicy::Foreground)
            });
        }
        let has = |finalizer: &str| latest.finalizers().iter().any(|held| held == finalizer);
        Ok(Verdict::Delete(if has(ORPHAN) {
            PropagationPolicy::Orphan
        } else if has(FOREGROUND) {
            PropagationPolicy::Foreground
        } else {
            PropagationPolicy::Background
        }))
    }

    /// Returns whether an owner exists (`Some`), and whether it waits for its dependents.
    async fn owner_state(
        &self,
        kind: &WatchedKind,
        owner: &OwnerReference,
        namespace: &str,
    ) -> Result<Option<bool>, kube::Error> {
        let namespace = if kind.namespaced { namespace } else { "" };
        let key = ObjectKey::new(namespace, &owner.name);
        if let Some(entry) = lock(&self.graph).get(&owner.uid)
            && entry.key == key
            && entry.kind.group_resource() == kind.group_resource()
        {
            return Ok(Some(entry.foreground));
        }
        let found = self.api(kind, namespace).get_opt(&owner.name).await?;
        Ok(found
            .filter(|found| found.uid().as_deref() == Some(&owner.uid))
            .map(|found| {
                found.metadata.deletion_timestamp.is_some()
                    && found.finalizers().iter().any(|held| held == FOREGROUND)
            }))
    }

    async fn delete(
        &self,
        api: &Api<DynamicObject>,
        entry: &Entry,
        uid: &str,
        version: Option<String>,
        policy: PropagationPolicy,
    ) -> Result<(), kube::Error> {
        let params = DeleteParams {
            propagation_policy: Some(policy),
            preconditions: Some(Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: version,
            }),
            ..DeleteParams::default()
        };
        match api.delete(&entry.key.name, &params).await {
            Err(error) if objects::code(&error) != 404 => Err(error),
            _ => Ok(()),
        }
    }

    /// Orphans the dependents of an owner, then lets the owner go.
    async fn orphan(
        &self,
        api: &Api<DynamicObject>,
        entry: &Entry,
        uid: &str,
    ) -> Result<(), kube::Error> {
        let dependents = lock(&self.graph).dependents_of(uid);
        for (dependent, held) in dependents {
            let api = self.api(&held.kind, &held.key.namespace);
            let latest = api.get_opt(&held.key.name).await?;
            if let Some(latest) = latest.filter(|object| object.uid().as_ref() == Some(&dependent))
            {
                self.drop_owners(&api, &latest, &[uid.to_owned()]).await?;
            }
        }
        let latest = api.get_opt(&entry.key.name).await?;
        match latest.filter(|latest| latest.uid().as_deref() == Some(uid)) {
            Some(latest) => self.remove_finalizer(api, &latest, ORPHAN).await,
            None => Ok(()),
        }
    }

    async fn drop_owners(
        &self,
        api: &Api<DynamicObject>,
        latest: &DynamicObject,
        gone: &[String],
    ) -> Result<(), kube::Error> {
        let mut owners = latest.owner_references().to_vec();
        owners.retain(|owner| !gone.contains(&owner.uid));
        self.write_owners(api, latest, &owners).await
    }

    async fn write_owners(
        &self,
        api: &Api<DynamicObject>,
        latest: &DynamicObject,
        owners: &[OwnerReference],
    ) -> Result<(), kube::Error> {
        let owners = if owners.is_empty() {
            Value::Null
        } else {
            json!(owners)
        };
        self.patch(api, latest, json!({"ownerReferences": owners}))
            .await
    }

    async fn remove_finalizer(
        &self,
        api: &Api<DynamicObject>,
        latest: &DynamicObject,
        finalizer: &str,
    ) -> Result<(), kube::Error> {
        if !latest.finalizers().iter().any(|held| held == finalizer) {
            return Ok(());
        }
        let rest: Vec<&String> = latest
            .finalizers()
            .iter()
            .filter(|held| *held != finalizer)
            .collect();
        self.patch(api, latest, json!({"finalizers": rest})).await
    }

    async fn patch(
        &self,
        api: &Api<DynamicObject>,
        latest: &DynamicObject,
        mut metadata: Value,
    ) -> Result<(), kube::Error> {
        metadata["uid"] = json!(latest.metadata.uid);
        metadata["resourceVersion"] = json!(latest.metadata.resource_version);
        let params = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(json!({"metadata": metadata}));
        match api.patch(&latest.name_any(), &params, &patch).await {
            Err(error) if objects::code(&error) != 404 => Err(error),
            _ => Ok(()),
        }
    }

    /// Records an event: a cluster-scoped object names an owner of a namespaced kind.
    fn record_invalid_owner(&self, entry: &Entry, uid: &str) {
        let Some(owner) = entry.owners.first() else {
            return;
        };
        let about = k8s_openapi::api::core::v1::ObjectReference {
            api_version: Some(entry.kind.api.api_version.clone()),
            kind: Some(entry.kind.api.kind.clone()),
            namespace: Some(entry.key.namespace.clone()).filter(|namespace| !namespace.is_empty()),
            name: Some(entry.key.name.clone()),
            uid: Some(uid.to_owned()),
            ..Default::default()
        };
        let message = format!(
            "ownerRef [{}/{}, namespace: {}, name: {}, uid: {}] does not exist in namespace {:?}",
            owner.api_version,
            owner.kind,
            entry.key.namespace,
            owner.name,
            owner.uid,
            entry.key.namespace
        );
        self.events
            .send(about, true, "OwnerRefInvalidNamespace", message);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

/// Returns the kind that a definition creates, once it is served.
fn served(definition: &CustomResourceDefinition) -> Option<WatchedKind> {
    let established = definition
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten())
        .any(|condition| condition.type_ == "Established" && condition.status == "True");
    if !established || objects::deleting(definition) && definition.finalizers().is_empty() {
        return None;
    }
    let spec = &definition.spec;
    let version = spec.versions.iter().find(|version| version.served)?;
    Some(WatchedKind {
        api: ApiResource {
            group: spec.group.clone(),
            version: version.name.clone(),
            api_version: format!("{}/{}", spec.group, version.name),
            kind: spec.names.kind.clone(),
            plural: spec.names.plural.clone(),
        },
        namespaced: spec.scope == "Namespaced",
    })
}

/// Feeds the graph with the objects of one kind; never returns by itself.
async fn watch(
    client: Client,
    kind: Arc<WatchedKind>,
    graph: Arc<Mutex<Graph>>,
    queue: Arc<Queue<String>>,
) {
    let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client, &kind.api);
    let mut events = watcher(api, Config::default()).default_backoff().boxed();
    let mut listed: HashSet<String> = HashSet::new();
    let uid = |meta: &ObjectMeta| meta.uid.clone().unwrap_or_default();
    while let Some(event) = events.next().await {
        let work = match event {
            Ok(Event::Init) => {
                listed.clear();
                Vec::new()
            }
            Ok(Event::InitApply(object)) => {
                listed.insert(uid(&object.metadata));
                lock(&graph).observe(&kind, &object.metadata)
            }
            Ok(Event::InitDone) => lock(&graph).keep_only(&kind, &std::mem::take(&mut listed)),
            Ok(Event::Apply(object)) => lock(&graph).observe(&kind, &object.metadata),
            Ok(Event::Delete(object)) => lock(&graph).forget(&uid(&object.metadata)),
            Err(error) => {
                mirror::report(&error, &kind.api.kind);
                Vec::new()
            }
        };
        for uid in work {
            queue.add(uid);
        }
    }
}
