//! Compares what each pod of the stack has beyond the level `restricted` of the Pod Security Standards with the table in `docs/security.md`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use api::operator::v1::NodeGroupConfig;
use manifests::platform::Platform;
use manifests::rte::Pool;
use manifests::{operator, rte, scheduler, to_value};
use rstest::rstest;
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::exporters::{daemon_set, options, pool};
use crate::scheduler::scheduler_options;

/// Kinds of volumes that the level allows.
const VOLUMES: [&str; 8] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
];
/// SELinux types that the level allows.
const SELINUX_TYPES: [&str; 4] = [
    "container_t",
    "container_init_t",
    "container_kvm_t",
    "container_engine_t",
];

/// Returns one text for each rule of the level that a pod breaks.
fn violations(pod: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for flag in ["hostNetwork", "hostPID", "hostIPC"] {
        if pod[flag] == true {
            found.push(format!("`{flag}`"));
        }
    }
    for volume in list(&pod["volumes"]) {
        let kinds = volume.as_object().unwrap().keys();
        for kind in kinds.filter(|key| *key != "name" && !VOLUMES.contains(&key.as_str())) {
            let path = volume[kind]["path"].as_str().unwrap_or_default();
            found.push(format!("`{kind}` `{path}`"));
        }
    }
    if !list(&pod["securityContext"]["sysctls"]).is_empty() {
        found.push("`sysctls`".to_owned());
    }
    let kinds = ["initContainers", "containers", "ephemeralContainers"];
    for container in kinds.iter().flat_map(|kind| list(&pod[*kind])) {
        let name = container["name"].as_str().unwrap();
        let broken = broken_by(&pod["securityContext"], container);
        found.extend(broken.iter().map(|what| format!("`{name}`: {what}")));
    }
    found
}

/// Returns what a container breaks; what its own security context leaves open is as in that of its pod.
fn broken_by(pod: &Value, container: &Value) -> Vec<String> {
    let own = &container["securityContext"];
    let value = |key: &str| match &own[key] {
        Value::Null => pod[key].clone(),
        value => value.clone(),
    };
    let mut found = Vec::new();
    if own["privileged"] == true {
        found.push("`privileged`".to_owned());
    }
    if own["allowPrivilegeEscalation"] != false {
        found.push("may gain privileges".to_owned());
    }
    let drops = list(&own["capabilities"]["drop"]);
    if !drops.iter().any(|one| one == "ALL") {
        found.push("keeps capabilities".to_owned());
    }
    let adds = list(&own["capabilities"]["add"]);
    for added in adds.iter().filter(|one| *one != "NET_BIND_SERVICE") {
        found.push(format!("adds the capability {added}"));
    }
    if value("runAsNonRoot") != true {
        found.push("no `runAsNonRoot`".to_owned());
    }
    if value("runAsUser") == 0 {
        found.push("`runAsUser: 0`".to_owned());
    }
    let profile = value("seccompProfile")["type"].clone();
    if profile != "RuntimeDefault" && profile != "Localhost" {
        found.push("no seccomp profile".to_owned());
    }
    let selinux = value("seLinuxOptions");
    if let Some(kind) = selinux["type"].as_str()
        && !SELINUX_TYPES.contains(&kind)
    {
        found.push(format!("SELinux type `{kind}`"));
    }
    for key in ["user", "role"] {
        if !selinux[key].is_null() {
            found.push(format!("SELinux {key}"));
        }
    }
    let kernel = own["procMount"].as_str().unwrap_or("Default");
    if kernel != "Default" {
        found.push("`procMount`".to_owned());
    }
    if list(&container["ports"])
        .iter()
        .any(|port| !port["hostPort"].is_null())
    {
        found.push("`hostPort`".to_owned());
    }
    found
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the pods of all workloads in a rendered file.
fn pods_of_file(path: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(root().join(path)).unwrap();
    let pods: Vec<Value> = serde_yaml::Deserializer::from_str(&text)
        .map(|document| Value::deserialize(document).unwrap())
        .map(|object| object["spec"]["template"]["spec"].clone())
        .filter(|pod| !pod.is_null())
        .collect();
    assert!(!pods.is_empty(), "{path} has no workload");
    pods
}

/// Returns every pod of the stack, as it is called in the table, on every platform.
fn pods() -> Vec<(&'static str, Value)> {
    let mut pods = Vec::new();
    for platform in [
        Platform::Kubernetes,
        Platform::OpenShift,
        Platform::HyperShift,
    ] {
        for (config_hash, custom_selinux_policy) in [("", false), ("SHA256:1", false), ("", true)] {
            let pool = Pool {
                config_hash: config_hash.into(),
                custom_selinux_policy,
                ..pool(NodeGroupConfig::default())
            };
            pods.push(("exporter", daemon_set(&options(platform), pool)));
        }
        let options = operator::Options {
            platform,
            ..operator::Options::default()
        };
        let operator = operator::Set::new(&options).deployment;
        pods.push(("operator", to_value(&operator)));
        let scheduler = scheduler::Set::new(&scheduler_options(platform)).unwrap();
        pods.push(("scheduler", to_value(&scheduler.deployment)));
    }
    for object in rte::standalone::objects("image") {
        if object["kind"] == "DaemonSet" {
            pods.push(("exporter without an operator", object));
        }
    }
    let pods = pods
        .into_iter()
        .map(|(name, workload)| (name, workload["spec"]["template"]["spec"].clone()));
    let of_tests = pods_of_file("config/tests/job.yaml");
    pods.chain(of_tests.into_iter().map(|pod| ("tests", pod)))
        .collect()
}

/// Returns the first two columns of the table's rows, and checks that the third, the reason, is not empty.
fn documented() -> BTreeSet<(String, String)> {
    let page = std::fs::read_to_string(root().join("docs/security.md")).unwrap();
    let table = page
        .split("\n| pod | beyond `restricted` | reason |\n")
        .nth(1);
    let rows = table.unwrap().lines().skip(1);
    rows.take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let [pod, what, reason] = cells[..] else {
                panic!("{line:?} has not three cells")
            };
            assert!(!reason.is_empty(), "{line:?} has no reason");
            (pod.to_owned(), what.to_owned())
        })
        .collect()
}

#[test]
fn pods_have_nothing_beyond_the_restricted_level_but_what_the_page_lists() {
    let found: BTreeSet<(String, String)> = pods()
        .iter()
        .flat_map(|(name, pod)| {
            violations(pod)
                .into_iter()
                .map(|what| ((*name).to_owned(), what))
        })
        .collect();
    assert_eq!(found, documented());
}

/// The standards demand no read-only root, so the table does not have it.
#[test]
fn containers_write_to_their_volumes_only() {
    for (name, pod) in pods() {
        for container in ["initContainers", "containers"]
            .iter()
            .flat_map(|kind| list(&pod[*kind]))
        {
            let security = &container["securityContext"];
            assert_eq!(
                security["readOnlyRootFilesystem"], true,
                "{name}: {container}"
            );
        }
    }
}

/// The rules are ours, so each is shown to find what it is for.
#[rstest]
#[case::network(json!({"hostNetwork": true}), json!({}), "`hostNetwork`")]
#[case::volume(json!({"volumes": [{"name": "v", "hostPath": {"path": "/p"}}]}), json!({}), "`hostPath` `/p`")]
#[case::root(json!({}), json!({"runAsUser": 0}), "`c`: `runAsUser: 0`")]
#[case::perhaps_root(json!({}), json!({"runAsNonRoot": false}), "`c`: no `runAsNonRoot`")]
#[case::privileged(json!({}), json!({"privileged": true}), "`c`: `privileged`")]
#[case::escalation(json!({}), json!({"allowPrivilegeEscalation": true}), "`c`: may gain privileges")]
#[case::kept(json!({}), json!({"capabilities": {}}), "`c`: keeps capabilities")]
#[case::added(json!({}), json!({"capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}}), "`c`: adds the capability \"SYS_ADMIN\"")]
#[case::system_calls(json!({}), json!({"seccompProfile": {"type": "Unconfined"}}), "`c`: no seccomp profile")]
#[case::selinux(json!({}), json!({"seLinuxOptions": {"type": "spc_t"}}), "`c`: SELinux type `spc_t`")]
fn each_rule_finds_what_breaks_it(
    #[case] of_pod: Value,
    #[case] of_container: Value,
    #[case] expected: &str,
) {
    let mut security = json!({
        "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": true,
        "seccompProfile": {"type": "RuntimeDefault"},
    });
    let mut pod = json!({"containers": [{"name": "c", "securityContext": security}]});
    assert_eq!(violations(&pod), Vec::<String>::new());
    security
        .as_object_mut()
        .unwrap()
        .extend(of_container.as_object().unwrap().clone());
    pod["containers"][0]["securityContext"] = security;
    pod.as_object_mut()
        .unwrap()
        .extend(of_pod.as_object().unwrap().clone());
    assert_eq!(violations(&pod), [expected]);
}
