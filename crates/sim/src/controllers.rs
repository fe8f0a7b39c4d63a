//! The controllers of kube-controller-manager, as far as scenarios rely on them.
//!
//! Each controller is a client of the API server. All of them see the cluster through one watch per kind (`world`). Each keeps a queue of
//! keys (`queue`), works when something changed or is due, and never polls.
//!
//! Reading order: [`start`], `mirror`, `queue` and `reconcile` (the machinery), then any controller.

use std::sync::Arc;
use std::time::Duration;

use apiserver::Signer;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::ReplicationController;
use kube::Client;
use tokio::task::JoinSet;

use self::events::Recorder;
use self::world::World;

mod certificates;
mod cron_job;
mod daemon_set;
mod deployment;
mod disruption;
mod endpoints;
pub(crate) mod events;
mod garbage;
mod job;
pub(crate) mod mirror;
mod namespace_deletion;
mod namespaces;
mod nodes;
pub(crate) mod objects;
pub(crate) mod placement;
mod pod_garbage;
mod pods;
mod protection;
pub(crate) mod queue;
mod quota;
mod reconcile;
mod replica_set;
mod revisions;
pub(crate) mod selectors;
mod stateful_set;
mod world;

/// Field manager of all writes of the controllers.
const MANAGER: &str = "kube-controller-manager";

/// Settings of the controllers.
#[derive(Clone, Debug)]
pub struct Options {
    /// Certificate of the cluster's authority as PEM, for the `kube-root-ca.crt` of each namespace.
    pub root_ca: String,
    /// What signs approved requests for certificates; without one nothing is signed.
    pub signer: Option<Signer>,
    /// Time without a sign of life after which the conditions of a node become Unknown.
    pub node_grace: Duration,
    /// How long a node must be gone before its pods are removed.
    pub gone_grace: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            root_ca: String::new(),
            signer: None,
            node_grace: Duration::from_secs(50),
            gone_grace: Duration::from_secs(40),
        }
    }
}

/// Controllers that work until they are stopped or dropped.
#[derive(Debug)]
pub struct Controllers {
    tasks: JoinSet<()>,
}

impl Controllers {
    /// Stops all work; returns when no task runs any more.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

/// Starts all controllers on the current runtime. They begin to work once the mirrors are filled.
pub fn start(client: Client, options: Options) -> Controllers {
    let Options {
        root_ca,
        signer,
        node_grace,
        gone_grace,
    } = options;
    let mut tasks = JoinSet::new();
    let (events, writing) = Recorder::new(client.clone(), MANAGER);
    tasks.spawn(writing);
    let world = Arc::new(World::new(client, events));
    let deployments = deployment::Controller::new(&world);
    let replica_sets = replica_set::Controller::<ReplicaSet>::new(&world);
    let replication_controllers = replica_set::Controller::<ReplicationController>::new(&world);
    let daemon_sets = daemon_set::Controller::new(&world);
    let namespaces = namespaces::Controller::new(&world, root_ca);
    let nodes = nodes::Controller::new(&world, node_grace);
    let pod_garbage = pod_garbage::Controller::new(&world, gone_grace);
    let disruption = disruption::Controller::new(&world);
    let endpoints = endpoints::Controller::new(&world);
    let jobs = job::Controller::new(&world);
    let garbage = garbage::Controller::new(&world);
    let cron_jobs = cron_job::Controller::new(&world);
    let certificates = certificates::Controller::new(&world, signer);
    let protection = protection::Controller::new(&world);
    let volumes = protection::Volumes::new(&world);
    let stateful_sets = stateful_set::Controller::new(&world);
    let quotas = quota::Controller::new(&world, &garbage);
    let namespace_deletion = namespace_deletion::Controller::new(&world, &garbage);
    world.follow(&mut tasks);
    run(&mut tasks, &world, reconcile::run(deployments));
    run(&mut tasks, &world, reconcile::run(replica_sets));
    run(&mut tasks, &world, reconcile::run(replication_controllers));
    run(&mut tasks, &world, reconcile::run(daemon_sets));
    run(&mut tasks, &world, reconcile::run(stateful_sets));
    run(&mut tasks, &world, reconcile::run(namespaces));
    run(&mut tasks, &world, reconcile::run(namespace_deletion));
    run(&mut tasks, &world, nodes.run());
    run(&mut tasks, &world, reconcile::run(pod_garbage));
    run(&mut tasks, &world, reconcile::run(disruption));
    run(&mut tasks, &world, reconcile::run(endpoints));
    run(&mut tasks, &world, reconcile::run(jobs));
    run(&mut tasks, &world, reconcile::run(cron_jobs));
    run(&mut tasks, &world, reconcile::run(quotas));
    run(&mut tasks, &world, reconcile::run(protection));
    run(&mut tasks, &world, reconcile::run(volumes));
    run(&mut tasks, &world, reconcile::run(certificates));
    run(&mut tasks, &world, garbage.run());
    Controllers { tasks }
}

/// Runs a controller once the mirrors of the world are filled.
fn run(
    tasks: &mut JoinSet<()>,
    world: &Arc<World>,
    work: impl Future<Output = ()> + Send + 'static,
) {
    let world = Arc::clone(world);
    tasks.spawn(async move {
        world.synced().await;
        work.await;
    });
}
