use rstest::rstest;
use serde_json::json;

use super::*;

fn broken(level: &str, spec: &Value) -> String {
    let namespace = json!({"metadata": {"labels": {
        "pod-security.kubernetes.io/enforce": level.split(':').next(),
        "pod-security.kubernetes.io/enforce-version": level.split(':').next_back()}}});
    let labels = Labels::read(&namespace);
    assert!(labels.causes.is_empty(), "{:?}", labels.causes);
    let pod = json!({"metadata": {"annotations": {
        "seccomp.security.alpha.kubernetes.io/pod": "unconfined"}}, "spec": spec});
    details(&violations(labels.enforce, PodParts::of(&pod)))
}

fn safe() -> Value {
    json!({"securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "a", "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]})
}

#[rstest]
#[case::nothing_is_required("privileged:latest", json!({"hostPID": true}), "")]
#[case::a_plain_pod("baseline:latest", json!({"containers": [{"name": "a"}]}), "")]
#[case::a_safe_pod("restricted:latest", safe(), "")]
#[case::annotations_counted_once("baseline:v1.18", json!({"containers": [{"name": "a"}]}),
    "seccompProfile (forbidden annotation seccomp.security.alpha.kubernetes.io/pod=\"unconfined\")")]
#[case::a_parameter_before_its_time("baseline:v1.28", json!({"securityContext": {"sysctls": [{"name": "net.ipv4.tcp_keepalive_time"}]}}),
    "forbidden sysctls (net.ipv4.tcp_keepalive_time)")]
#[case::a_parameter_after_it("baseline:v1.29", json!({"securityContext": {"sysctls": [{"name": "net.ipv4.tcp_keepalive_time"}]}}), "")]
#[case::windows_since("restricted:v1.25", json!({"os": {"name": "windows"}, "securityContext": {"runAsNonRoot": true}, "containers": [{"name": "a"}]}), "")]
#[case::own_users_since("restricted:latest", json!({"hostUsers": false, "securityContext": {"runAsUser": 0, "seccompProfile": {"type": "Localhost"}},
    "containers": [{"name": "a", "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]}), "")]
fn a_rule_holds_from_its_version_on(
    #[case] level: &str,
    #[case] spec: Value,
    #[case] expected: &str,
) {
    assert_eq!(broken(level, &spec), expected);
}

#[rstest]
#[case("v1.0", Ok(Some(0)))]
#[case("v1.35", Ok(Some(35)))]
#[case("latest", Ok(None))]
#[case("v1.035", Err(NotAVersion))]
#[case("v2.1", Err(NotAVersion))]
#[case("1.3", Err(NotAVersion))]
#[case("v1.", Err(NotAVersion))]
fn a_version_has_one_form(#[case] text: &str, #[case] expected: Result<Option<u32>, NotAVersion>) {
    assert_eq!(version(text), expected);
}
