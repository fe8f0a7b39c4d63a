//! Deploys components: creates what is missing, updates what differs, deletes what is left of another configuration (deployer.md 3).

use std::collections::BTreeSet;

use apply::{Applier, Identity, Outcome, again};
use kube::Client;
use kube::api::DynamicObject;
use serde_json::Value;

use crate::log::Log;
use crate::objects::{Component, DEFINITION, Set};
use crate::options::Waiting;
use crate::preflight::{self, foreign};
use crate::wait::{self, Waiter};

/// A deployment has stopped; what it has created stays, and the next one goes on from there.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It has not begun.
    #[error(transparent)]
    Preflight(#[from] preflight::Error),
    /// An object could not be written.
    #[error(
        "the {component} is not deployed completely; deploy again once this is mended, or remove it"
    )]
    Apply {
        /// What the log calls the component.
        component: &'static str,
        /// The cause.
        #[source]
        source: apply::Error,
    },
    /// An object is of somebody else, and not what is needed.
    #[error(
        "the definition {name} that is there does not serve {version}: delete it, or have who installed it update it"
    )]
    OtherDefinition {
        /// Name of the definition.
        name: String,
        /// The version that is needed.
        version: String,
    },
    /// A wait has ended too early.
    #[error("everything of the {component} is written, but it does not work yet")]
    Wait {
        /// What the log calls the component.
        component: &'static str,
        /// The cause.
        #[source]
        source: wait::Error,
    },
}

/// What components are deployed and removed with.
pub struct Work<'a> {
    /// Client of the cluster.
    pub client: &'a Client,
    /// The log.
    pub log: &'a Log,
    /// Pauses and limits of waits.
    pub waiting: Waiting,
    /// Whether to wait for what is not the definition of an API, which is always waited for.
    pub wait: bool,
}

impl Work<'_> {
    /// Returns the log of a component.
    pub(crate) fn log_of(&self, component: Component) -> Log {
        self.log.named(component.log_name())
    }

    /// Returns what waits for objects of a component.
    pub(crate) fn waiter<'a>(&'a self, log: &'a Log) -> Waiter<'a> {
        Waiter {
            client: self.client,
            waiting: self.waiting,
            log,
        }
    }

    /// Returns whether to wait for an object of this kind.
    pub(crate) fn waits_for(&self, kind: &str) -> bool {
        self.wait || kind == DEFINITION
    }
}

/// Deploys the sets in order and stops at the first failure. What is there already is brought up to date, so that a second call finishes what the first
/// one began.
pub async fn run(work: &Work<'_>, sets: &[Set]) -> Result<(), Error> {
    work.log.doing("looking at the cluster");
    preflight::before_deploy(work.client, sets).await?;
    let applier = Applier::new(work.client.clone());
    for set in sets {
        one(work, &applier, set).await?;
    }
    Ok(())
}

async fn one(work: &Work<'_>, applier: &Applier, set: &Set) -> Result<(), Error> {
    let log = work.log_of(set.component);
    let title = set.component.title();
    // what the original says; the API ends without an exclamation mark, the updater with one
    log.line(
        0,
        &format!("deploying topology-aware-scheduling {title}"),
        &[],
    );
    log.line(3, set.component.loaded(), &[]);
    // a node has room for one exporter: those of other pools go first
    let (workloads, rest): (Vec<&Value>, Vec<&Value>) =
        left_over(set).partition(|object| object["kind"] == "DaemonSet");
    prune(applier, &log, set.component, &workloads).await?;
    for object in &set.create {
        let Some(identity) = Identity::of(object) else {
            continue;
        };
        log.doing(format_args!("creating {} {}", identity.kind, identity.name));
        write(work, applier, &log, set.component, &identity, object).await?;
        if wait::has_ready_state(&identity.kind) && work.waits_for(&identity.kind) {
            let waited = work.waiter(&log).until_ready(&identity).await;
            waited.map_err(|source| Error::Wait {
                component: title,
                source,
            })?;
        }
    }
    prune(applier, &log, set.component, &rest).await?;
    let end = match set.component {
        Component::Updater(_) => "!",
        Component::Api | Component::Scheduler => "",
    };
    log.line(
        0,
        &format!("deployed topology-aware-scheduling {title}{end}"),
        &[],
    );
    Ok(())
}

async fn write(
    work: &Work<'_>,
    applier: &Applier,
    log: &Log,
    component: Component,
    identity: &Identity,
    object: &Value,
) -> Result<(), Error> {
    let failed = |source| Error::Apply {
        component: component.title(),
        source,
    };
    let pairs = [
        ("kind", identity.kind.as_str().into()),
        ("name", identity.name.as_str().into()),
    ];
    let existing = identity.api(work.client).get_opt(&identity.name).await;
    let existing = existing
        .map_err(|error| failed(apply::Error::Get(Box::new(identity.clone()), error.into())))?;
    let was_there = existing.is_some();
    if let Some(existing) = existing {
        if existing.metadata.deletion_timestamp.is_some() {
            // of a removal that did not wait
            let gone = work.waiter(log).until_gone(identity).await;
            gone.map_err(|source| Error::Wait {
                component: component.title(),
                source,
            })?;
        } else if let Some(reason) = foreign(&existing) {
            serves_what_is_needed(&existing, object)?;
            let note = [
                pairs[0].clone(),
                pairs[1].clone(),
                ("reason", reason.into()),
            ];
            log.line(0, "left as it is", &note);
            return Ok(());
        }
    }
    match again(|| applier.apply(object), apply::Error::is_unanswered).await {
        Ok(applied) => {
            match applied.outcome {
                Outcome::Created => log.line(0, "created", &pairs),
                Outcome::Updated => log.line(0, "updated", &pairs),
                // by an attempt whose answer was lost
                Outcome::Unchanged if !was_there => log.line(0, "created", &pairs),
                Outcome::Unchanged => log.line(2, "unchanged", &pairs),
            }
            Ok(())
        }
        Err(error) => {
            let text = daemon::log::chain(&error);
            let pairs = [pairs[0].clone(), pairs[1].clone(), ("error", text.into())];
            log.line(0, "error creating", &pairs);
            Err(failed(error))
        }
    }
}

/// Checks that a definition of somebody else serves the version that is stored by ours.
fn serves_what_is_needed(existing: &DynamicObject, object: &Value) -> Result<(), Error> {
    if object["kind"] != DEFINITION {
        return Ok(());
    }
    let versions = |definition: &Value, key: &str| -> BTreeSet<String> {
        let all = definition["spec"]["versions"].as_array();
        all.into_iter()
            .flatten()
            .filter(|version| version[key] == true)
            .filter_map(|version| version["name"].as_str().map(str::to_owned))
            .collect()
    };
    let served = versions(&existing.data, "served");
    let needed = versions(object, "storage");
    match needed.difference(&served).next() {
        None => Ok(()),
        Some(version) => Err(Error::OtherDefinition {
            name: existing.metadata.name.clone().unwrap_or_default(),
            version: version.clone(),
        }),
    }
}

/// Returns what only another configuration of the component has. Definitions and namespaces stay, because they hold what others have put there.
fn left_over(set: &Set) -> impl Iterator<Item = &Value> {
    let wanted: BTreeSet<String> = set.create.iter().map(identity_text).collect();
    set.delete.iter().filter(move |object| {
        let stays = matches!(object["kind"].as_str(), Some("Namespace" | DEFINITION));
        !stays && !wanted.contains(&identity_text(object))
    })
}

async fn prune(
    applier: &Applier,
    log: &Log,
    component: Component,
    objects: &[&Value],
) -> Result<(), Error> {
    for object in objects {
        let deleted = deleted(applier, object).await;
        let deleted = deleted.map_err(|source| Error::Apply {
            component: component.title(),
            source,
        })?;
        if deleted {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let pairs = [
                ("kind", text(&object["kind"]).into()),
                ("name", text(&object["metadata"]["name"]).into()),
            ];
            log.line(0, "deleted", &pairs);
        }
    }
    Ok(())
}

/// Deletes an object. Returns whether it was there.
pub(crate) async fn deleted(applier: &Applier, object: &Value) -> Result<bool, apply::Error> {
    let mut was_lost = false;
    let existed = again(
        || applier.delete(object),
        |error| {
            was_lost = error.is_unanswered();
            was_lost
        },
    );
    let existed = existed.await?;
    // an attempt whose answer was lost may have deleted it
    Ok(existed || was_lost)
}

fn identity_text(object: &Value) -> String {
    Identity::of(object).map_or_else(String::new, |identity| identity.to_string())
}
