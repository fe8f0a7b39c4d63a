//! The stand-in for the Machine Config Operator: from a `KubeletConfig` to restarted kubelets, simulated and real ones.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use api::openshift::config::{ApiServer, CLUSTER};
use api::openshift::machine_config::{KubeletConfig, MachineConfigPool, MachineConfigPoolStatus};
use cluster_spec::flavour::Flavour;
use cluster_spec::kubelet::TopologyScope;
use cluster_spec::plan::{ClusterSpec, NodePlan};
use cluster_spec::runtime::Runtime;
use fixtures::machines::Machine;
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch,
    PatchParams, PostParams,
};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, watcher};
use programs::kubernetes::{self, SearchPath};
use rstest::rstest;
use serde_json::{Value, json};
use testbed::embedded::EmbeddedSpec;
use testbed::eventually;
use testbed::lane::{Cluster, Lane, Spec};

use crate::cluster::harness::HELPER;

/// Longer than any step takes.
const PATIENCE: Duration = Duration::from_mins(3);
const POOL: &str = "numa-container";
const GENERATED: &str = "99-numa-container-generated-kubelet";

struct TestCluster {
    inner: Cluster,
    pools: Api<MachineConfigPool>,
    configs: Api<KubeletConfig>,
    nodes: Api<Node>,
    _dir: tempfile::TempDir,
}

impl TestCluster {
    /// Starts a cluster with two workers in the pool and one in another.
    async fn up(lane: Lane) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::default_profile();
        let worker = |index, scope| NodePlan::worker(index, scope, &machine);
        let nodes = vec![
            worker(0, TopologyScope::Container),
            worker(1, TopologyScope::Container),
            worker(2, TopologyScope::Pod),
        ];
        let bin_dir = Path::new(HELPER).parent().unwrap();
        let flavour = Some(Flavour::Openshift);
        let spec = match lane {
            Lane::Embedded => Spec::Embedded(EmbeddedSpec {
                flavour,
                ..EmbeddedSpec::new("openshift", dir.path(), bin_dir, nodes)
            }),
            Lane::Local => Spec::Local(Box::new(ClusterSpec {
                name: "openshift".to_owned(),
                state_root: dir.path().to_owned(),
                assets: kubernetes::locate(&SearchPath::from_environment(None), &|_| {}).unwrap(),
                bin_dir: bin_dir.to_owned(),
                nodes,
                hide_allocations: false,
                flavour,
                runtime: Runtime::Builtin,
            })),
        };
        let cluster = Box::pin(Cluster::up(spec, &|_| {})).await.unwrap();
        let client = cluster.client();
        Self {
            pools: Api::all(client.clone()),
            configs: Api::all(client.clone()),
            nodes: Api::all(client),
            inner: cluster,
            _dir: dir,
        }
    }

    /// Creates a `KubeletConfig` for the pool.
    async fn configure(&self, name: &str, payload: Value) {
        let label = format!("pools.operator.machineconfiguration.openshift.io/{POOL}");
        let config = json!({
            "metadata": {"name": name},
            "spec": {"machineConfigPoolSelector": {"matchLabels": {label: ""}}, "kubeletConfig": payload},
        });
        let config = serde_json::from_value(config).unwrap();
        self.configs
            .create(&PostParams::default(), &config)
            .await
            .unwrap();
    }

    /// Waits until the status of the pool satisfies a condition.
    async fn pool_is(
        &self,
        is_right: impl Fn(&MachineConfigPoolStatus) -> bool,
    ) -> MachineConfigPoolStatus {
        let found = eventually(PATIENCE, async || {
            let pool = self.pools.get(POOL).await.unwrap();
            let status = pool.status.unwrap_or_default();
            if is_right(&status) {
                return Ok(status);
            }
            Err(format!("{status:?}"))
        });
        found.await.unwrap()
    }

    /// Returns the topology manager policy that a running kubelet reports.
    async fn policy(&self, node: &str) -> String {
        let policy = self.setting(node, "topologyManagerPolicy").await;
        policy.as_str().unwrap().to_owned()
    }

    /// Returns a setting that a running kubelet reports.
    async fn setting(&self, node: &str, name: &str) -> Value {
        let path = format!("/api/v1/nodes/{node}/proxy/configz");
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        let configz: Value = self.inner.client().request(request).await.unwrap();
        configz["kubeletconfig"][name].clone()
    }
}

/// Returns whether all machines have a configuration that was rendered from these sources.
fn is_at(status: &MachineConfigPoolStatus, sources: &[&str]) -> bool {
    let made_from = status.configuration.source.iter();
    status.condition("Updated") == Some("True")
        && status.updated_machine_count == 2
        && made_from
            .map(|source| source.name.as_str())
            .eq(sources.iter().copied())
}

#[rstest]
#[case::simulated(Lane::Embedded)]
#[ignore = "real: root and the Kubernetes programs"]
#[case::real(Lane::Local)]
#[tokio::test(flavor = "multi_thread")]
async fn machines_of_a_pool_are_configured_one_after_another(#[case] lane: Lane) {
    let cluster = TestCluster::up(lane).await;
    let before = cluster.pool_is(|status| is_at(status, &[])).await;
    assert_eq!(
        (
            before.machine_count,
            before.ready_machine_count,
            before.condition("Updating")
        ),
        (2, 2, Some("False"))
    );
    let watching = tokio::spawn(most_cordoned(cluster.nodes.clone()));
    cluster
        .configure("aligned", json!({"topologyManagerPolicy": "restricted"}))
        .await;
    cluster
        .pool_is(|status| status.condition("Updating") == Some("True"))
        .await;
    let after = cluster.pool_is(|status| is_at(status, &[GENERATED])).await;
    assert_ne!(before.configuration.name, after.configuration.name);
    assert_eq!(watching.await.unwrap(), 1, "never two machines at once");
    assert_eq!(cluster.policy("worker-0").await, "restricted");
    assert_eq!(cluster.policy("worker-1").await, "restricted");
    assert_eq!(cluster.policy("worker-2").await, "single-numa-node");
    for node in cluster.nodes.list(&ListParams::default()).await.unwrap() {
        assert_eq!(
            node.spec.as_ref().unwrap().unschedulable,
            None,
            "{}",
            node.name_any()
        );
    }
    let status = cluster
        .configs
        .get("aligned")
        .await
        .unwrap()
        .status
        .unwrap();
    assert_eq!(status["conditions"][0]["type"], "Success");

    // The deletion of the `KubeletConfig` restores the former settings.
    cluster
        .configs
        .delete("aligned", &DeleteParams::default())
        .await
        .unwrap();
    let again = cluster.pool_is(|status| is_at(status, &[])).await;
    assert_eq!(again.configuration, before.configuration);
    assert_eq!(cluster.policy("worker-1").await, "single-numa-node");
}

/// Returns the largest number of nodes that were cordoned at the same time. Ends when two nodes have been cordoned and none is any more.
async fn most_cordoned(nodes: Api<Node>) -> usize {
    let changes = watcher(nodes, Config::default()).applied_objects();
    let mut changes = std::pin::pin!(changes);
    let (mut cordoned, mut seen, mut most) = (BTreeSet::new(), BTreeSet::new(), 0);
    loop {
        let node = changes.try_next().await.unwrap().unwrap();
        if node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true) {
            seen.insert(node.name_any());
            cordoned.insert(node.name_any());
        } else {
            cordoned.remove(&node.name_any());
        }
        most = most.max(cordoned.len());
        if cordoned.is_empty() && seen.len() == 2 {
            return most;
        }
    }
}

#[rstest]
#[case::simulated(Lane::Embedded)]
#[ignore = "real: root and the Kubernetes programs"]
#[case::real(Lane::Local)]
#[tokio::test(flavor = "multi_thread")]
async fn paused_pools_wait_and_what_no_kubelet_takes_is_told(#[case] lane: Lane) {
    let cluster = TestCluster::up(lane).await;
    cluster.pool_is(|status| is_at(status, &[])).await;
    let pause = async |paused: bool| {
        let patch = Patch::Merge(json!({"spec": {"paused": paused}}));
        cluster
            .pools
            .patch(POOL, &PatchParams::default(), &patch)
            .await
            .unwrap();
    };
    pause(true).await;
    cluster
        .configure("aligned", json!({"topologyManagerPolicy": "best-effort"}))
        .await;
    let waiting = cluster
        .pool_is(|status| status.condition("Updated") == Some("False"))
        .await;
    assert_eq!(
        (waiting.condition("Updating"), waiting.updated_machine_count),
        (Some("False"), 0)
    );
    assert_eq!(cluster.policy("worker-0").await, "single-numa-node");
    pause(false).await;
    cluster.pool_is(|status| is_at(status, &[GENERATED])).await;
    assert_eq!(cluster.policy("worker-0").await, "best-effort");

    // A kubelet refuses to start with these settings: the policy does not support the option.
    cluster
        .configure("refused", json!({"cpuManagerPolicy": "none", "cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}))
        .await;
    let degraded = cluster
        .pool_is(|status| status.condition("Degraded") == Some("True"))
        .await;
    assert_eq!(degraded.condition("Updated"), Some("False"));
    assert_eq!(
        (
            degraded.degraded_machine_count,
            degraded.updated_machine_count
        ),
        (1, 0)
    );
    assert_eq!(cluster.policy("worker-1").await, "best-effort");
    let unschedulable = cluster.nodes.get("worker-1").await.unwrap().spec.unwrap();
    assert_eq!(
        unschedulable.unschedulable, None,
        "no other machine is touched"
    );
    cluster
        .configs
        .delete("refused", &DeleteParams::default())
        .await
        .unwrap();
    let healed = cluster.pool_is(|status| is_at(status, &[GENERATED])).await;
    assert_eq!(healed.degraded_machine_count, 0);
}

#[rstest]
#[case::simulated(Lane::Embedded)]
#[ignore = "real: root and the Kubernetes programs"]
#[case::real(Lane::Local)]
#[tokio::test(flavor = "multi_thread")]
async fn kubelets_keep_what_a_configuration_leaves_empty_and_follow_the_tls_profile(
    #[case] lane: Lane,
) {
    let cluster = TestCluster::up(lane).await;
    let before = cluster.pool_is(|status| is_at(status, &[])).await;
    let frequency = cluster
        .setting("worker-0", "nodeStatusUpdateFrequency")
        .await;
    // a client that encodes a whole configuration writes what is not set, too
    let payload = json!({"topologyManagerPolicy": "restricted", "topologyManagerScope": "", "nodeStatusUpdateFrequency": "0s",
        "containerRuntimeEndpoint": "", "reservedSystemCPUs": "", "clusterDNS": [], "evictionHard": {}, "reservedMemory": null});
    cluster.configure("encoded", payload).await;
    let configured = cluster.pool_is(|status| is_at(status, &[GENERATED])).await;
    assert_eq!(cluster.policy("worker-1").await, "restricted");
    let after = cluster
        .setting("worker-0", "nodeStatusUpdateFrequency")
        .await;
    assert_eq!(frequency, after);

    let servers: Api<ApiServer> = Api::all(cluster.inner.client());
    let set = async |profile: Value| {
        let patch = Patch::Merge(json!({"spec": {"tlsSecurityProfile": profile}}));
        servers
            .patch(CLUSTER, &PatchParams::default(), &patch)
            .await
            .unwrap();
    };
    set(json!({"type": "Modern"})).await;
    let modern = cluster
        .pool_is(|status| {
            is_at(status, &[GENERATED])
                && status.configuration.name != configured.configuration.name
        })
        .await;
    assert_ne!(modern.configuration.name, before.configuration.name);
    let version = cluster.setting("worker-1", "tlsMinVersion").await;
    assert_eq!(version, "VersionTLS13");
    assert_eq!(cluster.policy("worker-1").await, "restricted");
    set(Value::Null).await;
    let again = cluster
        .pool_is(|status| {
            is_at(status, &[GENERATED]) && status.configuration.name != modern.configuration.name
        })
        .await;
    assert_eq!(again.configuration, configured.configuration);
}

#[rstest]
#[case::simulated(Lane::Embedded)]
#[ignore = "real: root and the Kubernetes programs"]
#[case::real(Lane::Local)]
#[tokio::test(flavor = "multi_thread")]
async fn objects_that_programs_look_for_are_there(#[case] lane: Lane) {
    let cluster = TestCluster::up(lane).await;
    let client = cluster.inner.client();
    let api = |group: &str, version: &str, kind: &str| {
        let gvk = GroupVersionKind::gvk(group, version, kind);
        Api::<DynamicObject>::all_with(client.clone(), &ApiResource::from_gvk(&gvk))
    };
    let scheduler = api("config.openshift.io", "v1", "Scheduler")
        .get("cluster")
        .await
        .unwrap();
    assert_eq!(scheduler.data["spec"]["mastersSchedulable"], json!(false));
    let subscriptions = api("operators.coreos.com", "v1alpha1", "Subscription")
        .list(&ListParams::default())
        .await
        .unwrap();
    let names: Vec<String> = subscriptions
        .iter()
        .map(kube::ResourceExt::name_any)
        .collect();
    assert_eq!(names, ["web-terminal"]);

    let pods: Api<Pod> = Api::namespaced(client.clone(), "openshift-monitoring");
    let its = ListParams::default().labels("app.kubernetes.io/name=prometheus");
    let running = eventually(PATIENCE, async || {
        let found = pods.list(&its).await.unwrap().items;
        let phases = found.iter().map(|pod| {
            let status = pod.status.clone().unwrap_or_default();
            (status.phase.unwrap_or_default(), status.pod_ip.is_some())
        });
        let phases: Vec<(String, bool)> = phases.collect();
        if phases == [("Running".to_owned(), true)] {
            return Ok(());
        }
        Err(format!("{phases:?}"))
    });
    running.await.unwrap();
}
