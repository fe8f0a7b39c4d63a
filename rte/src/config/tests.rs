use rstest::rstest;

use super::load::Loaded;
use super::*;

mod details;
mod fuzz;

/// A home directory; configuration may be read from its `.rte`.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir(home.root()).unwrap();
        home
    }

    fn root(&self) -> std::path::PathBuf {
        self.0.path().join(".rte")
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn load(&self, line: &str, env: &[(&str, &str)]) -> Result<Loaded, Error> {
        let root = self.root().display().to_string();
        let words = line
            .split_whitespace()
            .map(|word| word.replace("ROOT", &root));
        let args = go_flags::parse(&flags::specs(), words).unwrap();
        let home = self.0.path().display().to_string();
        let variable = |name: &str| match name {
            "HOME" => Some(home.clone()),
            _ => env
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned()),
        };
        load(&Sources {
            args: &args,
            variable: &variable,
            uid: 4321,
            os_hostname: "os-host",
            defaults: &Defaults {
                root: self.root().join("default"),
                extra: self.root().join("legacy/config.yaml"),
            },
        })
    }

    #[track_caller]
    fn config(&self, line: &str, env: &[(&str, &str)]) -> Config {
        self.load(line, env).unwrap().config
    }

    #[track_caller]
    fn error(&self, line: &str) -> String {
        daemon::log::chain(&self.load(line, &[]).unwrap_err())
    }
}

#[test]
fn defaults_are_upstreams() {
    let config = Home::new().config("", &[]);
    assert_eq!(config.nrt_updater.hostname, "os-host");
    let mut defaults = Config::default();
    defaults.nrt_updater.hostname = "os-host".to_owned();
    assert_eq!(config, defaults);
    assert_eq!(config.topology_exporter.sleep_interval.to_string(), "1m0s");
    assert!(config.nrt_updater.patch_mode && config.resource_monitor.pod_set_fingerprint);
}

const DAEMON: &str = "
global: {verbose: 5, debug: true}
nrtUpdater: {hostname: from-file, patchResync: 3, noPublish: true}
resourceMonitor: {sysfsRoot: /host-sys, podSetFingerprintMethod: ALL}
topologyExporter:
  sleepInterval: 10s
  timeUnitToLimitEvents: 2000000000
  referenceContainer: ns/pod/cnt
  metricsMode: httpTLS
  metricsPort: 0
  metricsTLS: {certsDir: /certs}
  topologyManagerPolicies: unknown
";

#[test]
fn daemon_file_and_configlets_are_read_key_by_key() {
    let home = Home::new();
    home.write("daemon/config.yaml", DAEMON);
    home.write(
        "daemon/config.yaml.d/10-more",
        "nrtUpdater: {patchResync: 4}\nglobal: {verbose: 6}",
    );
    home.write("daemon/config.yaml.d/20-last", "nrtUpdater.patchResync: 5");
    std::fs::create_dir(home.root().join("daemon/config.yaml.d/30-dir")).unwrap();
    let Loaded { config, warnings } = home.load("ROOT", &[("METRICS_PORT", "1234")]).unwrap();

    assert_eq!((config.global.verbose, config.global.debug), (6, true));
    assert_eq!(config.nrt_updater.patch_resync, 5);
    assert_eq!(config.nrt_updater.hostname, "from-file");
    assert!(config.nrt_updater.no_publish);
    assert_eq!(config.resource_monitor.sysfs_root, "/host-sys");
    assert_eq!(
        config.resource_monitor.pod_set_fingerprint_method,
        Method::All
    );
    let exporter = config.topology_exporter;
    assert_eq!(exporter.sleep_interval, GoDuration::from_seconds(10));
    assert_eq!(
        exporter.time_unit_to_limit_events,
        GoDuration::from_seconds(2)
    );
    assert_eq!(exporter.reference_container.unwrap().pod_name, "pod");
    assert_eq!(exporter.metrics_mode, MetricsMode::HttpTls);
    assert_eq!(
        exporter.metrics_port, 1234,
        "a file made room for the environment"
    );
    assert_eq!(exporter.metrics_tls.certs_dir, "/certs");
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].contains("30-dir"), "{warnings:?}");
    assert!(
        warnings[1].contains("topologyExporter.topologyManagerPolicies"),
        "{warnings:?}"
    );
}

#[test]
fn dump_is_a_daemon_file() {
    let home = Home::new();
    home.write(
        "extra/config.yaml",
        "kubelet: {topologyManagerPolicy: restricted, topologyManagerScope: pod}\n\
         resourceExclude: {'*': [memory], worker-0.example.com: [cpu, ex.com/d]}\n\
         podExclude: [{namespacePattern: 'kube-*', namePattern: '*'}]\n",
    );
    let line = "--kubeconfig=/k --debug --no-publish --hostname=h --sleep-interval=7s --reference-container=n/p/c \
                --metrics-mode=http --metrics-ip=127.0.0.1 --watch-pods --notify-file=/run/rte/n --v=5 ROOT";
    let written = home.load(line, &[]).unwrap().config;

    let other = Home::new();
    other.write("daemon/config.yaml", &written.dump());
    let Loaded { config, warnings } = other.load("ROOT", &[]).unwrap();
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!(config, written);
}

#[test]
fn flags_of_klog_that_change_nothing_are_named_in_warnings() {
    let line = "--logtostderr --vmodule=scan=6 --log_file /x --skip_headers --one_output=false";
    let Loaded { config, warnings } = Home::new().load(line, &[]).unwrap();
    assert_eq!(config.global.verbose, Config::default().global.verbose);
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    for (warning, flag) in warnings
        .iter()
        .zip(["-vmodule", "-log_file", "-skip_headers"])
    {
        assert!(warning.contains(flag), "{warning}");
    }
    assert!(
        Home::new()
            .error("--logtostderr=maybe")
            .contains("-logtostderr")
    );
}

#[rstest]
#[case::against_the_default("", "ROOT", "127.0.0.1", 1234)]
#[case::not_against_a_file(
    "topologyExporter: {metricsPort: 2, metricsAddress: 1.1.1.1}",
    "ROOT",
    "1.1.1.1",
    2
)]
#[case::not_against_the_old_key(
    "topologyExporter: {MetricsAddress: 1.1.1.1}",
    "ROOT",
    "1.1.1.1",
    1234
)]
#[case::not_against_flags("", "--metrics-ip=2.2.2.2 --metrics-port=3 ROOT", "2.2.2.2", 3)]
fn environment_says_where_metrics_are(
    #[case] file: &str,
    #[case] line: &str,
    #[case] address: &str,
    #[case] port: i64,
) {
    let home = Home::new();
    home.write("daemon/config.yaml", file);
    let env = [("METRICS_ADDRESS", "127.0.0.1"), ("METRICS_PORT", "1234")];
    let exporter = home.load(line, &env).unwrap().config.topology_exporter;
    assert_eq!(
        (exporter.metrics_address.as_str(), exporter.metrics_port),
        (address, port)
    );
}

#[test]
fn configlets_without_a_main_file_are_not_read() {
    let home = Home::new();
    home.write("daemon/config.yaml.d/10", "nrtUpdater: {patchResync: 4}");
    assert_eq!(home.config("ROOT", &[]).nrt_updater.patch_resync, 10);
}

const EXTRA: &str = "
Kubelet: {topologymanagerpolicy: single-numa-node, topologyManagerScope: pod}
resourceExclude: {'*': [example.com/noisy], worker-0: [memory, cpu]}
podExclude:
- {namespacePattern: 'openshift-*', NamePattern: '*'}
unknown: [1]
";

#[test]
fn extra_file_is_read_whatever_the_case_of_its_keys() {
    let home = Home::new();
    home.write("extra/config.yaml", EXTRA);
    for line in ["ROOT", "--config=ROOT/extra/config.yaml"] {
        let config = home.config(line, &[]);
        assert_eq!(
            config.topology_exporter.topology_manager_policy,
            "single-numa-node"
        );
        assert_eq!(config.topology_exporter.topology_manager_scope, "pod");
        let excludes = &config.resource_monitor.resource_exclude;
        assert_eq!(excludes["*"], ["example.com/noisy"]);
        assert_eq!(excludes["worker-0"], ["memory", "cpu"]);
        let expected = PodPattern {
            namespace_pattern: "openshift-*".to_owned(),
            name_pattern: "*".to_owned(),
        };
        assert_eq!(config.resource_monitor.pod_exclude, [expected]);
    }
}

/// Flaw 6: manifests mount the extra file below the default root without giving a root.
#[test]
fn extra_file_of_the_default_root_is_read_unless_the_legacy_one_is_there() {
    let home = Home::new();
    let policy = || {
        let exporter = home.config("", &[]).topology_exporter;
        exporter.topology_manager_policy
    };
    home.write(
        "default/extra/config.yaml",
        "kubelet: {topologyManagerPolicy: restricted}",
    );
    assert_eq!(policy(), "restricted");
    home.write(
        "legacy/config.yaml",
        "kubelet: {topologyManagerPolicy: best-effort}",
    );
    assert_eq!(policy(), "best-effort");
}

/// Flaw 6: the kubelet mounts a `ConfigMap` as links.
#[test]
fn configlets_that_are_links_are_read() {
    let home = Home::new();
    home.write("daemon/config.yaml", "{}");
    home.write(
        "daemon/config.yaml.d/..data/10",
        "nrtUpdater: {patchResync: 7}",
    );
    let dir = home.root().join("daemon/config.yaml.d");
    std::os::unix::fs::symlink("..data/10", dir.join("10")).unwrap();
    assert_eq!(home.config("ROOT", &[]).nrt_updater.patch_resync, 7);
}

#[test]
fn stronger_sources_win() {
    let home = Home::new();
    home.write("daemon/config.yaml", DAEMON);
    home.write("extra/config.yaml", EXTRA);
    let env = [
        ("NODE_NAME", "from-env"),
        ("TOPOLOGY_MANAGER_POLICY", "restricted"),
        ("TOPOLOGY_MANAGER_SCOPE", "container"),
        ("REFERENCE_NAMESPACE", "n"),
        ("REFERENCE_POD_NAME", "p"),
        ("REFERENCE_CONTAINER_NAME", "c"),
    ];
    let exporter = |config: &Config| {
        let TopologyExporter {
            topology_manager_policy: policy,
            topology_manager_scope: scope,
            ..
        } = &config.topology_exporter;
        (policy.clone(), scope.clone())
    };
    let strings = |a: &str, b: &str| (a.to_owned(), b.to_owned());

    let only_env = Home::new().config("", &env);
    assert_eq!(exporter(&only_env), strings("restricted", "container"));
    assert_eq!(only_env.nrt_updater.hostname, "from-env");
    assert_eq!(
        only_env
            .topology_exporter
            .reference_container
            .unwrap()
            .container_name,
        "c"
    );

    let with_file = home.config("ROOT", &env);
    assert_eq!(exporter(&with_file), strings("single-numa-node", "pod"));
    assert_eq!(with_file.nrt_updater.hostname, "from-file");

    let with_flags = home.config(
        "--topology-manager-policy=best-effort --hostname from-flag --no-publish=false -v=9 --sleep-interval=1m30s ROOT",
        &env,
    );
    assert_eq!(exporter(&with_flags), strings("best-effort", "pod"));
    assert_eq!(with_flags.nrt_updater.hostname, "from-flag");
    assert!(!with_flags.nrt_updater.no_publish);
    assert_eq!(with_flags.global.verbose, 9);
    assert_eq!(
        with_flags.topology_exporter.sleep_interval,
        GoDuration::from_seconds(90)
    );
    assert_eq!(
        home.config("-v=0 ROOT", &env).global.verbose,
        5,
        "a flag only raises the verbosity"
    );
}

#[test]
fn flag_that_changes_nothing_is_refused() {
    let error = set_flag(&mut Config::default(), "no-such-flag", "x").unwrap_err();
    assert!(error.to_string().contains("no-such-flag"), "{error}");
}

/// Every flag has its own setting: another value changes the configuration, and no other flag changes the same.
#[test]
fn every_flag_changes_a_setting_of_its_own() {
    let not_a_setting = ["config", "version", "dump-config", "logging-format"];
    let mut changed: Vec<(&str, Config)> = Vec::new();
    for spec in flags::specs() {
        if not_a_setting.contains(&spec.name) || goflags::klog::find(spec.name).is_some() {
            continue;
        }
        let values = ["true", "false", "7", "7s", "all", "http", "a/b/c", "text"];
        let mut results = values.iter().filter_map(|value| {
            let mut config = Config::default();
            set_flag(&mut config, spec.name, value).ok()?;
            (config != Config::default()).then_some(config)
        });
        let config = results.next();
        let config = config.unwrap_or_else(|| panic!("{} changes nothing", spec.name));
        if let Some((other, _)) = changed.iter().find(|(_, before)| *before == config) {
            panic!("{} and {other} change the same", spec.name);
        }
        changed.push((spec.name, config));
    }
}

#[rstest]
#[case::bool(
    "--debug=maybe",
    "invalid boolean value \"maybe\" for -debug: parse error"
)]
#[case::number(
    "--metrics-port=x",
    "invalid value \"x\" for flag -metrics-port: parse error"
)]
#[case::duration(
    "--sleep-interval=10",
    "invalid value \"10\" for flag -sleep-interval: parse error"
)]
#[case::method("--pods-fingerprint-method=some", "unsupported method  \"some\"")]
#[case::mode("--metrics-mode=tls", "unsupported method  \"tls\"")]
#[case::container("--reference-container=a/b", "malformed ident: \"a/b\"")]
#[case::format("--logging-format=xml", "unsupported log format \"xml\"")]
#[case::dump("--dump-config=file", "must be one of -, .andexit, .log")]
fn unusable_flag_value_is_a_usage_error(#[case] line: &str, #[case] expected: &str) {
    let error = Home::new().load(line, &[]).unwrap_err();
    assert!(matches!(error, Error::Flag(_)));
    assert!(error.to_string().contains(expected), "{error}");
}

#[rstest]
#[case::roots(
    "ROOT /etc/rte",
    "too many config roots given (2), currently supported up to 1"
)]
#[case::root(
    "/etc/shadow",
    "failed to validate configRoot path \"/etc/shadow\": does not match any allowed pattern"
)]
#[case::extra(
    "--config /tmp/missing.yaml",
    "failed to validate configRoot path \"/tmp/missing.yaml\": does not match any allowed pattern"
)]
#[case::interval("--sleep-interval=-1s", "interval cannot be negative: -1s")]
fn unusable_configuration_is_an_error(#[case] line: &str, #[case] expected: &str) {
    assert_eq!(Home::new().error(line), expected);
}

#[rstest]
#[case::bad_yaml(
    "extra/config.yaml",
    "a: [",
    "error getting exclude list from the configuration: cannot parse"
)]
#[case::bad_option(
    "extra/config.yaml",
    "kubelet: {topologyManagerPolicyOptions: {max-allowable-numa-nodes: many}}",
    "max-allowable-numa-nodes is not a number"
)]
#[case::bad_extra_type("extra/config.yaml", "podExclude: 3", "podExclude is not a list")]
#[case::bad_managers("extra/kubelet-details.yaml", "kubelet: 3", "kubelet is not a mapping")]
#[case::bad_daemon_yaml("daemon/config.yaml", "a: [", "cannot parse")]
#[case::string(
    "daemon/config.yaml",
    "nrtUpdater: {hostname: 3}",
    "key \"nrtUpdater.hostname\" has non-string value 3"
)]
#[case::bool(
    "daemon/config.yaml",
    "global: {debug: maybe}",
    "key \"global.debug\" has non-bool value maybe"
)]
#[case::value(
    "daemon/config.yaml",
    "topologyExporter: {metricsMode: x}",
    "unsupported method  \"x\""
)]
fn unusable_file_is_an_error(#[case] path: &str, #[case] text: &str, #[case] expected: &str) {
    let home = Home::new();
    home.write(path, text);
    let error = home.error("ROOT");
    assert!(error.contains(expected), "{error}");
}

#[test]
fn dump_is_sorted_and_leaves_empty_fields_out() {
    let home = Home::new();
    home.write("extra/config.yaml", EXTRA);
    let config = home.config(
        "--reference-container=a/b/c --add-nrt-owner=false ROOT",
        &[],
    );
    let dump = config.dump();
    let value: serde_yaml::Value = serde_yaml::from_str(&dump).unwrap();
    assert_sorted(&value, "");
    let exporter = &value["topologyExporter"];
    assert_eq!(exporter["topologyManagerPolicy"], "single-numa-node");
    assert_eq!(exporter["sleepInterval"], 60_000_000_000_i64);
    assert_eq!(exporter["referenceContainer"]["podName"], "b");
    assert_eq!(exporter.get("addNRTOwnerEnable"), None);
    assert_eq!(exporter.get("notifyFilePath"), None);
    assert_eq!(value["global"]["verbose"], 2);
    assert_eq!(
        value["resourceMonitor"]["podSetFingerprintMethod"],
        "with-exclusive-resources"
    );
}

#[track_caller]
fn assert_sorted(value: &serde_yaml::Value, at: &str) {
    let Some(mapping) = value.as_mapping() else {
        return;
    };
    let keys: Vec<&str> = mapping.keys().map(|key| key.as_str().unwrap()).collect();
    assert!(keys.is_sorted(), "{at}: {keys:?}");
    for (key, value) in mapping {
        assert_sorted(value, key.as_str().unwrap());
    }
}
