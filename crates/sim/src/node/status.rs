//! The status of a pod as a kubelet reports it: phase, conditions and container statuses, computed from facts alone (kubelet-node.md 12).

pub(crate) mod conditions;
mod container;
pub(crate) mod facts;
#[cfg(test)]
mod tests;

use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::{
    ContainerStatus, HostIP, Pod, PodCondition, PodIP, PodSpec, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use self::facts::{Facts, Role, Run, restarts};

/// A pod with everything that its status depends on.
pub(crate) struct View<'a> {
    /// The object, with the status in the API server.
    pub(crate) pod: &'a Pod,
    /// The containers, init containers first.
    pub(crate) containers: &'a [Facts],
    /// Whether the network is set up and not yet torn down.
    pub(crate) has_sandbox: bool,
    /// The address, once the pod had one.
    pub(crate) address: Option<Ipv4Addr>,
    /// The address of the node.
    pub(crate) node: Ipv4Addr,
    /// When the kubelet first saw the pod.
    pub(crate) since: Timestamp,
    /// Reason and message if the kubelet ended the pod.
    pub(crate) verdict: Option<(String, String)>,
    /// Whether nothing of the pod runs and nothing will run.
    pub(crate) is_over: bool,
    /// Whether all init containers once had completed.
    pub(crate) was_initialized: bool,
    /// Quality-of-service class.
    pub(crate) qos: &'static str,
    /// Conditions of a change of its resources.
    pub(crate) resizing: Vec<PodCondition>,
}

/// Computes the status of an admitted pod.
pub(crate) fn of(view: &View<'_>, now: Timestamp) -> PodStatus {
    let spec = view.pod.spec.clone().unwrap_or_default();
    let old = view.pod.status.clone().unwrap_or_default();
    let computed = if view.verdict.is_some() && view.is_over {
        "Failed"
    } else {
        phase(&spec, view)
    };
    let is_terminal = matches!(computed, "Succeeded" | "Failed");
    let phase = match old.phase.as_deref() {
        Some(phase @ ("Succeeded" | "Failed")) => phase,
        _ if is_terminal && !view.is_over => "Running",
        _ => computed,
    };
    let conditions_phase = if is_terminal { computed } else { phase };
    let (reason, message) = match &view.verdict {
        Some((reason, message)) => (Some(reason.clone()), Some(message.clone())),
        None => (None, None),
    };
    let statuses = |roles: &[Role]| {
        let meant = |facts: &&Facts| roles.contains(&facts.role);
        let list = view.containers.iter().filter(meant);
        let list: Vec<ContainerStatus> = list
            .map(|facts| container::status(facts, view.pod))
            .collect();
        (!list.is_empty()).then_some(list)
    };
    let by_name = |mut list: Vec<ContainerStatus>| {
        list.sort_by(|one, other| one.name.cmp(&other.name));
        list
    };
    PodStatus {
        phase: Some(phase.to_owned()),
        reason,
        message,
        conditions: Some(conditions::of(view, &spec, &old, conditions_phase, now)),
        host_ip: Some(view.node.to_string()),
        host_ips: Some(vec![HostIP {
            ip: view.node.to_string(),
        }]),
        pod_ip: view.address.map(|address| address.to_string()),
        pod_ips: view.address.map(|address| {
            vec![PodIP {
                ip: address.to_string(),
            }]
        }),
        start_time: Some(old.start_time.unwrap_or(Time(view.since))),
        qos_class: Some(old.qos_class.unwrap_or_else(|| view.qos.to_owned())),
        observed_generation: view.pod.metadata.generation,
        init_container_statuses: statuses(&[Role::Init, Role::Sidecar]),
        container_statuses: statuses(&[Role::App]).map(by_name),
        ephemeral_container_statuses: statuses(&[Role::Ephemeral]).map(by_name),
        ..PodStatus::default()
    }
}

/// Computes the status of a refused pod; conditions of others stay.
pub(crate) fn refused(
    pod: &Pod,
    reason: &str,
    message: &str,
    qos: &str,
    now: Timestamp,
) -> PodStatus {
    let old = pod.status.clone().unwrap_or_default();
    let foreign: Vec<PodCondition> = conditions::foreign(&old).cloned().collect();
    PodStatus {
        phase: Some("Failed".to_owned()),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        qos_class: Some(old.qos_class.unwrap_or_else(|| qos.to_owned())),
        start_time: Some(Time(now)),
        observed_generation: pod.metadata.generation,
        conditions: (!foreign.is_empty()).then_some(foreign),
        ..PodStatus::default()
    }
}

fn phase(spec: &PodSpec, view: &View<'_>) -> &'static str {
    let mut pending = false;
    for facts in view.containers {
        match facts.role {
            Role::Init => match facts.exit_code() {
                Some(0) => {}
                Some(code) if !restarts(spec, facts.role, code) => return "Failed",
                _ if view.was_initialized => {}
                _ => pending = true,
            },
            Role::Sidecar => {
                let stays_out = !facts.is_running() || !facts.started;
                pending |= stays_out && !view.was_initialized;
            }
            Role::App | Role::Ephemeral => {}
        }
    }
    let apps = || {
        view.containers
            .iter()
            .filter(|facts| facts.role == Role::App)
    };
    let never_ran =
        |facts: &Facts| matches!(facts.run, Run::Waiting { .. }) && facts.last.is_none();
    if pending && !view.is_over {
        return "Pending";
    }
    if apps().any(never_ran) {
        return if view.is_over { "Failed" } else { "Pending" };
    }
    if apps().any(Facts::is_running) {
        return "Running";
    }
    let ends: Vec<i32> = apps()
        .filter_map(|facts| match &facts.run {
            Run::Exited(end) => Some(end.exit_code),
            Run::Waiting { .. } => facts.last.as_ref().map(|end| end.exit_code),
            Run::Running { .. } => None,
        })
        .collect();
    let again = |code: &i32| restarts(spec, Role::App, *code);
    if !view.is_over && ends.iter().any(again) {
        return "Running";
    }
    if ends.iter().all(|code| *code == 0) {
        "Succeeded"
    } else {
        "Failed"
    }
}
