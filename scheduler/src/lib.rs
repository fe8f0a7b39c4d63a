//! Secondary scheduler with NodeResourceTopologyMatch.
//!
//! It places the pods that name one of its profiles on nodes whose kubelet can align them. One task owns all state and handles one
//! change or one attempt after another, so nothing here needs a lock. Separate tasks write to the API server.
//!
//! The rooms, in reading order. Lower ones know nothing of higher ones: `state`, `numa`, `plugins`, `framework`, `metrics`, `watch`, `api_tasks`,
//! `engine`, `explain`, `run`.
//! - [`run`]: start-up, the only file that knows all parts; [`args`]: the command line.
//! - [`watch`]: which kinds are watched, and how their changes are delivered.
//! - [`state`]: what the scheduler knows of nodes, pods and volumes.
//! - [`numa`]: what is left in the zones of the nodes.
//! - [`framework`]: which pod is next, one attempt to place it, and where plugins act
//!   ([`extension_points`](framework::extension_points)).
//! - [`plugins`]: filter and score of each plugin, by its Kubernetes name.
//! - [`engine`]: the loop, and all state, which takes messages and gives back effects.
//! - [`api_tasks`]: what sends requests to the API server.
//! - [`explain`]: the same filters and scores on a snapshot, with every detail.
//! - [`metrics`].
//!
//! A pod from watch event to binding:
//! 1. [`watch::follow::follow`] gets the event and reads the pod ([`state::pod::Pod::read`]). It sends a
//!    [`Notice`](watch::follow::Notice) to the loop.
//! 2. [`Engine::run`](engine::Engine::run) hands it to [`Core::take`](engine::core::Core::take). `Core::apply_pod` puts the pod into the
//!    [`Cluster`](state::cluster::Cluster), and into the [`Queue`](framework::queue::Queue) if one of our profiles places it.
//! 3. The loop calls [`Core::attempt_next`](engine::core::Core::attempt_next). [`Queue::pop`](framework::queue::Queue::pop) says which pod is
//!    tried.
//! 4. [`cycle::attempt`](framework::cycle::attempt) first brings the [`Memo`](framework::memo::Memo) up to date with what changed
//!    since the last attempt.
//! 5. [`Attempt::new`](framework::extension_points::Attempt::new) computes what is the same for all nodes.
//!    [`Attempt::examine`](framework::extension_points::Attempt::examine) runs the filters on a node;
//!    NodeResourceTopologyMatch reads what [`Cache::view`](numa::cache::Cache::view) says of the node's zones.
//! 6. [`ScorePlugin::raw_score`](framework::extension_points::ScorePlugin::raw_score) and
//!    [`normalized_scores`](framework::extension_points::ScorePlugin::normalized_scores) score the nodes that are left. The highest sum
//!    wins.
//! 7. If no node is left, [`preempt`](framework::default_preemption::preempt) looks for victims. Either way `Core::reject` has an event
//!    and a condition written, and the pod waits in the queue until something changes that may help it.
//! 8. `Core::place` assumes the pod on its node ([`Cluster::assume`](state::cluster::Cluster::assume)) and charges it to the zones
//!    ([`Cache::reserve`](numa::cache::Cache::reserve)), so that the next attempt sees it there.
//! 9. [`Core::attempt_next`](engine::core::Core::attempt_next) gives back an [`Effect`](engine::effect::Effect): write the choice of
//!    unbound volumes first, or bind.
//! 10. [`Requests`](engine::requests::Requests) carries it out in a task: [`Changes::write`](api_tasks::volume_bind::Changes::write),
//!     [`bind`](api_tasks::bind::bind).
//! 11. The result comes back as a [`Message`](engine::message::Message). `Core::bound` has the event written, or takes back the
//!     assumption and the charge, and the pod waits again.
//! 12. The charge ends when an NRT accounts for the pod: [`Cache::apply_nrt`](numa::cache::Cache::apply_nrt) finds the pod in the
//!     published fingerprint.
//!
//! It never writes NRTs and never accesses a node other than through the API server.

pub mod api_tasks;
pub mod args;
pub mod engine;
pub mod explain;
pub mod framework;
pub mod metrics;
pub mod numa;
pub mod plugins;
pub mod run;
pub mod state;
pub mod watch;

#[cfg(test)]
mod testing;
