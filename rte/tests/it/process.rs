//! Runs the program as on a node: checks objects, conditions, metrics and exit codes for a command line.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::api_server::{NRTS, PATIENCE};
use crate::scene::{Metrics, POD, Scene, condition, cpus, outcome, output, pod, terminate};

#[tokio::test]
async fn daemon_publishes_follows_and_stops() {
    let scene = Scene::new().await;
    scene.serve_kubelet().await;
    let notify = scene.path("run/notify");
    let flag = format!("--notify-file={}", notify.display());
    let child = scene.start(&[&flag, "--sleep-interval=1h"]);

    let nrt = scene.nrt(|_| true).await;
    assert_eq!(cpus(&nrt), ["3", "4"]);
    assert_eq!(
        nrt["metadata"]["annotations"]["k8stopoawareschedwg/rte-update"],
        "reactive"
    );
    let attributes: Vec<&str> = nrt["attributes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|a| a["value"].as_str().unwrap())
        .collect();
    assert_eq!(
        attributes,
        [
            "pfp0v001ef46db3751d8e999",
            "with-exclusive-resources",
            "npv0v001::ve=leb89::cc=0::nn=2::bn=0",
            "container",
            "single-numa-node"
        ]
    );
    let ready = |pod: &Value| {
        condition(pod, "PodresourcesFetched").as_deref() == Some("True")
            && condition(pod, "NodeTopologyUpdated").as_deref() == Some("True")
    };
    let pod_object = scene.server.wait_for(POD, ready).await;
    assert_eq!(
        condition(&pod_object, "Ready").as_deref(),
        Some("False"),
        "others' conditions stay"
    );

    scene.kubelet.set_pods(Some(vec![pod("pod-1", &[4, 5])]));
    fs::write(&notify, "").unwrap();
    let nrt = scene.nrt(|nrt| cpus(nrt) == ["3", "2"]).await;
    assert_eq!(nrt["attributes"][0]["value"], "pfp0v0010c5658d8bde5056f");
    terminate(child).await;
}

#[tokio::test]
async fn pod_change_is_published_without_period_and_notification() {
    let scene = Scene::new().await;
    scene.serve_kubelet().await;
    let child = scene.start(&["--sleep-interval=0"]);
    scene.nrt(|nrt| cpus(nrt) == ["3", "4"]).await;

    // the event comes after the kubelet has acted
    scene.kubelet.set_pods(Some(vec![pod("pod-1", &[4, 5])]));
    scene.server.send_some_pod_event().await;
    scene.nrt(|nrt| cpus(nrt) == ["3", "2"]).await;

    // the event comes before the kubelet acts
    scene.server.send_some_pod_event().await;
    scene.kubelet.listed(2).await;
    scene.server.requests();
    scene.kubelet.set_pods(Some(Vec::new()));
    let nrt = scene.nrt(|nrt| cpus(nrt) == ["3", "4"]).await;
    assert_eq!(
        nrt["metadata"]["annotations"]["k8stopoawareschedwg/rte-update"],
        "reactive"
    );
    assert_eq!(
        scene.server.requests(),
        ["PATCH /worker-0"],
        "probes that find nothing new ask nothing of the API server"
    );
    terminate(child).await;
}

#[tokio::test]
async fn role_of_the_original_costs_a_warning_and_nothing_else() {
    let scene = Scene::new().await;
    scene.serve_kubelet().await;
    scene.server.refuse_watches();
    let notify = scene.path("run/notify");
    let flag = format!("--notify-file={}", notify.display());
    let log = scene.path("log");
    let mut command = scene.command(&[&flag, "--sleep-interval=1h"]);
    let child = command.stderr(fs::File::create(&log).unwrap()).spawn();
    scene.nrt(|nrt| cpus(nrt) == ["3", "4"]).await;
    scene.kubelet.set_pods(Some(vec![pod("pod-1", &[4, 5])]));
    fs::write(&notify, "").unwrap();
    scene.nrt(|nrt| cpus(nrt) == ["3", "2"]).await;
    terminate(child.unwrap()).await;
    let log = fs::read_to_string(log).unwrap();
    let warnings = log
        .lines()
        .filter(|line| line.contains("Cannot watch") && line.contains("\"pods\""))
        .count();
    assert_eq!(warnings, 1, "{log}");
}

#[tokio::test]
async fn period_publishes_without_notifications_and_identical_content_is_not_written() {
    let scene = Scene::new().await;
    scene.serve_kubelet().await;
    let child = scene.start(&["--sleep-interval=50ms", "--max-events-per-second=0"]);
    let periodic = |nrt: &Value| {
        nrt["metadata"]["annotations"]["k8stopoawareschedwg/rte-update"] == "periodic"
    };
    let first = scene.nrt(periodic).await;

    // enough cycles for a resync: each of them reads the object
    let mut seen = 0;
    let resyncs = testbed::eventually(PATIENCE, async || {
        let requests = scene.server.requests();
        let reads = requests.iter().filter(|line| *line == "GET /worker-0");
        seen += reads.count();
        if seen < 15 {
            return Err(format!("{seen} reads"));
        }
        Ok(())
    });
    resyncs.await.unwrap();
    let later = scene.nrt(|_| true).await;
    assert_eq!(
        later["metadata"]["resourceVersion"],
        first["metadata"]["resourceVersion"]
    );
    terminate(child).await;
}

#[tokio::test]
async fn kubelet_that_is_away_or_refuses_is_reported_and_waited_for() {
    let scene = Scene::new().await;
    let child = scene.start(&["--sleep-interval=1h"]);
    let failed = |pod: &Value| condition(pod, "PodresourcesFetched").as_deref() == Some("False");
    scene.server.wait_for(POD, failed).await;
    assert_eq!(
        scene.server.get(&format!("{NRTS}/worker-0")),
        None,
        "nothing is published"
    );

    scene.kubelet.set_pods(None);
    scene.serve_kubelet().await;
    scene.kubelet.set_pods(Some(vec![pod("pod-1", &[1])]));
    let nrt = scene.nrt(|_| true).await;
    assert_eq!(cpus(&nrt), ["2", "4"]);
    terminate(child).await;
}

#[tokio::test]
async fn api_server_that_refuses_is_asked_again() {
    let scene = Scene::new().await;
    scene.serve_kubelet().await;
    for (method, code) in [("POST", 403), ("POST", 429)] {
        scene.server.refuse(method.parse().unwrap(), code);
    }
    let child = scene.start(&["--sleep-interval=1h"]);
    let failed = |pod: &Value| condition(pod, "NodeTopologyUpdated").as_deref() == Some("False");
    scene.server.wait_for(POD, failed).await;
    scene.nrt(|_| true).await;
    let good = |pod: &Value| condition(pod, "NodeTopologyUpdated").as_deref() == Some("True");
    scene.server.wait_for(POD, good).await;
    terminate(child).await;
}

#[tokio::test]
async fn metrics_are_served() {
    let scene = Scene::new().await;
    scene.serve_kubelet().await;
    let metrics = Metrics::claim();
    let child = scene.start(&metrics.flags().each_ref().map(String::as_str));
    scene.nrt(|_| true).await;
    let wanted = "rte_noderesourcetopology_writes_total{node=\"worker-0\",operation=\"create\",trigger=\"reactive\"} 1";
    metrics
        .answers("/metrics", |text| text.contains(wanted))
        .await;
    terminate(child).await;
}

#[tokio::test]
async fn one_shot_publishes_and_exits() {
    let scene = Scene::new().await;
    scene.serve_kubelet().await;
    let output = output(&mut scene.command(&["--oneshot"])).await;
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(scene.server.get(&format!("{NRTS}/worker-0")).is_some());
}

#[tokio::test]
async fn no_publish_writes_no_object_but_conditions() {
    let scene = Scene::new().await;
    scene.serve_kubelet().await;
    let output = output(&mut scene.command(&["--oneshot", "--no-publish"])).await;
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(scene.server.get(&format!("{NRTS}/worker-0")), None);
    let pod = scene.server.get(POD).unwrap();
    assert_eq!(
        condition(&pod, "NodeTopologyUpdated").as_deref(),
        Some("True")
    );
}

#[tokio::test]
async fn fingerprint_status_is_dumped() {
    let scene = Scene::new().await;
    scene.serve_kubelet().await;
    scene.kubelet.set_pods(Some(vec![pod("pod-1", &[4, 5])]));
    fs::create_dir(scene.path("pfp")).unwrap();
    let mut command = scene.command(&["--oneshot", "--no-publish", "--podreadiness=false"]);
    command.env("PFP_STATUS_DUMP", scene.path("pfp"));
    assert!(output(&mut command).await.status.success());
    let text = fs::read_to_string(scene.path("pfp/worker-0")).unwrap();
    let records: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        records[0]["fingerprintComputed"],
        "pfp0v0010c5658d8bde5056f"
    );
    assert_eq!(
        records[0]["pods"],
        json!([{"Namespace": "default", "Name": "pod-1"}])
    );
}

/// The manifest of the exporter without an operator (rte.md 9.1) names flags and variables, and has a file of settings.
#[test]
fn manifest_for_it_alone_is_understood() {
    let objects = manifests::rte::standalone::objects("i");
    let set = objects.last().unwrap();
    let container = &set["spec"]["template"]["spec"]["containers"][0];
    let arguments = container["args"].as_array().unwrap().iter();
    let mut command = Command::new(env!("CARGO_BIN_EXE_resource-topology-exporter"));
    command
        .env_clear()
        .args(arguments.map(|argument| argument.as_str().unwrap()))
        .arg("--dump-config=.andexit");
    for variable in container["env"].as_array().unwrap() {
        let value = variable["value"].as_str().unwrap_or("downward");
        command.env(variable["name"].as_str().unwrap(), value);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let config: Value = serde_yaml::from_slice(&output.stdout).unwrap();
    let topology = &config["topologyExporter"];
    assert_eq!(topology["sleepInterval"], json!(60_000_000_000_u64));
    assert_eq!(topology["metricsAddress"], "127.0.0.1");
    assert_eq!(
        topology["referenceContainer"]["containerName"],
        "shared-pool-container"
    );
    assert_eq!(config["nrtUpdater"]["hostname"], "downward");
}

#[tokio::test]
async fn exit_codes_are_those_of_the_original() {
    let scene = Scene::new().await;
    let (code, stdout, _) = outcome(&scene, &["--version"], "").await;
    assert_eq!(code, Some(0));
    assert!(
        stdout.starts_with("resource-topology-exporter 0.") && stdout.ends_with(" (devel) rust\n"),
        "{stdout}"
    );

    let (code, _, stderr) = outcome(&scene, &["--kubelet-state-dir=/x"], "").await;
    assert_eq!(code, Some(2));
    assert!(
        stderr.starts_with("flag provided but not defined: -kubelet-state-dir\nUsage of"),
        "{stderr}"
    );

    assert_eq!(outcome(&scene, &["-h"], "").await.0, Some(0));

    let (code, stdout, _) = outcome(&scene, &["--dump-config=.andexit"], "").await;
    assert_eq!(code, Some(0));
    assert!(
        stdout.contains("topologyManagerPolicy: single-numa-node"),
        "{stdout}"
    );

    for (flags, unset, expected) in [
        (
            &["/etc/rte", "/run/rte"][..],
            "",
            "too many config roots given (2)",
        ),
        (&["/etc/shadow"], "", "does not match any allowed pattern"),
        (
            &[],
            "REFERENCE_POD_NAME",
            "the env REFERENCE_POD_NAME doesn't exist",
        ),
        (
            &["--sysfs=/nowhere"],
            "",
            "error while updating node capacity: cannot read /nowhere/devices/system/node",
        ),
        (
            &["--podresources-socket=tcp:///x"],
            "",
            "unsupported endpoint",
        ),
        (
            &["--metrics-mode=http", "--metrics-port=0"],
            "",
            "invalid port: 0",
        ),
        (
            &["--metrics-mode=httptls", "--metrics-tls-min-version=1.2"],
            "",
            "metrics TLS policy",
        ),
        (
            &["--kubeconfig=/nowhere"],
            "",
            "failed to get a kubernetes core client: cannot read kubeconfig /nowhere",
        ),
    ] {
        let (code, _, stderr) = outcome(&scene, flags, unset).await;
        assert_eq!(code, Some(255), "{flags:?}: {stderr}");
        assert!(stderr.contains(expected), "{flags:?}: {stderr}");
    }
}
