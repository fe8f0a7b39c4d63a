use k8s_openapi::api::core::v1::ContainerStateTerminated;
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
        resizing: Vec::new(),
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
        serde_json::from_value(json!({"conditions": [{"type": "b", "status": "False"}]})).unwrap();
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
        resizing: Vec::new(),
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
