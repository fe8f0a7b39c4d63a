//! The controllers. Each watches its resource and the objects that it created, and reconciles them with the resource.
//!
//! - here: what the controllers have in common, above all the loop that runs one;
//! - `triggers`: the watches that cause a reconciliation;
//! - `operator`, `scheduler`, `kubelet_config`: one controller each, in the parts `observe` (reads), `plan` (decides, pure), `apply`
//!   (writes) and, but for the last, `status` (what the resource's status says). Begin with the file of the controller, which has the order
//!   of the steps; then read its plan;
//! - `pools`: the nodes that an operator resource selects, for two of the controllers.

use std::fmt::Debug;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;

use futures::StreamExt;
use kube::api::Api;
use kube::runtime::controller::{Action, Config, Controller};
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::context::Context;
use crate::metrics::Ended;
use crate::report::conditions::Outcome;

mod kubelet_config;
mod operator;
mod pools;
mod scheduler;
mod triggers;

/// Events within this time cause one reconciliation.
const DEBOUNCE: std::time::Duration = std::time::Duration::from_millis(50);

/// How long the controllers go on after they were told to end. The pod of the operator has ten seconds.
const LAST_SECONDS: std::time::Duration = std::time::Duration::from_secs(5);

/// How many objects a controller reconciles at the same time.
const CONCURRENT: u16 = 1;

/// Whether a resource is reconciled.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Admission {
    /// It is.
    Granted,
    /// Nothing is written, not even the status, because an annotation asks for that.
    Paused,
    /// Only the status is written.
    Refused(Outcome),
}

/// A reconciliation failed and will be retried.
#[derive(Debug, thiserror::Error)]
enum Error {
    /// A call failed.
    #[error("{0}")]
    Failed(String),
    /// The status could not be written.
    #[error("failed to update {0} status")]
    Status(&'static str, #[source] crate::report::patch::Error),
    /// The resource could not be read.
    #[error("failed to get {0}")]
    Get(String, #[source] apply::Cause),
}

impl Error {
    /// Creates an error from any error with all its causes.
    fn of(error: &dyn std::error::Error) -> Self {
        Self::Failed(daemon::log::chain(error))
    }
}

/// Runs the controllers until `stop` is cancelled and what they are doing has ended, for which they have some seconds: a controller that waits
/// for an answer does not notice that it is to end, and the lease must be released before the kubelet kills this process.
pub(crate) async fn run(context: Arc<Context>, with_scheduler: bool, stop: &CancellationToken) {
    let overdue = async {
        stop.cancelled().await;
        tokio::time::sleep(LAST_SECONDS).await;
    };
    tokio::select! {
        () = run_all(context, with_scheduler, stop) => {}
        () = overdue => tracing::warn!(
            "Controllers did not end within {} s and are dropped; the next leader finishes their work",
            LAST_SECONDS.as_secs()
        ),
    }
}

async fn run_all(context: Arc<Context>, with_scheduler: bool, stop: &CancellationToken) {
    let scheduler = async {
        if with_scheduler {
            scheduler::run(Arc::clone(&context), stop).await;
        }
    };
    futures::join!(
        // whatever the switch says: the binding is of a release before it (operator.md 5.1)
        scheduler::remove_legacy_binding(&context),
        operator::run(Arc::clone(&context), stop),
        scheduler,
        kubelet_config::run(Arc::clone(&context), stop)
    );
}

/// Runs a controller until `stop` is cancelled. Failures are retried with growing waits.
async fn run_controller<K, F, R>(
    name: &'static str,
    controller: Controller<K>,
    context: Arc<Context>,
    stop: &CancellationToken,
    reconcile: R,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Debug + Unpin + Default,
    F: Future<Output = Result<Action, Error>> + Send + 'static,
    R: Fn(Arc<K>, Arc<Context>) -> F + Send + Sync + 'static,
{
    let stopped = stop.clone();
    context.metrics.start(name, CONCURRENT);
    let reconcile = move |object: Arc<K>, context: Arc<Context>| {
        let span = tracing::info_span!("reconcile", controller = name, object = %object.name_any());
        let object_name = object.name_any();
        let work = reconcile(object, Arc::clone(&context));
        async move {
            let running = context.metrics.begin(name);
            let _turn = context.watchdog.turn();
            let result = work.await;
            match &result {
                Ok(action) => {
                    let is_done = *action == Action::await_change();
                    running.end(if is_done { Ended::Well } else { Ended::Again });
                    context.succeeded(name, &object_name);
                }
                Err(error) => {
                    running.end(Ended::Failed);
                    tracing::error!(error = %daemon::log::chain(error), "Reconciler error");
                }
            }
            result
        }
        .instrument(span)
    };
    controller
        .with_config(Config::default().debounce(DEBOUNCE).concurrency(CONCURRENT))
        .graceful_shutdown_on(async move { stopped.cancelled().await })
        .run(reconcile, move |object: Arc<K>, _: &Error, context: Arc<Context>| Action::requeue(context.failed(name, &object.name_any())), context)
        .for_each(|result| async move {
            // failures of the reconciliation itself are already logged
            if let Err(error) = result
                && !matches!(error, kube::runtime::controller::Error::ReconcilerFailed(..) | kube::runtime::controller::Error::ObjectNotFound(..))
            {
                tracing::warn!(controller = name, error = %daemon::log::chain(&error), "Watch failed");
            }
        })
        .await;
}

/// Translates an outcome into the action of the queue.
fn next(outcome: &Outcome) -> Result<Action, Error> {
    match outcome {
        Outcome::Available | Outcome::Invalid { .. } => Ok(Action::await_change()),
        Outcome::Progressing { requeue_after, .. } => Ok(Action::requeue(*requeue_after)),
        Outcome::Failed { message } => Err(Error::Failed(message.clone())),
    }
}

/// Returns whether an annotation has the value that enables a behaviour.
fn is_annotated<K: Resource>(object: &K, key: &str, value: &str) -> bool {
    object
        .annotations()
        .get(key)
        .is_some_and(|found| found == value)
}

/// Reads the current resource, because the watch may be behind our own last write. `None` if it is gone or being deleted.
async fn current<K>(api: &Api<K>, name: &str) -> Result<Option<K>, Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let found = api
        .get_opt(name)
        .await
        .map_err(|error| Error::Get(ObjectRef::<K>::new(name).to_string(), error.into()))?;
    Ok(found.filter(|object| object.meta().deletion_timestamp.is_none()))
}
