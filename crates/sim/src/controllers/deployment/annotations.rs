//! Annotations that connect a deployment and its ReplicaSets.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::sets::replicas;
use super::{desired, limits};

/// Number of a template in the order of rollouts.
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MAX: &str = "deployment.kubernetes.io/max-replicas";
/// Annotations of a deployment that are not copied to its ReplicaSets.
const OWN: &[&str] = &[
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    HISTORY,
    DESIRED,
    MAX,
    "deprecated.deployment.rollback.to",
];
/// Longest revision history, in bytes.
const LONGEST_HISTORY: usize = 2000;

/// Returns the value of an annotation.
pub(super) fn of(meta: &ObjectMeta, name: &str) -> Option<String> {
    meta.annotations.as_ref()?.get(name).cloned()
}

/// Returns the revision of a ReplicaSet; 0 if it has none.
pub(super) fn revision(meta: &ObjectMeta) -> i64 {
    of(meta, REVISION)
        .and_then(|revision| revision.parse().ok())
        .unwrap_or(0)
}

/// Copies the deployment's annotations and the revision to a ReplicaSet; returns whether something changed.
pub(super) fn copy_to(deployment: &Deployment, meta: &mut ObjectMeta, new: i64) -> bool {
    let mut changed = false;
    let annotations = meta.annotations.get_or_insert_default();
    for (name, value) in deployment.metadata.annotations.iter().flatten() {
        if !OWN.contains(&name.as_str()) && annotations.get(name) != Some(value) {
            annotations.insert(name.clone(), value.clone());
            changed = true;
        }
    }
    let old = annotations.get(REVISION).cloned();
    let number = match old.as_deref() {
        None | Some("") => 0,
        Some(text) => match text.parse::<i64>() {
            Ok(number) => number,
            Err(_) => return false,
        },
    };
    if number >= new {
        return changed;
    }
    annotations.insert(REVISION.to_owned(), new.to_string());
    if let Some(old) = old {
        let history = annotations.entry(HISTORY.to_owned()).or_default();
        let mut entries: Vec<&str> = history.split(',').filter(|item| !item.is_empty()).collect();
        entries.push(&old);
        while entries.len() > 1 && entries.join(",").len() > LONGEST_HISTORY {
            entries.remove(0);
        }
        *history = entries.join(",");
    }
    true
}

/// Records the desired and the largest allowed size of the deployment on a ReplicaSet; returns whether something changed.
pub(super) fn record_size(deployment: &Deployment, meta: &mut ObjectMeta) -> bool {
    let annotations = meta.annotations.get_or_insert_default();
    let total = desired(deployment);
    let mut changed = false;
    for (name, value) in [(DESIRED, total), (MAX, total + limits(deployment).0)] {
        let value = value.to_string();
        if annotations.get(name) != Some(&value) {
            annotations.insert(name.to_owned(), value);
            changed = true;
        }
    }
    changed
}

/// Returns the largest allowed size that [`record_size`] recorded.
pub(super) fn recorded_max(meta: &ObjectMeta) -> Option<i32> {
    of(meta, MAX)?.parse().ok().filter(|max| *max > 0)
}

/// Returns whether the deployment was scaled after its active ReplicaSets were.
pub(super) fn scaled(deployment: &Deployment, sets: &[Arc<ReplicaSet>]) -> bool {
    sets.iter().filter(|set| replicas(set) > 0).any(|set| {
        of(&set.metadata, DESIRED)
            .and_then(|text| text.parse::<i32>().ok())
            .is_some_and(|recorded| recorded != desired(deployment))
    })
}

/// Sets the revision of the deployment; returns whether it changed.
pub(super) fn set_revision(deployment: &mut Deployment, revision: &str) -> bool {
    let annotations = deployment.metadata.annotations.get_or_insert_default();
    if annotations.get(REVISION).map(String::as_str) == Some(revision) {
        return false;
    }
    annotations.insert(REVISION.to_owned(), revision.to_owned());
    true
}
