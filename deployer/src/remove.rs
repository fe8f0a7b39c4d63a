//! Removes components. A failure does not stop it, and a second call finishes what the first one began (deployer.md 3).

use apply::{Applier, Identity};
use serde_json::Value;

use crate::deploy::{Work, deleted};
use crate::log::Log;
use crate::objects::{Component, DEFINITION, Set};
use crate::preflight::{self, foreign, operator_resource};

/// What a removal has left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Number of objects that could not be deleted.
    pub failed: usize,
    /// Number of objects that are somebody else's.
    pub kept: usize,
}

/// Removes the sets in order.
pub async fn run(work: &Work<'_>, sets: &[Set]) -> Result<Left, preflight::Error> {
    work.log.doing("looking at the cluster");
    preflight::before_remove(work.client, sets).await?;
    let applier = Applier::new(work.client.clone());
    let mut left = Left::default();
    for set in sets {
        one(work, &applier, set, &mut left).await?;
    }
    Ok(left)
}

async fn one(
    work: &Work<'_>,
    applier: &Applier,
    set: &Set,
    left: &mut Left,
) -> Result<(), preflight::Error> {
    let log = work.log_of(set.component);
    let title = set.component.title();
    log.line(
        0,
        &format!("removing topology-aware-scheduling {title}"),
        &[],
    );
    log.line(3, set.component.loaded(), &[]);
    let operator = match set.component {
        Component::Api => operator_resource(work.client, set.component).await?,
        Component::Updater(_) | Component::Scheduler => None,
    };
    for object in &set.delete {
        let Some(identity) = Identity::of(object) else {
            continue;
        };
        log.doing(format_args!("deleting {} {}", identity.kind, identity.name));
        match delete(work, applier, &log, &identity, object, operator.as_deref()).await {
            Done::Deleted => {}
            Done::Kept => left.kept += 1,
            Done::Failed => left.failed += 1,
        }
    }
    let end = match set.component {
        Component::Api | Component::Updater(_) => "!",
        Component::Scheduler => "",
    };
    log.line(
        0,
        &format!("removed topology-aware-scheduling {title}{end}"),
        &[],
    );
    Ok(())
}

enum Done {
    Deleted,
    Kept,
    Failed,
}

async fn delete(
    work: &Work<'_>,
    applier: &Applier,
    log: &Log,
    identity: &Identity,
    object: &Value,
    operator: Option<&str>,
) -> Done {
    let pair = |key, text: String| {
        [
            ("kind", identity.kind.as_str().into()),
            ("name", identity.name.as_str().into()),
            (key, text.into()),
        ]
    };
    let existing = identity.api(work.client).get_opt(&identity.name).await;
    let existing = match existing {
        Ok(None) => {
            log.line(3, "not there", &pair("key", String::new())[..2]);
            return Done::Deleted;
        }
        Ok(Some(existing)) => existing,
        Err(error) => {
            let text = daemon::log::chain(&apply::Cause::from(error));
            log.line(0, "error deleting", &pair("error", text));
            return Done::Failed;
        }
    };
    let in_use = operator.filter(|_| identity.kind == DEFINITION);
    let in_use = in_use.map(|resource| format!("the operator needs it ({resource})"));
    if let Some(reason) = foreign(&existing).or(in_use) {
        log.line(0, "kept", &pair("reason", reason));
        return Done::Kept;
    }
    if let Err(error) = deleted(applier, object).await {
        log.line(
            0,
            "error deleting",
            &pair("error", daemon::log::chain(&error)),
        );
        return Done::Failed;
    }
    log.line(0, "deleted", &pair("key", String::new())[..2]);
    let takes_time = matches!(
        identity.kind.as_str(),
        "DaemonSet" | "Namespace" | DEFINITION
    );
    if takes_time
        && work.waits_for(&identity.kind)
        && let Err(error) = work.waiter(log).until_gone(identity).await
    {
        let pairs = [("error", daemon::log::chain(&error).into())];
        log.line(0, "failed to wait for removal", &pairs);
        return Done::Failed;
    }
    Done::Deleted
}
