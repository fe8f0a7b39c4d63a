//! Tests exit codes and output.

use std::path::Path;

use assert_cmd::Command;
use fs_err as fs;
use rstest::rstest;

/// Names a server at a port where none listens.
const UNREACHABLE: &str = "
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]
users: [{name: u, user: {}}]
";

fn operator() -> Command {
    let mut command = Command::cargo_bin("numaresources-operator").unwrap();
    command.env_clear();
    command
}

#[test]
fn unknown_flag_is_a_usage_error() {
    let output = operator().arg("-nonsense").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.starts_with(
            "flag provided but not defined: -nonsense\nUsage of numaresources-operator:\n"
        ),
        "{stderr}"
    );
}

#[test]
fn version_and_features_are_one_line_each_and_need_no_cluster() {
    for (flag, start) in [
        ("--version", "numaresources-operator 0."),
        ("-inspect-features", "{\"active\":[\"config\""),
    ] {
        let output = operator().arg(flag).output().unwrap();
        assert!(output.status.success());
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert!(
            stdout.starts_with(start) && stdout.lines().count() == 1,
            "{stdout}"
        );
    }
}

#[test]
fn lifecycle_events_are_told_and_forgotten() {
    for event in ["postStart", "preStop"] {
        let output = operator()
            .args(["-handle-lifecycle-event", event])
            .output()
            .unwrap();
        assert!(output.status.success());
        assert!(
            String::from_utf8(output.stderr)
                .unwrap()
                .contains("\"handled\"")
        );
    }
}

#[test]
fn the_log_is_text_and_json_by_switch() {
    for (flag, expected) in [
        ("-v=0", "] \"handled\" event=\"preStop\""),
        ("-logging-format=json", "\"msg\":\"handled\""),
    ] {
        let output = operator()
            .args([flag, "-handle-lifecycle-event", "preStop"])
            .output()
            .unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains(expected), "{stderr}");
    }
}

#[test]
fn rendering_without_a_cluster_is_for_kubernetes_and_needs_a_scheduler_image() {
    let output = operator()
        .args([
            "-render",
            "-render-image-scheduler=i@sha256:0",
            "-render-namespace=here",
        ])
        .output()
        .unwrap();
    assert!(output.status.success());
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(stdout.starts_with("---\n") && stdout.contains("namespace: here"));
    let output = operator().arg("-render").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("missing scheduler image")
    );
}

#[rstest]
#[case::unreadable("/nowhere/kubeconfig", "cannot read kubeconfig /nowhere/kubeconfig")]
#[case::unreachable("", "name the platform with -platform to render without the cluster")]
fn rendering_asks_the_cluster_of_a_kubeconfig_unless_the_platform_is_named(
    #[case] kubeconfig: &str,
    #[case] message: &str,
) {
    let directory = tempfile::tempdir().unwrap();
    let unreachable = directory.path().join("kubeconfig");
    fs::write(&unreachable, UNREACHABLE).unwrap();
    let kubeconfig = match kubeconfig {
        "" => unreachable.as_path(),
        given => Path::new(given),
    };
    let render = |more: &[&str]| {
        operator()
            .args(["-render", "-enable-scheduler=false", "-kubeconfig"])
            .arg(kubeconfig)
            .args(more)
            .output()
            .unwrap()
    };
    let output = render(&[]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains(message), "{stderr}");
    let output = render(&["-platform=OpenShift"]);
    assert!(output.status.success());
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(
        stdout.contains("kind: SecurityContextConstraints"),
        "{stdout}"
    );
}

#[test]
fn a_flag_without_effect_is_named_in_a_warning() {
    let output = operator()
        .args([
            "-handle-lifecycle-event=preStop",
            "-webhook-port=1",
            "-logtostderr",
        ])
        .output()
        .unwrap();
    assert!(output.status.success());
    let stderr = String::from_utf8(output.stderr).unwrap();
    let warnings: Vec<&str> = stderr
        .lines()
        .filter(|line| line.contains("has no effect"))
        .collect();
    assert_eq!(warnings.len(), 1, "{stderr}");
    assert!(warnings[0].contains("-webhook-port"), "{stderr}");
}

#[test]
fn without_a_cluster_it_says_so() {
    let output = operator()
        .args(["-kubeconfig", "/nowhere/kubeconfig"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("cannot read kubeconfig /nowhere/kubeconfig")
    );
}
