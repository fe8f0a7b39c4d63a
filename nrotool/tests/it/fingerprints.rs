//! `pfpsyncchk` on files.

use std::path::Path;

use serde_json::json;

use crate::server::run;

fn record(expected: &str, computed: &str, pods: &[&str], second: u32) -> serde_json::Value {
    let pods: Vec<_> = pods
        .iter()
        .map(|pod| json!({"Namespace": "n", "Name": pod}))
        .collect();
    json!({
        "fingerprintExpected": expected, "fingerprintComputed": computed, "pods": pods, "nodeName": "worker-0",
        "recordTime": format!("2026-01-01T00:00:{second:02}.123456789Z"),
    })
}

fn write(path: &Path, records: &[serde_json::Value]) {
    fs_err::create_dir_all(path.parent().unwrap()).unwrap();
    fs_err::write(path, json!(records).to_string()).unwrap();
}

#[test]
fn what_must_gather_collected_is_compared_node_by_node() {
    let root = tempfile::tempdir().unwrap();
    let pfpstatus = root.path().join("image/namespaces/numaresources/pfpstatus");
    let exporters = pfpstatus.join("resource-topology-exporters");
    let scheduler = pfpstatus.join("scheduler");
    write(
        &exporters.join("worker-0"),
        &[record("", "pfp-a", &["p", "q"], 1)],
    );
    write(
        &scheduler.join("worker-0"),
        &[record("pfp-a", "pfp-b", &["p"], 2)],
    );
    write(
        &exporters.join("worker-1"),
        &[record("", "pfp-c", &["p"], 1)],
    );
    write(
        &scheduler.join("worker-1"),
        &[record("pfp-c", "pfp-c", &["p"], 2)],
    );
    write(
        &scheduler.join("worker-2"),
        &[record("pfp-c", "pfp-c", &["p"], 2)],
    );
    let gathered = root.path().to_str().unwrap();
    let ended = run(&["pfpsyncchk", "-must-gather", gathered], "");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let stars = "*".repeat(90);
    let line = "_".repeat(32);
    let expected = format!(
        "{stars}\nProcessing node:  worker-0\nExpected PFP: pfp-a\nComputed PFP: pfp-b\nFound on RTE: true\n\
         Last write from scheduler: 2026-01-01T00:00:02.123456789Z\nLast write from RTE: 2026-01-01T00:00:01.123456789Z\n\n\
         Pods found on RTE only:\n - n/q\nPods found on scheduler only:\n{line}\n\
         {stars}\nProcessing node:  worker-1\nThe pod fingerprints are in sync.\n"
    );
    assert_eq!(ended.stdout, expected);
    assert_eq!(ended.stderr, "node worker-2: no dump of its exporter\n");

    // one node that cannot be compared does not keep the others from it
    write(&scheduler.join("worker-0"), &[]);
    let ended = run(&["pfpsyncchk", "-must-gather", gathered], "");
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(
        ended.stdout.contains("Processing node:  worker-1\nThe pod"),
        "{ended:?}"
    );
    assert!(
        ended.stderr.contains("it has no fingerprint record"),
        "{ended:?}"
    );

    // without one folder of each kind there is nothing to compare
    fs_err::remove_dir_all(&exporters).unwrap();
    let ended = run(&["pfpsyncchk", "-must-gather", gathered], "");
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""));
    assert!(ended.stderr.contains("nothing to compare"), "{ended:?}");
}
