//! The view that all controllers share: one mirror for each kind.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt as _, join_all};
use k8s_openapi::api::apps::v1::{
    ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet,
};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, Endpoints, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod,
    ReplicationController, ResourceQuota, Service, ServiceAccount,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::runtime::watcher::Config;
use tokio::task::JoinSet;

use super::events::Recorder;
use super::mirror::{Kind, Mirror};
use super::{MANAGER, objects};

/// Name of the ConfigMap that each namespace has, with the certificate of the cluster's authority.
pub(crate) const ROOT_CA: &str = "kube-root-ca.crt";

/// The mirrors, and the recorder of events.
pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) events: Recorder,
    pub(crate) pods: Arc<Mirror<Pod>>,
    pub(crate) nodes: Arc<Mirror<Node>>,
    pub(crate) namespaces: Arc<Mirror<Namespace>>,
    pub(crate) service_accounts: Arc<Mirror<ServiceAccount>>,
    /// The ConfigMaps with the name [`ROOT_CA`].
    pub(crate) root_cas: Arc<Mirror<ConfigMap>>,
    pub(crate) deployments: Arc<Mirror<Deployment>>,
    pub(crate) replica_sets: Arc<Mirror<ReplicaSet>>,
    pub(crate) replication_controllers: Arc<Mirror<ReplicationController>>,
    pub(crate) daemon_sets: Arc<Mirror<DaemonSet>>,
    pub(crate) stateful_sets: Arc<Mirror<StatefulSet>>,
    pub(crate) revisions: Arc<Mirror<ControllerRevision>>,
    pub(crate) jobs: Arc<Mirror<Job>>,
    pub(crate) cron_jobs: Arc<Mirror<CronJob>>,
    pub(crate) budgets: Arc<Mirror<PodDisruptionBudget>>,
    pub(crate) claims: Arc<Mirror<PersistentVolumeClaim>>,
    pub(crate) volumes: Arc<Mirror<PersistentVolume>>,
    pub(crate) quotas: Arc<Mirror<ResourceQuota>>,
    pub(crate) services: Arc<Mirror<Service>>,
    pub(crate) endpoints: Arc<Mirror<Endpoints>>,
    pub(crate) slices: Arc<Mirror<EndpointSlice>>,
    pub(crate) leases: Arc<Mirror<Lease>>,
    pub(crate) certificate_requests: Arc<Mirror<CertificateSigningRequest>>,
    pub(crate) definitions: Arc<Mirror<CustomResourceDefinition>>,
    all: Vec<Box<dyn Watched>>,
}

/// A mirror of any kind, and which objects it holds.
trait Watched: Send + Sync {
    fn follow(&self) -> BoxFuture<'static, ()>;
    fn synced(&self) -> BoxFuture<'_, ()>;
}

impl<K: Kind> Watched for (Arc<Mirror<K>>, Config) {
    fn follow(&self) -> BoxFuture<'static, ()> {
        Arc::clone(&self.0).follow(self.1.clone()).boxed()
    }

    fn synced(&self) -> BoxFuture<'_, ()> {
        self.0.synced().boxed()
    }
}

/// Makes mirrors, and keeps a list of them.
struct Maker {
    client: Client,
    all: Vec<Box<dyn Watched>>,
}

impl Maker {
    fn mirror<K: Kind>(&mut self, config: Config, index: fn(&K) -> Vec<String>) -> Arc<Mirror<K>> {
        let mirror = Arc::new(Mirror::new(self.client.clone(), MANAGER, index));
        self.all.push(Box::new((Arc::clone(&mirror), config)));
        mirror
    }

    fn indexed<K: Kind>(&mut self, index: fn(&K) -> Vec<String>) -> Arc<Mirror<K>> {
        self.mirror(Config::default(), index)
    }

    fn plain<K: Kind>(&mut self) -> Arc<Mirror<K>> {
        self.indexed(|_| Vec::new())
    }
}

impl World {
    /// Creates a world with empty mirrors; no watch is started yet.
    pub(crate) fn new(client: Client, events: Recorder) -> Self {
        let mut make = Maker {
            client: client.clone(),
            all: Vec::new(),
        };
        let root_ca = Config::default().fields(&format!("metadata.name={ROOT_CA}"));
        Self {
            client,
            events,
            pods: make.indexed(objects::pod_index),
            nodes: make.plain(),
            namespaces: make.plain(),
            service_accounts: make.plain(),
            root_cas: make.mirror(root_ca, |_| Vec::new()),
            deployments: make.plain(),
            replica_sets: make.indexed(objects::owner_index),
            replication_controllers: make.plain(),
            daemon_sets: make.plain(),
            stateful_sets: make.plain(),
            revisions: make.indexed(objects::owner_index),
            jobs: make.indexed(objects::owner_index),
            cron_jobs: make.plain(),
            budgets: make.plain(),
            claims: make.plain(),
            volumes: make.plain(),
            quotas: make.plain(),
            services: make.plain(),
            endpoints: make.plain(),
            slices: make.indexed(objects::service_index),
            leases: make.plain(),
            certificate_requests: make.plain(),
            definitions: make.plain(),
            all: make.all,
        }
    }

    /// Starts all watches.
    pub(crate) fn follow(&self, tasks: &mut JoinSet<()>) {
        for mirror in &self.all {
            tasks.spawn(mirror.follow());
        }
    }

    /// Returns once every mirror is filled.
    pub(crate) async fn synced(&self) {
        join_all(self.all.iter().map(|mirror| mirror.synced())).await;
    }
}
