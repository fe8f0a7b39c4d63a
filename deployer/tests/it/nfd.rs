//! The real updater of node-feature-discovery, deployed by our manifests on nodes with real kubelets and pretend hardware. What it publishes is
//! recorded for the scheduler's tests.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use api::nrt::v1alpha2::NodeResourceTopology;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::lane::Lane;

use crate::cluster::TestCluster;
use crate::deployment::{DEPLOY, WITHIN, placed, run};
use crate::parts::{has_fingerprint, published};

/// Variable with the path of the program `nfd-topology-updater`, which has to be linked statically.
const PROGRAM: &str = "NFD_TOPOLOGY_UPDATER";
/// Where the program is on the nodes.
const DIRECTORY: &str = "/var/lib/nfd";
const NAME: &str = "nfd-topology-updater";
const NAMESPACE: &str = "node-feature-discovery";
const SOME: &str = "--updater-type=NFD --updater-sync-period=1s";
/// What is recorded, below the root of the workspace.
const RECORDING: &str = "scheduler/corpus/nfd.json";

/// Puts the program onto every worker.
fn install(cluster: &TestCluster, program: &Path) {
    let local = cluster.inner.local().expect("a local cluster");
    for node in local.nodes() {
        let directory = node.host_path(Path::new(DIRECTORY));
        fs_err::create_dir_all(&directory).unwrap();
        let path = directory.join(NAME);
        fs_err::copy(program, &path).unwrap();
        fs_err::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// Deploys the updater. The nodes have no image of it: its pods have the image of the stack, and the program from their node.
async fn deploy(cluster: &TestCluster, flags: &str) {
    run(cluster, &format!("deploy topology-updater {SOME} {flags}"))
        .await
        .log();
    let pods = json!({
        "containers": [{
            "name": NAME, "image": api::names::STACK_IMAGE, "command": [format!("{DIRECTORY}/{NAME}")],
            "volumeMounts": [{"name": "program", "mountPath": DIRECTORY, "readOnly": true}],
        }],
        "volumes": [{"name": "program", "hostPath": {"path": DIRECTORY}}],
    });
    let patch = json!({"spec": {"template": {"spec": pods}}});
    let sets: Api<DaemonSet> = Api::namespaced(cluster.client(), NAMESPACE);
    let params = PatchParams::default();
    sets.patch(NAME, &params, &Patch::Strategic(patch))
        .await
        .unwrap();
}

/// Takes the updater and its objects away.
async fn remove(cluster: &TestCluster) {
    run(cluster, &format!("remove --wait topology-updater {SOME}"))
        .await
        .log();
    let topologies: Api<NodeResourceTopology> = Api::all(cluster.client());
    let every = ListParams::default();
    topologies
        .delete_collection(&DeleteParams::default(), &every)
        .await
        .unwrap();
}

/// Returns an object as the updater sent it.
fn sent(topology: &NodeResourceTopology) -> Value {
    let mut object = serde_json::to_value(topology).unwrap();
    let metadata = object["metadata"].as_object_mut().unwrap();
    for key in [
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "managedFields",
    ] {
        metadata.remove(key);
    }
    object["apiVersion"] = json!("topology.node.k8s.io/v1alpha2");
    object["kind"] = json!("NodeResourceTopology");
    object
}

fn fingerprint(topology: &NodeResourceTopology) -> Option<&str> {
    let mut attributes = topology.attributes.iter();
    let found = attributes.find(|it| it.name == "nodeTopologyPodsFingerprint");
    found.map(|it| it.value.as_str())
}

/// Waits until the object of a node has the fingerprint of all of the node's pods. Returns it with the names of the pods.
async fn accounted(cluster: &TestCluster, node: &str) -> Value {
    let topologies: Api<NodeResourceTopology> = Api::all(cluster.client());
    let pods: Api<Pod> = Api::all(cluster.client());
    let of_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let found = testbed::eventually(WITHIN, async || {
        let topology = topologies.get(node).await.unwrap();
        let pods = pods.list(&of_node).await.unwrap().items;
        let names: Vec<(String, String)> = pods
            .iter()
            .map(|pod| (pod.namespace().unwrap(), pod.name_any()))
            .collect();
        let names_ref = names
            .iter()
            .map(|(namespace, name)| (namespace.as_str(), name.as_str()));
        let expected = nrt::fingerprint::compute(names_ref).to_string();
        if fingerprint(&topology) == Some(expected.as_str()) {
            Ok(json!({"topology": sent(&topology), "pods": names}))
        } else {
            Err(format!("{topology:?} is not of {names:?}"))
        }
    });
    found.await.expect("the object accounts for all pods")
}

mod long {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "long: root, the Kubernetes programs, and the path of nfd-topology-updater in NFD_TOPOLOGY_UPDATER"]
    async fn the_updater_of_node_feature_discovery_has_pods_placed_and_is_recorded() {
        let program = std::env::var_os(PROGRAM).map(PathBuf::from);
        let program = program.unwrap_or_else(|| panic!("{PROGRAM} is not set"));
        let version = std::process::Command::new(&program)
            .arg("-version")
            .output();
        let version = String::from_utf8(version.unwrap().stdout).unwrap();
        let cluster = TestCluster::up_on(Lane::Local, &[]).await;
        install(&cluster, &program);
        run(&cluster, "deploy api").await.log();

        deploy(&cluster, "--updater-pfp-enable=false").await;
        let without = published(&cluster).await;
        assert!(!without.iter().any(has_fingerprint), "{without:?}");
        remove(&cluster).await;

        deploy(&cluster, "").await;
        published(&cluster).await;
        run(&cluster, &format!("{DEPLOY} scheduler-plugin"))
            .await
            .log();
        let pods: Api<Pod> = Api::default_namespaced(cluster.client());
        let mut before = BTreeMap::new();
        for topology in &without {
            let node = topology.name_any();
            before.insert(node.clone(), accounted(&cluster, &node).await);
        }
        let node = placed(&pods, "aligned").await;
        let after = accounted(&cluster, &node).await;

        let without = without.iter().find(|it| it.name_any() == node).unwrap();
        let recording = json!({
            "program": version.trim(),
            "without": sent(without),
            "before": before[&node],
            "after": after,
        });
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let text = serde_json::to_string_pretty(&recording).unwrap() + "\n";
        fs_err::write(root.join(RECORDING), text).unwrap();
        remove(&cluster).await;
        cluster.inner.down().unwrap();
    }
}
