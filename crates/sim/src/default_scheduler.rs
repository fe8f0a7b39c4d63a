//! The default scheduler: simple, correct and without knowledge of NUMA. Scenarios compare our scheduler with it.
//!
//! It keeps an account of nodes and placed pods (`ledger`), tries one pod at a time (`pending`), and reports in the words of kube-scheduler
//! why no node fits (`report`). Volumes are ignored.
//!
//! Reading order: [`start`], `filter`, `score`, `preempt`.

use std::borrow::Cow;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Binding, Namespace, Node, ObjectReference, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams};
use kube::runtime::watcher::Config;
use parking_lot::{Mutex, MutexGuard};
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::filter::{Filter, Rejection};
use self::ledger::Ledger;
use self::pending::{Change, Pending};
use self::pod::Task;
use self::preempt::{Outcome, Plan};
use self::report::Recorder;
use super::controllers::mirror::{Mirror, ObjectKey};
use super::controllers::objects;

mod filter;
mod ledger;
mod pending;
mod pod;
mod preempt;
mod report;
mod score;

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

/// The result of a scheduling attempt.
enum Attempt {
    Placed(String),
    Refused {
        message: String,
        depends_on_other_pods: bool,
        plan: Option<Plan>,
    },
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock()
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

    fn listen(&self) {
        let (state, wake) = (Arc::clone(&self.state), Arc::clone(&self.wake));
        let profile = self.options.profile.clone();
        self.pods.listen(move |before, after| {
            on_pod_change(&mut lock(&state), &profile, before, after);
            wake.notify_one();
        });
        let (state, wake) = (Arc::clone(&self.state), Arc::clone(&self.wake));
        self.nodes.listen(move |before, after| {
            let Some(name) = after.or(before).map(|node| objects::name(&**node)) else {
                return;
            };
            let matters = |node: &Arc<Node>| {
                let spec = node.spec.clone().unwrap_or_default();
                let status = node.status.clone().unwrap_or_default();
                (
                    node.metadata.labels.clone(),
                    (spec.taints, spec.unschedulable),
                    status.allocatable,
                )
            };
            let mut state = lock(&state);
            state.ledger.node(name, after);
            if before.map(matters) != after.map(matters)
                && state.pending.changed(if after.is_some() {
                    Change::Room
                } else {
                    Change::OtherPods
                })
            {
                wake.notify_one();
            }
        });
        let (state, wake) = (Arc::clone(&self.state), Arc::clone(&self.wake));
        self.namespaces
            .listen(move |before: Option<&Arc<Namespace>>, after| {
                let labels = |namespace: &Arc<Namespace>| namespace.metadata.labels.clone();
                if before.map(labels) != after.map(labels)
                    && lock(&state).pending.changed(Change::OtherPods)
                {
                    wake.notify_one();
                }
            });
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
                let mut state = lock(&self.state);
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
            let mut state = lock(&self.state);
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

    async fn bind(&self, pod: &Pod, node: &str, priority: i32) {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), objects::namespace(pod));
        let binding = Binding {
            metadata: ObjectMeta {
                name: pod.metadata.name.clone(),
                namespace: pod.metadata.namespace.clone(),
                uid: pod.metadata.uid.clone(),
                ..ObjectMeta::default()
            },
            target: ObjectReference {
                kind: Some("Node".to_owned()),
                name: Some(node.to_owned()),
                ..ObjectReference::default()
            },
        };
        let params = PostParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PostParams::default()
        };
        let bound: Result<serde_json::Value, kube::Error> = api
            .create_subresource("binding", objects::name(pod), &params, &binding)
            .await;
        let Err(error) = bound else {
            self.events.scheduled(pod, node);
            return;
        };
        let key = ObjectKey::of(&pod.metadata);
        {
            let mut state = lock(&self.state);
            state.ledger.unassume(&key);
            state.pending.changed(Change::Room);
            if objects::code(&error) == 404 {
                return;
            }
            state.pending.fail(&key, priority);
        }
        self.wake.notify_one();
        let why = format!(
            "binding rejected: running Bind plugin \"DefaultBinder\": {}",
            objects::message(&error)
        );
        self.events.failed(pod, &why);
        self.write_condition(pod, "SchedulerError", &why, None)
            .await;
    }

    async fn refused(&self, pod: &Pod, message: &str, plan: Option<Plan>) {
        self.events.failed(pod, message);
        let node = plan.as_ref().map(|plan| plan.node.clone());
        self.write_condition(pod, "Unschedulable", message, node.as_deref())
            .await;
        for victim in plan.into_iter().flat_map(|plan| plan.victims) {
            self.evict(&victim.pod, pod, node.as_deref().unwrap_or_default())
                .await;
        }
    }

    async fn write_condition(
        &self,
        pod: &Pod,
        reason: &str,
        message: &str,
        nominated: Option<&str>,
    ) {
        if let Err(error) = report::refuse(&self.client, pod, reason, message, nominated).await {
            tracing::debug!(%error, "Condition was not written");
        }
    }

    /// Sets the condition `DisruptionTarget` on a victim, then deletes it.
    async fn evict(&self, victim: &Pod, by: &Pod, node: &str) {
        let mut conditions = victim
            .status
            .clone()
            .and_then(|status| status.conditions)
            .unwrap_or_default();
        conditions.retain(|held| held.type_ != "DisruptionTarget");
        conditions.push(k8s_openapi::api::core::v1::PodCondition {
            type_: "DisruptionTarget".to_owned(),
            status: "True".to_owned(),
            reason: Some("PreemptionByScheduler".to_owned()),
            message: Some(format!(
                "{}: preempting to accommodate a higher priority pod",
                self.options.profile
            )),
            last_transition_time: Some(objects::now()),
            ..Default::default()
        });
        let patch = json!({
            "metadata": {"uid": objects::uid(victim)},
            "status": {"conditions": conditions},
        });
        if let Err(error) = report::patch_status(&self.client, victim, &patch).await {
            tracing::debug!(%error, "Condition was not written");
        }
        let api: Api<Pod> = Api::namespaced(self.client.clone(), objects::namespace(victim));
        match api
            .delete(objects::name(victim), &DeleteParams::default())
            .await
        {
            Ok(_) => self.events.preempted(victim, by, node),
            Err(error) => tracing::debug!(%error, "Victim was not removed"),
        }
    }
}

fn gated(pod: &Pod) -> bool {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.scheduling_gates.as_ref())
        .is_some_and(|gates| !gates.is_empty())
}

/// Applies a change of a pod to the account and the queue.
fn on_pod_change(
    state: &mut State,
    profile: &str,
    before: Option<&Arc<Pod>>,
    after: Option<&Arc<Pod>>,
) {
    let Some(pod) = after.or(before) else { return };
    let key = ObjectKey::of(&pod.metadata);
    let placed = |pod: &Arc<Pod>| objects::node_of(pod).is_some() && !objects::terminal(pod);
    let Some(pod) = after else {
        state.ledger.forget(&key);
        state.pending.forget(&key);
        state.pending.changed(Change::Room);
        return;
    };
    state.ledger.pod(pod);
    if pod::pending(pod, profile) {
        let matters = |pod: &Arc<Pod>| {
            let waiting = pod::pending(pod, profile);
            let uid = pod.metadata.uid.clone();
            (waiting, uid, pod.metadata.labels.clone(), pod.spec.clone())
        };
        if before.map(matters) != Some(matters(pod)) {
            let priority = pod.spec.as_ref().and_then(|spec| spec.priority);
            state.pending.add(&key, priority.unwrap_or(0));
        }
        return;
    }
    if state.pending.has(&key) {
        state.pending.forget(&key);
    }
    let seen_by_others = |pod: &Arc<Pod>| {
        (
            placed(pod),
            pod.metadata.labels.clone(),
            objects::deleting(&**pod),
        )
    };
    if before.is_some_and(placed) && !placed(pod) {
        state.pending.changed(Change::Room);
    } else if before.map(seen_by_others) != Some(seen_by_others(pod)) {
        state.pending.changed(Change::OtherPods);
    }
}

/// Finds a node for a pod and reserves it in the account, or explains why no node fits.
fn place(state: &mut State, task: Task, budgets: &Mirror<PodDisruptionBudget>) -> Attempt {
    let filter = Filter::new(&state.ledger, &task);
    let only = task.only_node();
    let mut refused: Vec<(String, Rejection)> = Vec::new();
    let mut fitting = Vec::new();
    let mut all: Vec<_> = state.ledger.nodes().collect();
    if all.is_empty() {
        return Attempt::Refused {
            message: "no nodes available to schedule pods".to_owned(),
            depends_on_other_pods: false,
            plan: None,
        };
    }
    let start = state.turn % all.len();
    all.rotate_left(start);
    let count = all.len();
    for (node, on) in all {
        let name = objects::name(&**node);
        let verdict = match &only {
            Some(only) if !only.iter().any(|wanted| wanted == name) => Err(
                Rejection::unresolvable("node(s) didn't satisfy plugin(s) [NodeAffinity]"),
            ),
            _ => filter.check(&state.ledger, node, on),
        };
        match verdict {
            Ok(()) => fitting.push((node, on)),
            Err(rejection) => refused.push((name.to_owned(), rejection)),
        }
    }
    if let Some(best) = score::best(&task, &fitting) {
        let node = objects::name(&**fitting[best].0).to_owned();
        state.turn = (start + 1) % count;
        state.ledger.assume(&node, task);
        return Attempt::Placed(node);
    }
    let reasons: Vec<Cow<'static, str>> = refused
        .iter()
        .flat_map(|(_, rejection)| rejection.reasons.iter().cloned())
        .collect();
    let mut message = report::histogram(count, reasons.iter());
    let depends_on_other_pods = refused
        .iter()
        .any(|(_, rejection)| rejection.depends_on_other_pods);
    let plan = match preempt::find(&mut state.ledger, &task, &refused, &budgets.all()) {
        Outcome::Found(plan) => {
            state.ledger.nominate(&plan.node, task);
            Some(plan)
        }
        Outcome::None(why) => {
            message.push_str(" preemption: ");
            message.push_str(&why);
            None
        }
    };
    Attempt::Refused {
        message,
        depends_on_other_pods,
        plan,
    }
}
