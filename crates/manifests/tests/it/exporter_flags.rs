//! Compares the command lines of the exporters with operator.md 6.2.

use api::operator::v1::NodeGroupConfig;
use api::operator::{InfoRefreshMode, InfoRefreshPause, LogLevel, PodsFingerprinting};
use manifests::platform::{Platform, TlsSettings};
use manifests::rte::{self, Pool};
use rstest::rstest;
use serde_json::{Value, json};

use crate::exporters::{daemon_set, fingerprinting, options, pod, pool};

const CIPHERS: &str = "--metrics-tls-cipher-suites=TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256,\
TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,\
TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256";

fn args(set: &Value) -> Vec<&str> {
    pod(set)["containers"][0]["args"]
        .as_array()
        .unwrap()
        .iter()
        .map(|arg| arg.as_str().unwrap())
        .collect()
}

#[test]
fn default_arguments_are_those_of_the_reference_in_its_order() {
    let set = daemon_set(
        &options(Platform::OpenShift),
        pool(NodeGroupConfig::default()),
    );
    assert_eq!(
        args(&set),
        [
            "--sleep-interval=10s",
            "--sysfs=/host-sys",
            "--podresources-socket=unix:///host-podresources/kubelet.sock",
            "-v=2",
            "--pods-fingerprint",
            "--metrics-mode=httptls",
            "--metrics-auth",
            "--metrics-tls-min-version=VersionTLS12",
            CIPHERS,
            "--refresh-node-resources",
            "--pods-fingerprint-method=with-exclusive-resources",
            "--add-nrt-owner=false",
        ]
    );
}

/// The original's exporters on plain Kubernetes have the file always, and all of the kubelet's directory with it.
#[rstest]
#[case::kubernetes(Platform::Kubernetes, "", true)]
#[case::settings_in_a_config_map(Platform::Kubernetes, "SHA256:1", false)]
#[case::openshift(Platform::OpenShift, "", false)]
#[case::hosted(Platform::HyperShift, "", false)]
fn kubelets_file_is_read_where_nothing_else_has_its_settings(
    #[case] platform: Platform,
    #[case] config_hash: &str,
    #[case] expected: bool,
) {
    let pool = Pool {
        config_hash: config_hash.into(),
        ..pool(NodeGroupConfig::default())
    };
    let set = daemon_set(&options(platform), pool);
    let flag = "--kubelet-config-file=/host-var-lib-kubelet/config.yaml";
    assert_eq!(args(&set).contains(&flag), expected);
    let volume = json!({
        "name": "host-kubelet-config",
        "hostPath": {"path": "/var/lib/kubelet/config.yaml", "type": "File"},
    });
    let mount = json!({
        "name": "host-kubelet-config", "mountPath": "/host-var-lib-kubelet/config.yaml", "readOnly": true,
    });
    let has = |list: &Value, wanted: &Value| list.as_array().unwrap().contains(wanted);
    let pod = pod(&set);
    assert_eq!(has(&pod["volumes"], &volume), expected);
    let mounts = &pod["containers"][0]["volumeMounts"];
    assert_eq!(has(mounts, &mount), expected);
}

fn mode(mode: InfoRefreshMode, period: &str) -> NodeGroupConfig {
    NodeGroupConfig {
        info_refresh_mode: Some(mode),
        info_refresh_period: Some(period.into()),
        ..NodeGroupConfig::default()
    }
}

#[rstest]
#[case::periodic(mode(InfoRefreshMode::Periodic, "1m"), &["--sleep-interval=1m0s"], &["--notify-file=/run/rte/notify", "--notify-file=/host-run-rte/notify"])]
#[case::zero(mode(InfoRefreshMode::Periodic, "0"), &["--sleep-interval=0s"], &[])]
#[case::both(mode(InfoRefreshMode::PeriodicAndEvents, "7s"), &["--sleep-interval=7s", "--notify-file=/run/rte/notify"], &[])]
#[case::events(mode(InfoRefreshMode::Events, "7s"), &["--sleep-interval=10s", "--notify-file=/run/rte/notify"], &["--sleep-interval=7s"])]
#[case::all_pods(fingerprinting(PodsFingerprinting::Enabled), &["--pods-fingerprint", "--pods-fingerprint-method=all"], &["--pods-fingerprint=false"])]
#[case::no_fingerprint(
    fingerprinting(PodsFingerprinting::Disabled),
    &["--pods-fingerprint=false"],
    &["--pods-fingerprint", "--pods-fingerprint-method=with-exclusive-resources"]
)]
#[case::paused(
    NodeGroupConfig { info_refresh_pause: Some(InfoRefreshPause::Enabled), ..NodeGroupConfig::default() },
    &["--no-publish"],
    &[]
)]
#[case::not_paused(NodeGroupConfig::default(), &[], &["--no-publish"])]
fn settings_reach_the_command_line(
    #[case] config: NodeGroupConfig,
    #[case] present: &[&str],
    #[case] absent: &[&str],
) {
    let set = daemon_set(&options(Platform::Kubernetes), pool(config));
    let args = args(&set);
    for wanted in present {
        assert!(args.contains(wanted), "{wanted} in {args:?}");
    }
    for unwanted in absent {
        assert!(!args.contains(unwanted), "{unwanted} in {args:?}");
    }
}

/// The original watches a file inside the container (flaw 3). With `Events` the base period stays as a fallback, as in the original.
#[rstest]
#[case::periodic(InfoRefreshMode::Periodic, &["/host-run-rte"])]
#[case::both(InfoRefreshMode::PeriodicAndEvents, &["/host-run-rte", "/run/rte"])]
#[case::events(InfoRefreshMode::Events, &["/host-run-rte", "/run/rte"])]
fn notification_file_is_the_hosts(#[case] refresh: InfoRefreshMode, #[case] expected: &[&str]) {
    let set = daemon_set(&options(Platform::Kubernetes), pool(mode(refresh, "7s")));
    let mounts = pod(&set)["containers"][0]["volumeMounts"].clone();
    let mounts = mounts.as_array().unwrap().iter();
    let of_host = mounts.filter(|mount| mount["name"] == "host-run-rte");
    let paths: Vec<&str> = of_host
        .map(|mount| mount["mountPath"].as_str().unwrap())
        .collect();
    assert_eq!(paths, expected);
}

#[rstest]
#[case::unset(LogLevel::Unset, "-v=2")]
#[case::normal(LogLevel::Normal, "-v=2")]
#[case::debug(LogLevel::Debug, "-v=4")]
#[case::trace(LogLevel::Trace, "-v=6")]
#[case::trace_all(LogLevel::TraceAll, "-v=8")]
fn log_level_is_a_verbosity(#[case] log_level: LogLevel, #[case] arg: &str) {
    let set = daemon_set(
        &rte::Options {
            log_level,
            ..options(Platform::Kubernetes)
        },
        pool(NodeGroupConfig::default()),
    );
    assert_eq!(args(&set)[3], arg);
}

#[test]
fn empty_tls_settings_leave_their_flags_out() {
    let tls = TlsSettings {
        min_version: "VersionTLS13".into(),
        cipher_suites: String::new(),
    };
    let set = daemon_set(
        &rte::Options {
            tls,
            ..options(Platform::Kubernetes)
        },
        pool(NodeGroupConfig::default()),
    );
    assert!(args(&set).contains(&"--metrics-tls-min-version=VersionTLS13"));
    assert!(
        !args(&set)
            .iter()
            .any(|arg| arg.starts_with("--metrics-tls-cipher-suites"))
    );
}
