//! The whole way on a cluster: deploy, a pod is placed, validate, deploy again, remove.

use std::time::Duration;

use cluster_spec::kubelet::{KubeletSettings, TopologyPolicy, TopologyScope};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};

use crate::cluster::{TestCluster, all_objects, assert_same, file};
use crate::process::{Ran, deployer_on};

pub(crate) const WITHIN: Duration = Duration::from_mins(1);
/// Waits look often, so that tests do not wait for them.
pub(crate) const DEPLOY: &str = "deploy --wait --wait-interval=200ms --wait-timeout=45s";
const CONFIG: &str = "topologyPolicy: {}\n";

pub(crate) async fn run(cluster: &TestCluster, arguments: &str) -> Ran {
    deployer_on(&cluster.kubeconfig(), arguments).await
}

/// Creates a Guaranteed pod for the deployed scheduler. Returns the node that it runs on.
pub(crate) async fn placed(pods: &Api<Pod>, name: &str) -> String {
    let amounts = json!({"cpu": "2", "memory": "100Mi"});
    let pod = json!({"metadata": {"name": name}, "spec": {
        "schedulerName": "topology-aware-scheduler", "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": api::names::STACK_IMAGE, "command": ["/bin/sleep", "1h"], "resources": {"limits": amounts}}],
    }});
    let pod = serde_json::from_value(pod).unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let node = testbed::eventually(WITHIN, async || {
        let pod = pods.get(name).await.map_err(|error| error.to_string())?;
        let status = pod.status.unwrap_or_default();
        match (
            status.phase.as_deref(),
            pod.spec.and_then(|spec| spec.node_name),
        ) {
            (Some("Running"), Some(node)) => Ok(node),
            _ => Err(format!("{status:?}")),
        }
    });
    node.await.expect("the pod runs")
}

/// Deletes a pod and waits until it is gone.
pub(crate) async fn gone(pods: &Api<Pod>, name: &str) {
    pods.delete(name, &DeleteParams::default()).await.unwrap();
    let gone = testbed::eventually(WITHIN, async || match pods.get_opt(name).await {
        Ok(None) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    gone.await.expect("the pod goes");
}

/// Returns the lines of a deployment that tell of changes.
fn changes(lines: &[String]) -> Vec<&str> {
    let words = [": created", ": updated", ": deleted"];
    let is_change = |line: &&String| words.iter().any(|word| line.contains(word));
    lines.iter().filter(is_change).map(String::as_str).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployed_stack_places_pods_and_leaves_nothing_behind() {
    let cluster = TestCluster::up().await;
    let before = all_objects(&cluster.client()).await;
    let detected: Value =
        serde_json::from_str(&run(&cluster, "detect --json").await.stdout()).unwrap();
    assert_eq!(detected["platform"]["discovered"], "Kubernetes");
    assert_eq!(detected["platform"]["autoDetected"], "Kubernetes");
    let version = detected["version"]["discovered"].as_str().unwrap();
    let minor: u32 = version.split('.').nth(1).unwrap().parse().unwrap();
    assert!(minor >= 21, "{detected}");
    assert_eq!(
        run(&cluster, "detect --control-plane").await.stdout(),
        "nodes=1\n"
    );
    let passed = "PASSED>>: the cluster configuration looks ok!\n";
    assert_eq!(run(&cluster, "validate --strict").await.stdout(), passed);
    let report = run(&cluster, "validate --json").await.stdout();
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report, json!({"success": true}));

    let log = run(&cluster, DEPLOY).await.log();
    for line in [
        "API: deploying topology-aware-scheduling API",
        "API: created kind=CustomResourceDefinition name=noderesourcetopologies.topology.node.k8s.io",
        "API: CRD available key=/noderesourcetopologies.topology.node.k8s.io",
        "API: deployed topology-aware-scheduling API",
        "RTE: created kind=DaemonSet name=resource-topology-exporter",
        "RTE: daemonset ready key=tas-topology-updater/resource-topology-exporter desired=2 current=2 ready=2",
        "RTE: deployed topology-aware-scheduling topology updater!",
        "SCD: deployment complete key=tas-scheduler/topology-aware-scheduler replicas=1 updated=1 available=1",
        "SCD: deployed topology-aware-scheduling scheduler plugin",
    ] {
        assert!(log.contains(&line.to_owned()), "{line} in {log:#?}");
    }
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    placed(&pods, "aligned").await;
    assert_eq!(run(&cluster, "validate --strict").await.stdout(), passed);

    // again: nothing to do; with a configuration: it comes, and goes without
    assert_eq!(changes(&run(&cluster, DEPLOY).await.log()), [""; 0]);
    let dir = tempfile::tempdir().unwrap();
    let config = file(dir.path(), "rte.yaml", CONFIG);
    let with_config = format!(
        "{DEPLOY} topology-updater --rte-config-file={}",
        config.display()
    );
    let log = run(&cluster, &with_config).await.log();
    assert_eq!(
        changes(&log),
        [
            "RTE: created kind=ConfigMap name=rte-config",
            "RTE: updated kind=DaemonSet name=resource-topology-exporter",
        ]
    );
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), "tas-topology-updater");
    let map = maps.get("rte-config").await.unwrap();
    assert_eq!(map.data.unwrap()["config.yaml"], CONFIG);
    let log = run(&cluster, &format!("{DEPLOY} topology-updater"))
        .await
        .log();
    assert!(
        changes(&log).contains(&"RTE: deleted kind=ConfigMap name=rte-config"),
        "{log:#?}"
    );

    misconfigured_node_is_named(&cluster).await;

    gone(&pods, "aligned").await;
    let log = run(&cluster, "remove --wait --wait-interval=200ms")
        .await
        .log();
    for line in [
        "SCD: deleted kind=Namespace name=tas-scheduler",
        "RTE: object is gone kind=Namespace key=/tas-topology-updater",
        "API: object is gone kind=CustomResourceDefinition key=/noderesourcetopologies.topology.node.k8s.io",
        "API: removed topology-aware-scheduling API!",
    ] {
        assert!(log.contains(&line.to_owned()), "{line} in {log:#?}");
    }
    assert_same(&before, &all_objects(&cluster.client()).await);
    // a second removal has nothing to do and does not mind
    assert_eq!(
        changes(&run(&cluster, "remove --wait").await.log()),
        [""; 0]
    );
    cluster.inner.down().unwrap();
}

/// Restarts the kubelet of a node with another policy; its exporter publishes that, and `validate` names the node.
pub(crate) async fn misconfigured_node_is_named(cluster: &TestCluster) {
    let machines = cluster.inner.machines();
    let wrong = KubeletSettings {
        topology_manager_policy: TopologyPolicy::BestEffort,
        ..KubeletSettings::with_scope(TopologyScope::Container)
    };
    machines.restart_kubelet("worker-1", &wrong).await.unwrap();
    let ran = run(cluster, "validate --strict").await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let error = "ERROR#000: Incorrect configuration of node \"worker-1\" area \"kubelet\" component \"topology manager\" setting \"policy\": \
                 expected \"single-numa-node\" detected \"best-effort\"\n    fix: ";
    assert!(ran.stdout.starts_with(error), "{ran:?}");
    // until its exporter has published the new settings, the report is about the exporter
    let scope = |warning: &Value| warning["node"] == "worker-1" && warning["setting"] == "scope";
    let report = testbed::eventually(WITHIN, async || {
        let json = run(cluster, "validate --json").await.stdout();
        let report: Value = serde_json::from_str(&json).unwrap();
        if report["warnings"].as_array().unwrap().iter().any(scope) {
            Ok(report)
        } else {
            Err(json)
        }
    });
    let report = report.await.unwrap();
    assert_eq!(report["success"], false);
    assert_eq!(report["errors"].as_array().unwrap().len(), 1, "{report}");
    let right = machines.base("worker-1").unwrap();
    machines.restart_kubelet("worker-1", &right).await.unwrap();
}
