//! The command line: an error is reported in one message, with the documented exit code, and nothing is started or changed.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use assert_cmd::Command;
use rstest::rstest;
use serde::Deserialize as _;
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::eventually;

/// Longer than a program needs to start.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Returns the program in an empty directory, without a kubeconfig and with its own state directory.
fn tests(dir: &TempDir) -> Command {
    let mut command = Command::cargo_bin("numaresources-tests").expect("the program is built");
    command
        .current_dir(dir.path())
        .env_remove("KUBECONFIG")
        .env_remove("KUBERNETES_SERVICE_HOST")
        .env("XDG_STATE_HOME", dir.path().join("state"));
    command
}

fn dir() -> TempDir {
    tempfile::tempdir().expect("temporary directory")
}

fn is_empty(dir: &TempDir) -> bool {
    std::fs::read_dir(dir.path())
        .expect("directory is readable")
        .next()
        .is_none()
}

#[rstest]
#[case::unknown_label(&["--label", "teir0"], "unknown label \"teir0\"; did you mean tier0?")]
#[case::unknown_id(&["tmpol/pend-cpu"], "no scenario has the id \"tmpol/pend-cpu\"; did you mean tmpol/pend-cpu-cnt")]
#[case::broken_expression(&["--label", "tier0 &&"], "a label expected at column 9")]
#[case::broken_pattern(&["--focus", "("], "--focus \"(\" is no regular expression")]
#[case::nothing_selected(&["--focus", "no such thing"], "no scenario matches the selection")]
#[case::no_seed(&["--shuffle=x"], "a seed is a whole number")]
#[case::unknown_option(&["--no-such-option"], "--no-such-option")]
#[case::negative_tier(&["--tier-up-to=-1"], "invalid value")]
#[case::wrong_machine(&["--cluster", "local", "--machine", "no-such-profile"], "no-such-profile")]
#[case::kubeconfig_without_a_file(&["--cluster", "kubeconfig"], "needs KUBECONFIG")]
#[case::clusters_of_a_kubeconfig(&["--cluster", "kubeconfig", "--kubeconfig", "none", "--clusters", "2"], "it needs --cluster embedded or local")]
#[case::no_clusters(&["--clusters", "0"], "0 is not in 1..=16")]
#[case::no_list_of_skips(&["--strict-skips=none"], "cannot read the list of expected skips none")]
#[case::name_of_a_cluster_that_is_not_kept(&["--cluster", "embedded", "--name", "x"], "it needs --cluster kept")]
fn senseless_command_lines_are_usage_errors(#[case] arguments: &[&str], #[case] message: &str) {
    let dir = dir();
    let output = tests(&dir).args(arguments).assert().code(127);
    let text = String::from_utf8_lossy(&output.get_output().stderr).into_owned();
    assert!(text.contains(message), "{message:?} is not in {text}");
    assert!(is_empty(&dir));
}

#[test]
fn a_report_that_cannot_be_opened_is_a_usage_error() {
    let dir = dir();
    let output = tests(&dir)
        .args(["byres/cpu-decides", "--report-file", "/dev/null/report.xml"])
        .assert()
        .code(127);
    let text = String::from_utf8_lossy(&output.get_output().stderr).into_owned();
    assert!(
        text.contains("cannot open the JUnit report /dev/null/report.xml: "),
        "{text}"
    );
    assert!(is_empty(&dir));
}

#[test]
fn a_full_disk_is_told_before_anything_starts() {
    let dir = dir();
    let output = tests(&dir)
        .args(["byres/cpu-decides", "--report-file", "/dev/full"])
        .assert()
        .code(1);
    let text = String::from_utf8_lossy(&output.get_output().stderr).into_owned();
    assert!(
        text.contains("cannot write the JUnit report /dev/full: "),
        "{text}"
    );
    assert!(text.contains("nothing was started"), "{text}");
}

#[test]
fn a_log_that_cannot_be_written_any_more_fails_the_run() {
    let dir = dir();
    // files may have 8 blocks: enough for the beginning of the log
    let script = format!(
        "trap '' XFSZ; ulimit -f 8; exec {} byres/cpu-decides",
        env!("CARGO_BIN_EXE_numaresources-tests")
    );
    let output = Command::new("sh")
        .args(["-c", &script])
        .current_dir(dir.path())
        .env("KUBECONFIG", dir.path().join("none"))
        .assert()
        .code(1);
    let text = String::from_utf8_lossy(&output.get_output().stderr).into_owned();
    assert!(
        text.contains("the reports are not complete: cannot write the event log "),
        "{text}"
    );
}

#[test]
fn an_empty_kubeconfig_variable_counts_as_unset() {
    let dir = dir();
    let output = tests(&dir)
        .env("KUBECONFIG", "")
        .args(["--dry-run", "byres/cpu-decides"])
        .assert()
        .success();
    let text = String::from_utf8_lossy(&output.get_output().stdout).into_owned();
    assert!(text.starts_with("Cluster: one of our own"), "{text}");
}

#[test]
fn a_pod_uses_its_service_account_if_no_file_is_named() {
    let dir = dir();
    let mut command = tests(&dir);
    command
        .env("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        .env("KUBERNETES_SERVICE_PORT", "1");
    let output = command
        .args(["--cluster", "kubeconfig", "byres/cpu-decides"])
        .assert()
        .code(1);
    let text = String::from_utf8_lossy(&output.get_output().stdout).into_owned();
    assert!(
        text.contains("the service account of this pod cannot be used: "),
        "{text}"
    );
}

#[test]
fn an_unreadable_kubeconfig_fails_the_set_up() {
    let dir = dir();
    let output = tests(&dir)
        .env("KUBECONFIG", dir.path().join("none"))
        .args(["--label", "tier0"])
        .assert()
        .code(1);
    let text = String::from_utf8_lossy(&output.get_output().stdout).into_owned();
    assert!(text.contains("cannot be used"), "{text}");
    let report = std::fs::read_to_string(dir.path().join("artifacts/nrop/e2e-serial-run.xml"))
        .expect("report is there");
    assert!(report.contains("setup-failed"), "{report}");
}

#[test]
fn an_unreachable_cluster_fails_the_set_up() {
    let dir = dir();
    let kubeconfig = dir.path().join("kubeconfig");
    let text = "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n\
                users: [{name: a, user: {token: t}}]\nclusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}]\n";
    std::fs::write(&kubeconfig, text).expect("kubeconfig is written");
    let output = tests(&dir)
        .env("KUBECONFIG", kubeconfig)
        .args(["--label", "tier0"])
        .assert()
        .code(1);
    let text = String::from_utf8_lossy(&output.get_output().stdout).into_owned();
    assert!(text.contains("the API server refused"), "{text}");
}

#[test]
fn the_list_shows_what_is_selected() {
    let dir = dir();
    let output = tests(&dir)
        .args(["--list", "--label", "tier0 && byres"])
        .assert()
        .success();
    let text = String::from_utf8_lossy(&output.get_output().stdout).into_owned();
    let ids: Vec<_> = text
        .lines()
        .filter_map(|line| line.split('\t').next())
        .collect();
    assert_eq!(ids, ["byres/memory-decides", "byres/cpu-decides"]);
    assert!(is_empty(&dir));
}

#[test]
fn a_dry_run_tells_and_does_nothing() {
    let dir = dir();
    let output = tests(&dir)
        .args(["--dry-run", "--label", "byres"])
        .assert()
        .success();
    let text = String::from_utf8_lossy(&output.get_output().stdout).into_owned();
    assert!(text.starts_with("Cluster: one of our own (embedded), brought up for the run\nReport: artifacts/nrop/e2e-serial-run.xml\n"), "{text}");
    assert!(text.contains("  byres/cpu-decides\n"), "{text}");
    assert!(is_empty(&dir));
}

#[test]
fn a_shuffled_run_has_the_same_scenarios_in_the_order_of_its_seed() {
    let dir = dir();
    let order = |shuffle: &[&str]| {
        let output = tests(&dir)
            .args(["--dry-run", "--label", "tier0"])
            .args(shuffle)
            .assert()
            .success();
        let text = String::from_utf8_lossy(&output.get_output().stdout).into_owned();
        let (_, scenarios) = text.split_once("Scenarios:\n").expect("scenarios");
        scenarios.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let (seven, eight) = (order(&["--shuffle=7"]), order(&["--shuffle=8"]));
    assert_eq!(seven, order(&["--shuffle=7"]));
    assert_ne!(seven, eight);
    let sorted = |mut order: Vec<String>| {
        order.sort();
        order
    };
    assert_eq!(sorted(seven), sorted(order(&[])));
    // any seed will do
    assert_eq!(sorted(eight), sorted(order(&["--shuffle"])));
}

#[test]
fn a_recorded_run_is_shown_again_with_its_exit_code() {
    let dir = dir();
    let kubeconfig = dir.path().join("none");
    let first = tests(&dir)
        .env("KUBECONFIG", kubeconfig)
        .args(["byres/cpu-decides"])
        .assert()
        .code(1);
    let again = tests(&dir)
        .args([
            "report",
            "artifacts/nrop/events.jsonl",
            "--report-file",
            "again.xml",
        ])
        .assert()
        .code(1);
    assert_eq!(first.get_output().stdout, again.get_output().stdout);
    let read = |path: &str| std::fs::read(dir.path().join(path)).expect("report is there");
    assert_eq!(read("again.xml"), read("artifacts/nrop/e2e-serial-run.xml"));
}

#[test]
fn a_file_that_is_no_event_log_is_refused() {
    let dir = dir();
    std::fs::write(dir.path().join("x"), "no\njson\n").expect("file is written");
    let output = tests(&dir).args(["report", "x"]).assert().code(1);
    let text = String::from_utf8_lossy(&output.get_output().stderr).into_owned();
    assert!(
        text.contains("x is no event log: none of its lines is a record"),
        "{text}"
    );
}

#[test]
fn a_damaged_log_is_shown_as_far_as_it_goes() {
    let dir = dir();
    tests(&dir)
        .env("KUBECONFIG", dir.path().join("none"))
        .args(["byres/cpu-decides"])
        .assert()
        .code(1);
    let log = std::fs::read_to_string(dir.path().join("artifacts/nrop/events.jsonl"))
        .expect("the log is there");
    let last = log.trim_end().rfind('\n').expect("several lines") + 1;
    let [begun, end] = [&log[..last], &log[last..]];
    for (name, text, code, said) in [
        (
            "damaged",
            format!("{begun}\0garbage\n{end}"),
            1,
            "1 lines of damaged are no records",
        ),
        ("killed", begun.to_owned(), 130, "the log is unfinished"),
    ] {
        std::fs::write(dir.path().join(name), text).expect("file is written");
        let output = tests(&dir).args(["report", name]).assert().code(code);
        let text = String::from_utf8_lossy(&output.get_output().stderr).into_owned();
        assert!(text.contains(said), "{said:?} is not in {text}");
    }
}

#[test]
fn cleanup_says_where_it_looked_for_runs() {
    let dir = dir();
    let output = tests(&dir).args(["cleanup"]).assert().code(1);
    let text = String::from_utf8_lossy(&output.get_output().stderr).into_owned();
    assert!(text.contains("there are no runs below artifacts"), "{text}");
    tests(&dir)
        .env("KUBECONFIG", dir.path().join("none"))
        .args(["byres/cpu-decides"])
        .assert()
        .code(1);
    let output = tests(&dir).args(["cleanup"]).assert().success();
    let text = String::from_utf8_lossy(&output.get_output().stdout).into_owned();
    assert!(
        text.contains("no run below artifacts left anything"),
        "{text}"
    );
    let output = tests(&dir)
        .args(["cleanup", "--run", "none"])
        .assert()
        .code(1);
    let text = String::from_utf8_lossy(&output.get_output().stderr).into_owned();
    assert!(text.contains("there is no event log of run none"), "{text}");
}

#[test]
fn scenarios_are_spread_over_clusters_and_reported_one_after_another() {
    let dir = dir();
    let output = tests(&dir)
        .args(["--cluster", "embedded", "--clusters", "2"])
        .args(["byres/cpu-decides", "byres/memory-decides"])
        .assert()
        .success();
    let text = String::from_utf8_lossy(&output.get_output().stdout).into_owned();
    let heads: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("setup") || line.contains("] byres/"))
        .collect();
    assert_eq!(
        heads,
        [
            "setup",
            "setup 2",
            "[1/2] byres/memory-decides",
            "[2/2] byres/cpu-decides"
        ]
    );
    assert!(text.contains("2 scenarios: 2 passed"), "{text}");
}

#[test]
fn other_skips_than_the_list_has_fail_a_run_in_which_all_that_ran_passed() {
    let dir = dir();
    let list = "[{reason: it has no reason, scenarios: [byres/cpu-decides]}]";
    std::fs::write(dir.path().join("list.yaml"), list).expect("list is written");
    let output = tests(&dir)
        .args(["--strict-skips=list.yaml", "--report-file", "report.xml"])
        .args(["byres/cpu-decides", "tls/rte-flags"])
        .assert()
        .code(1);
    let text = String::from_utf8_lossy(&output.get_output().stdout).into_owned();
    for expected in [
        "2 scenarios are not as list.yaml has it for this cluster (embedded, Kubernetes)",
        "byres/cpu-decides passed; the list has it skipped: it has no reason",
        "tls/rte-flags was skipped and is not listed: wanted OpenShift",
        "2 scenarios: 1 passed, 0 failed, 1 skipped",
    ] {
        assert!(text.contains(expected), "{expected:?} is not in {text}");
    }
    let report = std::fs::read_to_string(dir.path().join("report.xml")).expect("report is there");
    assert!(report.contains("\"run/skips\""), "{report}");
    assert!(report.contains("unexpected-skips"), "{report}");
    tests(&dir)
        .args(["report", "artifacts/nrop/events.jsonl"])
        .assert()
        .code(1);
}

#[test]
fn the_job_in_the_cluster_has_arguments_of_this_program() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/tests/job.yaml");
    let text = std::fs::read_to_string(path).expect("the manifest is there");
    let documents = serde_yaml::Deserializer::from_str(&text);
    let mut documents = documents.map(|document| Value::deserialize(document).expect("a document"));
    let job = documents
        .find(|document| document["kind"] == "Job")
        .expect("a Job");
    let arguments = job["spec"]["template"]["spec"]["containers"][0]["args"]
        .as_array()
        .expect("arguments")
        .iter()
        .filter_map(Value::as_str);
    let dir = dir();
    let output = tests(&dir)
        .env("KUBECONFIG", "of-the-pod")
        .args(arguments)
        .arg("--dry-run")
        .assert()
        .success();
    let text = String::from_utf8_lossy(&output.get_output().stdout).into_owned();
    assert!(text.contains("Report: /artifacts/junit.xml\n"), "{text}");
    assert!(text.contains("  byres/cpu-decides\n"), "{text}");
}

#[tokio::test]
async fn a_sidecar_prints_the_report_when_it_is_told_to_end() {
    let dir = dir();
    let report = dir.path().join("junit.xml");
    let mut sidecar = std::process::Command::new(env!("CARGO_BIN_EXE_numaresources-tests"));
    sidecar.arg("sidecar").arg(&report).stdout(Stdio::piped());
    let sidecar = sidecar.spawn().expect("the program starts");
    let id = sidecar.id();
    eventually("it listens for SIGTERM", TIMEOUT, async || {
        let path = format!("/proc/{id}/status");
        let status = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        match caught {
            Some(mask) if mask & (1 << 14) != 0 => Ok(()),
            _ => Err(status),
        }
    })
    .await;
    std::fs::write(&report, "<testsuites/>").expect("report is written");
    let told = std::process::Command::new("kill")
        .arg(id.to_string())
        .status();
    assert!(told.expect("kill starts").success());
    let output = sidecar.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "<testsuites/>");
}
