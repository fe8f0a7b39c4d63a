//! A scheduler that ends as soon as it has started is told as such: by the set-up, or by the first scenario that meets it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use api::names;
use assert_cmd::Command;
use cri_runtime::control::Signal;
use reports::event::Verdict;
use suite::binaries::{self, PROGRAMS, SCHEDULER};
use suite::run::Outcome;
use suite::select::Selection;
use suite::session::Session;
use suite::setup::Options;
use tempfile::TempDir;
use testbed::lane::{self, Lane};

use crate::harness::{run_scenarios, runtime, transcript};

/// Part of all time limits: what is waited for here does not come.
const FACTOR: f64 = 0.1;
/// What the broken scheduler writes before it ends.
const LAST_WORDS: &str = "the configuration cannot be read";

/// Copies the programs into a directory in which they can be changed.
async fn programs() -> TempDir {
    let dir = tempfile::tempdir().expect("temporary directory");
    let built = binaries::locate(None, |_| {})
        .await
        .expect("programs are built");
    for program in PROGRAMS {
        fs::copy(built.join(program), dir.path().join(program)).expect("the program is copied");
    }
    dir
}

/// Replaces the scheduler by a program that ends 0.2 s after its start.
fn break_scheduler(programs: &Path) {
    let draft = programs.join("draft");
    let script = format!("#!/bin/sh\nsleep 0.2\necho '{LAST_WORDS}'\nexit 3\n");
    fs::write(&draft, script).expect("the script is written");
    fs::set_permissions(&draft, fs::Permissions::from_mode(0o755)).expect("it can be started");
    fs::rename(draft, programs.join(SCHEDULER)).expect("the program is replaced");
}

#[test]
fn the_set_up_fails_with_a_scheduler_that_ends_after_each_start() {
    let programs = runtime().block_on(programs());
    break_scheduler(programs.path());
    let artifacts = tempfile::tempdir().expect("temporary directory");
    let output = Command::new(env!("CARGO_BIN_EXE_numaresources-tests"))
        .env_remove("KUBECONFIG")
        .args([
            "--cluster",
            "embedded",
            "--deadline-factor",
            &FACTOR.to_string(),
        ])
        .arg("--bin-dir")
        .arg(programs.path())
        .arg("--artifacts")
        .arg(artifacts.path())
        .arg("install/deploy-available")
        .output()
        .expect("the program starts");
    let text = transcript(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("what is wrong with the stack"), "{text}");
    assert!(text.contains("last with exit code 3"), "{text}");
    assert!(text.contains(LAST_WORDS), "{text}");
    let report = artifacts.path().join("nrop/e2e-serial-run.xml");
    let report = fs::read_to_string(report).expect("there is a report");
    assert!(report.contains("setup-failed"), "{report}");
}

#[test]
fn a_run_ends_after_the_scenario_that_found_the_stack_dead() {
    let runtime = runtime();
    let programs = runtime.block_on(programs());
    let mut options = Options::own(Lane::Embedded, &[]).expect("no flag is wrong");
    options.plan.bin_dir = Some(programs.path().to_owned());
    options.deadlines = options.deadlines.scaled(FACTOR);
    let selection = Selection {
        ids: vec![
            "tmpol/pend-cpu-cnt".to_owned(),
            "byres/cpu-decides".to_owned(),
        ],
        ..Selection::default()
    };
    let dir: PathBuf = programs.path().to_owned();
    let completed = runtime.block_on(run_scenarios(
        "broken-stack",
        &options,
        &selection,
        async |session| {
            break_scheduler(&dir);
            kill_scheduler(session)
        },
    ));
    let events = completed.events.display();
    assert_eq!(completed.outcome, Outcome::StackFailed, "see {events}");
    let verdict = &completed.verdicts["tmpol/pend-cpu-cnt"];
    let Verdict::Failed(failure) = verdict else {
        panic!("{verdict:?}; see {events}");
    };
    assert_eq!(
        failure.details.first().map(String::as_str),
        Some("what is wrong with the stack:"),
        "{failure}"
    );
    assert!(failure.to_string().contains(LAST_WORDS), "{failure}");
    assert!(
        matches!(
            &completed.verdicts["byres/cpu-decides"],
            Verdict::Interrupted { reason } if reason.contains("the stack had died")
        ),
        "see {events}"
    );
}

fn kill_scheduler(session: &Session) -> Result<(), String> {
    let cluster = session.own().and_then(lane::Cluster::embedded);
    let cluster = cluster.ok_or("the cluster is not an embedded one")?;
    for node in cluster.nodes() {
        for container in node.containers() {
            if container.target.container == names::SCHEDULER {
                let sent = node.signal(&container.target, Signal::Kill);
                return sent.map_err(|error| error.to_string());
            }
        }
    }
    Err("there is no scheduler".to_owned())
}
