//! The default scheduler: simple, correct and without knowledge of NUMA. Scenarios compare our scheduler with it.
//!
//! It keeps an account of nodes and placed pods (`ledger`), tries one pod at a time (`pending`), and reports in the words of kube-scheduler
//! why no node fits (`report`). Volumes are ignored.
//!
//! Reading order: [`start`], `place` (one attempt), `filter`, `score`, `preempt`, `writes`.

mod changes;
mod filter;
mod ledger;
mod pending;
mod place;
mod pod;
mod preempt;
mod report;
mod score;
mod writes;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Client;
use kube::runtime::watcher::Config;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::ledger::Ledger;
use self::pending::Pending;
use self::place::{Attempt, place};
use self::pod::Task;
use self::report::Recorder;
use super::controllers::mirror::{Mirror, ObjectKey};
use super::controllers::objects;

/// Field manager of the scheduler's writes.
const MANAGER: &str = "kube-scheduler";
/// Largest number of concurrent binding requests.
const BINDINGS: usize = 16;

/// Settings of the scheduler.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of its profile. It schedules the pods with this scheduler name.
    pub profile: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            profile: "default-scheduler".to_owned(),
        }
    }
}

/// A scheduler that works until it is stopped or dropped.
#[derive(Debug)]
pub struct DefaultScheduler {
    tasks: JoinSet<()>,
}

impl DefaultScheduler {
    /// Stops all work; returns when no task runs any more.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

/// Starts the scheduler on the current runtime. It begins to work once its mirrors are filled.
pub fn start(client: Client, options: Options) -> DefaultScheduler {
    let mut tasks = JoinSet::new();
    let (events, writing) = Recorder::new(client.clone(), options.profile.clone());
    tasks.spawn(writing);
    let scheduler = Arc::new(Scheduler::new(client, options, events));
    scheduler.listen();
    let living = "status.phase!=Succeeded,status.phase!=Failed";
    let pods = Config::default().fields(living);
    tasks.spawn(Arc::clone(&scheduler.pods).follow(pods));
    tasks.spawn(Arc::clone(&scheduler.nodes).follow(Config::default()));
    tasks.spawn(Arc::clone(&scheduler.namespaces).follow(Config::default()));
    tasks.spawn(Arc::clone(&scheduler.budgets).follow(Config::default()));
    tasks.spawn(scheduler.run());
    DefaultScheduler { tasks }
}

struct State {
    ledger: Ledger,
    pending: Pending,
    /// Index of the node at which the next attempt begins, so that equal nodes take turns.
    turn: usize,
}

struct Scheduler {
    client: Client,
    options: Options,
    events: Recorder,
    pods: Arc<Mirror<Pod>>,
    nodes: Arc<Mirror<Node>>,
    namespaces: Arc<Mirror<Namespace>>,
    budgets: Arc<Mirror<PodDisruptionBudget>>,
    state: Arc<Mutex<State>>,
    wake: Arc<Notify>,
}

impl Scheduler {
    fn new(client: Client, options: Options, events: Recorder) -> Self {
        let namespaces = Arc::new(Mirror::new(client.clone(), MANAGER, |_| Vec::new()));
        Self {
            options,
            events,
            pods: Arc::new(Mirror::new(client.clone(), MANAGER, |_| Vec::new())),
            nodes: Arc::new(Mirror::new(client.clone(), MANAGER, |_| Vec::new())),
            budgets: Arc::new(Mirror::new(client.clone(), MANAGER, |_| Vec::new())),
            state: Arc::new(Mutex::new(State {
                ledger: Ledger::new(Arc::clone(&namespaces)),
                pending: Pending::default(),
                turn: 0,
            })),
            wake: Arc::default(),
            namespaces,
            client,
        }
    }

    async fn run(self: Arc<Self>) {
        tokio::join!(
            self.pods.synced(),
            self.nodes.synced(),
            self.namespaces.synced(),
            self.budgets.synced(),
        );
        let mut writes: JoinSet<()> = JoinSet::new();
        loop {
            while writes.len() >= BINDINGS {
                writes.join_next().await;
            }
            let (key, next) = {
                let mut state = self.state.lock();
                state.pending.flush();
                (state.pending.pop(), state.pending.next())
            };
            if let Some(key) = key {
                let this = Arc::clone(&self);
                if let Some(write) = this.attempt(&key) {
                    writes.spawn(write);
                }
                // Other tasks of this runtime get a turn between two pods.
                tokio::task::yield_now().await;
                continue;
            }
            tokio::select! {
                () = self.wake.notified() => {}
                Some(_) = writes.join_next(), if !writes.is_empty() => {}
                () = tokio::time::sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
            }
        }
    }

    /// Tries one pod. Returns the writes that result from it; the caller runs them.
    fn attempt(
        self: Arc<Self>,
        key: &ObjectKey,
    ) -> Option<impl Future<Output = ()> + Send + 'static> {
        let pod = self.pods.get(key)?;
        if !pod::pending(&pod, &self.options.profile) || gated(&pod) {
            return None;
        }
        if objects::deleting(&*pod) {
            let why = format!("skip schedule deleting pod: {key}");
            self.events.failed(&pod, &why);
            return None;
        }
        let task = Task::new(&pod);
        let priority = task.priority;
        let attempt = {
            let mut state = self.state.lock();
            let since = state.pending.changes();
            let attempt = place(&mut state, task, &self.budgets);
            if let Attempt::Refused {
                depends_on_other_pods,
                ..
            } = &attempt
            {
                state
                    .pending
                    .refuse(key, priority, *depends_on_other_pods, since);
            }
            attempt
        };
        Some(async move {
            match attempt {
                Attempt::Placed(node) => self.bind(&pod, &node, priority).await,
                Attempt::Refused { message, plan, .. } => {
                    self.refused(&pod, &message, plan).await;
                }
            }
        })
    }
}

fn gated(pod: &Pod) -> bool {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.scheduling_gates.as_ref())
        .is_some_and(|gates| !gates.is_empty())
}
