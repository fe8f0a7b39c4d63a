//! Pods: waiting until they run, and what can be said of one.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::ListParams;

use crate::context::Context;
use crate::recorder::PollResult;
use crate::step::StepError;

impl Context {
    /// Waits until these pods run; a pod that failed ends the wait.
    pub async fn pods_running(&self, names: &[String]) -> Result<Vec<Pod>, StepError> {
        self.pods_running_within(names, self.deadlines().running)
            .await
    }

    /// Like [`Context::pods_running`], with a limit that is part of what is tested.
    pub async fn pods_running_within(
        &self,
        names: &[String],
        limit: Duration,
    ) -> Result<Vec<Pod>, StepError> {
        let pods = self.api::<Pod>();
        let what = match names {
            [name] => format!("pod {name} runs"),
            names => format!("{} pods run", names.len()),
        };
        self.until(&what, limit, async || {
            let mut there: BTreeMap<String, Pod> = pods
                .list(&ListParams::default())
                .await?
                .items
                .into_iter()
                .map(|pod| (pod.name_any(), pod))
                .collect();
            let mut found = Vec::new();
            let mut missing = Vec::new();
            for name in names {
                match there.remove(name) {
                    None => missing.push(format!("{name} is missing")),
                    Some(pod) if phase(&pod) == "Failed" => return Err(failed_pod(&pod)),
                    Some(pod) if phase(&pod) == "Running" => found.push(pod),
                    Some(pod) => missing.push(describe(&pod)),
                }
            }
            Ok(if missing.is_empty() {
                PollResult::Ready(found)
            } else {
                let more = if missing.len() > 3 {
                    format!(", and {} more", missing.len() - 3)
                } else {
                    String::new()
                };
                PollResult::NotYet(format!(
                    "{}{more}",
                    missing[..missing.len().min(3)].join(", ")
                ))
            })
        })
        .await
    }

    /// Returns the pod as it is now.
    pub async fn pod(&self, name: &str) -> Result<Pod, StepError> {
        Ok(self.api::<Pod>().get(name).await?)
    }

    /// Returns the pods with these labels that are not being deleted.
    pub async fn pods_with(
        &self,
        labels: &BTreeMap<String, String>,
    ) -> Result<Vec<Pod>, StepError> {
        let selector: Vec<_> = labels
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let params = ListParams::default().labels(&selector.join(","));
        let pods = self.api::<Pod>().list(&params).await?.items;
        Ok(pods
            .into_iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none())
            .collect())
    }

    /// Waits until a workload has `count` pods, in any phase.
    pub async fn pods_created(
        &self,
        labels: &BTreeMap<String, String>,
        count: usize,
    ) -> Result<Vec<Pod>, StepError> {
        self.until(
            &format!("{count} pods are created"),
            self.deadlines().running,
            async || {
                let pods = self.pods_with(labels).await?;
                Ok(if pods.len() == count {
                    PollResult::Ready(pods)
                } else {
                    PollResult::NotYet(format!("{} pods are there", pods.len()))
                })
            },
        )
        .await
    }

    /// Checks that the pod is on this node.
    pub fn on_node(&self, pod: &Pod, node: &str) -> Result<(), StepError> {
        let seen = node_of(pod).unwrap_or("no node");
        if seen == node {
            self.recorder.saw(format!("{} on {seen}", pod.name_any()));
            return Ok(());
        }
        Err(StepError::mismatch(
            format!("pod {} is on the wrong node", pod.name_any()),
            node,
            seen,
        ))
    }
}

/// Returns the phase of a pod.
pub fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or("Unknown")
}

/// Returns the node of a pod.
pub fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref())
}

/// Returns whether a pod is ready.
pub fn is_ready(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Describes a pod's state in a few words, with the reason if it has one.
pub fn describe(pod: &Pod) -> String {
    let status = pod.status.clone().unwrap_or_default();
    let waiting = status
        .container_statuses
        .iter()
        .flatten()
        .find_map(|container| {
            let waiting = container.state.as_ref()?.waiting.as_ref()?;
            Some(format!(
                "{} {}",
                waiting.reason.as_deref()?,
                waiting.message.as_deref().unwrap_or_default()
            ))
        });
    let unscheduled = status.conditions.iter().flatten().find_map(|condition| {
        (condition.type_ == "PodScheduled" && condition.status == "False")
            .then(|| condition.message.clone())
            .flatten()
    });
    let reason = status
        .reason
        .map(|reason| format!("{reason} {}", status.message.unwrap_or_default()));
    let node = node_of(pod).map_or(String::new(), |node| format!(" on {node}"));
    let detail = reason
        .or(waiting)
        .or(unscheduled)
        .map_or(String::new(), |text| format!(" ({})", text.trim()));
    format!("{} is {}{node}{detail}", pod.name_any(), phase(pod))
}

/// Returns the error that a pod failed which has to run.
pub(super) fn failed_pod(pod: &Pod) -> StepError {
    StepError::mismatch(
        format!("pod {} failed", pod.name_any()),
        "Running",
        describe(pod),
    )
}
