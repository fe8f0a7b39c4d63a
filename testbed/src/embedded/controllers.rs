//! What kube-controller-manager does in a real cluster, as far as scenarios rely on it.
//!
//! Each controller is a client of the API server. All of them see the cluster through one watch per kind ([`world`]); each keeps a queue
//! of keys ([`queue`]), works when something changed or is due, and never polls.
//!
//! Reading order: [`start`], `mirror` and `queue` (the machinery), then any controller.

use std::sync::Arc;

use kube::Client;
use tokio::task::JoinSet;

use self::events::Recorder;
use self::world::World;

mod daemon_set;
mod deployment;
pub(crate) mod events;
mod garbage;
pub(crate) mod mirror;
mod namespaces;
pub(crate) mod objects;
pub(crate) mod placement;
mod pods;
pub(crate) mod queue;
mod replica_set;
pub(crate) mod selectors;
mod world;

/// Who signs the writes.
const MANAGER: &str = "kube-controller-manager";

/// What the controllers need to know.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Certificate of the cluster's authority as PEM, for the `kube-root-ca.crt` of each namespace.
    pub root_ca: String,
}

/// Controllers that work until they are stopped or dropped.
#[derive(Debug)]
pub struct Controllers {
    tasks: JoinSet<()>,
}

impl Controllers {
    /// Stops all work and returns when nothing runs any more.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

/// Starts all controllers on the current runtime. They begin to work once they have seen the cluster.
pub fn start(client: Client, options: Options) -> Controllers {
    let mut tasks = JoinSet::new();
    let (events, writing) = Recorder::new(client.clone(), MANAGER);
    tasks.spawn(writing);
    let world = Arc::new(World::new(&client, events));
    let deployments = deployment::Controller::new(&world);
    let replica_sets = replica_set::Controller::new(&world);
    let daemon_sets = daemon_set::Controller::new(&world);
    let namespaces = namespaces::Controller::new(&world, options.root_ca);
    let garbage = garbage::Controller::new(&world);
    world.follow(&mut tasks);
    run(&mut tasks, &world, deployments.run());
    run(&mut tasks, &world, replica_sets.run());
    run(&mut tasks, &world, daemon_sets.run());
    run(&mut tasks, &world, namespaces.run());
    run(&mut tasks, &world, garbage.run());
    Controllers { tasks }
}

/// Runs a controller once the world has been seen.
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
