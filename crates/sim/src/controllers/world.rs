//! The view that all controllers share: one mirror for each kind.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{
    ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet,
};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, ServiceAccount};
use kube::Client;
use kube::runtime::watcher::Config;
use tokio::task::JoinSet;

use super::events::Recorder;
use super::mirror::{Kind, Mirror};
use super::{MANAGER, objects};

/// The mirrors, and the recorder of events.
pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) events: Recorder,
    pub(crate) pods: Arc<Mirror<Pod>>,
    pub(crate) nodes: Arc<Mirror<Node>>,
    pub(crate) namespaces: Arc<Mirror<Namespace>>,
    pub(crate) service_accounts: Arc<Mirror<ServiceAccount>>,
    pub(crate) deployments: Arc<Mirror<Deployment>>,
    pub(crate) replica_sets: Arc<Mirror<ReplicaSet>>,
    pub(crate) daemon_sets: Arc<Mirror<DaemonSet>>,
    pub(crate) stateful_sets: Arc<Mirror<StatefulSet>>,
    pub(crate) revisions: Arc<Mirror<ControllerRevision>>,
}

fn mirror<K: Kind>(client: &Client, index: fn(&K) -> Vec<String>) -> Arc<Mirror<K>> {
    Arc::new(Mirror::new(client.clone(), MANAGER, index))
}

fn unindexed<K: Kind>(client: &Client) -> Arc<Mirror<K>> {
    mirror(client, |_| Vec::new())
}

impl World {
    /// Creates a world with empty mirrors; no watch is started yet.
    pub(crate) fn new(client: Client, events: Recorder) -> Self {
        Self {
            events,
            pods: mirror(&client, objects::pod_index),
            nodes: unindexed(&client),
            namespaces: unindexed(&client),
            service_accounts: unindexed(&client),
            deployments: unindexed(&client),
            replica_sets: mirror(&client, objects::owner_index),
            daemon_sets: unindexed(&client),
            stateful_sets: unindexed(&client),
            revisions: mirror(&client, objects::owner_index),
            client,
        }
    }

    /// Starts all watches.
    pub(crate) fn follow(&self, tasks: &mut JoinSet<()>) {
        fn start<K: Kind>(mirror: &Arc<Mirror<K>>, tasks: &mut JoinSet<()>) {
            tasks.spawn(Arc::clone(mirror).follow(Config::default()));
        }
        start(&self.pods, tasks);
        start(&self.nodes, tasks);
        start(&self.namespaces, tasks);
        start(&self.service_accounts, tasks);
        start(&self.deployments, tasks);
        start(&self.replica_sets, tasks);
        start(&self.daemon_sets, tasks);
        start(&self.stateful_sets, tasks);
        start(&self.revisions, tasks);
    }

    /// Returns once every mirror is filled.
    pub(crate) async fn synced(&self) {
        tokio::join!(
            self.pods.synced(),
            self.nodes.synced(),
            self.namespaces.synced(),
            self.service_accounts.synced(),
            self.deployments.synced(),
            self.replica_sets.synced(),
            self.daemon_sets.synced(),
            self.stateful_sets.synced(),
            self.revisions.synced(),
        );
    }
}
