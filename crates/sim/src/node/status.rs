//! The status of a pod as a kubelet reports it: phase, conditions and container statuses, computed from facts alone (kubelet-node.md 12).

use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus, ContainerUser, HostIP, LinuxContainerUser, Pod,
    PodCondition, PodIP, PodSpec, PodStatus, ResourceRequirements, VolumeMountStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

/// Conditions that the kubelet owns, in its order.
pub(crate) const CONDITIONS: [&str; 5] = [
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
];

/// The state of a container.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Run {
    /// Not running, with the reason.
    Waiting {
        reason: String,
        message: Option<String>,
    },
    /// Running since this time.
    Running { since: Timestamp },
    /// Ended, and not yet waiting for its next start.
    Exited(ContainerStateTerminated),
}

/// The role of a container in its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Runs to its end before the others start.
    Init,
    /// Starts before the others and keeps running beside them.
    Sidecar,
    /// A main container of the pod.
    App,
    /// Added to a running pod to inspect it; nothing of the pod depends on it.
    Ephemeral,
}

/// A container and its state.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) container: Container,
    pub(crate) role: Role,
    pub(crate) run: Run,
    pub(crate) last: Option<ContainerStateTerminated>,
    pub(crate) restarts: i32,
    pub(crate) ready: bool,
    pub(crate) started: bool,
    /// Id in the runtime, once the container exists.
    pub(crate) id: Option<String>,
    /// Id of the image that it was made from.
    pub(crate) image_id: Option<String>,
}

impl Facts {
    /// Returns the facts of a container that was never started.
    pub(crate) fn new(container: &Container, role: Role, has_init: bool) -> Self {
        let reason = if has_init {
            "PodInitializing"
        } else {
            "ContainerCreating"
        };
        Self {
            container: container.clone(),
            role,
            run: Run::Waiting {
                reason: reason.to_owned(),
                message: None,
            },
            last: None,
            restarts: 0,
            ready: false,
            started: false,
            id: None,
            image_id: None,
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(self.run, Run::Running { .. })
    }

    /// Returns the exit code of an ended container.
    pub(crate) fn exit_code(&self) -> Option<i32> {
        match &self.run {
            Run::Exited(end) => Some(end.exit_code),
            _ => None,
        }
    }

    /// Returns whether its status shows it as ready.
    fn is_ready(&self) -> bool {
        match self.role {
            Role::Init => self.exit_code() == Some(0),
            Role::Sidecar | Role::App => self.is_running() && self.ready,
            Role::Ephemeral => false,
        }
    }

    fn is_done(&self) -> bool {
        match self.role {
            Role::Init => self.exit_code() == Some(0),
            Role::Sidecar => self.is_running() && self.started,
            Role::App | Role::Ephemeral => true,
        }
    }
}

/// Returns whether a container is started again after it ended with this exit code.
pub(crate) fn restarts(spec: &PodSpec, role: Role, code: i32) -> bool {
    match (role, spec.restart_policy.as_deref().unwrap_or("Always")) {
        (Role::Sidecar, _) => true,
        (Role::Ephemeral, _) | (_, "Never") => false,
        (_, "OnFailure") | (Role::Init, _) => code != 0,
        (Role::App, _) => true,
    }
}

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
        let list: Vec<ContainerStatus> = list.map(|facts| container(facts, view.pod)).collect();
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
        conditions: Some(conditions(view, &spec, &old, conditions_phase, now)),
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
    let foreign: Vec<PodCondition> = foreign(&old).cloned().collect();
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

fn foreign(status: &PodStatus) -> impl Iterator<Item = &PodCondition> {
    let all = status.conditions.iter().flatten();
    all.filter(|condition| !CONDITIONS.contains(&condition.type_.as_str()))
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

fn conditions(
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
    let mut list: Vec<PodCondition> = foreign(old).cloned().collect();
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

fn container(facts: &Facts, pod: &Pod) -> ContainerStatus {
    let spec = &facts.container;
    let exists = facts.id.is_some();
    let resources = spec.resources.clone().unwrap_or_default();
    let requests = resources.requests.clone().filter(|list| !list.is_empty());
    let state = match &facts.run {
        Run::Waiting { reason, message } => ContainerState {
            waiting: Some(ContainerStateWaiting {
                reason: Some(reason.clone()),
                message: message.clone(),
            }),
            ..ContainerState::default()
        },
        Run::Running { since } => ContainerState {
            running: Some(ContainerStateRunning {
                started_at: Some(Time(*since)),
            }),
            ..ContainerState::default()
        },
        Run::Exited(end) => ContainerState {
            terminated: Some(end.clone()),
            ..ContainerState::default()
        },
    };
    let last_state = ContainerState {
        terminated: facts.last.clone(),
        ..ContainerState::default()
    };
    ContainerStatus {
        name: spec.name.clone(),
        state: Some(state),
        last_state: Some(last_state),
        ready: facts.is_ready(),
        started: (facts.role != Role::Ephemeral).then(|| facts.is_running() && facts.started),
        restart_count: facts.restarts,
        image: spec.image.clone().unwrap_or_default(),
        image_id: facts.image_id.clone().unwrap_or_default(),
        container_id: facts.id.clone(),
        allocated_resources: requests.clone().filter(|_| exists),
        resources: exists.then(|| ResourceRequirements {
            limits: resources.limits.clone().filter(|list| !list.is_empty()),
            requests,
            claims: None,
        }),
        user: exists.then(|| user(spec, pod)),
        volume_mounts: mounts(spec),
        ..ContainerStatus::default()
    }
}

fn user(container: &Container, pod: &Pod) -> ContainerUser {
    let own = container.security_context.as_ref();
    let shared = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.security_context.as_ref());
    let uid = own
        .and_then(|own| own.run_as_user)
        .or_else(|| shared.and_then(|shared| shared.run_as_user));
    let gid = own
        .and_then(|own| own.run_as_group)
        .or_else(|| shared.and_then(|shared| shared.run_as_group));
    ContainerUser {
        linux: Some(LinuxContainerUser {
            uid: uid.unwrap_or_default(),
            gid: gid.unwrap_or_default(),
            supplemental_groups: shared.and_then(|shared| shared.supplemental_groups.clone()),
        }),
    }
}

fn mounts(container: &Container) -> Option<Vec<VolumeMountStatus>> {
    let mounts = container.volume_mounts.as_ref()?;
    let list = mounts
        .iter()
        .map(|mount| {
            let read_only = mount.read_only.filter(|read_only| *read_only);
            VolumeMountStatus {
                name: mount.name.clone(),
                mount_path: mount.mount_path.clone(),
                read_only,
                recursive_read_only: read_only.map(|_| "Disabled".to_owned()),
            }
        })
        .collect();
    Some(list)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn mk_pod(spec: &Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "generation": 1},
            "spec": spec,
        }))
        .unwrap()
    }

    fn mk_facts(pod: &Pod) -> Vec<Facts> {
        let spec = pod.spec.clone().unwrap();
        let init = spec.init_containers.unwrap_or_default();
        let has_init = !init.is_empty();
        let mut facts: Vec<Facts> = init
            .iter()
            .map(|container| {
                let role = match container.restart_policy {
                    Some(_) => Role::Sidecar,
                    None => Role::Init,
                };
                Facts::new(container, role, has_init)
            })
            .collect();
        let app = |container| Facts::new(container, Role::App, has_init);
        facts.extend(spec.containers.iter().map(app));
        facts
    }

    fn mk_status(pod: &Pod, containers: &[Facts], is_over: bool, initialized: bool) -> PodStatus {
        let view = View {
            pod,
            containers,
            has_sandbox: !is_over,
            address: Some(Ipv4Addr::new(127, 1, 1, 2)),
            node: Ipv4Addr::new(127, 1, 1, 1),
            since: Timestamp::UNIX_EPOCH,
            verdict: None,
            is_over,
            was_initialized: initialized,
            qos: "BestEffort",
        };
        of(&view, Timestamp::UNIX_EPOCH)
    }

    fn exited(code: i32) -> Run {
        Run::Exited(ContainerStateTerminated {
            exit_code: code,
            ..ContainerStateTerminated::default()
        })
    }

    fn running(facts: &mut Facts) {
        facts.run = Run::Running {
            since: Timestamp::UNIX_EPOCH,
        };
        facts.ready = true;
        facts.started = true;
        facts.id = Some("x://1".to_owned());
    }

    fn condition(status: &PodStatus, name: &str) -> (String, Option<String>, Option<String>) {
        let all = status.conditions.as_ref().unwrap();
        let one = all.iter().find(|one| one.type_ == name).unwrap();
        (one.status.clone(), one.reason.clone(), one.message.clone())
    }

    #[test]
    fn new_pod_waits_for_its_containers() {
        let pod = mk_pod(&json!({"containers": [{"name": "b"}, {"name": "a"}]}));
        let status = mk_status(&pod, &mk_facts(&pod), false, false);
        assert_eq!(status.phase.as_deref(), Some("Pending"));
        let names: Vec<_> = status.container_statuses.iter().flatten().collect();
        assert_eq!(names[0].name, "a");
        let waiting = names[0].state.clone().unwrap().waiting.unwrap();
        assert_eq!(waiting.reason.as_deref(), Some("ContainerCreating"));
        let (status, reason, message) = condition(&status, "Ready");
        assert_eq!(
            (status.as_str(), reason.as_deref(), message.as_deref()),
            (
                "False",
                Some("ContainersNotReady"),
                Some("containers with unready status: [b a]")
            )
        );
    }

    #[rstest]
    #[case::never_and_well("Never", 0, "Succeeded", "PodCompleted")]
    #[case::never_and_badly("Never", 3, "Failed", "PodFailed")]
    #[case::on_failure("OnFailure", 3, "Running", "ContainersNotReady")]
    #[case::always("Always", 0, "Running", "ContainersNotReady")]
    fn end_of_the_last_container_ends_a_pod_that_does_not_restart_it(
        #[case] policy: &str,
        #[case] code: i32,
        #[case] phase: &str,
        #[case] reason: &str,
    ) {
        let pod = mk_pod(&json!({"restartPolicy": policy, "containers": [{"name": "c"}]}));
        let mut facts = mk_facts(&pod);
        facts[0].run = exited(code);
        let over = phase != "Running";
        let status = mk_status(&pod, &facts, over, true);
        assert_eq!(status.phase.as_deref(), Some(phase));
        assert_eq!(condition(&status, "Ready").1.as_deref(), Some(reason));
    }

    #[test]
    fn failed_init_container_fails_the_pod_and_says_which() {
        let spec = json!({"restartPolicy": "Never", "initContainers": [{"name": "i"}], "containers": [{"name": "c"}]});
        let pod = mk_pod(&spec);
        let mut facts = mk_facts(&pod);
        facts[0].run = exited(2);
        let status = mk_status(&pod, &facts, true, false);
        assert_eq!(status.phase.as_deref(), Some("Failed"));
        assert_eq!(
            condition(&status, "Initialized").2.as_deref(),
            Some("containers with incomplete status: [i]")
        );
        assert_eq!(condition(&status, "Ready").1.as_deref(), Some("PodFailed"));
    }

    #[test]
    fn closed_gate_keeps_a_pod_unready_whose_containers_are_ready() {
        let mut pod = mk_pod(&json!({
            "containers": [{"name": "c"}],
            "readinessGates": [{"conditionType": "a"}, {"conditionType": "b"}],
        }));
        pod.status =
            serde_json::from_value(json!({"conditions": [{"type": "b", "status": "False"}]}))
                .unwrap();
        let mut facts = mk_facts(&pod);
        running(&mut facts[0]);
        let status = mk_status(&pod, &facts, false, true);
        assert_eq!(condition(&status, "ContainersReady").0, "True");
        assert_eq!(
            condition(&status, "Ready").2.as_deref(),
            Some(
                "corresponding condition of pod readiness gate \"a\" does not exist., the status of pod readiness gate \"b\" is not \"True\", but False"
            )
        );
        let first = &status.conditions.as_ref().unwrap()[0];
        assert_eq!(first.type_, "b", "conditions of others come first");
    }

    #[test]
    fn time_of_a_condition_stays_while_it_does_not_change() {
        let mut pod = mk_pod(&json!({"containers": [{"name": "c"}]}));
        let before = mk_status(&pod, &mk_facts(&pod), false, false);
        pod.status = Some(before);
        let mut facts = mk_facts(&pod);
        running(&mut facts[0]);
        let view = View {
            pod: &pod,
            containers: &facts,
            has_sandbox: true,
            address: None,
            node: Ipv4Addr::LOCALHOST,
            since: Timestamp::UNIX_EPOCH,
            verdict: None,
            is_over: false,
            was_initialized: true,
            qos: "BestEffort",
        };
        let later: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let status = of(&view, later);
        let time = |name: &str| {
            let all = status.conditions.as_ref().unwrap();
            let one = all.iter().find(|one| one.type_ == name).unwrap();
            one.last_transition_time.clone().unwrap().0
        };
        assert_eq!(time("Ready"), later);
        assert_eq!(time("PodScheduled"), Timestamp::UNIX_EPOCH);
    }

    #[test]
    fn refused_pod_has_no_conditions_of_the_kubelet() {
        let mut pod = mk_pod(&json!({"containers": [{"name": "c"}]}));
        pod.status = serde_json::from_value(
            json!({"conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "x", "status": "True"}]}),
        )
        .unwrap();
        let status = refused(&pod, "R", "m", "Guaranteed", Timestamp::UNIX_EPOCH);
        let names: Vec<_> = status
            .conditions
            .iter()
            .flatten()
            .map(|one| one.type_.as_str())
            .collect();
        assert_eq!(names, ["x"]);
        assert_eq!(status.phase.as_deref(), Some("Failed"));
        assert!(status.container_statuses.is_none());
    }
}
