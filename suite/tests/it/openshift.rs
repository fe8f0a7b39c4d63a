//! From the configuration of kubelets to a scheduling decision, on OpenShift and on a hosted cluster, on both lanes. A pod that spans zones
//! stays pending while its node's kubelet would refuse it, and is bound once the kubelet would accept it.
#![expect(
    clippy::unwrap_used,
    reason = "what a test stands on has to be there: it panics where it is not"
)]

use std::path::{Path, PathBuf};
use std::time::Duration;

use api::names;
use cluster_spec::flavour::Flavour;
use cluster_spec::kubelet::{KubeletSettings, TopologyPolicy, TopologyScope};
use cluster_spec::plan::{ClusterSpec, NodePlan};
use cluster_spec::runtime::Runtime;
use fixtures::machines::Machine;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
};
use kube::{Client, ResourceExt as _};
use programs::kubernetes::{self, SearchPath};
use rstest::rstest;
use serde::Deserialize as _;
use serde_json::{Value, json};
use suite::binaries;
use testbed::embedded::EmbeddedSpec;
use testbed::lane::{Cluster, Lane, Spec};

use crate::harness::eventually;

/// Longer than any step takes.
const TIMEOUT: Duration = Duration::from_mins(3);
pub(crate) const POOL: &str = "numa-container";
const NODE: &str = "worker-0";
const MANAGED: &str = "openshift-config-managed";

pub(crate) struct TestCluster {
    cluster: Cluster,
    flavour: Flavour,
    client: Client,
    _dir: tempfile::TempDir,
}

impl TestCluster {
    /// Brings up a control plane node and one worker, with the operator, its exporter and its scheduler.
    pub(crate) async fn up(lane: Lane, flavour: Flavour) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let bin_dir = binaries::locate(None, |_| {}).await.unwrap();
        let machine = Machine::default_profile();
        let worker = NodePlan::worker(0, TopologyScope::Container, &machine);
        let worker = match flavour {
            Flavour::Openshift => worker,
            Flavour::Hypershift => worker.hosted(),
        };
        let nodes = vec![NodePlan::control_plane(&machine), worker];
        let spec = match lane {
            Lane::Embedded => Spec::Embedded(EmbeddedSpec {
                flavour: Some(flavour),
                ..EmbeddedSpec::new("chain", dir.path(), &bin_dir, nodes)
            }),
            Lane::Local => Spec::Local(Box::new(ClusterSpec {
                name: "chain".to_owned(),
                state_root: dir.path().to_owned(),
                assets: kubernetes::locate(&SearchPath::from_environment(None), &|_| {}).unwrap(),
                bin_dir,
                nodes,
                hide_allocations: false,
                flavour: Some(flavour),
                runtime: Runtime::Builtin,
            })),
        };
        let cluster = Box::pin(Cluster::up(spec, &|_| {})).await.unwrap();
        let cluster = Self {
            client: cluster.client(),
            cluster,
            flavour,
            _dir: dir,
        };
        cluster.install().await;
        cluster
    }

    /// Returns a client of the administrator.
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns the administrator's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.cluster.kubeconfig()
    }

    /// Installs the stack as an administrator does: the files of the operator, then the two resources.
    async fn install(&self) {
        let config = binaries::workspace().unwrap().join("config");
        for kind in ["numaresourcesoperators", "numaresourcesschedulers"] {
            let file = config.join(format!("crd/nodetopology.openshift.io_{kind}.yaml"));
            for object in documents(&file) {
                self.apply(&object).await;
            }
        }
        for object in documents(&config.join("openshift/operator.yaml")) {
            self.apply(&object).await;
        }
        for (kind, name, spec) in [
            (
                "NUMAResourcesOperator",
                names::OPERATOR_CR,
                json!({"nodeGroups": [{"poolName": POOL}]}),
            ),
            (
                "NUMAResourcesScheduler",
                names::SCHEDULER_CR,
                json!({"imageSpec": names::pinned_stack_image()}),
            ),
        ] {
            let version = "nodetopology.openshift.io/v1";
            self.apply(&json!({
                "apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec,
            }))
            .await;
        }
    }

    fn api(&self, version: &str, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    /// Applies an object. A kind that was just defined is not served at once.
    pub(crate) async fn apply(&self, object: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let metadata = &object["metadata"];
        let api = self.api(&version, &kind, metadata["namespace"].as_str());
        let name = text(&metadata["name"]);
        let params = PatchParams::apply("administrator").force();
        eventually(&format!("{kind} {name} is taken"), TIMEOUT, async || {
            let written = api.patch(&name, &params, &Patch::Apply(object)).await;
            written.map_err(|error| error.to_string())
        })
        .await;
    }

    /// Sets a policy for the pool's kubelets, as the platform does. On a hosted cluster it changes the ConfigMap that the pool has already:
    /// of two that are made within a second, none is the newer one.
    pub(crate) async fn configure(&self, policy: TopologyPolicy, name: &str) {
        let config = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "KubeletConfig",
            "metadata": {"name": "alignment"},
            "spec": {
                "machineConfigPoolSelector": {"matchLabels": {format!("pools.operator.machineconfiguration.openshift.io/{POOL}"): ""}},
                "kubeletConfig": {"topologyManagerPolicy": name, "topologyManagerScope": "container"},
            },
        });
        if self.flavour == Flavour::Openshift {
            return self.apply(&config).await;
        }
        self.apply(&json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": format!("kubeletconfig-{POOL}"), "namespace": MANAGED, "labels": {
                "hypershift.openshift.io/kubeletconfig-config": "true",
                "hypershift.openshift.io/nodePool": POOL,
            }},
            "data": {"config": config.to_string()},
        }))
        .await;
        // no component of a hosted cluster configures its nodes
        let settings = KubeletSettings {
            topology_manager_policy: policy,
            ..KubeletSettings::default()
        };
        let machines = self.cluster.machines();
        machines.restart_kubelet(NODE, &settings).await.unwrap();
    }

    /// Waits until the node's NRT has this policy.
    pub(crate) async fn wait_for_policy(&self, policy: &str) {
        let api = self.api(
            "topology.node.k8s.io/v1alpha2",
            "NodeResourceTopology",
            None,
        );
        eventually(
            &format!("policy {policy} is published"),
            TIMEOUT,
            async || {
                let nrt = api.get(NODE).await.map_err(|error| error.to_string())?;
                let attributes = nrt.data["attributes"]
                    .as_array()
                    .cloned()
                    .unwrap_or_default();
                let is_it = |attribute: &Value| {
                    attribute["name"] == "topologyManagerPolicy" && attribute["value"] == policy
                };
                if attributes.iter().any(is_it) {
                    Ok(())
                } else {
                    Err(format!("{attributes:?}"))
                }
            },
        )
        .await;
    }
}

fn documents(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap();
    let documents = serde_yaml::Deserializer::from_str(&text);
    documents
        .map(|document| Value::deserialize(document).unwrap())
        .collect()
}

/// Builds a pod with more CPUs than a zone of the machine has, and fewer than both zones have.
pub(crate) fn spanning_pod() -> Value {
    let machine = Machine::default_profile();
    let zone = machine.zones()[0].cores * machine.threads_per_core();
    let amounts = json!({"cpu": (zone + 2).to_string(), "memory": "64Mi"});
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "spanning", "namespace": "default"},
        "spec": {
            "schedulerName": names::SCHEDULER_PROFILE,
            "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "c", "image": names::STACK_IMAGE, "command": ["/bin/sleep", "infinity"],
                "resources": {"limits": amounts, "requests": amounts},
            }],
        },
    })
}

#[rstest]
#[case::machines(Lane::Embedded, Flavour::Openshift)]
#[case::hosted(Lane::Embedded, Flavour::Hypershift)]
#[ignore = "real: root and the Kubernetes programs"]
#[case::real_machines(Lane::Local, Flavour::Openshift)]
#[ignore = "real: root and the Kubernetes programs"]
#[case::real_hosted(Lane::Local, Flavour::Hypershift)]
#[tokio::test(flavor = "multi_thread")]
async fn configuration_of_kubelets_decides_where_pods_go(
    #[case] lane: Lane,
    #[case] flavour: Flavour,
) {
    let cluster = TestCluster::up(lane, flavour).await;
    cluster
        .configure(TopologyPolicy::SingleNumaNode, "single-numa-node")
        .await;
    cluster.wait_for_policy("single-numa-node").await;
    cluster.apply(&spanning_pod()).await;
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "default");
    let events: Api<Event> = Api::namespaced(cluster.client.clone(), "default");
    eventually("the pod is held back for its zones", TIMEOUT, async || {
        let all = events.list(&ListParams::default()).await;
        let all = all.map_err(|error| error.to_string())?;
        let messages = all.iter().filter_map(|event| event.message.clone());
        let mine: Vec<String> = messages.collect();
        if mine.iter().any(|message| message.contains("cannot align")) {
            return Ok(());
        }
        // a scheduler that hears of the pod before it hears of the policy places it once more as before, and the kubelet refuses it
        let pod = pods.get_opt("spanning").await;
        let pod = pod.map_err(|error| error.to_string())?;
        let phase = pod.and_then(|pod| pod.status?.phase);
        match phase.as_deref() {
            Some("Failed") => {
                let params = DeleteParams::default();
                let deleted = pods.delete("spanning", &params).await;
                deleted.map_err(|error| error.to_string())?;
            }
            None => cluster.apply(&spanning_pod()).await,
            Some(_) => {}
        }
        Err(format!("{mine:?}"))
    })
    .await;
    let pod = pods.get("spanning").await.unwrap();
    assert_eq!(pod.spec.unwrap().node_name, None);

    cluster
        .configure(TopologyPolicy::BestEffort, "best-effort")
        .await;
    cluster.wait_for_policy("best-effort").await;
    eventually("the pod runs", TIMEOUT, async || {
        let pod = pods
            .get("spanning")
            .await
            .map_err(|error| error.to_string())?;
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
        if phase.as_deref() == Some("Running") {
            Ok(())
        } else {
            Err(format!("{} is {phase:?}", pod.name_any()))
        }
    })
    .await;
}
