//! Writes conditions of the exporter's own pod (rte.md 8.1). The pod's manifest lists them as readiness gates, so the pod is Ready only
//! when scans and writes succeed.

use api::conditions;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use serde_json::Value;

use super::call::{self, MAX_CONFLICTS, bounded};

/// The result of the last cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    /// The kubelet answered.
    pub(crate) fetched: bool,
    /// Whether the object is up to date; `None` if no write was attempted.
    pub(crate) updated: Option<bool>,
}

/// The status of the pod could not be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A call to the API server failed.
    #[error("failed to update pod status with conditions")]
    Call(#[source] call::Error),
    /// Every attempt conflicted with another write.
    #[error("failed to update pod status with conditions: too many conflicts")]
    Conflicts,
}

/// Writes the conditions of one pod if they differ from the last written ones.
pub(crate) struct Reporter {
    /// Uses untyped objects: code for every field of a pod would take more memory than the rest of the exporter.
    pods: Api<DynamicObject>,
    pod: String,
    written: Vec<PodCondition>,
}

impl Reporter {
    /// Creates a reporter for the pod of that name.
    pub(crate) fn new(client: Client, namespace: &str, pod: &str) -> Self {
        Self {
            pods: Api::namespaced_with(client, namespace, &ApiResource::erase::<Pod>(&())),
            pod: pod.to_owned(),
            written: Vec::new(),
        }
    }

    /// Writes the conditions that changed, with `now` as their transition time.
    pub(crate) async fn report(&mut self, report: Report, now: Timestamp) -> Result<(), Error> {
        let changed: Vec<PodCondition> = conditions(report, now)
            .into_iter()
            .filter(|condition| !self.written.iter().any(|written| same(written, condition)))
            .collect();
        if changed.is_empty() {
            return Ok(());
        }
        for _ in 0..MAX_CONFLICTS {
            let found = bounded(self.pods.get(&self.pod)).await;
            let mut pod = found.map_err(Error::Call)?;
            set(&mut pod, &changed);
            let parameters = PostParams::default();
            match bounded(self.pods.replace_status(&self.pod, &parameters, &pod)).await {
                Ok(_pod) => {
                    merge(&mut self.written, &changed);
                    return Ok(());
                }
                Err(error) if error.code() == Some(409) => {}
                Err(error) => return Err(Error::Call(error)),
            }
        }
        Err(Error::Conflicts)
    }
}

fn conditions(report: Report, now: Timestamp) -> Vec<PodCondition> {
    let fetched = condition(
        conditions::POD_RESOURCES_FETCHED,
        report.fetched,
        conditions::REASON_SCAN_FAILED,
        "failed to scan pod resources",
        now,
    );
    let updated = report.updated.map(|updated| {
        condition(
            conditions::NODE_TOPOLOGY_UPDATED,
            updated,
            conditions::REASON_UPDATE_FAILED,
            "failed to update noderesourcetopology object",
            now,
        )
    });
    [fetched].into_iter().chain(updated).collect()
}

fn condition(kind: &str, holds: bool, reason: &str, message: &str, now: Timestamp) -> PodCondition {
    PodCondition {
        type_: kind.to_owned(),
        status: if holds { "True" } else { "False" }.to_owned(),
        reason: (!holds).then(|| reason.to_owned()),
        message: (!holds).then(|| message.to_owned()),
        last_transition_time: Some(Time(now)),
        ..PodCondition::default()
    }
}

fn same(a: &PodCondition, b: &PodCondition) -> bool {
    (&a.type_, &a.status, &a.reason, &a.message) == (&b.type_, &b.status, &b.reason, &b.message)
}

/// Replaces the conditions of these types in a pod.
fn set(pod: &mut DynamicObject, changed: &[PodCondition]) {
    let mut status = match pod.data["status"].take() {
        Value::Object(status) => status,
        _ => serde_json::Map::new(),
    };
    let mut conditions = match status.remove("conditions") {
        Some(Value::Array(conditions)) => conditions,
        _ => Vec::new(),
    };
    conditions.retain(|condition| !changed.iter().any(|new| condition["type"] == new.type_));
    conditions.extend(
        changed
            .iter()
            .filter_map(|new| serde_json::to_value(new).ok()),
    );
    status.insert("conditions".to_owned(), Value::Array(conditions));
    pod.data["status"] = Value::Object(status);
}

/// Replaces the conditions of these types in a list.
fn merge(present: &mut Vec<PodCondition>, changed: &[PodCondition]) {
    present.retain(|condition| !changed.iter().any(|new| new.type_ == condition.type_));
    present.extend_from_slice(changed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_have_reason_and_message_and_successes_do_not() {
        let now = Timestamp::UNIX_EPOCH;
        let report = |fetched, updated| {
            conditions(Report { fetched, updated }, now)
                .into_iter()
                .map(|c| format!("{}={} {:?} {:?}", c.type_, c.status, c.reason, c.message))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            report(true, Some(true)),
            [
                "PodresourcesFetched=True None None",
                "NodeTopologyUpdated=True None None"
            ]
        );
        assert_eq!(
            report(false, None),
            [
                r#"PodresourcesFetched=False Some("ScanFailed") Some("failed to scan pod resources")"#
            ]
        );
        assert_eq!(
            report(true, Some(false))[1],
            r#"NodeTopologyUpdated=False Some("UpdateFailed") Some("failed to update noderesourcetopology object")"#
        );
    }

    #[test]
    fn conditions_of_others_stay() {
        let now = Timestamp::UNIX_EPOCH;
        let mut present = vec![
            condition("Ready", true, "", "", now),
            condition("PodresourcesFetched", false, "", "", now),
        ];
        merge(
            &mut present,
            &[condition("PodresourcesFetched", true, "", "", now)],
        );
        let shown: Vec<_> = present
            .iter()
            .map(|c| (c.type_.as_str(), c.status.as_str()))
            .collect();
        assert_eq!(shown, [("Ready", "True"), ("PodresourcesFetched", "True")]);
    }
}
