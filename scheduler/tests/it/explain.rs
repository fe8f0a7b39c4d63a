//! `explain` on saved objects, through the program.

use std::path::Path;
use std::process::Output;

use assert_cmd::Command;
use serde_json::{Value, json};

fn node(name: &str, taints: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {"taints": taints},
        "status": {"allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110"}},
    })
}

/// Builds an NRT with this number of CPUs left in each zone.
fn topology(name: &str, scope: &str, cpus: &[u32]) -> Value {
    let zones: Vec<Value> = cpus
        .iter()
        .enumerate()
        .map(|(id, left)| {
            let resource = |name: &str, capacity: &str, available: &str| {
                json!({"name": name, "capacity": capacity, "allocatable": capacity, "available": available})
            };
            json!({
                "name": format!("node-{id}"), "type": "Node",
                "resources": [resource("cpu", "4", &left.to_string()), resource("memory", "8Gi", "8Gi")],
            })
        })
        .collect();
    json!({
        "apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology",
        "metadata": {"name": name},
        "attributes": [
            {"name": "topologyManagerPolicy", "value": "single-numa-node"},
            {"name": "topologyManagerScope", "value": scope},
        ],
        "zones": zones,
    })
}

fn pod(name: &str, cpu: &str) -> Value {
    let resources = json!({"cpu": cpu, "memory": "1Gi"});
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": "1"},
        "spec": {
            "schedulerName": "topo-aware-scheduler",
            "containers": [{"name": "main", "image": "x", "resources": {"requests": resources, "limits": resources}}],
        },
        "status": {"phase": "Pending", "qosClass": "Guaranteed"},
    })
}

/// Saves two workers, of which only `worker-1` has a zone with 3 CPUs left, and a tainted node without NRT.
fn dump() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let taint = json!([{"key": "k", "effect": "NoSchedule"}]);
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [
        node("control-plane-0", &taint),
        node("worker-0", &Value::Null),
        node("worker-1", &Value::Null),
        topology("worker-0", "container", &[2, 2]),
        topology("worker-1", "container", &[1, 3]),
        pod("fits", "3"),
        pod("large", "4"),
    ]});
    std::fs::write(directory.path().join("all.json"), list.to_string()).unwrap();
    directory
}

fn explain(dump: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::cargo_bin("numaresources-scheduler").unwrap();
    command.arg("explain").args(arguments);
    command.arg("--from").arg(dump).env_clear();
    command.output().unwrap()
}

fn text(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn the_table_names_node_zone_and_what_is_lacking() {
    let dump = dump();
    let text = text(&explain(dump.path(), &["large"]));
    for line in [
        "No node fits: 0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 cannot align container.",
        "worker-0: policy single-numa-node, scope container",
        "  container main wants cpu=4 memory=1Gi",
        "    zone 1: cpu 3 left, wanted 4",
        "control-plane-0: no NodeResourceTopology",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
}

#[test]
fn the_json_form_is_stable() {
    let dump = dump();
    let output = explain(dump.path(), &["default/fits", "-o", "json"]);
    let value: Value = serde_json::from_str(&text(&output)).unwrap();
    assert_eq!(value["format"], "explain.numaresources/v1");
    assert_eq!(
        value["pod"],
        json!({
            "namespace": "default", "name": "fits", "schedulerName": "topo-aware-scheduler", "qos": "Guaranteed", "priority": 0,
            "request": {"cpu": "3", "memory": "1Gi"},
        })
    );
    assert_eq!(
        (&value["schedulable"], &value["best"]),
        (&json!(true), &json!(["worker-1"]))
    );
    let worker = &value["nodes"][1];
    assert_eq!(
        worker["topology"]["trials"][0],
        json!({
            "subject": "container", "container": "main", "kind": "app",
            "wanted": {"cpu": "3", "memory": "1Gi"}, "unknown": [],
            "zones": [
                {"id": 0, "available": {"cpu": "2", "memory": "8Gi"}, "fits": false,
                 "lacking": [{"resource": "cpu", "wanted": "3", "available": "2"}]},
                {"id": 1, "available": {"cpu": "2", "memory": "8Gi"}, "fits": false,
                 "lacking": [{"resource": "cpu", "wanted": "3", "available": "2"}]},
            ],
        })
    );
    assert_eq!(
        (
            &worker["feasible"],
            &worker["rejectedBy"],
            &worker["reasons"]
        ),
        (
            &json!(false),
            &json!("NodeResourceTopologyMatch"),
            &json!(["cannot align container"])
        )
    );
    let chosen = &value["nodes"][2];
    assert_eq!(
        (
            &chosen["feasible"],
            &chosen["topology"]["trials"][0]["zone"]
        ),
        (&json!(true), &json!(1))
    );
    let plugins: Vec<&str> = chosen["scores"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|score| score["plugin"].as_str())
        .collect();
    assert!(
        plugins.contains(&"NodeResourceTopologyMatch"),
        "{plugins:?}"
    );
    assert!(chosen["total"].is_i64());
}

/// Saves a small pod of lower priority on `worker-0`, and a large one on `worker-1`. Both nodes are full, and only the first pod is covered
/// by a budget.
fn full() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let guest = |name: &str, node: &str, cpu: &str, app: &str| {
        let mut guest = pod(name, cpu);
        guest["metadata"]["labels"] = json!({"app": app});
        guest["spec"]["nodeName"] = json!(node);
        guest["spec"]["priority"] = json!(5);
        guest["status"]["phase"] = json!("Running");
        guest
    };
    let mut important = pod("important", "4");
    important["spec"]["priority"] = json!(100);
    let mut waiting = important.clone();
    waiting["metadata"]["name"] = json!("waiting");
    waiting["status"]["nominatedNodeName"] = json!("worker-1");
    let mut meek = pod("meek", "4");
    meek["spec"]["preemptionPolicy"] = json!("Never");
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "kept"}}},
        "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
    });
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [
        node("worker-0", &Value::Null),
        node("worker-1", &Value::Null),
        guest("kept", "worker-0", "8", "kept"),
        guest("loose", "worker-1", "8", "loose"),
        important, waiting, meek, budget,
    ]});
    std::fs::write(directory.path().join("all.json"), list.to_string()).unwrap();
    directory
}

#[test]
fn who_would_give_way_is_told() {
    let dump = full();
    let output = explain(dump.path(), &["waiting"]);
    let table = text(&output);
    for line in [
        "Pods were already preempted for it on node worker-1.",
        "No node fits: 0/2 nodes are available: 2 Insufficient cpu.",
        "It would be nominated to worker-1, where these would be evicted, within their disruption budgets: default/loose (priority 5)",
    ] {
        assert!(table.contains(line), "{line:?} is not in\n{table}");
    }
    let output = explain(dump.path(), &["waiting", "-o", "json"]);
    let value: Value = serde_json::from_str(&text(&output)).unwrap();
    assert_eq!(value["pod"]["nominatedTo"], "worker-1");
    assert_eq!(
        value["preemption"],
        json!({
            "node": "worker-1", "budgetsViolated": 0,
            "victims": [{"namespace": "default", "name": "loose", "priority": 5}],
        })
    );
    let output = explain(dump.path(), &["meek"]);
    let table = text(&output);
    let never = "No pod would be evicted: not eligible due to preemptionPolicy=Never.";
    assert!(table.contains(never), "{table}");
}

#[test]
fn a_pod_that_does_not_exist_yet_is_read_from_its_manifest() {
    let dump = dump();
    let manifest = dump.path().join("manifest.txt");
    let mut pod = pod("new", "2");
    pod["metadata"] = json!({"generateName": "new-"});
    std::fs::write(&manifest, serde_yaml::to_string(&pod).unwrap()).unwrap();
    let output = explain(
        dump.path(),
        &["-f", manifest.to_str().unwrap(), "-o", "json"],
    );
    let value: Value = serde_json::from_str(&text(&output)).unwrap();
    assert_eq!(value["pod"]["name"], "new-?");
    assert_eq!(value["schedulable"], true);
    assert_eq!(value["nodes"][1]["feasible"], true);
}

#[test]
fn what_cannot_be_explained_is_said_with_the_reason() {
    let dump = dump();
    let empty = tempfile::tempdir().unwrap();
    let cases: [(&Path, &[&str], i32, &str); 5] = [
        (
            dump.path(),
            &["nobody"],
            1,
            "there is no pod default/nobody among the objects saved in",
        ),
        (
            empty.path(),
            &["fits"],
            1,
            "there is no node among the objects saved in",
        ),
        (dump.path(), &[], 2, "<POD>"),
        (
            dump.path(),
            &["fits", "--config", "/nowhere"],
            1,
            "cannot read /nowhere",
        ),
        (dump.path(), &["-f", "/nowhere"], 1, "cannot read /nowhere"),
    ];
    for (directory, arguments, code, message) in cases {
        let output = explain(directory, arguments);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(message), "{arguments:?}: {stderr}");
    }
}

#[test]
fn a_claim_is_judged_by_the_plugin_that_kube_scheduler_would_name() {
    let dump = dump();
    let term = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["worker-1"]}]});
    let mut user = pod("user", "1");
    user["spec"]["volumes"] =
        json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [
        user,
        {
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": "disk"},
            "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}},
        },
        {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data", "namespace": "default", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
            "spec": {"volumeName": "disk"},
        },
    ]});
    std::fs::write(dump.path().join("volumes.json"), list.to_string()).unwrap();
    let text = text(&explain(dump.path(), &["user", "-o", "json"]));
    let verdict: Value = serde_json::from_str(&text).unwrap();
    let rejected = |name: &str| {
        let nodes = verdict["nodes"].as_array().unwrap();
        let node = nodes.iter().find(|node| node["name"] == name).unwrap();
        node["rejectedBy"].clone()
    };
    assert_eq!(rejected("worker-0"), "VolumeBinding");
    assert_eq!(rejected("worker-1"), Value::Null);
    assert_eq!(verdict["best"], json!(["worker-1"]));
}
