//! A cluster that is given to runs of the program: an embedded one of the test's own process, marked as usable.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use cluster_spec::plan::NodePlan;
use fixtures::machines::Machine;
use kube::ResourceExt as _;
use kube::api::{Api, DynamicObject, ListParams};
use kube::discovery::{Discovery, verbs};
use reports::stream::Stream;
use serde_json::{Value, json};
use suite::binaries;
use suite::recorder::Recorder;
use suite::setup::kept::Stack;
use suite::setup::{self, ClusterSource, Options, Partial};
use tempfile::TempDir;
use testbed::cli::RuntimeName;
use testbed::embedded::{EmbeddedCluster, EmbeddedSpec};
use testbed::lane::Lane;
use tokio::process::{Child, Command};

use crate::harness::{eventually, transcript};

/// Longer than a run of a short scenario takes, with the installation of the stack.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(3);
/// Workers, half of them with each scope.
const WORKERS: usize = 4;
/// Kinds that change without a run: what controllers, kubelets and exporters write by themselves, and what only tells of others. What a run
/// leaves of them is in a namespace that it leaves, too.
const RESTLESS: [&str; 9] = [
    "ComponentStatus",
    "ControllerRevision",
    "EndpointSlice",
    "Endpoints",
    "Event",
    "Lease",
    "NodeResourceTopology",
    "Pod",
    "ReplicaSet",
];

/// The cluster, and the directory that runs are started in.
pub(crate) struct Given {
    pub(crate) cluster: EmbeddedCluster,
    dir: TempDir,
}

impl Given {
    /// Brings the cluster up with the stack, which is kept.
    pub(crate) async fn up_with_stack(name: &str) -> Self {
        let given = Self::up(name).await;
        let kubeconfig = given.cluster.kubeconfig();
        let dir = kubeconfig.parent().expect("it is in a directory");
        let bin_dir = &given.cluster.spec().bin_dir;
        Stack::begin(dir, Lane::Embedded, RuntimeName::Builtin, bin_dir)
            .expect("the directory is writable");
        let options = Options {
            cluster: ClusterSource::Kubeconfig(kubeconfig.into()),
            ..Options::own(Lane::Embedded, &[]).expect("no flag is wrong")
        };
        let stream = Stream::new(Vec::new());
        let recorder = Recorder::new(&stream, "setup");
        let mut partial = Partial::default();
        let installed = Box::pin(setup::run(&options, &recorder, &mut partial)).await;
        installed.map(drop).expect("the stack can be installed");
        given
    }

    /// Brings the cluster up.
    pub(crate) async fn up(name: &str) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let dir = tempfile::tempdir().expect("temporary directory");
        let bin_dir = binaries::locate(None, |_| {})
            .await
            .expect("the programs are built");
        let nodes = NodePlan::all(WORKERS, &Machine::default_profile());
        let spec = EmbeddedSpec::new(name, dir.path(), &bin_dir, nodes);
        let cluster = EmbeddedCluster::up(spec, &|_| {})
            .await
            .expect("the cluster comes up");
        setup::allow(&cluster.client())
            .await
            .expect("the cluster can be marked");
        Self { cluster, dir }
    }

    /// Ends the cluster.
    pub(crate) fn down(self) {
        self.cluster.down().expect("nothing is left");
    }

    /// Returns the program with the cluster's kubeconfig, its reports in our directory.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_numaresources-tests"));
        command
            .current_dir(self.dir.path())
            .env("KUBECONFIG", self.cluster.kubeconfig())
            .args(arguments)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Runs the program to its end.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Output {
        let output = self.command(arguments).output();
        let output = tokio::time::timeout(TIMEOUT, output).await;
        output.expect("it ends in time").expect("it starts")
    }

    /// Starts the program. What it writes is in the returned process.
    pub(crate) fn start(&self, arguments: &[&str]) -> Child {
        // so that the latest run is this one
        let _ = std::fs::remove_file(self.report("events.jsonl"));
        self.command(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts")
    }

    /// Returns a path below the directory of the reports.
    pub(crate) fn report(&self, path: &str) -> PathBuf {
        self.dir.path().join("artifacts/nrop").join(path)
    }

    /// Waits until the event log of the latest run contains a text.
    pub(crate) async fn logged(&self, text: &str) {
        eventually(text, TIMEOUT, async || {
            let log = std::fs::read_to_string(self.report("events.jsonl")).unwrap_or_default();
            if log.contains(text) {
                Ok(())
            } else {
                Err(format!("the log has {} lines", log.lines().count()))
            }
        })
        .await;
    }

    /// Returns all objects of the cluster, without what changes by itself.
    pub(crate) async fn objects(&self) -> BTreeMap<String, Value> {
        let client = self.cluster.client();
        let discovery = Discovery::new(client.clone()).run().await;
        let discovery = discovery.expect("the API server tells its kinds");
        let mut objects = BTreeMap::new();
        let kinds = discovery
            .groups()
            .flat_map(kube::discovery::ApiGroup::recommended_resources);
        for (resource, capabilities) in kinds {
            if !capabilities.supports_operation(verbs::LIST)
                || RESTLESS.contains(&resource.kind.as_str())
            {
                continue;
            }
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            let list = api.list(&ListParams::default()).await;
            for object in list.expect("objects can be listed") {
                let (name, text) = normalized(&resource.kind, object);
                objects.insert(name, text);
            }
        }
        objects
    }
}

/// Returns the name of an object, and what somebody asked it to be.
fn normalized(kind: &str, mut object: DynamicObject) -> (String, Value) {
    let namespace = object.namespace().unwrap_or_default();
    let name = format!("{kind} {namespace}/{}", object.name_any());
    if let Some(fields) = object.data.as_object_mut() {
        fields.remove("status");
    }
    let meta = json!({
        "labels": object.metadata.labels,
        "annotations": object.metadata.annotations,
        "finalizers": object.metadata.finalizers,
        "ends": object.metadata.deletion_timestamp.is_some(),
    });
    (name, json!({"metadata": meta, "fields": object.data}))
}

/// Waits until the objects of the cluster are as they were; controllers may still have something to do.
pub(crate) async fn are_as_before(given: &Given, before: &BTreeMap<String, Value>) {
    eventually("the objects are as before", TIMEOUT, async || {
        let lines = differences(before, &given.objects().await);
        if lines.is_empty() {
            Ok(())
        } else {
            Err(lines.join("\n"))
        }
    })
    .await;
}

/// Returns the names of the objects that differ, each with both states.
fn differences(before: &BTreeMap<String, Value>, after: &BTreeMap<String, Value>) -> Vec<String> {
    let names = before.keys().chain(after.keys());
    let differing = names.filter(|name| before.get(*name) != after.get(*name));
    let mut lines: Vec<_> = differing
        .map(|name| format!("{name}: {:?}, now {:?}", before.get(name), after.get(name)))
        .collect();
    lines.sort();
    lines.dedup();
    lines
}

/// Sends a signal to a process that is still there.
pub(crate) fn signal(child: &Child, name: &str) {
    let pid = child.id().expect("it runs").to_string();
    let sent = std::process::Command::new("kill")
        .args(["-s", name, &pid])
        .status();
    assert!(sent.expect("kill starts").success(), "{name} {pid}");
}

/// Returns the output of a process that ends by itself.
pub(crate) async fn ended(child: Child) -> Output {
    let output = tokio::time::timeout(TIMEOUT, child.wait_with_output()).await;
    output.expect("it ends in time").expect("it can be read")
}

/// Checks the exit code.
#[track_caller]
pub(crate) fn has_code(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "{}", transcript(output));
}

/// Reads a file of the reports.
#[track_caller]
pub(crate) fn read(path: &Path) -> String {
    std::fs::read_to_string(path).expect("the report is there")
}
