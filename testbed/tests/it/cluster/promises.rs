//! The guarantees of a cluster for its pods. Each check leaves the cluster without pods.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use cluster_spec::kubelet::{KubeletSettings, TopologyScope};
use cluster_spec::subnet::KUBERNETES_SERVICE;
use cri_runtime::control::Target;
use cri_runtime::filter;
use fixtures::machines::DEVICE_C;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::Api;
use kube::api::{DeleteParams, LogParams, Patch, PatchParams, PostParams};
use local_cluster::{LocalCluster, NodeHandle};
use serde_json::{Value, json};
use testbed::eventually;

use super::harness::kubectl;
use crate::embedded_privacy::seen_by_another_user;

const IMAGE: &str = "localhost/numaresources/stack:dev";
const DEADLINE: Duration = Duration::from_mins(1);

pub(super) async fn guaranteed_pods_get_cpus_of_one_zone_and_the_third_is_refused(
    cluster: &LocalCluster,
) {
    let node = cluster.node("worker-0").unwrap();
    for name in ["first", "second"] {
        create(cluster, pod(name, node, &["/bin/sleep", "infinity"], 12)).await;
        until(cluster, name, "runs", |pod| phase(pod) == "Running").await;
    }
    create(cluster, pod("third", node, &["/bin/sleep", "infinity"], 12)).await;
    let third = until(cluster, "third", "is refused", |pod| phase(pod) == "Failed").await;
    let status = third.status.unwrap();
    assert_eq!(status.reason.as_deref(), Some("TopologyAffinityError"));

    let state: Value =
        serde_json::from_str(&node.state_file("cpu_manager_state").unwrap()).unwrap();
    let mut sets: Vec<&str> = state["entries"]
        .as_object()
        .unwrap()
        .values()
        .map(|containers| containers["main"].as_str().unwrap())
        .collect();
    sets.sort_unstable();
    assert_eq!(sets, ["1-6,25-30", "13-18,37-42"]);
    let facts = node.runtime().containers().unwrap();
    let mut recorded: Vec<&str> = facts
        .iter()
        .map(|container| container.cpus.as_str())
        .collect();
    recorded.sort_unstable();
    assert_eq!(
        recorded, sets,
        "the runtime got other CPUs than the kubelet recorded"
    );
    for name in ["first", "second", "third"] {
        delete(cluster, name).await;
    }
}

/// Somebody without the cluster's kubeconfig and without root reads none of its files, and gets no answer but a refusal.
pub(super) fn another_user_of_the_machine_reaches_nothing(cluster: &LocalCluster) {
    let (above, dir) = (cluster.dir().parent().unwrap(), cluster.dir());
    fs_err::set_permissions(above, Permissions::from_mode(0o755)).unwrap();
    assert_eq!(seen_by_another_user(dir), [dir]);

    // nobody knows passwords here, but without one kubectl asks for it
    let ask = |server: String, path: &str| {
        let output = Command::new(&cluster.spec().assets.kubectl)
            .args([
                "--insecure-skip-tls-verify",
                "--server",
                &server,
                "--username=u",
                "--password=p",
                "get",
                "--raw",
                path,
            ])
            .env("KUBECONFIG", "/dev/null")
            .output()
            .unwrap();
        (
            output.status.success(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let api_server = format!("https://{}:443", cluster.subnet().gateway());
    let (is_answered, text) = ask(api_server, "/api/v1/secrets");
    assert!(!is_answered && text.contains("orbidden"), "{text}");
    for node in cluster.nodes() {
        for path in ["/pods", "/configz", "/metrics"] {
            let (is_answered, text) = ask(format!("https://{}:10250", node.address()), path);
            assert!(
                !is_answered && text.contains("must be logged in"),
                "{path}: {text}"
            );
        }
    }
}

pub(super) async fn pods_reach_the_api_server_by_its_cluster_ip(cluster: &LocalCluster) {
    let node = cluster.node("worker-1").unwrap();
    let command = [
        "/usr/local/bin/kubectl",
        "auth",
        "whoami",
        "-o",
        "jsonpath={.status.userInfo.username}",
    ];
    create(cluster, pod("whoami", node, &command, 1)).await;
    let done = until(cluster, "whoami", "ends", |pod| {
        matches!(phase(pod), "Succeeded" | "Failed") || restarted(pod)
    })
    .await;
    let log = pods(cluster)
        .logs("whoami", &LogParams::default())
        .await
        .unwrap();
    assert_eq!(
        log, "system:serviceaccount:default:default",
        "{:?}",
        done.status
    );
    delete(cluster, "whoami").await;
}

pub(super) async fn daemon_sets_run_on_every_worker(cluster: &LocalCluster) {
    let set: DaemonSet = serde_json::from_value(json!({
        "metadata": { "name": "everywhere" },
        "spec": {
            "selector": { "matchLabels": { "app": "everywhere" } },
            "template": {
                "metadata": { "labels": { "app": "everywhere" } },
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{ "name": "main", "image": IMAGE }],
                },
            },
        },
    }))
    .unwrap();
    let api: Api<DaemonSet> = Api::default_namespaced(cluster.client());
    api.create(&PostParams::default(), &set).await.unwrap();
    let ready = eventually(DEADLINE, async || {
        let set = api.get("everywhere").await.unwrap();
        let status = set.status.unwrap_or_default();
        if status.number_ready == 2 && status.desired_number_scheduled == 2 {
            return Ok(());
        }
        Err(format!("{status:?}"))
    });
    ready.await.unwrap();
    // One pod runs on each worker and none on the control plane.
    let nodes = kubectl(
        cluster,
        &[
            "get",
            "pods",
            "-l",
            "app=everywhere",
            "-o",
            "jsonpath={.items[*].spec.nodeName}",
        ],
    );
    let mut nodes: Vec<&str> = nodes.split(' ').collect();
    nodes.sort_unstable();
    assert_eq!(nodes, ["worker-0", "worker-1"]);
    api.delete("everywhere", &DeleteParams::foreground())
        .await
        .unwrap();
}

pub(super) async fn network_policies_open_and_close_ways(cluster: &LocalCluster) {
    assert!(filter::is_available(), "nft is missing: install nftables");
    let node = cluster.node("worker-0").unwrap();
    let proxy = ["/usr/local/bin/kubectl", "proxy", "--address=0.0.0.0"];
    for (name, command) in [
        ("caller", ["/bin/sleep", "infinity"].as_slice()),
        ("server", &proxy),
    ] {
        let mut pod = pod(name, node, command, 1);
        pod.metadata.labels = Some([("app".to_owned(), name.to_owned())].into());
        create(cluster, pod).await;
    }
    let address = async |name| {
        let pod = until(cluster, name, "runs", |pod| phase(pod) == "Running").await;
        pod.status.unwrap().pod_ip.unwrap()
    };
    address("caller").await;
    let server = address("server").await;
    let connects = async |expected: bool, host: &str, port: &str| {
        let caller = Target::new("default", "caller", "main");
        let answered = eventually(DEADLINE, async || {
            let command = ["/bin/connect", host, port, "1"];
            let output = node.runtime().exec(&caller, &command, DEADLINE).unwrap();
            if (output.exit_code == 0) == expected {
                return Ok(());
            }
            Err(format!("{host}:{port}: {output:?}"))
        });
        answered.await.unwrap();
    };
    let policies: Api<NetworkPolicy> = Api::default_namespaced(cluster.client());
    let set = async |app: &str, rules: Value| {
        let mut spec = json!({"podSelector": {"matchLabels": {"app": app}}});
        spec.as_object_mut()
            .unwrap()
            .extend(rules.as_object().unwrap().clone());
        let policy = json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": app},
            "spec": spec,
        });
        let params = PatchParams::apply("test").force();
        let policy = Patch::Apply(policy);
        policies.patch(app, &params, &policy).await.unwrap();
    };
    let api_server = KUBERNETES_SERVICE.to_string();
    connects(true, &api_server, "443").await;
    connects(true, &server, "8001").await;
    let watch = [
        "/usr/local/bin/kubectl",
        "get",
        "configmaps",
        "--watch",
        "--output=name",
    ];
    let binding = [
        "create",
        "clusterrolebinding",
        "watcher",
        "--clusterrole=view",
        "--serviceaccount=default:default",
    ];
    kubectl(cluster, &binding);
    let mut watcher = pod("watcher", node, &watch, 1);
    watcher.metadata.labels = Some([("app".to_owned(), "caller".to_owned())].into());
    create(cluster, watcher).await;
    address("watcher").await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let sees_new_map = async |name: &str| {
        let map = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        maps.create(&PostParams::default(), &map).await.unwrap();
        let shown = eventually(DEADLINE, async || {
            let log = pods(cluster).logs("watcher", &LogParams::default()).await;
            let log = log.unwrap();
            if log.contains(&format!("configmap/{name}")) {
                return Ok(());
            }
            Err(format!("the watch did not show {name}: {log}"))
        });
        shown.await.unwrap();
        maps.delete(name, &DeleteParams::default()).await.unwrap();
    };
    sees_new_map("first").await;

    set("caller", json!({"policyTypes": ["Egress"]})).await;
    connects(false, &api_server, "443").await;
    connects(false, &server, "8001").await;
    // Policies name the port of the API server, not that of its service.
    let egress = json!([{"ports": [{"port": 6443, "protocol": "TCP"}]}]);
    set(
        "caller",
        json!({"policyTypes": ["Ingress", "Egress"], "egress": egress}),
    )
    .await;
    connects(true, &api_server, "443").await;
    connects(false, &server, "8001").await;
    // The policy closes no connection that was open before: the API server still sends on it.
    sees_new_map("later").await;
    policies
        .delete("caller", &DeleteParams::default())
        .await
        .unwrap();
    connects(true, &server, "8001").await;

    set("server", json!({})).await;
    connects(false, &server, "8001").await;
    let from = json!([{"podSelector": {"matchLabels": {"app": "caller"}}}]);
    let ingress = json!([{"from": from, "ports": [{"port": 8001, "protocol": "TCP"}]}]);
    set("server", json!({"ingress": ingress})).await;
    connects(true, &server, "8001").await;
    policies
        .delete("server", &DeleteParams::default())
        .await
        .unwrap();
    for name in ["caller", "server", "watcher"] {
        delete(cluster, name).await;
    }
}

pub(super) async fn restarted_kubelet_has_its_new_settings_and_its_containers_live_on(
    cluster: &LocalCluster,
) {
    let node = cluster.node("worker-0").unwrap();
    create(
        cluster,
        pod("survivor", node, &["/bin/sleep", "infinity"], 1),
    )
    .await;
    until(cluster, "survivor", "runs", |pod| phase(pod) == "Running").await;
    let pid_of = || {
        let facts = node.runtime().containers().unwrap();
        let survivor = facts
            .into_iter()
            .find(|container| container.target.pod == "survivor")
            .unwrap();
        survivor.pid.unwrap()
    };
    let before = pid_of();
    node.restart_kubelet(&KubeletSettings::with_scope(TopologyScope::Pod))
        .await
        .unwrap();
    let configz = kubectl(
        cluster,
        &["get", "--raw", "/api/v1/nodes/worker-0/proxy/configz"],
    );
    let configz: Value = serde_json::from_str(&configz).unwrap();
    assert_eq!(configz["kubeletconfig"]["topologyManagerScope"], "pod");
    assert_eq!(pid_of(), before);
    let survivor = pods(cluster).get("survivor").await.unwrap();
    assert!(!restarted(&survivor), "{:?}", survivor.status);
    assert_eq!(
        node.kubelet_settings().unwrap().topology_manager_scope,
        TopologyScope::Pod
    );
    delete(cluster, "survivor").await;
    assert!(
        node.host_path(Path::new("/var/lib/kubelet/cpu_manager_state"))
            .is_file()
    );
}

pub(super) async fn device_pins_the_zone_of_the_cpus_right_after_a_restart(cluster: &LocalCluster) {
    let node = cluster.node("worker-0").unwrap();
    // Ready after a restart includes all devices.
    node.restart_kubelet(&KubeletSettings::default())
        .await
        .unwrap();
    let mut greedy = pod("greedy", node, &["/bin/sleep", "infinity"], 2);
    let resources = greedy.spec.as_mut().unwrap().containers[0]
        .resources
        .as_mut()
        .unwrap();
    for list in [&mut resources.requests, &mut resources.limits] {
        // Only the first zone has three of these devices.
        list.as_mut()
            .unwrap()
            .insert(DEVICE_C.to_owned(), Quantity("3".to_owned()));
    }
    create(cluster, greedy).await;
    let greedy = until(cluster, "greedy", "runs", |pod| phase(pod) == "Running").await;
    let state: Value =
        serde_json::from_str(&node.state_file("cpu_manager_state").unwrap()).unwrap();
    assert_eq!(
        state["entries"][greedy.metadata.uid.unwrap()]["main"],
        "1,25"
    );
    delete(cluster, "greedy").await;
}

fn pod(name: &str, node: &NodeHandle, command: &[&str], cpus: u32) -> Pod {
    let resources = json!({ "cpu": cpus.to_string(), "memory": "1Gi" });
    serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": {
            "nodeName": node.name(),
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main",
                "image": IMAGE,
                "command": command,
                "resources": { "requests": resources, "limits": resources },
            }],
        },
    }))
    .unwrap()
}

fn pods(cluster: &LocalCluster) -> Api<Pod> {
    Api::default_namespaced(cluster.client())
}

async fn create(cluster: &LocalCluster, pod: Pod) {
    pods(cluster)
        .create(&PostParams::default(), &pod)
        .await
        .unwrap();
}

async fn delete(cluster: &LocalCluster, name: &str) {
    let api = pods(cluster);
    api.delete(name, &DeleteParams::default()).await.unwrap();
    let gone = eventually(DEADLINE, async || match api.get_opt(name).await.unwrap() {
        Some(pod) => Err(format!("pod {name} stays: {:?}", pod.status)),
        None => Ok(()),
    });
    gone.await.unwrap();
}

/// Waits until a pod satisfies a condition.
async fn until(
    cluster: &LocalCluster,
    name: &str,
    what: &str,
    wanted: impl Fn(&Pod) -> bool,
) -> Pod {
    let found = eventually(DEADLINE, async || {
        let pod = pods(cluster).get(name).await.unwrap();
        if wanted(&pod) {
            return Ok(pod);
        }
        Err(format!("pod {name} never {what}: {:?}", pod.status))
    });
    found.await.unwrap()
}

fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

fn restarted(pod: &Pod) -> bool {
    pod.status
        .iter()
        .flat_map(|status| status.container_statuses.iter().flatten())
        .any(|container| container.restart_count > 0)
}
