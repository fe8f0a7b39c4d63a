//! The garbage collector: deletes objects whose owners are gone, with the propagation policy of the deletion.
//!
//! It watches every kind that can be listed, watched and deleted, follows the definitions of custom resources, and keeps the owners of all
//! objects in a [`graph`]. Events are left out, as in the real collector.

mod discovery;
mod graph;
pub(crate) mod kind;
mod verdict;
mod write;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, PropagationPolicy};
use kube::{Client, ResourceExt as _};
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use self::graph::{Entry, Graph};
use self::kind::WatchedKind;
use self::verdict::Verdict;
use super::events::Recorder;
use super::mirror::{Kind, Mirror};
use super::objects;
use super::queue::Queue;
use super::world::World;

/// Finalizer of an owner whose deletion waits for its dependents.
const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer of an owner whose dependents are orphaned.
const ORPHAN: &str = "orphan";
/// Interval after which an owner of an unknown kind is looked up again.
const UNKNOWN_KIND: Duration = Duration::from_secs(30);

/// What is called with a namespace when an object of it is gone.
type Listener = Box<dyn Fn(&str) + Send + Sync>;

/// Those who are told when an object of a namespace is gone.
#[derive(Default)]
struct Gone(RwLock<Vec<Listener>>);

impl Gone {
    fn tell(&self, namespace: &str) {
        if namespace.is_empty() {
            return;
        }
        for tell in self.0.read().iter() {
            tell(namespace);
        }
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
    /// Told when an object of a namespace is gone.
    gone: Arc<Gone>,
    /// Whether discovery is complete.
    discovered: watch::Sender<bool>,
}

impl Controller {
    /// Subscribes to the mirrors of the world.
    pub(crate) fn new(world: &Arc<World>) -> Arc<Self> {
        let this = Arc::new(Self {
            client: world.client.clone(),
            events: world.events.of("garbage-collector-controller"),
            queue: Arc::new(Queue::default()),
            graph: Arc::default(),
            kinds: Mutex::default(),
            mirrored: Mutex::default(),
            definitions: Arc::clone(&world.definitions),
            changed: Arc::default(),
            gone: Arc::default(),
            discovered: watch::Sender::new(false),
        });
        let changed = Arc::clone(&this.changed);
        world
            .definitions
            .listen(move |_: Option<&Arc<CustomResourceDefinition>>, _| changed.notify_one());
        this.share(&world.definitions, false);
        this.share(&world.pods, true);
        this.share(&world.nodes, false);
        this.share(&world.namespaces, false);
        this.share(&world.service_accounts, true);
        this.share(&world.deployments, true);
        this.share(&world.replica_sets, true);
        this.share(&world.replication_controllers, true);
        this.share(&world.daemon_sets, true);
        this.share(&world.stateful_sets, true);
        this.share(&world.revisions, true);
        this.share(&world.jobs, true);
        this.share(&world.cron_jobs, true);
        this.share(&world.budgets, true);
        this.share(&world.claims, true);
        this.share(&world.quotas, true);
        this.share(&world.services, true);
        this.share(&world.endpoints, true);
        this.share(&world.slices, true);
        this.share(&world.leases, true);
        this.share(&world.certificate_requests, false);
        this
    }

    /// Follows a kind through a mirror instead of a watch of its own.
    fn share<K: Kind>(&self, mirror: &Arc<Mirror<K>>, namespaced: bool) {
        let kind = Arc::new(WatchedKind {
            api: ApiResource::erase::<K>(&()),
            namespaced,
        });
        let name = kind.group_resource();
        self.mirrored.lock().insert(name.clone());
        self.kinds.lock().insert(name, Arc::clone(&kind));
        let (graph, queue) = (Arc::clone(&self.graph), Arc::clone(&self.queue));
        let gone = Arc::clone(&self.gone);
        mirror.listen(move |before, after| {
            if let (Some(object), None) = (before, after) {
                gone.tell(objects::namespace(&**object));
            }
            let mut graph = graph.lock();
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

    /// Calls a function with the namespace of each object that is gone, of whatever kind.
    pub(crate) fn when_gone(&self, tell: impl Fn(&str) + Send + Sync + 'static) {
        self.gone.0.write().push(Box::new(tell));
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
        let kinds = self.kinds.lock();
        let namespaced = kinds.values().filter(|kind| kind.namespaced).cloned();
        namespaced.chain([Arc::new(events)]).collect()
    }

    /// Runs the controller; never returns by itself.
    pub(crate) async fn run(self: Arc<Self>) {
        let queue = Arc::clone(&self.queue);
        let this = Arc::clone(&self);
        let work = queue.work("garbage", 10, move |uid| {
            let this = Arc::clone(&this);
            async move { this.collect(&uid).await }
        });
        tokio::join!(self.watch_all(), work);
    }

    fn api(&self, kind: &WatchedKind, namespace: &str) -> Api<DynamicObject> {
        if kind.namespaced {
            Api::namespaced_with(self.client.clone(), namespace, &kind.api)
        } else {
            Api::all_with(self.client.clone(), &kind.api)
        }
    }

    async fn collect(&self, uid: &str) -> Result<(), kube::Error> {
        let Some(entry) = self.graph.lock().get(uid).cloned() else {
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
            for uid in self.graph.lock().forget(uid) {
                self.queue.add(uid);
            }
            return Ok(());
        };
        if entry.foreground {
            let blocking = self.graph.lock().blocking(uid);
            if blocking.is_empty() {
                return write::remove_finalizer(&api, &latest, FOREGROUND).await;
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
            Verdict::Drop(gone) => write::drop_owners(&api, &latest, &gone).await,
            Verdict::Unblock => {
                let mut owners = latest.owner_references().to_vec();
                for owner in &mut owners {
                    owner.block_owner_deletion = Some(false);
                }
                write::write_owners(&api, &latest, &owners).await?;
                write::delete(
                    &api,
                    &entry.key.name,
                    uid,
                    None,
                    PropagationPolicy::Foreground,
                )
                .await
            }
            Verdict::Delete(policy) => {
                write::delete(
                    &api,
                    &entry.key.name,
                    uid,
                    latest.resource_version(),
                    policy,
                )
                .await
            }
        }
    }

    /// Orphans the dependents of an owner, then lets the owner go.
    async fn orphan(
        &self,
        api: &Api<DynamicObject>,
        entry: &Entry,
        uid: &str,
    ) -> Result<(), kube::Error> {
        let dependents = self.graph.lock().dependents_of(uid);
        for (dependent, held) in dependents {
            let api = self.api(&held.kind, &held.key.namespace);
            let latest = api.get_opt(&held.key.name).await?;
            if let Some(latest) = latest.filter(|object| object.uid().as_ref() == Some(&dependent))
            {
                write::drop_owners(&api, &latest, &[uid.to_owned()]).await?;
            }
        }
        let latest = api.get_opt(&entry.key.name).await?;
        match latest.filter(|latest| latest.uid().as_deref() == Some(uid)) {
            Some(latest) => write::remove_finalizer(api, &latest, ORPHAN).await,
            None => Ok(()),
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
