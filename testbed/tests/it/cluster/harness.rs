//! Small clusters, and helpers that wait.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use cluster_spec::plan::ClusterSpec;
use fixtures::machines::Machine;
use local_cluster::LocalCluster;
use programs::kubernetes::{self, SearchPath};

/// The helper program that this package builds.
pub(crate) const HELPER: &str = env!("CARGO_BIN_EXE_numaresources-testbed");
/// Time limit for any operation of a cluster.
pub(super) const DEADLINE: Duration = Duration::from_mins(2);

/// Returns a state root for a test, which must run as root.
pub(crate) fn state_root() -> tempfile::TempDir {
    assert!(
        nix::unistd::geteuid().is_root(),
        "this test makes namespaces and mounts: it must run as root"
    );
    tempfile::tempdir().unwrap()
}

/// Returns a cluster with this many workers on the default machine.
pub(crate) fn small(state_root: &tempfile::TempDir, name: &str, workers: usize) -> ClusterSpec {
    let assets = kubernetes::locate(&SearchPath::from_environment(None), &|_| {}).unwrap();
    let bin_dir = Path::new(HELPER).parent().unwrap();
    ClusterSpec::with_workers(
        name,
        state_root.path(),
        assets,
        bin_dir,
        workers,
        &Machine::default_profile(),
    )
}

/// Runs kubectl with the administrator's rights; returns its output.
#[track_caller]
pub(super) fn kubectl(cluster: &LocalCluster, arguments: &[&str]) -> String {
    let output = Command::new(&cluster.spec().assets.kubectl)
        .args(arguments)
        .env("KUBECONFIG", cluster.kubeconfig())
        .output()
        .unwrap();
    assert!(output.status.success(), "kubectl {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Waits until a condition holds.
#[track_caller]
pub(super) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < deadline, "timed out waiting until {what}");
        std::thread::park_timeout(Duration::from_millis(50));
    }
}
