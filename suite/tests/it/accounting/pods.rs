//! The pods of a set: waiting until each is in its final state, and what they are.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::ListParams;
use suite::context::Context;
use suite::recorder::PollResult;
use suite::step::StepError;

/// Waits until every pod is in a state in which it stays. Returns the numbers of pods by outcome.
pub(super) async fn all_final(context: &Context) -> Result<BTreeMap<String, u32>, StepError> {
    let api = context.api::<Pod>();
    context
        .until(
            "every pod is in its final state",
            context.deadlines().running,
            async || {
                let mut outcomes = BTreeMap::new();
                for pod in api.list(&ListParams::default()).await?.items {
                    match outcome(&pod) {
                        Some(outcome) => *outcomes.entry(outcome).or_default() += 1,
                        None => return Ok(PollResult::NotYet(describe(&pod))),
                    }
                }
                Ok(PollResult::Ready(outcomes))
            },
        )
        .await
}

/// Waits until all pods of the scenario are gone.
pub(super) async fn all_gone(context: &Context) -> Result<(), StepError> {
    let api = context.api::<Pod>();
    context
        .until("all pods are gone", context.deadlines().gone, async || {
            let left = api.list(&ListParams::default()).await?.items;
            Ok(match left.first() {
                None => PollResult::Ready(()),
                Some(pod) => PollResult::NotYet(describe(pod)),
            })
        })
        .await
}

/// Returns the outcome of a pod, if it has one: a running pod runs until it is deleted.
fn outcome(pod: &Pod) -> Option<String> {
    let (spec, status) = (pod.spec.as_ref()?, pod.status.as_ref()?);
    match status.phase.as_deref()? {
        "Succeeded" => Some("completed".to_owned()),
        "Failed" => Some(format!(
            "refused ({})",
            status.reason.as_deref().unwrap_or("no reason")
        )),
        "Running" => {
            let statuses = status.container_statuses.as_deref().unwrap_or_default();
            let running = statuses.iter().all(|one| {
                one.state
                    .as_ref()
                    .is_some_and(|state| state.running.is_some())
            });
            let ends = spec.restart_policy.as_deref() == Some("Never");
            (running && !ends && statuses.len() == spec.containers.len())
                .then(|| "running".to_owned())
        }
        "Pending" => status
            .conditions
            .iter()
            .flatten()
            .any(|condition| {
                condition.type_ == "PodScheduled"
                    && condition.reason.as_deref() == Some("Unschedulable")
            })
            .then(|| "unschedulable".to_owned()),
        _ => None,
    }
}

/// Describes a pod in one line.
fn describe(pod: &Pod) -> String {
    let status = pod.status.as_ref();
    format!(
        "{} on {} is {} {}",
        pod.name_any(),
        pod.spec
            .as_ref()
            .and_then(|spec| spec.node_name.as_deref())
            .unwrap_or("no node"),
        status
            .and_then(|status| status.phase.as_deref())
            .unwrap_or("without a phase"),
        status
            .and_then(|status| status.reason.as_deref())
            .unwrap_or_default(),
    )
}

/// Describes a pod and its requests.
pub(super) fn describe_fully(pod: &Pod) -> String {
    let mut text = format!("{} {}", pod.uid().unwrap_or_default(), describe(pod));
    let spec = pod.spec.clone().unwrap_or_default();
    for container in spec
        .init_containers
        .iter()
        .flatten()
        .chain(&spec.containers)
    {
        let resources = serde_json::to_string(&container.resources).unwrap_or_default();
        // writing to a string cannot fail
        let _ = write!(text, "; {} {resources}", container.name);
    }
    text
}
