//! The warm loop: a cluster that is kept with the stack on it. Runs leave it as it was, and only changed programs are restarted.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use api::names::NAMESPACE;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use suite::binaries::{self, EXPORTER, OPERATOR, PROGRAMS, SCHEDULER};
use tempfile::TempDir;
use testbed::lane::Lane;

use crate::harness::{client, eventually, runtime, transcript};

/// A short scenario that places pods.
const SCENARIO: &str = "byres/cpu-decides";

/// A cluster brought up by `numaresources-tests cluster up --with-stack` with its own copies of the programs; it ends when dropped.
struct Cluster {
    dir: TempDir,
}

impl Cluster {
    /// Copies the programs, so that the test can change them, and brings a cluster up with them.
    async fn up(lane: Lane) -> Self {
        let cluster = Self {
            dir: tempfile::tempdir().expect("temporary directory"),
        };
        let built = binaries::locate(None, |_| {})
            .await
            .expect("programs are built");
        std::fs::create_dir(cluster.bin_dir()).expect("directory is made");
        for program in PROGRAMS {
            std::fs::copy(built.join(program), cluster.bin_dir().join(program))
                .expect("the program is copied");
        }
        let bin_dir = cluster.bin_dir();
        let up = [
            "cluster",
            "up",
            "--with-stack",
            "--cluster",
            lane.name(),
            "--bin-dir",
        ];
        let output = cluster
            .command()
            .args(up)
            .arg(bin_dir)
            .output()
            .expect("the program starts");
        assert!(output.status.success(), "{}", transcript(&output));
        let text = transcript(&output);
        assert!(
            text.contains("numaresources-tests --cluster kept ID"),
            "{text}"
        );
        cluster
    }

    fn bin_dir(&self) -> PathBuf {
        self.dir.path().join("bin")
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("numaresources")
    }

    fn kubeconfig(&self) -> PathBuf {
        self.root().join("default/kubeconfig")
    }

    /// Returns the program with its clusters and reports in our directory, without a kubeconfig.
    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_numaresources-tests"));
        command
            .current_dir(self.dir.path())
            .env_remove("KUBECONFIG")
            .env("XDG_STATE_HOME", self.dir.path());
        command
    }

    /// Returns the output of a subcommand of `cluster`.
    fn cluster(&self, subcommand: &str) -> String {
        let output = self.command().args(["cluster", subcommand]).output();
        let output = output.expect("the program starts");
        assert!(output.status.success(), "{}", transcript(&output));
        transcript(&output)
    }

    /// Runs the scenario on the kept cluster and returns the output.
    fn run(&self) -> String {
        passed(self.command().args(["--cluster", "kept", SCENARIO]))
    }

    /// Writes another build of a program, as cargo does: a new file under the same name. It has one additional byte, which has no effect.
    fn change(&self, program: &str) {
        let path = self.bin_dir().join(program);
        let draft = self.bin_dir().join("draft");
        std::fs::copy(&path, &draft).expect("the program is copied");
        let mut file = std::fs::File::options()
            .append(true)
            .open(&draft)
            .expect("the copy can be written");
        std::io::Write::write_all(&mut file, &[0]).expect("a byte is written");
        drop(file);
        std::fs::rename(draft, path).expect("the program is replaced");
    }

    /// Returns the processes of this machine that run one of our programs.
    fn processes(&self) -> Vec<PathBuf> {
        let processes = std::fs::read_dir("/proc")
            .expect("processes are listed")
            .flatten();
        processes
            .filter_map(|process| std::fs::read_link(process.path().join("exe")).ok())
            .filter(|program| program.starts_with(self.bin_dir()))
            .collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // a failed test has already reported its failure
        let _ = self.command().args(["cluster", "down"]).output();
    }
}

fn passed(command: &mut Command) -> String {
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{}", transcript(&output));
    transcript(&output)
}

/// What distinguishes one start of a pod from another: its UID, and the ids and start times of its containers.
type Start = (Option<String>, Vec<String>);

/// Returns all pods of the stack and those that scenarios use, by name.
async fn pods(client: &Client) -> BTreeMap<String, Start> {
    let pods = Api::<Pod>::all(client.clone());
    let pods = pods
        .list(&ListParams::default())
        .await
        .expect("they are listed")
        .items;
    let start = |pod: &Pod| {
        let containers = pod
            .status
            .clone()
            .and_then(|status| status.container_statuses);
        let containers = containers.into_iter().flatten();
        let starts = containers.map(|one| format!("{:?} {:?}", one.container_id, one.state));
        (pod.uid(), starts.collect())
    };
    pods.iter()
        .map(|pod| {
            (
                format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any()),
                start(pod),
            )
        })
        .collect()
}

/// Returns what a run could leave behind: namespaces, and labels and taints of nodes.
async fn state(client: &Client) -> BTreeSet<String> {
    let all = ListParams::default();
    let namespaces = Api::<Namespace>::all(client.clone());
    let namespaces = namespaces.list(&all).await.expect("they are listed").items;
    let nodes = Api::<Node>::all(client.clone())
        .list(&all)
        .await
        .expect("they are listed")
        .items;
    let of_node = |node: &Node| {
        let spec = node.spec.clone().unwrap_or_default();
        format!(
            "{} {:?} {:?} {:?}",
            node.name_any(),
            node.labels(),
            spec.taints,
            spec.unschedulable
        )
    };
    let namespaces = namespaces
        .iter()
        .map(|one| format!("{} {:?}", one.name_any(), one.labels()));
    namespaces.chain(nodes.iter().map(of_node)).collect()
}

/// Returns the names of the pods, without suffixes of controllers, that differ between before and after.
fn replaced<S: PartialEq + Debug>(
    before: &BTreeMap<String, S>,
    after: &BTreeMap<String, S>,
) -> BTreeSet<String> {
    let names = before.keys().chain(after.keys());
    let changed = names.filter(|name| before.get(*name) != after.get(*name));
    let prefix = format!("{NAMESPACE}/");
    let workload = |name: &String| {
        let name = name.strip_prefix(&prefix).unwrap_or(name);
        let all = [
            "numaresources-controller-manager",
            "numaresourcesoperator",
            "secondary-scheduler",
        ];
        all.into_iter()
            .find(|workload| name.starts_with(workload))
            .map_or_else(|| name.to_owned(), str::to_owned)
    };
    changed.map(workload).collect()
}

fn names(list: &[&str]) -> BTreeSet<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn a_kept_stack_survives_runs_and_only_what_has_changed_is_started_anew() {
    runtime().block_on(survives(Lane::Embedded));
}

mod long {
    use super::*;

    #[test]
    #[ignore = "long: a minute, root and the Kubernetes programs"]
    fn a_kept_stack_on_real_parts_survives_runs_and_only_what_has_changed_is_started_anew() {
        runtime().block_on(survives(Lane::Local));
    }
}

async fn survives(lane: Lane) {
    let cluster = Cluster::up(lane).await;
    let client = client(&cluster.kubeconfig()).await;
    let status = cluster.cluster("status");
    assert!(status.contains("the stack is available"), "{status}");
    for program in PROGRAMS {
        assert!(status.contains(program), "{status}");
    }
    assert!(!status.contains("has changed since"), "{status}");
    let first = pods(&client).await;
    let before = state(&client).await;

    let text = cluster.run();
    assert!(!text.contains("restarts: "), "{text}");
    let mut by_kubeconfig = cluster.command();
    by_kubeconfig
        .env("KUBECONFIG", cluster.kubeconfig())
        .arg(SCENARIO);
    let text = passed(&mut by_kubeconfig);
    assert!(!text.contains("restarts: "), "{text}");
    assert_eq!(pods(&client).await, first);
    assert_eq!(state(&client).await, before);

    cluster.change(SCHEDULER);
    let status = cluster.cluster("status");
    assert_eq!(status.matches("has changed since").count(), 1, "{status}");
    let text = cluster.run();
    let why = "the scheduler restarts: numaresources-scheduler has changed";
    assert!(text.contains(why), "{text}");
    let second = pods(&client).await;
    assert_eq!(replaced(&first, &second), names(&["secondary-scheduler"]));

    cluster.change(OPERATOR);
    let text = cluster.run();
    assert!(text.contains("the operator restarts: "), "{text}");
    assert!(!text.contains("every exporter restarts: "), "{text}");
    assert!(!text.contains("the scheduler restarts: "), "{text}");
    let third = pods(&client).await;
    assert_eq!(
        replaced(&second, &third),
        names(&["numaresources-controller-manager"])
    );

    cluster.change(EXPORTER);
    let text = cluster.run();
    assert!(text.contains("every exporter restarts: "), "{text}");
    assert!(!text.contains("the operator restarts: "), "{text}");
    assert!(!text.contains("the scheduler restarts: "), "{text}");
    let fourth = pods(&client).await;
    assert_eq!(replaced(&third, &fourth), names(&["numaresourcesoperator"]));

    let text = cluster.run();
    assert!(!text.contains("restarts: "), "{text}");
    assert_eq!(pods(&client).await, fourth);
    assert_eq!(state(&client).await, before);

    let other = cluster.dir.path().to_owned();
    refused(&cluster, &other);

    assert!(!cluster.processes().is_empty());
    cluster.cluster("down");
    assert!(!cluster.root().join("default").exists());
    let end = Duration::from_mins(1);
    eventually("no process is left", end, async || {
        let left = cluster.processes();
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    })
    .await;
    let output = cluster
        .command()
        .args(["--cluster", "kept", SCENARIO])
        .output();
    let output = output.expect("the program starts");
    assert_eq!(output.status.code(), Some(127), "{}", transcript(&output));
    let text = transcript(&output);
    assert!(
        text.contains("numaresources-tests cluster up --with-stack"),
        "{text}"
    );
}

/// Checks that programs of another directory cannot replace those that run.
fn refused(cluster: &Cluster, bin_dir: &Path) {
    let mut command = cluster.command();
    command
        .args(["--cluster", "kept", SCENARIO, "--bin-dir"])
        .arg(bin_dir);
    let output = command.output().expect("the program starts");
    assert_eq!(output.status.code(), Some(1), "{}", transcript(&output));
    let text = transcript(&output);
    assert!(text.contains("leave --bin-dir out"), "{text}");
}
