//! Clusters on which the deployer must not, or cannot, do all that it is asked for. There are no controllers and no nodes, so nothing is waited for.

use std::path::PathBuf;

use apply::{Applier, wait};
use cluster_spec::flavour::Flavour;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use manifests::to_value;
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::api_server::{self, ApiServer};
use testbed::configz::ConfigzKubelet;
use testbed::lane::Lane;

use crate::process::{Ran, deployer_on};

const PLATFORM: &str = "-P kubernetes:v1.35";
const DEFINITION: &str = "noderesourcetopologies.topology.node.k8s.io";

pub(crate) struct Cluster {
    pub(crate) client: Client,
    kubeconfig: PathBuf,
    dir: TempDir,
    server: ApiServer,
}

impl Cluster {
    pub(crate) async fn start(lane: Lane) -> Self {
        let server = ApiServer::start(lane).await.unwrap();
        let client = server.client().await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = dir.path().join("kubeconfig");
        api_server::write(&server.admin_kubeconfig().unwrap(), &kubeconfig).unwrap();
        Self {
            client,
            kubeconfig,
            dir,
            server,
        }
    }

    pub(crate) async fn run(&self, arguments: &str) -> Ran {
        deployer_on(&self.kubeconfig, arguments).await
    }

    /// Applies an object of the cluster.
    pub(crate) async fn apply(&self, object: &Value) {
        Applier::new(self.client.clone())
            .apply(object)
            .await
            .unwrap();
    }

    /// Asserts that nothing of the stack is there.
    async fn assert_untouched(&self) {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        for name in ["tas-topology-updater", "tas-scheduler"] {
            assert!(namespaces.get_opt(name).await.unwrap().is_none(), "{name}");
        }
        let roles: Api<ClusterRole> = Api::all(self.client.clone());
        assert!(roles.get_opt("rte").await.unwrap().is_none());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_half_done_without_rights_or_on_another_platform_or_beside_the_operator() {
    let mut cluster = Cluster::start(Lane::from_environment().unwrap()).await;
    let stderr = cluster
        .run("-P openshift:4.20.0 --rte-config-file=/dev/null deploy topology-updater")
        .await
        .stderr();
    let unknown = "the cluster does not know the kind SecurityContextConstraints. Nothing was changed: is the platform right?";
    assert!(stderr.contains(unknown), "{stderr}");
    cluster.assert_untouched().await;

    for definition in [
        api::crd::numa_resources_operator(),
        api::crd::numa_resources_scheduler(),
    ] {
        cluster.apply(&to_value(&definition)).await;
        let within = std::time::Duration::from_mins(1);
        wait::definition(&cluster.client, &definition.name_any(), within)
            .await
            .unwrap();
    }
    let resource = json!({"apiVersion": "nodetopology.openshift.io/v1", "kind": "NUMAResourcesOperator",
        "metadata": {"name": "numaresourcesoperator"}, "spec": {}});
    cluster.apply(&resource).await;
    let stderr = cluster.run("deploy").await.stderr();
    let refused = "the operator keeps the topology updater of this cluster, by NUMAResourcesOperator numaresourcesoperator. Nothing was changed";
    assert!(stderr.contains(refused), "{stderr}");
    cluster.assert_untouched().await;

    let accounts: Api<ServiceAccount> = Api::default_namespaced(cluster.client.clone());
    let account = serde_json::from_value(json!({"metadata": {"name": "nobody"}})).unwrap();
    accounts
        .create(&PostParams::default(), &account)
        .await
        .unwrap();
    let nobody = cluster
        .server
        .account_kubeconfig("default", "nobody")
        .await
        .unwrap();
    cluster.kubeconfig = cluster.dir.path().join("nobody");
    api_server::write(&nobody, &cluster.kubeconfig).unwrap();
    let stderr = cluster.run(&format!("{PLATFORM} deploy")).await.stderr();
    for right in [
        "create namespaces",
        "create daemonsets.apps in namespace tas-topology-updater",
        "Nothing was changed",
    ] {
        assert!(stderr.contains(right), "{right} in {stderr}");
    }
    let stderr = cluster.run(&format!("{PLATFORM} remove")).await.stderr();
    assert!(
        stderr.contains("delete clusterroles.rbac.authorization.k8s.io"),
        "{stderr}"
    );
    let stderr = cluster.run("deploy").await.stderr();
    assert!(
        stderr.contains("cannot autodetect the platform"),
        "{stderr}"
    );
    assert!(cluster.run("detect").await.stdout().starts_with("Unknown:"));
    cluster.assert_untouched().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_earlier_call_or_somebody_else_has_left_is_completed_and_kept() {
    let cluster = Cluster::start(Lane::from_environment().unwrap()).await;
    // somebody else's definition stays as it is, if it will do
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    cluster
        .apply(&to_value(&api::crd::node_resource_topology()))
        .await;
    let theirs = definitions.get(DEFINITION).await.unwrap();
    let log = cluster.run("deploy").await.log();
    let kept = "API: left as it is kind=CustomResourceDefinition name=noderesourcetopologies.topology.node.k8s.io";
    assert!(log.iter().any(|line| line.starts_with(kept)), "{log:#?}");

    // what is missing is created again, and nothing else is touched
    let roles: Api<ClusterRole> = Api::all(cluster.client.clone());
    roles.delete("rte", &DeleteParams::default()).await.unwrap();
    // `setup` tells what is wrong, and deploys all the same
    let log = cluster.run("setup").await.log();
    let no_workers = "cluster configuration issue=0 description=Incorrect configuration of cluster";
    assert!(
        log.iter().any(|line| line.starts_with(no_workers)),
        "{log:#?}"
    );
    let created: Vec<&String> = log
        .iter()
        .filter(|line| line.contains("created") || line.contains("updated"))
        .collect();
    assert_eq!(created, ["RTE: created kind=ClusterRole name=rte"]);

    // the other updater would write the same objects
    let stderr = cluster
        .run("deploy topology-updater --updater-type=NFD")
        .await
        .stderr();
    assert!(
        stderr.contains("DaemonSet tas-topology-updater/resource-topology-exporter"),
        "{stderr}"
    );

    // a role of the operator has the same name
    let owner = json!({"metadata": {"ownerReferences": [{"apiVersion": "nodetopology.openshift.io/v1", "kind": "NUMAResourcesOperator",
        "name": "numaresourcesoperator", "uid": "u"}]}});
    roles
        .patch("rte", &PatchParams::default(), &Patch::Merge(owner))
        .await
        .unwrap();
    let log = cluster.run("remove").await.log();
    let kept = "RTE: kept kind=ClusterRole name=rte reason=it belongs to the operator (NUMAResourcesOperator numaresourcesoperator)";
    assert!(log.contains(&kept.to_owned()), "{log:#?}");
    assert!(
        log.iter()
            .any(|line| line.starts_with("API: kept kind=CustomResourceDefinition")),
        "{log:#?}"
    );
    assert_eq!(definitions.get(DEFINITION).await.unwrap().spec, theirs.spec);
    assert!(
        roles
            .get_opt("topology-aware-scheduler")
            .await
            .unwrap()
            .is_none()
    );
    let again = cluster.run("remove").await.log();
    assert!(
        !again.iter().any(|line| line.contains("error")),
        "{again:#?}"
    );
}

/// Creates a worker whose kubelet tells these settings.
pub(crate) async fn worker(client: &Client, name: &str, kubelet: &ConfigzKubelet) {
    let nodes: Api<Node> = Api::all(client.clone());
    let labels = json!({"node-role.kubernetes.io/worker": ""});
    let node =
        serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let mut status = kubelet.node_status();
    status["nodeInfo"] = json!({"bootID": "", "architecture": "", "containerRuntimeVersion": "", "kernelVersion": "",
        "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": ""});
    let status = Patch::Merge(json!({"status": status}));
    nodes
        .patch_status(name, &PatchParams::default(), &status)
        .await
        .unwrap();
    // without a controller nobody takes the taint of a new node away
    let ready = Patch::Merge(json!({"spec": {"taints": null}}));
    nodes
        .patch(name, &PatchParams::default(), &ready)
        .await
        .unwrap();
}

/// On OpenShift the exporters cannot read the kubelet's file.
#[tokio::test(flavor = "multi_thread")]
async fn exporters_on_openshift_get_the_settings_in_which_all_kubelets_agree() {
    // a real API server cannot ask made-up kubelets
    let cluster = Cluster::start(Lane::Embedded).await;
    openshift::install(
        &cluster.client,
        Flavour::Openshift,
        openshift::VERSION,
        &["worker"],
    )
    .await
    .unwrap();
    let settings = |scope: &str| json!({"topologyManagerPolicy": "single-numa-node", "topologyManagerScope": scope});
    let [one, two] = [
        ConfigzKubelet::start(settings("pod")).await.unwrap(),
        ConfigzKubelet::start(settings("container")).await.unwrap(),
    ];
    worker(&cluster.client, "worker-0", &one).await;
    worker(&cluster.client, "worker-1", &two).await;
    assert_eq!(
        cluster.run("detect").await.stdout(),
        format!("OpenShift:{}\n", openshift::VERSION)
    );

    let stderr = cluster.run("deploy").await.stderr();
    for part in [
        "worker-0 has policy \"single-numa-node\", scope \"pod\"",
        "worker-1 has policy",
        "--rte-config-file",
    ] {
        assert!(stderr.contains(part), "{part} in {stderr}");
    }
    cluster.assert_untouched().await;

    two.set(settings("pod"));
    let log = cluster.run("deploy topology-updater").await.log();
    assert!(
        !log.iter().any(|line| line.contains("MachineConfig")),
        "{log:#?}"
    );
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "tas-topology-updater");
    let data = maps.get("rte-config").await.unwrap().data.unwrap();
    assert_eq!(
        data["config.yaml"],
        "kubelet:\n  topologyManagerPolicy: single-numa-node\n  topologyManagerScope: pod\n"
    );

    pools_that_differ_get_exporters_of_their_own(&cluster, &two, &settings("container")).await;

    let report = cluster.run("validate --json").await.stdout();
    let report: Value = serde_json::from_str(&report).unwrap();
    let settings: Vec<&Value> = report["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| &error["node"])
        .collect();
    assert!(
        settings.contains(&&json!("worker-0")) && settings.contains(&&json!("worker-1")),
        "{report}"
    );
}

/// Puts the second node into a pool with other settings. Afterwards all exporters are as before.
async fn pools_that_differ_get_exporters_of_their_own(
    cluster: &Cluster,
    kubelet: &ConfigzKubelet,
    other: &Value,
) {
    let names = async || {
        let sets: Api<DaemonSet> = Api::namespaced(cluster.client.clone(), "tas-topology-updater");
        let sets = sets.list(&ListParams::default()).await.unwrap();
        let names: Vec<String> = sets.iter().map(kube::ResourceExt::name_any).collect();
        names
    };
    assert_eq!(names().await, ["resource-topology-exporter"]);
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let role = |value: Value| {
        Patch::Merge(json!({"metadata": {"labels": {"node-role.kubernetes.io/rt": value}}}))
    };
    nodes
        .patch("worker-1", &PatchParams::default(), &role(json!("")))
        .await
        .unwrap();
    kubelet.set(other.clone());
    cluster.run("deploy topology-updater").await.log();
    assert_eq!(
        names().await,
        [
            "resource-topology-exporter-rt",
            "resource-topology-exporter-worker"
        ]
    );
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "tas-topology-updater");
    let map = maps.get("rte-config-rt").await.unwrap();
    assert!(map.data.unwrap()["config.yaml"].contains("topologyManagerScope: container"));
    assert!(maps.get_opt("rte-config").await.unwrap().is_none());
    nodes
        .patch("worker-1", &PatchParams::default(), &role(Value::Null))
        .await
        .unwrap();
    let mut usual = other.clone();
    usual["topologyManagerScope"] = json!("pod");
    kubelet.set(usual);
    cluster.run("deploy topology-updater").await.log();
    assert_eq!(names().await, ["resource-topology-exporter"]);
}
