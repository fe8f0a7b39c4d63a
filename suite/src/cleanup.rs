//! Puts a cluster back on which a run ended without undoing its changes: the undos of its event log are run, latest first. It may be repeated.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use reports::changes::OpenChanges;
use reports::event::Event;
use reports::log::{self, Writer};
use reports::stream::Stream;
use thiserror::Error;

use crate::claim::{self, Holder, LEASE};
use crate::context::RUN_LABEL;
use crate::kubeconfig::Kubeconfig;
use crate::ledger::{Undo, open_entries};
use crate::pace::Pace;
use crate::recorder::Deadlines;
use crate::step::StepError;

/// How long the deletion of the run's namespaces may take after their pods are gone.
const NAMESPACES_DEADLINE: Duration = Duration::from_mins(2);

/// Where the records of a cleanup belong.
const UNIT: &str = "cleanup";

/// Why nothing was undone.
#[derive(Debug, Error)]
pub enum Error {
    /// The event log cannot be used.
    #[error(transparent)]
    Log(#[from] log::Error),
    /// The cluster cannot be used; the text says why.
    #[error("{0}")]
    Cluster(String),
    /// The kubeconfig leads to another cluster than the one that the run changed.
    #[error(
        "the {kubeconfig} leads to another cluster than that of run {run}; name the right one with --kubeconfig. Nothing was changed"
    )]
    OtherCluster {
        /// The run.
        run: String,
        /// How the cluster was reached.
        kubeconfig: Kubeconfig,
    },
    /// A run uses the cluster.
    #[error(
        "run {run} renewed {LEASE} {age_s} s ago, so it may still be on the cluster; nothing was changed. If it is dead, repeat this in half a minute"
    )]
    InUse {
        /// The run.
        run: String,
        /// When.
        age_s: u64,
    },
}

impl From<StepError> for Error {
    fn from(error: StepError) -> Self {
        Self::Cluster(error.into_failure("").message)
    }
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        StepError::from(error).into()
    }
}

/// Undoes what a run changed, and says what it does. `kubeconfig` names the cluster if it is not where the run found it. Returns what is left.
pub async fn undo(
    events: &Path,
    kubeconfig: Option<&Kubeconfig>,
    say: impl Fn(&str),
) -> Result<Vec<String>, Error> {
    let log = log::read(events)?;
    if log.damaged > 0 {
        say(&format!(
            "{} lines of {} are no records; what they said is not undone",
            log.damaged,
            events.display()
        ));
    }
    let mut open = OpenChanges::default();
    log::replay(&log.records, &mut open);
    let run = open.run();
    let Some(given) = open.given() else {
        say(&format!(
            "run {run} changed nothing on a cluster that was given to it"
        ));
        return Ok(Vec::new());
    };
    let is_dead = log::is_released(events);
    // held until the end: a run that lives has it, and of two cleanups one does the work
    let writer = Writer::append(events)?;
    let next = log.records.last().map_or(0, |record| record.seq + 1);
    let stream = Stream::resumed(next, vec![Box::new(writer)]);

    let kubeconfig = reached_by(kubeconfig, &given.kubeconfig);
    let client = kubeconfig.client(Deadlines::default().answer).await?;
    if claim::identity(&client).await? != given.cluster {
        return Err(Error::OtherCluster {
            run: run.to_owned(),
            kubeconfig,
        });
    }
    let holder = Holder::on(&client).await?;
    if let Some(holder) = &holder
        && let Some(age) = holder.alive(Timestamp::now())
        && !(is_dead && holder.run == run && holder.has_ledger(events))
    {
        return Err(Error::InUse {
            run: holder.run.clone(),
            age_s: age.as_secs(),
        });
    }
    let mut left = undo_all(&open, &client, &stream, &say).await;
    left.extend(namespaces_left(&client, run).await?);
    left.extend(stream.failures());
    if left.is_empty() {
        claim::free(&client, run).await?;
        stream.emit(Event::ClusterFreed {
            unit: UNIT.to_owned(),
        });
        say(&format!("nothing of run {run} is left on the cluster"));
    }
    Ok(left)
}

/// Returns how the cluster is reached: as the user says, else as the run reached it, else as the environment says.
fn reached_by(given: Option<&Kubeconfig>, recorded: &[String]) -> Kubeconfig {
    if let Some(given) = given {
        return given.clone();
    }
    let is_usable = if recorded.is_empty() {
        Kubeconfig::of_pod().is_some()
    } else {
        recorded.iter().any(|file| Path::new(file).exists())
    };
    let environment = if is_usable {
        None
    } else {
        Kubeconfig::from_environment()
    };
    environment.unwrap_or_else(|| Kubeconfig::recorded(recorded))
}

/// Runs all undos, latest first, and continues after errors. Returns what could not be undone.
async fn undo_all(
    open: &OpenChanges,
    client: &Client,
    stream: &Stream,
    say: impl Fn(&str),
) -> Vec<String> {
    let mut left = Vec::new();
    let mut entries: Vec<_> = open_entries(open).collect();
    while let Some((change, undo)) = entries.pop() {
        let mut earlier = entries.iter().filter_map(|(_, undo)| undo.as_ref());
        let error = match undo {
            Some(undo) if earlier.any(|earlier| earlier.covers(&undo)) => None,
            Some(undo) => run(&undo, client).await,
            None => Some("its undo is of another version of this program".to_owned()),
        };
        match &error {
            None => say(&format!("undone: {}", change.what)),
            Some(error) => {
                say(&format!("NOT undone: {}: {error}", change.what));
                left.push(format!("{}: {error}", change.what));
            }
        }
        stream.emit(Event::ChangeUndone {
            unit: change.unit.clone(),
            change: change.change,
            error,
        });
    }
    left
}

async fn run(undo: &Undo, client: &Client) -> Option<String> {
    let undone = undo.run(client).await;
    undone.err().map(|error| error.to_string())
}

/// Waits until the namespaces of a run are gone. Returns those that stay.
async fn namespaces_left(client: &Client, run: &str) -> Result<Vec<String>, Error> {
    let namespaces = Api::<Namespace>::all(client.clone());
    let ours = ListParams::default().labels(&format!("{RUN_LABEL}={run}"));
    let pace = Pace::begin();
    loop {
        let left = namespaces.list_metadata(&ours).await?.items;
        let is_going = |namespace: &kube::core::PartialObjectMeta<Namespace>| {
            namespace.metadata.deletion_timestamp.is_some()
        };
        if left.is_empty() || !left.iter().all(is_going) || pace.waited() > NAMESPACES_DEADLINE {
            let names = left.iter().map(ResourceExt::name_any);
            return Ok(names
                .map(|name| format!("Namespace {name} is still there"))
                .collect());
        }
        pace.pause().await;
    }
}
