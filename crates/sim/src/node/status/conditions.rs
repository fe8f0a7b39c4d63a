//! The conditions of a pod that its kubelet sets.

use k8s_openapi::api::core::v1::{PodCondition, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::View;
use super::facts::Role;

/// Conditions that every pod has, in the kubelet's order.
const CONDITIONS: [&str; 5] = [
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
];

/// Conditions of a pod whose resources change.
const OF_RESIZE: [&str; 2] = ["PodResizePending", "PodResizeInProgress"];

/// Returns whether a condition belongs to the kubelet.
pub(crate) fn is_own(name: &str) -> bool {
    CONDITIONS.contains(&name) || OF_RESIZE.contains(&name)
}

/// What a condition says.
struct ConditionValue {
    status: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

impl ConditionValue {
    fn yes(reason: Option<&'static str>) -> Self {
        Self {
            status: true,
            reason,
            message: None,
        }
    }

    fn no(reason: &'static str, message: Option<String>) -> Self {
        Self {
            status: false,
            reason: Some(reason),
            message,
        }
    }
}

/// Computes the conditions of an admitted pod; those of others come first, unchanged.
pub(super) fn of(
    view: &View<'_>,
    spec: &PodSpec,
    old: &PodStatus,
    phase: &str,
    now: Timestamp,
) -> Vec<PodCondition> {
    let ready = containers_ready(view, phase);
    let sandbox = ConditionValue {
        status: view.has_sandbox,
        reason: None,
        message: None,
    };
    let values = [
        sandbox,
        initialized(view, phase),
        all_ready(&ready, spec, old),
        ready,
        ConditionValue::yes(None),
    ];
    let foreign = foreign(old).cloned();
    let mut list: Vec<PodCondition> = foreign.chain(view.resizing.iter().cloned()).collect();
    for (name, value) in CONDITIONS.into_iter().zip(values) {
        let status = if value.status { "True" } else { "False" };
        let before = old
            .conditions
            .iter()
            .flatten()
            .find(|condition| condition.type_ == name && condition.status == status);
        let since = before.and_then(|condition| condition.last_transition_time.clone());
        list.push(PodCondition {
            type_: name.to_owned(),
            status: status.to_owned(),
            reason: value.reason.map(str::to_owned),
            message: value.message,
            last_transition_time: Some(since.unwrap_or(Time(now))),
            observed_generation: view.pod.metadata.generation,
            last_probe_time: None,
        });
    }
    list
}

fn initialized(view: &View<'_>, phase: &str) -> ConditionValue {
    let unfinished: Vec<&str> = view
        .containers
        .iter()
        .filter(|facts| !facts.is_done())
        .filter(|facts| !(view.was_initialized && facts.role == Role::Sidecar))
        .map(|facts| facts.container.name.as_str())
        .collect();
    match phase {
        "Succeeded" => ConditionValue::yes(Some("PodCompleted")),
        _ if unfinished.is_empty() => ConditionValue::yes(None),
        _ => ConditionValue::no(
            "ContainersNotInitialized",
            Some(format!(
                "containers with incomplete status: [{}]",
                unfinished.join(" ")
            )),
        ),
    }
}

fn containers_ready(view: &View<'_>, phase: &str) -> ConditionValue {
    match phase {
        "Succeeded" => return ConditionValue::no("PodCompleted", None),
        "Failed" => return ConditionValue::no("PodFailed", None),
        _ => {}
    }
    let unready: Vec<&str> = view
        .containers
        .iter()
        .filter(|facts| matches!(facts.role, Role::Sidecar | Role::App) && !facts.is_ready())
        .map(|facts| facts.container.name.as_str())
        .collect();
    if unready.is_empty() {
        ConditionValue::yes(None)
    } else {
        ConditionValue::no(
            "ContainersNotReady",
            Some(format!(
                "containers with unready status: [{}]",
                unready.join(" ")
            )),
        )
    }
}

/// Computes the condition `Ready` from the containers and the readiness gates that others set.
fn all_ready(containers: &ConditionValue, spec: &PodSpec, old: &PodStatus) -> ConditionValue {
    if !containers.status {
        return ConditionValue {
            status: false,
            reason: containers.reason,
            message: containers.message.clone(),
        };
    }
    let closed: Vec<String> = spec
        .readiness_gates
        .iter()
        .flatten()
        .filter_map(|gate| {
            let name = &gate.condition_type;
            let condition = old
                .conditions
                .iter()
                .flatten()
                .find(|condition| condition.type_ == *name);
            match condition {
                None => Some(format!(
                    "corresponding condition of pod readiness gate {name:?} does not exist."
                )),
                Some(condition) if condition.status != "True" => Some(format!(
                    "the status of pod readiness gate {name:?} is not \"True\", but {}",
                    condition.status
                )),
                Some(_) => None,
            }
        })
        .collect();
    if closed.is_empty() {
        ConditionValue::yes(None)
    } else {
        ConditionValue::no("ReadinessGatesNotReady", Some(closed.join(", ")))
    }
}

/// Returns the conditions that the kubelet does not own.
pub(super) fn foreign(status: &PodStatus) -> impl Iterator<Item = &PodCondition> {
    let all = status.conditions.iter().flatten();
    all.filter(|condition| !is_own(&condition.type_))
}
