//! A whole cluster, and what it holds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Parser;
use cluster_spec::kubelet::{KubeletSettings, TopologyScope};
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use kube::discovery::{Discovery, Scope, verbs};
use serde_json::Value;
use tempfile::TempDir;
use testbed::cli::PlanArgs;
use testbed::lane::{self, Lane, Spec};

/// Kinds whose objects come and go by themselves: `group/kind`.
const VOLATILE: [&str; 4] = [
    "/Event",
    "events.k8s.io/Event",
    "coordination.k8s.io/Lease",
    "/ComponentStatus",
];

/// User of the kubeconfig that the deployer gets. Controllers of the cluster read and write the same objects: a fault that is meant for the
/// deployer names its user.
pub(crate) const USER: &str = "admin";

pub(crate) struct TestCluster {
    pub(crate) inner: lane::Cluster,
    _dir: TempDir,
}

/// Returns the directory of the stack's programs, which are built with the workspace.
fn programs() -> PathBuf {
    let dir = std::env::var_os("NUMARESOURCES_BIN_DIR").map_or_else(
        || {
            let own = assert_cmd::cargo::cargo_bin("deployer");
            own.parent().unwrap().to_owned()
        },
        PathBuf::from,
    );
    for program in [
        "numaresources-operator",
        "numaresources-scheduler",
        "numaresources-testbed",
    ] {
        let path = dir.join(program);
        assert!(
            path.is_file(),
            "{} is missing: cargo build -p operator -p rte -p scheduler -p testbed",
            path.display()
        );
    }
    dir
}

impl TestCluster {
    /// Brings up an embedded cluster of plain Kubernetes.
    pub(crate) async fn up() -> Self {
        Self::up_on(Lane::Embedded, &[]).await
    }

    /// Brings up a control plane and two workers of one pool. The flags are those of `cluster up`.
    pub(crate) async fn up_on(lane: Lane, flags: &[&str]) -> Self {
        #[derive(Parser)]
        #[command(no_binary_name = true)]
        struct Flags {
            #[command(flatten)]
            plan: PlanArgs,
        }
        // the only possible error is that there is a provider already
        let _ = rustls::crypto::ring::default_provider().install_default();
        let dir = tempfile::tempdir().unwrap();
        let flags = [&["--workers", "2"], flags].concat();
        let mut plan = Flags::try_parse_from(flags).unwrap().plan;
        plan.bin_dir = Some(programs());
        let mut spec = plan.spec(lane, "deployer", dir.path(), &|_| {}).unwrap();
        let nodes = match &mut spec {
            Spec::Embedded(spec) => &mut spec.nodes,
            Spec::Local(spec) => &mut spec.nodes,
        };
        let labels = nodes[1].labels.clone();
        for worker in &mut nodes[1..] {
            worker.labels.clone_from(&labels);
            worker.kubelet = KubeletSettings::with_scope(TopologyScope::Pod);
        }
        let inner = Box::pin(lane::Cluster::up(spec, &|_| {})).await.unwrap();
        Self { inner, _dir: dir }
    }

    pub(crate) fn client(&self) -> Client {
        self.inner.client()
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.inner.kubeconfig()
    }
}

/// Returns every object of a cluster, without what changes by itself: what controllers report, and the book-keeping of the API server.
pub(crate) async fn all_objects(client: &Client) -> BTreeMap<String, Value> {
    let discovery = Discovery::new(client.clone()).run().await.unwrap();
    let mut objects = BTreeMap::new();
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            let kind = format!("{}/{}", resource.group, resource.kind);
            if VOLATILE.contains(&kind.as_str()) || !capabilities.supports_operation(verbs::LIST) {
                continue;
            }
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            for object in api.list(&ListParams::default()).await.unwrap().items {
                let mut value = serde_json::to_value(&object).unwrap();
                let name = object.metadata.name.clone().unwrap_or_default();
                let namespace = match capabilities.scope {
                    Scope::Namespaced => object.metadata.namespace.clone().unwrap_or_default(),
                    Scope::Cluster => String::new(),
                };
                let map = value.as_object_mut().unwrap();
                map.remove("status");
                for key in ["resourceVersion", "managedFields", "generation"] {
                    map["metadata"].as_object_mut().unwrap().remove(key);
                }
                objects.insert(format!("{kind} {namespace}/{name}"), value);
            }
        }
    }
    objects
}

/// Asserts that two states of a cluster are the same, and names what is not.
pub(crate) fn assert_same(before: &BTreeMap<String, Value>, after: &BTreeMap<String, Value>) {
    let new: Vec<&String> = after
        .keys()
        .filter(|key| !before.contains_key(*key))
        .collect();
    let gone: Vec<&String> = before
        .keys()
        .filter(|key| !after.contains_key(*key))
        .collect();
    let changed: Vec<&String> = before
        .iter()
        .filter(|(key, value)| after.get(*key).is_some_and(|other| other != *value))
        .map(|(key, _)| key)
        .collect();
    let nothing: [&String; 0] = [];
    assert_eq!(
        (new, gone, changed),
        (nothing.into(), nothing.into(), nothing.into())
    );
}

/// Writes a file for a flag.
pub(crate) fn file(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, text).unwrap();
    path
}
