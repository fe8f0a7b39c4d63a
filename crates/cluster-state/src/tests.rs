//! The life of clusters below one root.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cluster_spec::kubernetes::Assets;
use cluster_spec::plan::ClusterSpec;

use super::*;
use crate::process::ProcessRef;

/// Takes a name like the default local cluster.
fn claim(root: &Path, name: &str) -> Result<(PathBuf, Vec<String>), Error> {
    let spec = ClusterSpec::default_workers(
        name,
        root,
        Assets::in_dir(Path::new("/assets")),
        Path::new("/bin"),
    );
    super::claim(&Claim {
        root,
        name,
        nodes: &spec.nodes,
        longest_socket: "/control.sock",
        spec: Some(&spec),
    })
}

/// A process that no longer exists.
fn ended_process() -> ProcessRef {
    let mut process = ProcessRef::current().unwrap();
    process.start_ticks += 1;
    process
}

#[test]
fn name_in_use_is_refused_until_removed() {
    let root = tempfile::tempdir().unwrap();
    claim(root.path(), "one").unwrap();
    assert!(
        matches!(claim(root.path(), "one"), Err(Error::Exists { pid, .. }) if pid.cast_unsigned() == std::process::id())
    );
    assert!(remove(root.path(), "one").unwrap());
    assert!(!remove(root.path(), "one").unwrap());
    claim(root.path(), "one").unwrap();
}

#[test]
fn dead_clusters_are_swept_and_living_ones_and_strangers_stay() {
    let root = tempfile::tempdir().unwrap();
    for name in ["killed", "ended", "living", "kept"] {
        claim(root.path(), name).unwrap();
    }
    fs_err::create_dir(root.path().join("stranger")).unwrap();
    fs_err::write(root.path().join("stranger/data"), "x").unwrap();
    update(root.path(), "killed", |record| {
        record.owner = ended_process();
    })
    .unwrap();
    update(root.path(), "ended", |record| {
        record.detached = true;
        record.holder = Some(ended_process());
    })
    .unwrap();
    update(root.path(), "kept", |record| {
        record.owner = ended_process();
        record.detached = true;
        record.holder = ProcessRef::current();
    })
    .unwrap();
    let (_, mut swept) = claim(root.path(), "next").unwrap();
    swept.sort();
    assert_eq!(swept, ["ended", "killed"]);
    let names: Vec<String> = list(root.path())
        .unwrap()
        .into_iter()
        .map(|(name, ..)| name)
        .collect();
    assert_eq!(names, ["kept", "living", "next"]);
    assert!(root.path().join("stranger/data").exists());
    assert!(matches!(
        claim(root.path(), "stranger"),
        Err(Error::Foreign(_))
    ));
}

#[test]
fn abandoned_cluster_keeps_its_directory_until_its_living_owner_tries_again() {
    let root = tempfile::tempdir().unwrap();
    let (dir, _) = claim(root.path(), "one").unwrap();
    fs_err::write(dir.join("log"), "why").unwrap();
    abandon(root.path(), "one").unwrap();
    assert!(dir.join("log").exists());
    claim(root.path(), "one").unwrap();
    assert!(!dir.join("log").exists());
}

#[test]
fn files_that_come_while_a_cluster_is_removed_are_removed_too() {
    let root = tempfile::tempdir().unwrap();
    let (dir, _) = claim(root.path(), "one").unwrap();
    let node = dir.join("nodes/worker-0");
    fs_err::create_dir_all(&node).unwrap();
    let (sender, first) = std::sync::mpsc::channel();
    let writer = std::thread::spawn(move || {
        let started = Instant::now();
        let mut number = 0;
        while started.elapsed() < Duration::from_millis(200) {
            number += 1;
            // the directory may already be removed
            let _ = std::fs::write(node.join(number.to_string()), "x");
            let _ = sender.send(());
        }
    });
    first.recv().unwrap();
    assert!(remove(root.path(), "one").unwrap());
    assert!(!dir.exists());
    writer.join().unwrap();
}

#[test]
fn holder_id_that_another_process_has_now_is_not_killed() {
    let root = tempfile::tempdir().unwrap();
    claim(root.path(), "one").unwrap();
    // This is our own ID with another start time: killing by ID alone would end this test.
    update(root.path(), "one", |record| {
        record.holder = Some(ended_process());
    })
    .unwrap();
    assert!(remove(root.path(), "one").unwrap());
}

#[test]
fn names_that_are_no_directory_names_are_refused() {
    let root = tempfile::tempdir().unwrap();
    for name in ["", "..", "a/b", "Upper", "lock"] {
        assert!(
            matches!(claim(root.path(), name), Err(Error::Name(_))),
            "{name}"
        );
    }
    let deep = root.path().join("d".repeat(100));
    assert!(matches!(claim(&deep, "one"), Err(Error::TooLong { .. })));
}
