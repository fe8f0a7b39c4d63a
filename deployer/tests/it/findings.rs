//! What `validate` prints of a cluster in which everything is wrong that it knows: the lines of the original (deployer.md 10), and those that are ours.

use std::time::Duration;

use apply::wait;
use serde_json::{Value, json};
use testbed::configz::ConfigzKubelet;
use testbed::lane::Lane;

use crate::refusals::{Cluster, worker};

const DEFINITION: &str = "noderesourcetopologies.topology.node.k8s.io";
const WITHIN: Duration = Duration::from_mins(1);

fn good() -> Value {
    json!({
        "cpuManagerPolicy": "static", "cpuManagerReconcilePeriod": "10s", "reservedSystemCPUs": "0-1",
        "memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
        "topologyManagerPolicy": "single-numa-node", "topologyManagerScope": "pod",
    })
}

/// Settings of a kubelet that nobody has set up.
fn unset() -> Value {
    json!({
        "cpuManagerPolicy": "none", "cpuManagerReconcilePeriod": "0s", "memoryManagerPolicy": "None",
        "topologyManagerPolicy": "none", "topologyManagerScope": "container",
    })
}

/// A scheduler of two pods that elect no leader.
fn scheduler(name: &str) -> [Value; 2] {
    let config = json!({
        "kind": "KubeSchedulerConfiguration", "leaderElection": {"leaderElect": false},
        "profiles": [{"schedulerName": "numa", "plugins": {"filter": {"enabled": [{"name": "NodeResourceTopologyMatch"}]}}}],
    });
    let metadata = json!({"name": name, "namespace": "default"});
    let labels = json!({"app": name});
    [
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"c.yaml": config.to_string()}}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {
            "replicas": 2, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {
                "containers": [{"name": "s", "image": "i", "args": ["--config=/c/c.yaml"], "volumeMounts": [{"name": "c", "mountPath": "/c"}]}],
                "volumes": [{"name": "c", "configMap": {"name": name}}],
            }},
        }}),
    ]
}

fn pod(name: &str, scheduler: &str) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulerName": scheduler, "containers": [container]}})
}

fn topology(name: &str) -> Value {
    json!({"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "metadata": {"name": name}, "zones": []})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_workers_has_one_error_and_its_fix() {
    let cluster = Cluster::start(Lane::Embedded).await;
    let found = cluster.run("validate").await.stdout();
    assert_eq!(
        found,
        "ERROR#000: Incorrect configuration of cluster: component \"\" setting \"\": expected \"worker nodes\" detected \"none\"\n    \
         fix: label the workers: kubectl label node NODE node-role.kubernetes.io/worker=\n"
    );
    let json: Value = serde_json::from_str(&cluster.run("validate -J").await.stdout()).unwrap();
    assert_eq!(json["success"], false);
    assert_eq!(json["errors"].as_array().unwrap().len(), 1);
    assert_eq!(json.get("warnings"), None);
    let strict = cluster.run("validate --strict").await;
    assert_eq!((strict.code, strict.stdout), (Some(1), found));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_finding_names_what_is_wrong_and_how_to_mend_it() {
    let cluster = Cluster::start(Lane::Embedded).await;
    let kubelets = [good(), good(), unset(), good()].map(ConfigzKubelet::start);
    let [one, two, bad, gone] = kubelets;
    let (one, two, bad, gone) = (
        one.await.unwrap(),
        two.await.unwrap(),
        bad.await.unwrap(),
        gone.await.unwrap(),
    );
    for (node, kubelet) in [
        ("worker-0", &one),
        ("worker-1", &two),
        ("worker-2", &bad),
        ("worker-3", &gone),
    ] {
        worker(&cluster.client, node, kubelet).await;
    }
    drop(gone);
    cluster
        .apply(&manifests::to_value(&api::crd::node_resource_topology()))
        .await;
    wait::definition(&cluster.client, DEFINITION, WITHIN)
        .await
        .unwrap();
    let objects = [scheduler("first"), scheduler("second")].concat();
    let others = [
        topology("worker-0"),
        topology("no-such-node"),
        pod("burstable", "numa"),
        pod("lost", "nobody"),
    ];
    for object in objects.iter().chain(&others) {
        cluster.apply(object).await;
    }

    let ran = cluster.run("validate").await;
    for line in [
        "\"msg\"=\"validated\" \"node\"=\"worker-0\" \"result\"=\"OK\"",
        "\"msg\"=\"validated\" \"node\"=\"worker-2\" \"result\"=\"6 issues found\"",
        "\"msg\"=\"kubelet not asked\" \"node\"=\"worker-3\" \"error\"=",
    ] {
        assert!(ran.stderr.contains(line), "{line} in {}", ran.stderr);
    }
    let found = ran.stdout();
    let lines: Vec<&str> = found.lines().collect();
    assert!(
        lines
            .chunks(2)
            .all(|pair| pair.len() == 2 && pair[1].starts_with("    fix: ")),
        "{found}"
    );
    let of_node =
        |node: &str, area: &str, rest: &str| format!("of node {node:?} area {area:?} {rest}");
    let kubelet = |rest: &str| of_node("worker-2", "kubelet", rest);
    let stack = |node: &str, rest: &str| {
        of_node(
            node,
            "stack",
            &format!("component \"topology updater\" setting \"NodeResourceTopology\": {rest}"),
        )
    };
    let errors = [
        kubelet("component \"CPU manager\" setting \"policy\": expected \"static\" detected \"none\""),
        kubelet("component \"CPU manager\" setting \"reconcile period\": expected \"in range [1s, 10s]\" detected \"0s\""),
        kubelet("component \"configuration\" setting \"CPU\": expected \"reserved some CPU cores\" detected \"no reserved CPU cores\""),
        kubelet("component \"memory manager\" setting \"policy\": expected \"Static\" detected \"None\""),
        kubelet("component \"configuration\" setting \"memory\": expected \"reserved memory blocks\" detected \"no reserved memory blocks\""),
        kubelet("component \"topology manager\" setting \"policy\": expected \"single-numa-node\" detected \"none\""),
        of_node("worker-3", "kubelet", "component \"configuration\" setting \"\": expected \"any value\" detected \"no configuration\""),
        "of cluster: component \"scheduler\" setting \"numa\": expected \"one scheduler of this name\" detected \"default/first, default/second\"".to_owned(),
        "of cluster: component \"scheduler\" setting \"first\": expected \"leader election, because there are several pods\" detected \"2 pods without leader election\"".to_owned(),
        "of cluster: component \"scheduler\" setting \"second\": expected \"leader election, because there are several pods\" detected \"2 pods without leader election\"".to_owned(),
    ];
    let warnings = [
        kubelet("component \"topology manager\" setting \"policy\": expected \"single-numa-node, as most nodes of pool worker\" detected \"none\""),
        kubelet("component \"topology manager\" setting \"scope\": expected \"pod, as most nodes of pool worker\" detected \"container\""),
        kubelet("component \"CPU manager\" setting \"policy\": expected \"static, as most nodes of pool worker\" detected \"none\""),
        kubelet("component \"memory manager\" setting \"policy\": expected \"Static, as most nodes of pool worker\" detected \"None\""),
        stack("worker-0", "expected \"kept up to date by a ready updater\" detected \"stale, last written at "),
        stack("no-such-node", "expected \"a node of this name\" detected \"none: the node is gone\""),
        "of cluster: component \"pod\" setting \"default/burstable\": expected \"QoS class Guaranteed, because its scheduler aligns pods\" detected \"Burstable\"".to_owned(),
        "of cluster: component \"pod\" setting \"default/lost\": expected \"a schedulerName that a scheduler serves: numa\" detected \"nobody\"".to_owned(),
    ];
    for (word, expected) in [("ERROR", &errors[..]), ("WARNING", &warnings)] {
        let own: Vec<&&str> = lines.iter().filter(|line| line.starts_with(word)).collect();
        assert_eq!(own.len(), expected.len(), "{found}");
        for (index, (line, expected)) in own.iter().zip(expected).enumerate() {
            let expected = format!("{word}#{index:03}: Incorrect configuration {expected}");
            assert!(line.starts_with(&expected), "{expected}\nis not\n{line}");
        }
    }
    let json: Value = serde_json::from_str(&cluster.run("validate --json").await.stdout()).unwrap();
    let keys: Vec<&String> = json["errors"][0].as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "area",
            "component",
            "detected",
            "expected",
            "fix",
            "node",
            "setting"
        ]
    );
}
