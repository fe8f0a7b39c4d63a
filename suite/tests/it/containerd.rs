//! Scenarios on nodes with containerd, runc and CNI plugins: real containers of a real image. Afterwards nothing of the cluster is on the machine.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::harness::eventually;

/// Containers with exclusive CPUs, init containers, notification files, status files, conditions, and pods that come and go.
const SCENARIOS: [&str; 6] = [
    "hostlevel/gu-multi",
    "fundamentals/all-gu",
    "cache/overreserve-corrected",
    "rte/notify",
    "rte/pfp-status",
    "install/deploy-available",
];
/// Longer than the kernel needs until a removed link is gone.
const REMOVAL_TIMEOUT: Duration = Duration::from_mins(2);

#[test]
#[ignore = "real: root, the Kubernetes programs and containerd"]
fn scenarios_pass_on_real_containers_and_leave_nothing_behind() {
    let before = control_groups();
    let dir = tempfile::tempdir().expect("temporary directory");
    let output = Command::new(assert_cmd::cargo::cargo_bin("numaresources-tests"))
        .env_remove("KUBECONFIG")
        .args(["--cluster", "local", "--runtime", "containerd"])
        .args(["--workers", "2", "--state-root"])
        .arg(dir.path().join("state"))
        .arg("--artifacts")
        .arg(dir.path().join("artifacts"))
        .args(SCENARIOS)
        .output()
        .expect("the program starts");
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "{text}");
    let all = format!("{0} scenarios: {0} passed, 0 failed", SCENARIOS.len());
    assert!(text.contains(&all), "{text}");

    let runtime = tokio::runtime::Runtime::new().expect("a runtime for waiting");
    runtime.block_on(eventually(
        "nothing of the cluster is left",
        REMOVAL_TIMEOUT,
        async || {
            let groups = control_groups();
            let left: Vec<String> = groups
                .difference(&before)
                .cloned()
                .chain(processes_of(dir.path()))
                .chain(mounts_below(dir.path()))
                .collect();
            if left.is_empty() {
                Ok(())
            } else {
                Err(left.join(", "))
            }
        },
    ));
}

/// Returns the control groups of clusters, in every hierarchy.
fn control_groups() -> BTreeSet<String> {
    let top = Path::new("/sys/fs/cgroup");
    let hierarchies = fs::read_dir(top).into_iter().flatten().flatten();
    let places = hierarchies
        .map(|entry| entry.path())
        .chain([top.to_owned()]);
    places
        .flat_map(|place| fs::read_dir(place).into_iter().flatten().flatten())
        .filter(|entry| {
            entry
                .file_name()
                .to_string_lossy()
                .starts_with("numaresources-")
        })
        .map(|entry| entry.path().display().to_string())
        .collect()
}

/// Returns the command lines of processes that name a directory.
fn processes_of(dir: &Path) -> Vec<String> {
    let dir = dir.display().to_string();
    let processes = fs::read_dir("/proc").expect("processes").flatten();
    let lines = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(&dir))
        .collect()
}

/// Returns the mounts below a directory.
fn mounts_below(dir: &Path) -> Vec<String> {
    let dir = dir.display().to_string();
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    mounts
        .lines()
        .filter(|line| line.contains(&dir))
        .map(str::to_owned)
        .collect()
}
