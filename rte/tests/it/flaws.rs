//! The flaws of the original (rte.md 10), and the test that shows that each is fixed. Tests that are not in this file are next to the code.
//!
//! | flaw | shown by |
//! |---|---|
//! | 1 role without patch | `publish::role_without_patch_is_not_asked_again` |
//! | 2 certificate of the metrics | `manifests`: `pods_follow_selection_tolerations_and_fingerprinting` |
//! | 3 notification file of the host | `manifests`: `notification_file_is_the_hosts`; polling continues with `Events` as a fallback, which writes nothing when nothing changed |
//! | 4 kubelet's file | `kubelet::configuration`: `settings_come_from_the_strongest_source` |
//! | 5 metrics variables | `config`: `environment_says_where_metrics_are` |
//! | 6 configlets, default root, places | `config`: `configlets_that_are_links_are_read`, `extra_file_of_the_default_root_is_read_unless_the_legacy_one_is_there`; `config::guard` |
//! | 7 one-shot | `process::one_shot_publishes_and_exits` |
//! | 8 timing and a failed scan | [`flaw_8_timing_survives_a_failed_scan`] |
//! | 9 terminal pods | [`flaw_9_finished_pods_are_left_out_when_asked_for`] |
//! | 10 gaps in NUMA ids | `hardware`: `machine_is_read_with_holes_in_its_node_ids` |
//! | 11 devices without a NUMA node | `scan::accounting`: `what_does_not_fit_the_machine_is_told_and_left_out` |
//! | 12 sysfs root, silent errors | `hardware`: `unreadable_parts_are_errors_and_no_missing_zones`; [`machine_that_cannot_be_read_any_more_is_not_published`] |
//! | 13 memory over zones | `scan::accounting`: `memory_over_two_nodes_is_charged_to_both_or_once` (optional: users compare with the original's rule) |
//! | 14 resources without a NUMA node | `scan::accounting`: `resources_on_no_numa_node_are_counted_apart` (counted in a metric, because the object has no field for them) |
//! | 15 order, empty patches | `publish::changes_are_written_and_nothing_else`, `process::period_publishes_…` |
//! | 16 stale annotations | `publish::timing_is_annotated_when_asked_for` |
//! | 17 foreign edits | `publish::patch_of_an_object_that_somebody_changed_gives_way_to_an_update` |
//! | 18 metrics of writes | `publish` (`assert_metric`), `metrics` |
//! | 19 notification file | `triggers::notify`, `triggers::events` |
//! | 20 no retry | `process::api_server_that_refuses_is_asked_again`, `process::kubelet_that_is_away_or_refuses_is_reported_and_waited_for` |
//! | 21 dead owners | `publish::node_becomes_the_owner_and_a_node_that_came_anew_too` |
//! | 22 all nodes are watched | [`flaw_22_only_what_is_of_the_own_node_is_watched`] |
//! | 23 shutdown hangs | [`flaw_23_shutdown_does_not_wait_for_a_silent_api_server`] |
//! | 24, 25 hidden pods look available | `scan::observation`: `hidden_pods_are_accounted_for_when_exactness_is_asked_for` (optional); invalid globs are reported: `scan::filter` |
//! | 26 pods of the same name | [`flaw_26_pod_of_the_same_name_with_other_cpus_is_published`] (other programs define the format of the fingerprint, so it stays) |
//! | 27 placement | `nrt`: `a_wrong_placement_is_refused`; a missing placement is explained: `scan::observation` |
//! | 28 dump as file | `config`: `dump_is_a_daemon_file` |
//! | 29 policy options | `kubelet::configuration`, `scan::observation`: `number_of_numa_nodes_is_published_when_it_is_known` |
//! | 30 authorities and places of certificates | `metrics::server`; certificates that appear later: `daemon::tls` |
//! | 31 health | [`flaw_31_health_and_readiness_are_served`] |
//! | new pods that hold only a part of their resources (not in the list) | `kubelet::arrivals` |
//! | 32 pushed updates | `process::pod_change_is_published_without_period_and_notification` |

use std::fs;

use serde_json::Value;

use crate::scene::{Metrics, POD, Scene, condition, cpus, outcome, pod, terminate};

#[tokio::test]
async fn flaw_8_timing_survives_a_failed_scan() {
    let scene = Scene::new().await;
    let child = scene.start(&["--sleep-interval=1h", "--expose-timing"]);
    let failed = |pod: &Value| condition(pod, "PodresourcesFetched").as_deref() == Some("False");
    scene.server.wait_for(POD, failed).await;
    scene.serve_kubelet().await;
    let nrt = scene.nrt(|_| true).await;
    let notes = &nrt["metadata"]["annotations"];
    assert_eq!(notes["k8stopoawareschedwg/update-interval"], "0s");
    assert!(notes["k8stopoawareschedwg/sleep-duration"].is_string());
    terminate(child).await;
}

#[tokio::test]
async fn flaw_9_finished_pods_are_left_out_when_asked_for() {
    let scene = Scene::new().await;
    scene.serve_kubelet().await;
    scene.server.finish_pod("default", "over");
    // like a kubelet that lists finished pods
    let pods = vec![pod("over", &[4, 5]), pod("runs", &[6])];
    scene.kubelet.set_pods(Some(pods));
    let child = scene.start(&["--sleep-interval=0", "--exclude-terminal-pods"]);
    scene.nrt(|nrt| cpus(nrt) == ["3", "3"]).await;
    terminate(child).await;

    let child = scene.start(&["--sleep-interval=0"]);
    scene.nrt(|nrt| cpus(nrt) == ["3", "1"]).await;
    terminate(child).await;
}

#[tokio::test]
async fn machine_that_cannot_be_read_any_more_is_not_published() {
    let scene = Scene::new().await;
    scene.serve_kubelet().await;
    let child = scene.start(&["--sleep-interval=50ms", "--refresh-node-resources"]);
    let before = scene.nrt(|nrt| cpus(nrt) == ["3", "4"]).await;
    let meminfo = scene.path("sys/devices/system/node/node1/meminfo");
    let text = fs::read_to_string(&meminfo).unwrap();
    fs::write(&meminfo, "half").unwrap();
    scene.kubelet.set_pods(Some(vec![pod("p", &[4])]));
    let failed = |pod: &Value| condition(pod, "PodresourcesFetched").as_deref() == Some("False");
    scene.server.wait_for(POD, failed).await;
    assert_eq!(
        scene.nrt(|_| true).await["zones"],
        before["zones"],
        "nothing is published that was half read"
    );
    fs::write(&meminfo, text).unwrap();
    scene.nrt(|nrt| cpus(nrt) == ["3", "3"]).await;
    terminate(child).await;
}

#[tokio::test]
async fn flaw_22_only_what_is_of_the_own_node_is_watched() {
    let scene = Scene::new().await;
    scene.serve_kubelet().await;
    let child = scene.start(&["--sleep-interval=0"]);
    scene.nrt(|_| true).await;
    scene.server.send_some_pod_event().await;
    let watches = scene.server.watches();
    assert!(!watches.is_empty());
    for query in watches {
        assert!(query.contains("worker-0"), "{query}");
    }
    terminate(child).await;
}

#[tokio::test]
async fn flaw_23_shutdown_does_not_wait_for_a_silent_api_server() {
    let scene = Scene::new().await;
    scene.serve_kubelet().await;
    scene.server.fall_silent();
    let child = scene.start(&["--sleep-interval=50ms"]);
    scene.server.wait_for_request().await;
    terminate(child).await;
}

#[tokio::test]
async fn flaw_26_pod_of_the_same_name_with_other_cpus_is_published() {
    let scene = Scene::new().await;
    scene.serve_kubelet().await;
    scene.kubelet.set_pods(Some(vec![pod("p", &[1])]));
    let child = scene.start(&["--sleep-interval=0"]);
    let first = scene.nrt(|nrt| cpus(nrt) == ["2", "4"]).await;
    scene.kubelet.set_pods(Some(vec![pod("p", &[4, 5])]));
    scene.server.send_some_pod_event().await;
    let second = scene.nrt(|nrt| cpus(nrt) == ["3", "2"]).await;
    assert_eq!(
        first["attributes"][0], second["attributes"][0],
        "the fingerprint knows names only"
    );
    terminate(child).await;
}

#[tokio::test]
async fn flaw_31_health_and_readiness_are_served() {
    let scene = Scene::new().await;
    let metrics = Metrics::claim();
    let [mode, address, port] = metrics.flags();
    let child = scene.start(&[&mode, &address, &port, "--sleep-interval=50ms"]);
    let failed = |pod: &Value| condition(pod, "PodresourcesFetched").as_deref() == Some("False");
    scene.server.wait_for(POD, failed).await;
    let healthy = metrics.ask("/healthz").await;
    assert!(healthy.starts_with("HTTP/1.0 200"), "{healthy}");
    let not_ready = metrics.ask("/readyz").await;
    assert!(not_ready.starts_with("HTTP/1.0 500"), "{not_ready}");
    scene.serve_kubelet().await;
    metrics
        .answers("/readyz", |answer| answer.starts_with("HTTP/1.0 200"))
        .await;
    terminate(child).await;
}

#[tokio::test]
async fn unreadable_configuration_ends_the_start() {
    let scene = Scene::new().await;
    let root = scene.path(".rte");
    for (file, text, expected) in [
        (
            "daemon/config.yaml",
            "global: [",
            "failed to parse args: error getting the daemon configuration: cannot parse",
        ),
        (
            "daemon/config.yaml",
            "nrtUpdater: {patchResync: many}",
            "has non-number value many",
        ),
        (
            "extra/config.yaml",
            "\tx",
            "failed to parse args: error getting exclude list from the configuration",
        ),
    ] {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        let (code, _, stderr) = outcome(&scene, &[root.to_str().unwrap()], "").await;
        assert_eq!(code, Some(255), "{file}: {stderr}");
        assert!(stderr.contains(expected), "{file}: {stderr}");
        fs::remove_file(&path).unwrap();
    }
}

/// Arguments from the original's manifests, verbatim (rte.md 9.1, 9.3).
const STANDALONE: &[&str] = &[
    "--dump-config=.log",
    "--sleep-interval=60s",
    "--metrics-mode=disabled",
    "--metrics-want-cli-auth=true",
    "--sysfs=/host-sys",
    "--kubelet-config-file=/host-var/lib/kubelet/config.yaml",
    "--podresources-socket=unix:///host-var/lib/kubelet/pod-resources/kubelet.sock",
    "--notify-file=/host-run/rte/notify",
];
const OPERATOR: &[&str] = &[
    "--sleep-interval=10s",
    "--sysfs=/host-sys",
    "--podresources-socket=unix:///host-podresources/kubelet.sock",
    "-v=2",
    "--notify-file=/run/rte/notify",
    "--pods-fingerprint",
    "--pods-fingerprint-method=with-exclusive-resources",
    "--metrics-mode=httptls",
    "--metrics-tls-min-version=VersionTLS12",
    "--metrics-tls-cipher-suites=TLS_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "--refresh-node-resources",
    "--add-nrt-owner=false",
    "--no-publish",
];

#[tokio::test]
async fn arguments_and_files_of_the_originals_manifests_work_unchanged() {
    let scene = Scene::new().await;
    let root = scene.path(".rte");
    let write = |file: &str, text: &str| {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write(
        "extra/config.yaml",
        "kubelet:\n  topologyManagerPolicy: single-numa-node\n  topologyManagerScope: container\n",
    );
    write(
        "daemon/config.yaml",
        "global:\n  verbose: 5\n  debug: true\nnrtUpdater:\n  patchMode: true\n  patchResync: 10\nresourceMonitor:\n  \
         exposeTiming: true\n  refreshNodeResources: true\ntopologyExporter:\n  addNRTOwnerEnable: true\n  \
         podReadinessEnable: true\n  metricsTLS:\n    certsDir: /etc/secrets/rte\n    wantCliAuth: true\n",
    );
    for (words, expected) in [
        (
            STANDALONE,
            &[
                "verbose: 5",
                "exposeTiming: true",
                "sleepInterval: 60000000000",
                "notifyFilePath: /host-run/rte/notify",
                "topologyManagerPolicy: single-numa-node",
            ][..],
        ),
        (
            OPERATOR,
            &[
                "sleepInterval: 10000000000",
                "metricsMode: httptls",
                "noPublish: true",
                "podSetFingerprintMethod: with-exclusive-resources",
                "sysfsRoot: /host-sys",
                "minTLSVersion: VersionTLS12",
            ],
        ),
    ] {
        let mut words = words.to_vec();
        words.extend(["--dump-config=.andexit", root.to_str().unwrap()]);
        let (code, stdout, stderr) = outcome(&scene, &words, "").await;
        assert_eq!(code, Some(0), "{stderr}");
        for text in expected {
            assert!(stdout.contains(text), "{text} not in {stdout}");
        }
        assert!(!stderr.contains("unknown key"), "{stderr}");
    }
}
