//! An API server with recorded objects, and the tools as its clients.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use apply::{Applier, wait};
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind, TypeMeta};
use kube::{Client, ResourceExt as _};
use manifests::to_value;
use nrt::placement::Container;
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::api_server::{self, ApiServer};
use testbed::lane::Lane;

const WITHIN: Duration = Duration::from_mins(1);

/// What a tool printed, and how it ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Runs a tool without a cluster.
pub(crate) fn run(arguments: &[&str], input: &str) -> Ended {
    let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_nrotool"));
    command.env_clear().args(arguments).write_stdin(input);
    command.output().unwrap().into()
}

/// The API server with the definitions of the stack.
pub(crate) struct Server {
    pub(crate) inner: ApiServer,
    pub(crate) client: Client,
    kubeconfig: PathBuf,
    pub(crate) files: TempDir,
}

impl Server {
    /// Starts the server of this run's lane.
    pub(crate) async fn start() -> Self {
        Self::start_on(Lane::from_environment().unwrap()).await
    }

    /// Starts the server of a lane. Only the embedded one talks to the made-up kubelets of tests, which listen on the loopback network.
    pub(crate) async fn start_on(lane: Lane) -> Self {
        let inner = ApiServer::start(lane).await.unwrap();
        let client = inner.client().await.unwrap();
        let files = tempfile::tempdir().unwrap();
        let kubeconfig = files.path().join("kubeconfig");
        api_server::write(&inner.admin_kubeconfig().unwrap(), &kubeconfig).unwrap();
        Self {
            inner,
            client,
            kubeconfig,
            files,
        }
    }

    /// Adds the custom resources of the stack.
    pub(crate) async fn with_definitions(self) -> Self {
        for definition in [
            api::crd::numa_resources_operator(),
            api::crd::numa_resources_scheduler(),
            api::crd::node_resource_topology(),
        ] {
            self.define(&to_value(&definition), &definition.name_any())
                .await;
        }
        self
    }

    /// Installs a definition and waits until the server serves its kind.
    pub(crate) async fn define(&self, definition: &Value, name: &str) {
        let applier = Applier::new(self.client.clone());
        applier.apply(definition).await.unwrap();
        wait::definition(&self.client, name, WITHIN).await.unwrap();
    }

    /// Creates objects, each with the status that it has.
    pub(crate) async fn record(&self, objects: &[Value]) {
        for object in objects {
            let types: TypeMeta = serde_json::from_value(object.clone()).unwrap();
            let kind = GroupVersionKind::try_from(&types).unwrap();
            let resource = ApiResource::from_gvk(&kind);
            let given: DynamicObject = serde_json::from_value(object.clone()).unwrap();
            let name = given.name_any();
            let api: Api<DynamicObject> = match given.namespace() {
                Some(namespace) => Api::namespaced_with(self.client.clone(), &namespace, &resource),
                None => Api::all_with(self.client.clone(), &resource),
            };
            api.create(&PostParams::default(), &given).await.unwrap();
            if let Some(status) = object.get("status") {
                let status = Patch::Merge(json!({"status": status}));
                let params = PatchParams::default();
                api.patch_status(&name, &params, &status).await.unwrap();
            }
        }
    }

    /// Returns a program of ours with the server's kubeconfig.
    pub(crate) fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("KUBECONFIG", &self.kubeconfig)
            .current_dir(self.files.path())
            .args(arguments)
            .stdin(Stdio::null());
        command
    }

    /// Runs a tool to its end.
    pub(crate) async fn tool(&self, arguments: &[&str]) -> Ended {
        finish(self.command(env!("CARGO_BIN_EXE_nrotool"), arguments)).await
    }

    /// Runs must-gather into a folder of our files.
    pub(crate) async fn gather(&self, folder: &str, arguments: &[&str]) -> (Ended, PathBuf) {
        let root = self.files.path().join(folder);
        let mut command = self.command(env!("CARGO_BIN_EXE_numaresources-must-gather"), arguments);
        command.arg("--dest-dir").arg(&root);
        (finish(command).await, root)
    }
}

/// Waits for the end of a program. It must not block: the server may run in this process.
pub(crate) async fn finish(command: Command) -> Ended {
    let output = tokio::process::Command::from(command)
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(WITHIN, output).await;
    output.expect("it ends in time").unwrap().into()
}

/// Reads every file below a folder. Returns the relative paths with the contents.
pub(crate) fn read_all(root: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs_err::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let relative = path.strip_prefix(root).unwrap().display().to_string();
                found.push((relative, fs_err::read_to_string(path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

/// A worker that is Ready and has no taints.
pub(crate) fn node(name: &str, more: &Value) -> Value {
    let amounts = json!({"cpu": "16", "memory": "32Gi", "pods": "110"});
    let mut status = json!({
        "capacity": amounts, "allocatable": amounts,
        "conditions": [{"type": "Ready", "status": "True"}],
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        status[key] = value.clone();
    }
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"node-role.kubernetes.io/worker": ""}},
        "status": status,
    })
}

/// A Guaranteed pod in `default`; it runs if a node is named.
pub(crate) fn pod(name: &str, cpu: &str, node: Option<&str>) -> Value {
    let mut spec = json!({
        "schedulerName": "topo-aware-scheduler",
        "containers": [{"name": "main", "image": "pause", "resources": {"limits": {"cpu": cpu, "memory": "1Gi"}}}],
    });
    if let Some(node) = node {
        spec["nodeName"] = json!(node);
    }
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec,
        "status": {"phase": if node.is_some() { "Running" } else { "Pending" }},
    })
}

/// A NodeResourceTopology with 8 CPUs a zone, of which so many are left, and the zones of running containers `main` of pods in `default`.
pub(crate) fn topology(node: &str, left: &[u32], placed: &[(&str, usize)]) -> Value {
    let containers = placed.iter().map(|(pod, zone)| {
        let container = Container {
            namespace: "default",
            pod,
            container: "main",
        };
        (container, *zone)
    });
    let placement = nrt::placement::encode(containers, left.len()).unwrap();
    let names = placed.iter().map(|(pod, _)| ("default", *pod));
    let fingerprint = nrt::fingerprint::compute(names).to_string();
    let attribute = |name: &str, value: &str| json!({"name": name, "value": value});
    let resource = |name: &str, total: &str, left: &str| json!({"name": name, "capacity": total, "allocatable": total, "available": left});
    let zones = left.iter().enumerate().map(|(id, left)| {
        let vector = placement.vectors.get(&id);
        let vector = vector.map(|it| attribute(api::attributes::NUMA_PLACEMENT_VECTOR, it));
        json!({
            "name": format!("node-{id}"), "type": "Node", "attributes": vector.into_iter().collect::<Vec<_>>(),
            "resources": [resource("cpu", "8", &left.to_string()), resource("memory", "16Gi", "12Gi")],
        })
    });
    json!({
        "apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "metadata": {"name": node},
        "attributes": [
            attribute("topologyManagerPolicy", "single-numa-node"),
            attribute("topologyManagerScope", "container"),
            attribute("nodeTopologyPodsFingerprint", &fingerprint),
            attribute("nodeTopologyPodsFingerprintMethod", "with-exclusive-resources"),
            attribute(api::attributes::NUMA_PLACEMENT_METADATA, &placement.metadata),
        ],
        "zones": zones.collect::<Vec<_>>(),
    })
}
