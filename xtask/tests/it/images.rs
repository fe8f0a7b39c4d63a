//! The container images.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use wait_timeout::ChildExt as _;

/// Time between two looks at the mounts of the machine.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

#[test]
#[ignore = "real: podman"]
fn images_of_a_development_build_do_in_podman_what_each_is_for() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut trial = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["image", "--development", "--test"])
        .current_dir(root)
        .spawn()
        .unwrap();
    let mut mounted = BTreeSet::new();
    let ended = loop {
        if let Some(ended) = trial.wait_timeout(POLL_INTERVAL).unwrap() {
            break ended;
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let of_podman = mounts
            .lines()
            .filter(|mount| mount.contains("/vfs-containers/"));
        mounted.extend(of_podman.map(str::to_owned));
    };
    assert!(ended.success(), "{ended}");
    assert!(mounted.is_empty(), "on the machine: {mounted:?}");
}
