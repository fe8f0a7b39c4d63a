//! Simulated nodes on the embedded API server. They need no root and nothing but loopback.

mod access;
mod harness;
mod plugins;
mod probes;
mod resize;
mod static_pods;
mod streams;

use std::time::Duration;

use cluster_spec::kubelet::{KubeletSettings, TopologyScope};
use cri_runtime::control::{Signal, Target};
use harness::TestNode;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn node_registers_with_the_amounts_of_its_machine_and_all_devices() {
    let setup = TestNode::up().await;
    let node: Node = Api::all(setup.client()).get("worker-0").await.unwrap();
    let status = node.status.unwrap();
    let amount = |name: &str| status.allocatable.as_ref().unwrap()[name].0.clone();
    assert_eq!(amount("cpu"), "44");
    assert_eq!(amount("memory"), "116Gi");
    assert_eq!(amount("hugepages-2Mi"), "2Gi");
    assert_eq!(amount("example.com/deviceA"), "10");
    let labels = node.metadata.labels.unwrap();
    assert_eq!(labels["kubernetes.io/hostname"], "worker-0");
    assert!(labels.contains_key("node-role.kubernetes.io/worker"));
    let configz = setup.get("configz").await;
    let configz: Value = serde_json::from_str(&configz).unwrap();
    assert_eq!(
        configz["kubeletconfig"]["topologyManagerPolicy"],
        "single-numa-node"
    );
    assert_eq!(configz["kubeletconfig"]["systemReserved"]["cpu"], "4");
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_runs_and_goes_when_it_is_deleted() {
    let setup = TestNode::up().await;
    setup
        .create(json!({
            "metadata": {"name": "p"},
            "spec": {
                "terminationGracePeriodSeconds": 5,
                "containers": [{
                    "name": "c", "command": ["/bin/sleep", "1000"],
                    "resources": {"limits": {"cpu": "2", "memory": "64Mi"}, "requests": {"cpu": "2", "memory": "64Mi"}},
                }],
            },
        }))
        .await;
    let pod = setup
        .until("p", "is ready", |pod| {
            harness::condition(pod, "Ready") == "True"
        })
        .await;
    let status = serde_json::to_value(pod.status.unwrap()).unwrap();
    assert_eq!(status["phase"], "Running");
    assert_eq!(status["qosClass"], "Guaranteed");
    let container = &status["containerStatuses"][0];
    assert_eq!(container["started"], true);
    assert_eq!(container["allocatedResources"]["cpu"], "2");
    assert_ne!(status["podIP"], status["hostIP"]);
    let cpus = setup.node.containers()[0].cpus.clone();
    assert!(!cpus.is_empty());
    assert!(
        setup
            .node
            .state_file("cpu_manager_state")
            .unwrap()
            .contains(&cpus)
    );

    let deletion = setup.pods().delete("p", &DeleteParams::default()).await;
    deletion.unwrap();
    setup.until_gone("p").await;
    harness::eventually("the node hears of it", || {
        let containers = setup.node.containers();
        containers.iter().all(|one| one.target.pod != "p")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_that_fits_no_zone_is_refused_as_by_a_kubelet() {
    let setup = TestNode::up().await;
    setup
        .create(json!({
            "metadata": {"name": "p"},
            "spec": {"containers": [{
                "name": "c",
                "resources": {"limits": {"cpu": "23", "memory": "64Mi"}, "requests": {"cpu": "23", "memory": "64Mi"}},
            }]},
        }))
        .await;
    let pod = setup
        .until("p", "failed", |pod| harness::phase(pod) == "Failed")
        .await;
    let status = pod.status.unwrap();
    assert_eq!(status.reason.as_deref(), Some("TopologyAffinityError"));
    assert_eq!(
        status.message.as_deref(),
        Some("Pod was rejected: Resources cannot be allocated with Topology locality")
    );
    assert_eq!(status.conditions.unwrap_or_default().len(), 0);
    assert!(status.container_statuses.is_none());
    setup
        .event(
            "TopologyAffinityError",
            "Resources cannot be allocated with Topology locality",
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn init_containers_come_first_and_sidecars_end_last() {
    let setup = TestNode::up().await;
    setup
        .create(json!({
            "metadata": {"name": "p"},
            "spec": {
                "restartPolicy": "Never",
                "initContainers": [
                    {"name": "i", "command": ["/bin/sleep", "0"]},
                    {"name": "s", "restartPolicy": "Always"},
                ],
                "containers": [{"name": "c", "command": ["/bin/sleep", "0"]}],
            },
        }))
        .await;
    let pod = setup
        .until("p", "succeeded", |pod| harness::phase(pod) == "Succeeded")
        .await;
    let status = serde_json::to_value(pod.status.unwrap()).unwrap();
    let ended = |kind: &str, index: usize| status[kind][index]["state"]["terminated"].clone();
    let (init, sidecar) = (
        ended("initContainerStatuses", 0),
        ended("initContainerStatuses", 1),
    );
    let main = ended("containerStatuses", 0);
    assert_eq!(init["exitCode"], 0, "{init}");
    // The exit code is 143 if the signal came before the sidecar handled it.
    assert!(
        [0, 143].map(Value::from).contains(&sidecar["exitCode"]),
        "{sidecar}"
    );
    let at = |ended: &Value, field: &str| ended[field].as_str().unwrap().to_owned();
    assert!(
        at(&init, "finishedAt") <= at(&sidecar, "startedAt"),
        "{init} {sidecar}"
    );
    assert!(
        at(&sidecar, "startedAt") <= at(&main, "startedAt"),
        "{sidecar} {main}"
    );
    assert!(
        at(&main, "finishedAt") <= at(&sidecar, "finishedAt"),
        "{main} {sidecar}"
    );
    assert_eq!(status["conditions"][1]["reason"], "PodCompleted");
    assert_eq!(status["conditions"][0]["status"], "False");
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_container_is_restarted_at_once_and_then_with_a_delay() {
    let setup = TestNode::up().await;
    setup
        .create(json!({
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "command": ["/bin/sleep", "x"]}]},
        }))
        .await;
    let waits = |pod: &Pod| harness::waiting(pod) == "CrashLoopBackOff";
    let pod = setup.until("p", "backs off", waits).await;
    let container = pod.status.unwrap().container_statuses.unwrap().remove(0);
    assert_eq!(container.restart_count, 1);
    let last = container.last_state.unwrap().terminated.unwrap();
    assert_eq!((last.exit_code, last.reason.as_deref()), (2, Some("Error")));
    let log = setup.get("containerLogs/default/p/c").await;
    assert_eq!(log, "sleep: invalid time interval 'x'\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_start_says_why() {
    let setup = TestNode::up().await;
    for (name, container) in [
        (
            "image",
            json!({"name": "c", "image": "localhost/other:1", "imagePullPolicy": "Never"}),
        ),
        ("pull", json!({"name": "c", "image": "localhost/other:1"})),
        ("program", json!({"name": "c", "command": ["/bin/nothing"]})),
        (
            "config",
            json!({"name": "c", "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "no", "key": "k"}}}]}),
        ),
    ] {
        setup
            .create(json!({"metadata": {"name": name}, "spec": {"containers": [container]}}))
            .await;
    }
    for (name, reason) in [
        ("image", "ErrImageNeverPull"),
        ("pull", "ImagePullBackOff"),
        ("program", "RunContainerError"),
        ("config", "CreateContainerConfigError"),
    ] {
        let waits = |pod: &Pod| harness::waiting(pod) == reason;
        setup.until(name, reason, waits).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_a_config_map_follow_it() {
    let setup = TestNode::up().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(setup.client());
    let map = json!({"metadata": {"name": "m"}, "data": {"k": "one"}});
    let map = serde_json::from_value(map).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();
    setup
        .create(json!({
            "metadata": {"name": "p", "labels": {"a": "b"}},
            "spec": {
                "containers": [{
                    "name": "c", "command": ["/bin/sleep", "1000"],
                    "volumeMounts": [{"name": "m", "mountPath": "/m"}, {"name": "d", "mountPath": "/d"}],
                }],
                "volumes": [
                    {"name": "m", "configMap": {"name": "m"}},
                    {"name": "d", "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
                ],
            },
        }))
        .await;
    setup
        .until("p", "is ready", |pod| {
            harness::condition(pod, "Ready") == "True"
        })
        .await;
    let target = Target::new("default", "p", "c");
    let limit = Duration::from_secs(10);
    let uid = setup.pods().get("p").await.unwrap().metadata.uid.unwrap();
    let volumes = setup
        .node
        .host_path(std::path::Path::new("/var/lib/kubelet/pods"))
        .join(uid)
        .join("volumes");
    let read = |path: &str| fs_err::read_to_string(volumes.join(path)).unwrap();
    assert_eq!(read("kubernetes.io~configmap/m/k"), "one");
    assert_eq!(read("kubernetes.io~downward-api/d/labels"), "a=\"b\"");
    let patch = json!({"data": {"k": "two"}});
    maps.patch("m", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
    harness::eventually("the file follows", || {
        read("kubernetes.io~configmap/m/k") == "two"
    })
    .await;
    let refused = setup.node.exec(&target, &["/bin/nothing"], limit).await;
    assert!(refused.is_err());
    let slept = setup
        .node
        .exec(&target, &["/bin/sleep", "0"], limit)
        .await
        .unwrap();
    assert_eq!(slept.exit_code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_process_is_started_again_and_a_frozen_one_is_not() {
    let setup = TestNode::up().await;
    setup
        .create(json!({
            "metadata": {"name": "p"},
            "spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "c"}]},
        }))
        .await;
    setup
        .until("p", "is ready", |pod| {
            harness::condition(pod, "Ready") == "True"
        })
        .await;
    let target = Target::new("default", "p", "c");
    setup.node.signal(&target, Signal::Kill).unwrap();
    let restarted =
        |pod: &Pod| harness::condition(pod, "Ready") == "True" && harness::restarts(pod) == 1;
    let pod = setup.until("p", "runs again", restarted).await;
    let status = pod.status.unwrap().container_statuses.unwrap().remove(0);
    assert_eq!(
        status.last_state.unwrap().terminated.unwrap().exit_code,
        137
    );
    setup.node.signal(&target, Signal::Stop).unwrap();
    setup
        .pods()
        .delete("p", &DeleteParams::default())
        .await
        .unwrap();
    setup.until_gone("p").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_that_the_server_has_no_more_leaves_its_room_at_once() {
    let setup = TestNode::up().await;
    let large = |name: &str| {
        json!({
            "metadata": {"name": name},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{
                    "name": "c",
                    "resources": {"requests": {"cpu": "30"}},
                    // The hook keeps the container running for a while.
                    "lifecycle": {"preStop": {"exec": {"command": ["/bin/sleep", "1000"]}}},
                }],
            },
        })
    };
    let ready = |pod: &Pod| harness::condition(pod, "Ready") == "True";
    setup.create(large("first")).await;
    setup.until("first", "is ready", ready).await;
    let deletion = setup.pods().delete("first", &DeleteParams::default()).await;
    deletion.unwrap();
    setup.until_gone("first").await;
    setup.create(large("second")).await;
    let admitted_or_refused = |pod: &Pod| ready(pod) || harness::phase(pod) == "Failed";
    let pod = setup
        .until("second", "was admitted or refused", admitted_or_refused)
        .await;
    assert_eq!(harness::phase(&pod), "Running");
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_kubelet_is_silent_and_its_containers_live_on() {
    let setup = TestNode::up().await;
    setup
        .create(json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}))
        .await;
    setup
        .until("p", "is ready", |pod| {
            harness::condition(pod, "Ready") == "True"
        })
        .await;
    let before = setup.node.containers();
    setup.node.stop_kubelet();
    setup
        .create(json!({"metadata": {"name": "late"}, "spec": {"containers": [{"name": "c"}]}}))
        .await;
    let settings = KubeletSettings::with_scope(TopologyScope::Pod);
    setup.node.restart_kubelet(&settings).await.unwrap();
    setup
        .until("late", "is ready", |pod| {
            harness::condition(pod, "Ready") == "True"
        })
        .await;
    let configz: Value = serde_json::from_str(&setup.get("configz").await).unwrap();
    assert_eq!(configz["kubeletconfig"]["topologyManagerScope"], "pod");
    let after = setup.node.containers();
    let pid = |list: &[cri_runtime::control::ContainerFacts]| {
        list.iter().find(|one| one.target.pod == "p").unwrap().pid
    };
    assert_eq!(pid(&before), pid(&after));
}

#[tokio::test(flavor = "multi_thread")]
async fn podresources_tell_what_a_pod_holds() {
    let setup = TestNode::up().await;
    setup
        .create(json!({
            "metadata": {"name": "p"},
            "spec": {"containers": [{
                "name": "c", "command": ["/bin/sleep", "1000"],
                "resources": {"limits": {"cpu": "2", "memory": "64Mi", "example.com/deviceA": "1"}, "requests": {"cpu": "2", "memory": "64Mi", "example.com/deviceA": "1"}},
            }]},
        }))
        .await;
    setup
        .until("p", "is ready", |pod| {
            harness::condition(pod, "Ready") == "True"
        })
        .await;
    let path = setup.node.host_path(std::path::Path::new(
        "/var/lib/kubelet/pod-resources/kubelet.sock",
    ));
    let socket = podresources::socket::Socket::new(path).unwrap();
    let client = podresources::client::PodResources::new(&socket, Duration::from_secs(5));
    let list = client.list().await.unwrap();
    let container = &list.pod_resources[0].containers[0];
    assert_eq!(container.cpu_ids.len(), 2);
    assert_eq!(container.devices[0].resource_name, "example.com/deviceA");
    let allocatable = client.allocatable().await.unwrap();
    assert_eq!(allocatable.cpu_ids.len(), 44);
    assert_eq!(allocatable.devices.len(), 23);
}

#[tokio::test(flavor = "multi_thread")]
async fn kubelet_with_other_settings_keeps_what_pods_have_or_does_not_start() {
    let setup = TestNode::up().await;
    setup
        .create(json!({
            "metadata": {"name": "p"},
            "spec": {"containers": [{
                "name": "c", "command": ["/bin/sleep", "1000"],
                "resources": {"limits": {"cpu": "2", "memory": "64Mi"}},
            }]},
        }))
        .await;
    setup
        .until("p", "is ready", |pod| {
            harness::condition(pod, "Ready") == "True"
        })
        .await;
    let before = setup.node.state_file("cpu_manager_state").unwrap();
    assert!(before.contains("entries"), "{before}");
    let scope = KubeletSettings::with_scope(TopologyScope::Pod);
    setup.node.reconfigure_kubelet(&scope).await.unwrap();
    assert_eq!(setup.node.state_file("cpu_manager_state").unwrap(), before);
    assert_eq!(
        harness::phase(&setup.pods().get("p").await.unwrap()),
        "Running"
    );

    let unmanaged = KubeletSettings::unmanaged();
    let error = setup
        .node
        .reconfigure_kubelet(&unmanaged)
        .await
        .unwrap_err();
    let words = format!("{:#}", anyhow::Error::from(error));
    let why = r#"start cpu manager error: could not restore state from checkpoint: configured policy "none" differs from state checkpoint policy "static""#;
    assert!(words.contains(why), "{words}");
    assert_eq!(setup.node.kubelet_settings(), scope);
    setup.node.reconfigure_kubelet(&scope).await.unwrap();
    assert_eq!(setup.node.state_file("cpu_manager_state").unwrap(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_run_after_the_start_and_before_the_end() {
    let setup = TestNode::up().await;
    let touch = |file: &str| json!({"exec": {"command": ["touch", format!("/run/h/{file}")]}});
    let mounts = json!([{"name": "h", "mountPath": "/run/h"}]);
    setup
        .create(json!({
            "metadata": {"name": "p"},
            "spec": {
                "terminationGracePeriodSeconds": 5,
                "containers": [
                    {"name": "a", "volumeMounts": mounts, "lifecycle": {"postStart": touch("started"), "preStop": touch("ended")}},
                    {"name": "b", "volumeMounts": mounts, "lifecycle": {"preStop": touch("no/such/directory")}},
                ],
                "volumes": [{"name": "h", "hostPath": {"path": "/run/hooks", "type": "DirectoryOrCreate"}}],
            },
        }))
        .await;
    let file = |name: &str| {
        setup
            .node
            .host_path(&std::path::Path::new("/run/hooks").join(name))
    };
    harness::eventually("the hook after the start ran", || file("started").exists()).await;
    assert!(!file("ended").exists());
    setup
        .until("p", "is ready", |pod| {
            harness::condition(pod, "Ready") == "True"
        })
        .await;
    let deletion = setup.pods().delete("p", &DeleteParams::default()).await;
    deletion.unwrap();
    setup.until_gone("p").await;
    assert!(file("ended").exists());
    setup.event("FailedPreStopHook", "PreStopHook failed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn container_whose_hook_fails_after_its_start_is_started_again() {
    let setup = TestNode::up().await;
    let hook = json!({"postStart": {"httpGet": {"port": 1, "path": "/"}}});
    setup
        .create(json!({
            "metadata": {"name": "p"},
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "c", "lifecycle": hook}],
            },
        }))
        .await;
    setup
        .until("p", "is started again", |pod| harness::restarts(pod) > 0)
        .await;
    setup
        .event("FailedPostStartHook", "PostStartHook failed")
        .await;
    setup.event("Killing", "FailedPostStartHook").await;
}
