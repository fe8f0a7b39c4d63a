//! A cluster that is known only by its kubeconfig: one process brings it up, another one runs scenarios on it.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use assert_cmd::Command;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, Resource, ResourceExt as _};
use reports::event::{Event, SkipClass, Verdict};
use rstest::rstest;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use suite::setup::ALLOW_LABEL;
use tempfile::TempDir;
use testbed::lane::Lane;
use tokio::runtime::Runtime;

use crate::harness::{client, eventually, runtime, transcript};

/// Scenarios whose result could depend on how the cluster is reached: the settings and names that are discovered (attributes,
/// installation), the scheduler that pods name (placement by zones, waiting for a rejection), and nodes that are filled and emptied again.
/// All scenarios get the same verdicts on both lanes ([`crate::lanes`]).
const PASSED: [&str; 4] = [
    "byres/cpu-decides",
    "config/nrt-attributes",
    "install/deploy-available",
    "tmpol/pend-cpu-cnt",
];
/// No faults can be injected into a cluster that the run did not bring up.
const SKIPPED: &str = "fault/scheduler-killed";

/// Longer than a command takes.
const TIMEOUT: Duration = Duration::from_mins(5);
/// Longer than the deletion of namespaces in the background takes.
const DELETION_TIMEOUT: Duration = Duration::from_mins(2);

/// A cluster brought up by `numaresources-tests cluster up`; it ends when dropped.
struct Cluster {
    dir: TempDir,
    runtime: Runtime,
}

impl Cluster {
    fn up(lane: Lane) -> Self {
        let cluster = Self {
            dir: tempfile::tempdir().expect("temporary directory"),
            runtime: runtime(),
        };
        let output = cluster.tests(&["cluster", "up", "--cluster", lane.name()]);
        assert!(output.status.success(), "{}", transcript(&output));
        cluster
    }

    /// Runs the program, with its clusters in our directory and without a kubeconfig.
    fn tests(&self, arguments: &[&str]) -> Output {
        program()
            .env_remove("KUBECONFIG")
            .env("XDG_STATE_HOME", self.dir.path())
            .args(arguments)
            .output()
            .expect("the program starts")
    }

    fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("numaresources/default/kubeconfig")
    }

    /// Runs the program with nothing but the kubeconfig.
    fn run_scenarios(&self, artifacts: &Path) -> Output {
        program()
            .env("KUBECONFIG", self.kubeconfig())
            .args(PASSED)
            .arg(SKIPPED)
            .args(["--strict-skips", "--artifacts"])
            .arg(artifacts)
            .output()
            .expect("the program starts")
    }

    /// Sets or removes the mark that allows to use the cluster.
    fn mark(&self, value: Option<&str>) {
        let patch = Patch::Merge(json!({"metadata": {"labels": {ALLOW_LABEL: value}}}));
        self.runtime.block_on(async {
            let namespaces: Api<Namespace> = Api::all(client(&self.kubeconfig()).await);
            let params = PatchParams::default();
            let patched = namespaces.patch("kube-system", &params, &patch).await;
            patched.expect("the namespace can be labelled");
        });
    }

    /// Returns what a run could have changed.
    fn state(&self) -> BTreeSet<String> {
        self.runtime.block_on(self.current_state())
    }

    async fn current_state(&self) -> BTreeSet<String> {
        let client = client(&self.kubeconfig()).await;
        let all = [
            lines::<Namespace>(&client).await,
            lines::<Node>(&client).await,
            lines::<CustomResourceDefinition>(&client).await,
            lines::<ClusterRole>(&client).await,
            lines::<ClusterRoleBinding>(&client).await,
            lines::<Deployment>(&client).await,
            lines::<DaemonSet>(&client).await,
        ];
        all.into_iter().flatten().collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let output = self.tests(&["cluster", "down"]);
        if !std::thread::panicking() {
            assert!(output.status.success(), "{}", transcript(&output));
        }
    }
}

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_numaresources-tests"));
    command.timeout(TIMEOUT);
    command
}

/// Formats name, identity, labels and taints of all objects of a kind.
async fn lines<K>(client: &Client) -> Vec<String>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Serialize + Debug,
{
    let objects = Api::<K>::all(client.clone())
        .list(&ListParams::default())
        .await
        .expect("objects can be listed");
    let line = |object: &K| {
        let taints = &json!(object)["spec"]["taints"];
        format!(
            "{}/{} {:?} {:?} {taints}",
            K::kind(&()),
            object.name_any(),
            object.uid(),
            object.labels()
        )
    };
    objects.iter().map(line).collect()
}

/// Returns the lines that are in one state only.
fn changes(before: &BTreeSet<String>, after: &BTreeSet<String>) -> Vec<String> {
    before.symmetric_difference(after).cloned().collect()
}

/// Returns the ids of the scenarios whose verdict matches, from the event log.
fn ids(artifacts: &Path, matches: impl Fn(&Verdict) -> bool) -> BTreeSet<String> {
    let records = reports::log::read(&artifacts.join("nrop/events.jsonl"))
        .expect("the event log is readable")
        .records;
    records
        .into_iter()
        .filter_map(|record| match record.event {
            Event::ScenarioFinished {
                scenario, verdict, ..
            } if matches(&verdict) => Some(scenario.id),
            _ => None,
        })
        .collect()
}

#[rstest]
#[case::embedded(Lane::Embedded)]
#[ignore = "real: root and the Kubernetes programs"]
#[case::local(Lane::Local)]
fn a_cluster_known_by_its_kubeconfig_gets_the_verdicts_of_its_lane(#[case] lane: Lane) {
    let cluster = Cluster::up(lane);
    let artifacts = tempfile::tempdir().expect("temporary directory");

    cluster.mark(None);
    let before = cluster.state();
    let unmarked = cluster.run_scenarios(&artifacts.path().join("unmarked"));
    assert_eq!(unmarked.status.code(), Some(1), "{}", transcript(&unmarked));
    let text = transcript(&unmarked);
    assert!(
        text.contains("kubectl label namespace kube-system numaresources-tests/allowed=true"),
        "{text}"
    );
    assert_eq!(changes(&before, &cluster.state()), Vec::<String>::new());

    cluster.mark(Some("true"));
    let before = cluster.state();
    let without = cluster.run_scenarios(&artifacts.path().join("without"));
    assert_eq!(without.status.code(), Some(1), "{}", transcript(&without));
    let text = transcript(&without);
    assert!(
        text.contains(
            "the cluster has no definition of noderesourcetopologies.topology.node.k8s.io"
        ),
        "{text}"
    );
    assert_eq!(changes(&before, &cluster.state()), Vec::<String>::new());

    cluster.mark(Some("install"));
    let before = cluster.state();
    let dir = artifacts.path().join("allowed");
    let output = cluster.run_scenarios(&dir);
    assert_eq!(output.status.code(), Some(0), "{}", transcript(&output));
    assert_eq!(
        ids(&dir, Verdict::is_passed),
        BTreeSet::from(PASSED.map(str::to_owned))
    );
    let for_want = |verdict: &Verdict| {
        matches!(
            verdict,
            Verdict::Skipped {
                class: SkipClass::PrerequisiteMissing,
                ..
            }
        )
    };
    assert_eq!(ids(&dir, for_want), BTreeSet::from([SKIPPED.to_owned()]));
    // the suite removed what it installed; namespaces are deleted in the background
    let left = eventually("nothing is left", DELETION_TIMEOUT, async || {
        let left = changes(&before, &cluster.current_state().await);
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{left:#?}"))
        }
    });
    cluster.runtime.block_on(left);
}

#[test]
fn libtest_installs_the_stack_when_its_environment_says_so_as_the_option_does() {
    let cluster = Cluster::up(Lane::Embedded);
    cluster.mark(Some("true"));
    let artifacts = tempfile::tempdir().expect("temporary directory");
    let libtest = |variables: &[(&str, &str)]| {
        program()
            .env("KUBECONFIG", cluster.kubeconfig())
            .env_remove("NUMARESOURCES_SETUP")
            .env("NUMARESOURCES_STRICT_SKIPS", "built-in")
            .envs(variables.iter().copied())
            .arg("libtest")
            .arg(artifacts.path())
            .args(["--exact", "config/nrt-attributes"])
            .output()
            .expect("the program starts")
    };
    let without = libtest(&[]);
    assert_eq!(without.status.code(), Some(101), "{}", transcript(&without));
    let text = transcript(&without);
    assert!(text.contains("the stack is not installed"), "{text}");
    let with = libtest(&[("NUMARESOURCES_SETUP", "1")]);
    let text = transcript(&with);
    assert_eq!(with.status.code(), Some(0), "{text}");
    assert!(text.contains("1 passed; 0 failed"), "{text}");
}
