//! An unmodified kubectl reads the published object in both versions.

use std::path::PathBuf;

use programs::kubernetes::{self, SearchPath};
use tokio::process::Command;

use crate::cluster::Cluster;
use crate::scene::{output, pod, terminate};

/// Runs a command that must succeed; returns its standard output.
async fn stdout_of(program: &PathBuf, cluster: &Cluster, words: &[&str]) -> String {
    let mut command = Command::new(program);
    command
        .args(words)
        .env_clear()
        .env("HOME", cluster.scene.path(""))
        .env("KUBECONFIG", cluster.scene.path("kubeconfig"))
        .kill_on_drop(true);
    let output = output(&mut command).await;
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
#[ignore = "real: kubectl"]
async fn kubectl_shows_what_is_published() {
    let programs = kubernetes::locate(&SearchPath::from_environment(None), &|_| {});
    let kubectl = programs.expect("the Kubernetes programs are there").kubectl;
    let cluster = Cluster::new(None).await;
    cluster.define().await;
    cluster.scene.kubelet.set_pods(Some(vec![pod("p", &[4])]));
    let exporter = cluster.scene.start(&["--sleep-interval=0"]);
    cluster.published().await;

    let table = stdout_of(&kubectl, &cluster, &["get", "node-res-topo"]).await;
    let lines: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(lines[0], ["NAME", "AGE"], "{table}");
    assert_eq!((lines.len(), lines[1][0]), (2, "worker-0"), "{table}");
    for version in ["v1alpha1", "v1alpha2"] {
        let resource = format!("noderesourcetopologies.{version}.topology.node.k8s.io");
        let path = "jsonpath={.zones[*].resources[?(@.name=='cpu')].available}";
        let words = ["get", &resource, "worker-0", "-o", path];
        assert_eq!(
            stdout_of(&kubectl, &cluster, &words).await,
            "3 3",
            "{version}"
        );
    }
    terminate(exporter).await;
}
