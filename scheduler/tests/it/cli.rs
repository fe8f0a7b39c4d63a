//! Exit codes and messages without an API server.

use std::process::Output;

use assert_cmd::Command;
use rstest::rstest;

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::cargo_bin("numaresources-scheduler").unwrap();
    command.args(arguments).env_clear().output().unwrap()
}

/// Runs with a configuration file of this content.
fn run_with(config: &str, arguments: &[&str]) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.yaml");
    std::fs::write(&path, config).unwrap();
    let config = format!("--config={}", path.display());
    run(&[&[config.as_str()], arguments].concat())
}

const HEADER: &str =
    "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";

#[test]
fn version_commit_and_branch_go_to_stdout() {
    let output = run(&["-version"]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("numaresources-scheduler 0."), "{text}");
    assert!(text.ends_with(" (devel) rust\n"), "{text}");
}

#[test]
fn an_unknown_flag_is_a_usage_error() {
    let output = run(&["--no-such-flag"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--no-such-flag"));
    assert!(output.stdout.is_empty());
}

#[test]
fn help_goes_to_stdout() {
    let output = run(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stdout).contains("--write-config-to"));
    assert!(output.stderr.is_empty());
}

#[test]
fn a_flag_without_effect_is_named_once_in_the_log() {
    let output = run(&["--config=/nowhere/config.yaml", "--feature-gates=A=true"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr.matches("--feature-gates").count(), 1, "{stderr}");
}

#[test]
fn the_configuration_in_effect_is_written_out_and_reads_as_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("effective.yaml");
    let target = format!("--write-config-to={}", path.display());
    let config = format!("{HEADER}profiles: [{{schedulerName: one}}]\n");
    let output = run_with(&config, &["--leader-elect=false", &target]);
    assert_eq!(output.status.code(), Some(0));
    let written = scheduler_config::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let given = scheduler_config::parse(&config).unwrap();
    assert!(!written.leader_election.enabled, "the flag decides");
    assert_eq!(written.profiles, given.profiles);
}

#[test]
fn a_field_without_effect_is_named_once_in_the_log() {
    let config = format!("{HEADER}parallelism: 7\n");
    let output = run_with(&config, &["--secure-port=0"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let line = "\"The field has no effect\" field=\"parallelism\" value=\"7\"";
    assert_eq!(stderr.matches(line).count(), 1, "{stderr}");
}

#[test]
fn the_log_is_text_and_json_by_switch() {
    let output = run(&["--config=/nowhere/config.yaml"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.starts_with('E') && text.contains("] \"Stopped\" err=\"cannot read"),
        "{text}"
    );
    let output = run(&["--config=/nowhere/config.yaml", "--logging-format=json"]);
    let line: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(line["msg"], "Stopped", "{line}");
}

#[rstest]
#[case::missing_file(None, "cannot read /nowhere/config.yaml")]
#[case::unknown_field(Some("colour: red\n"), "colour")]
#[case::unknown_plugin(
    Some("profiles: [{plugins: {filter: {enabled: [{name: Nonsense}]}}}]\n"),
    "does not exist"
)]
#[case::no_cluster(
    Some(""),
    "no kubeconfig was given and the process does not run in a pod"
)]
fn what_cannot_work_is_said_at_once(#[case] config: Option<&str>, #[case] message: &str) {
    let output = match config {
        None => run(&["--config=/nowhere/config.yaml"]),
        Some(config) => run_with(&format!("{HEADER}{config}"), &["--secure-port=0"]),
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains(message), "{stderr}");
}

#[test]
fn unusable_tls_settings_are_refused() {
    let output = run_with(HEADER, &["--secure-port=1", "--tls-min-version=1.2"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("unknown tls version"), "{stderr}");
}
