use rstest::rstest;
use serde_json::json;

use super::*;

/// Planted: none of it may be left.
const PLANTED: &str = "hunter2-planted";

fn redactor() -> Redactor {
    Redactor::new().expect("valid patterns")
}

#[rstest]
#[case::flag("--token=hunter2-planted --v=2", "--token=REDACTED --v=2")]
#[case::yaml("db_password: hunter2-planted", "db_password: REDACTED")]
#[case::quoted(
    "password: \"hunter2-planted with blanks\" x",
    "password: \"REDACTED\" x"
)]
#[case::json(
    r#"{"apiKey":"hunter2-planted","a":1}"#,
    r#"{"apiKey":"REDACTED","a":1}"#
)]
#[case::json_in_json(
    r#"{\"clientSecret\":\"hunter2-planted\",\"a\":1}"#,
    r#"{\"clientSecret\":\"REDACTED\",\"a\":1}"#
)]
#[case::header(
    "Authorization: Bearer hunter2-planted",
    "Authorization: Bearer REDACTED"
)]
#[case::url("https://me:hunter2-planted@host/x", "https://REDACTED@host/x")]
#[case::kubeconfig("client-key-data: hunter2-planted", "client-key-data: REDACTED")]
#[case::variable(
    "AWS_SECRET_ACCESS_KEY=hunter2-planted",
    "AWS_SECRET_ACCESS_KEY=REDACTED"
)]
#[case::web_token(
    "t eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJl.c2lnbmF0dXJl x",
    "t REDACTED x"
)]
#[case::key(
    "a -----BEGIN RSA PRIVATE KEY-----\nhunter2-planted\n-----END RSA PRIVATE KEY----- b",
    "a REDACTED b"
)]
#[case::cut_key("a -----BEGIN PRIVATE KEY-----\nhunter2-planted\n", "a REDACTED")]
#[case::openshift("login sha256~hunter2-planted-hunter2", "login REDACTED")]
fn secrets_in_text_are_replaced(#[case] text: &str, #[case] expected: &str) {
    assert_eq!(redactor().text(text), expected);
}

#[rstest]
#[case::name_of_a_secret("secretName: rte-metrics-service-cert")]
#[case::file("TOKEN_FILE=/var/run/secrets/token-file")]
#[case::digest("sha256:09871dc8c6ab263c9026ae9979c20fa0607bc5d16531a609567209b0f654d348")]
#[case::fingerprint("nodeTopologyPodsFingerprint=pfp0v001ef46db3751d8e999")]
#[case::log(r#"I1124 15:04:05.000000       1 file.rs:12] "bound" pod="n/p" node="worker-0""#)]
#[case::certificate("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----")]
fn what_is_no_secret_stays(#[case] text: &str) {
    assert_eq!(redactor().text(text), text);
}

#[test]
fn objects_lose_secrets_wherever_they_are() {
    let env = json!([{"name": "DB_PASSWORD", "value": PLANTED}]);
    let applied = json!({"spec": {"containers": [{"env": env}]}});
    let object = json!({
        "kind": "Pod",
        "metadata": {
            "managedFields": [{"manager": PLANTED}],
            "annotations": {LAST_APPLIED: applied.to_string(), "vendor.io/token": PLANTED, "note": "kept"},
        },
        "spec": {
            "containers": [{
                "args": ["--v=2", format!("--client-secret={PLANTED}"), "--token", PLANTED, "kept"],
                "env": [
                    {"name": "API_TOKEN", "value": PLANTED},
                    {"name": "NODE_NAME", "value": "worker-0"},
                    {"name": "FROM", "valueFrom": {"secretKeyRef": {"name": "s", "key": "password"}}},
                ],
            }],
            "volumes": [{"secret": {"secretName": "s"}}],
        },
        "data": {
            "config.yaml": format!("users:\n- name: a\n  password: |\n    {PLANTED}\n  # a comment\n"),
            "plain.yaml": "kubelet:\n  # a comment\n  topologyManagerPolicy: restricted\n",
        },
        "binaryData": {"x": "aHVudGVyMg=="},
    });
    let redacted = redactor().object(object);
    let text = redacted.to_string();
    assert!(!text.contains(PLANTED), "{text}");
    assert!(!text.contains("aHVudGVyMg"), "{text}");
    let spec = &redacted["spec"];
    let container = &spec["containers"][0];
    assert_eq!(container["args"][4], "kept");
    assert_eq!(container["env"][1]["value"], "worker-0");
    let reference = &container["env"][2]["valueFrom"]["secretKeyRef"];
    assert_eq!(reference["key"], "password");
    assert_eq!(spec["volumes"][0]["secret"]["secretName"], "s");
    assert_eq!(redacted["metadata"]["annotations"]["note"], "kept");
    assert_eq!(
        redacted["data"]["plain.yaml"],
        "kubelet:\n  # a comment\n  topologyManagerPolicy: restricted\n"
    );
}

#[test]
fn an_applied_object_that_cannot_be_parsed_is_left_out() {
    let object = json!({"annotations": {LAST_APPLIED: format!("{{ {PLANTED}")}});
    let redacted = redactor().object(object);
    assert_eq!(redacted["annotations"][LAST_APPLIED], REDACTED);
}
