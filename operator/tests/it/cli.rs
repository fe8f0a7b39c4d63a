//! Tests exit codes and output.

use assert_cmd::Command;

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
fn rendering_needs_no_cluster_but_a_scheduler_image() {
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

#[test]
fn under_the_exporters_name_it_is_the_exporter() {
    let directory = tempfile::tempdir().unwrap();
    let link = directory.path().join("resource-topology-exporter");
    std::os::unix::fs::symlink(
        assert_cmd::cargo::cargo_bin("numaresources-operator"),
        &link,
    )
    .unwrap();
    let output = Command::new(link).arg("--version").output().unwrap();
    assert!(output.status.success());
    assert!(
        String::from_utf8(output.stdout)
            .unwrap()
            .starts_with("resource-topology-exporter ")
    );
}
