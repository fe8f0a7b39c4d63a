//! Which kinds are watched: those of the server and those of definitions.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::core::PartialObjectMeta;
use kube::discovery::{Discovery, Scope, verbs};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, Event, watcher};
use parking_lot::Mutex;
use tokio::task::{AbortHandle, JoinSet};

use super::graph::Graph;
use super::kind::{WatchedKind, served};
use super::{Controller, Gone};
use crate::controllers::mirror::{self, ObjectKey};
use crate::controllers::queue::Queue;

impl Controller {
    /// Watches every served kind, and starts and stops watches when definitions change.
    pub(super) async fn watch_all(&self) {
        let mut watches: JoinSet<()> = JoinSet::new();
        let mut running: HashMap<String, AbortHandle> = HashMap::new();
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
                    self.kinds.lock().remove(name);
                    let freed = self.graph.lock().forget_kind(name);
                    for uid in freed {
                        self.queue.add(uid);
                    }
                }
            }
            running.retain(|name, _| wanted.contains_key(name));
            for (name, kind) in wanted {
                if running.contains_key(&name) || self.mirrored.lock().contains(&name) {
                    continue;
                }
                self.kinds.lock().insert(name.clone(), Arc::clone(&kind));
                let (graph, queue) = (Arc::clone(&self.graph), Arc::clone(&self.queue));
                let gone = Arc::clone(&self.gone);
                let task = watch(self.client.clone(), kind, graph, queue, gone);
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
}

/// Feeds the graph with the objects of one kind; never returns by itself.
async fn watch(
    client: Client,
    kind: Arc<WatchedKind>,
    graph: Arc<Mutex<Graph>>,
    queue: Arc<Queue<String>>,
    gone: Arc<Gone>,
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
                graph.lock().observe(&kind, &object.metadata)
            }
            Ok(Event::InitDone) => graph.lock().keep_only(&kind, &std::mem::take(&mut listed)),
            Ok(Event::Apply(object)) => graph.lock().observe(&kind, &object.metadata),
            Ok(Event::Delete(object)) => {
                let namespace = object.metadata.namespace.as_deref();
                gone.tell(namespace.unwrap_or_default());
                graph.lock().forget(&uid(&object.metadata))
            }
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
