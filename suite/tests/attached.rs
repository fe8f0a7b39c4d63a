//! A cluster that is known by its kubeconfig only: brought up by one process, judged by another.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use reports::event::{Event, Verdict};
use tempfile::TempDir;

/// What the local lane passes, and so must any other way to reach the same kind of cluster.
const TIER0: &[&str] = &[
    "byres/cpu-decides",
    "byres/memory-decides",
    "cache/interference-bu",
    "cache/interference-gu",
    "cache/non-fitting-stays-pending",
    "cache/overreserve-corrected",
    "cache/unblocked-on-delete",
    "config/nrt-attributes",
    "fundamentals/all-gu",
    "hostlevel/gu-multi",
    "hostlevel/gu-multi-frac",
    "hostlevel/gu-single",
    "install/deploy-available",
    "stall/job-bu",
    "stall/job-burst-bu",
    "stall/job-burst-gu",
    "stall/job-gu-mem-cpu",
    "tmpol/1cnt-devs-pod",
    "tmpol/2cnt-same-pod",
    "tmpol/2cnt-split-cnt",
    "tmpol/dp-single-zone-cnt",
    "tmpol/dp-single-zone-pod",
    "tmpol/pend-cpu-cnt",
    "tmpol/pend-hp1g-cnt",
    "tmpol/pend-mem-cnt",
];

/// A cluster brought up by `numaresources-tests cluster up`, gone when dropped.
struct Cluster {
    dir: TempDir,
}

impl Cluster {
    fn up() -> Self {
        let cluster = Self {
            dir: tempfile::tempdir().expect("temporary directory"),
        };
        let output = cluster.tests(&["cluster", "up", "--cluster", "local"]);
        assert!(output.status.success(), "{}", both(&output));
        cluster
    }

    /// The program with its clusters in our directory, without a kubeconfig.
    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_numaresources-tests"));
        command
            .env_remove("KUBECONFIG")
            .env("XDG_STATE_HOME", self.dir.path());
        command
    }

    fn tests(&self, arguments: &[&str]) -> Output {
        self.command()
            .args(arguments)
            .output()
            .expect("the program starts")
    }

    fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("numaresources/default/kubeconfig")
    }

    /// The program, knowing nothing but the kubeconfig.
    fn judge(&self, artifacts: &Path) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_numaresources-tests"));
        command
            .env("KUBECONFIG", self.kubeconfig())
            .args(["--label", "tier0", "--artifacts"])
            .arg(artifacts);
        command.output().expect("the program starts")
    }

    /// kubectl of the cluster's own version.
    fn kubectl(&self, arguments: &[&str]) -> String {
        let places = testbed::local::assets::Places::from_environment(None);
        let assets = testbed::local::assets::locate(&places, &|_| {})
            .expect("the Kubernetes programs are there");
        let mut command = Command::new(assets.kubectl);
        let output = command
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            .args(arguments)
            .output();
        let output = output.expect("kubectl starts");
        assert!(
            output.status.success(),
            "kubectl {arguments:?}: {}",
            both(&output)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// What a run that must not change anything could have changed.
    fn state(&self) -> BTreeSet<String> {
        let text = self.kubectl(&[
            "get",
            "namespaces,nodes,customresourcedefinitions,clusterroles,clusterrolebindings,deployments,daemonsets",
            "--all-namespaces",
            "--output=jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.uid} {.metadata.labels} {.spec.taints}{\"\\n\"}{end}",
        ]);
        text.lines().map(str::to_owned).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let output = self.tests(&["cluster", "down"]);
        if !std::thread::panicking() {
            assert!(output.status.success(), "{}", both(&output));
        }
    }
}

fn both(output: &Output) -> String {
    format!(
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Lines that are in one state only.
fn changes(before: &BTreeSet<String>, after: &BTreeSet<String>) -> Vec<String> {
    before.symmetric_difference(after).cloned().collect()
}

/// Ids of the scenarios that passed, from the event log.
fn passed(artifacts: &Path) -> BTreeSet<String> {
    let records = reports::log::read(&artifacts.join("nrop/events.jsonl"))
        .expect("the event log is readable");
    records
        .into_iter()
        .filter_map(|record| match record.event {
            Event::ScenarioFinished {
                scenario,
                verdict: Verdict::Passed,
                ..
            } => Some(scenario.id),
            _ => None,
        })
        .collect()
}

#[test]
fn a_cluster_known_by_its_kubeconfig_gets_the_verdicts_of_the_local_lane() {
    let cluster = Cluster::up();
    let artifacts = tempfile::tempdir().expect("temporary directory");

    cluster.kubectl(&[
        "label",
        "namespace",
        "kube-system",
        "numaresources-tests/allowed-",
    ]);
    let before = cluster.state();
    let unmarked = cluster.judge(&artifacts.path().join("unmarked"));
    assert_eq!(unmarked.status.code(), Some(1), "{}", both(&unmarked));
    let told = both(&unmarked);
    assert!(
        told.contains("kubectl label namespace kube-system numaresources-tests/allowed=true"),
        "{told}"
    );
    assert_eq!(changes(&before, &cluster.state()), Vec::<String>::new());

    cluster.kubectl(&[
        "label",
        "namespace",
        "kube-system",
        "numaresources-tests/allowed=true",
    ]);
    let before = cluster.state();
    let without = cluster.judge(&artifacts.path().join("without"));
    assert_eq!(without.status.code(), Some(1), "{}", both(&without));
    let told = both(&without);
    assert!(
        told.contains(
            "the cluster has no definition of noderesourcetopologies.topology.node.k8s.io"
        ),
        "{told}"
    );
    assert_eq!(changes(&before, &cluster.state()), Vec::<String>::new());

    let mark = "numaresources-tests/allowed=install";
    cluster.kubectl(&["label", "--overwrite", "namespace", "kube-system", mark]);
    let before = cluster.state();
    let judged = cluster.judge(&artifacts.path().join("judged"));
    assert_eq!(judged.status.code(), Some(0), "{}", both(&judged));
    let expected: BTreeSet<String> = TIER0.iter().map(|id| (*id).to_owned()).collect();
    assert_eq!(passed(&artifacts.path().join("judged")), expected);
    // what the suite installed, it removed; namespaces end in the background
    let deadline = Instant::now() + Duration::from_mins(2);
    loop {
        let left = changes(&before, &cluster.state());
        if left.is_empty() {
            break;
        }
        assert!(Instant::now() < deadline, "{left:#?}");
        std::thread::sleep(Duration::from_millis(500));
    }
}
