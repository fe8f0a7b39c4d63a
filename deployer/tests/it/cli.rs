//! Output and exit codes that need no cluster.

use std::path::Path;

use futures::future::join_all;
use rstest::rstest;

use crate::process::{deployer, deployer_on, deployer_with};

#[test]
fn without_arguments_the_usage_goes_to_stderr_and_all_is_well() {
    let ran = deployer("");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""));
    assert!(ran.stderr.contains("Usage: deployer"), "{ran:?}");
}

#[test]
fn the_version_is_one_line_that_parses() {
    let version = deployer("version").stdout();
    assert_eq!(version, concat!("v", env!("CARGO_PKG_VERSION"), "\n"));
    let full = deployer("version --full").stdout();
    assert!(full.starts_with(&format!("{}-", version.trim())), "{full}");
    let hash = deployer("version --full --hash").stdout();
    assert!(
        !hash.starts_with('v') && hash.lines().count() == 1,
        "{hash}"
    );
}

#[rstest]
#[case::updater("images --updater-type=LOCAL", "\"LOCAL\" is invalid updater type\n")]
#[case::updater_of_a_deployment(
    "deploy --updater-type=LOCAL --wait",
    "\"LOCAL\" is invalid updater type\n"
)]
#[case::updater_in_lower_case("--updater-type rte version", "\"rte\" is invalid updater type\n")]
#[case::constraints("version --updater-scc=v3", "SCC version \"v3\" is invalid\n")]
#[case::platform("-P kubernetes render", "unsupported platform spec: \"kubernetes\"\n")]
#[case::no_platform("render", "must explicitly select a cluster platform\n")]
#[case::no_openshift(
    "-P kubernetes:v1.30 render policy",
    "must explicitly select the OpenShift platform\n"
)]
#[case::no_version("-P openshift:x render policy", "malformed version: \n")]
#[case::replicas("-P kubernetes:v1.30 -R 0 render", "non-positive replicas: 0\n")]
#[case::lease(
    "-P kubernetes:v1.30 render --sched-leader-elect-resource=a/b/c",
    "malformed leader election resource: \"a/b/c\"\n"
)]
#[case::file("version --rte-config-file=/nowhere/rte.yaml", "/nowhere/rte.yaml")]
fn mistakes_are_told_on_one_line(#[case] arguments: &str, #[case] expected: &str) {
    let stderr = deployer(arguments).stderr();
    let last = stderr.lines().last().unwrap_or_default().to_owned() + "\n";
    assert!(last.contains(expected), "{stderr}");
    assert!(!stderr.contains("Usage"), "{stderr}");
}

#[test]
fn unknown_flags_are_refused() {
    let stderr = deployer("deploy --nonsense").stderr();
    assert!(stderr.contains("--nonsense"), "{stderr}");
}

#[test]
fn images_are_named_and_overridden() {
    let json = deployer("images --json").stdout();
    let images: serde_json::Value = serde_json::from_str(&json).unwrap();
    let keys: Vec<&String> = images.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "scheduler_controller",
            "scheduler_plugin",
            "topology_updater"
        ]
    );
    let variables = [
        ("TAS_SCHEDULER_PLUGIN_IMAGE", "quay.io/foobar/sched:dev"),
        (
            "TAS_SCHEDULER_PLUGIN_CONTROLLER_IMAGE",
            "quay.io/foobar/ctrl:dev",
        ),
    ];
    let json = deployer_with(&variables, "images --json").stdout();
    let images: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(images["scheduler_plugin"], "quay.io/foobar/sched:dev");
    assert_eq!(images["scheduler_controller"], "quay.io/foobar/ctrl:dev");
    let raw = deployer_with(&variables, "images -r").stdout();
    assert!(
        raw.ends_with("\nquay.io/foobar/sched:dev\nquay.io/foobar/ctrl:dev\n"),
        "{raw}"
    );
    let rendered = deployer_with(&variables, "-P kubernetes:v1.24 render").stdout();
    for (_, image) in variables {
        assert!(rendered.contains(image), "{image}");
    }
}

#[test]
fn what_is_rendered_has_the_images_of_an_environment_with_nothing_else() {
    let variables = [
        ("TAS_SCHEDULER_PLUGIN_IMAGE", "quay.io/foobar/sched:dev"),
        ("TAS_RESOURCE_EXPORTER_IMAGE", "quay.io/foobar/rte:dev"),
    ];
    let rendered = deployer_with(&variables, "-P kubernetes:v1.24 render").stdout();
    for (_, image) in variables {
        assert!(rendered.contains(&format!("image: {image}\n")), "{image}");
    }
}

#[test]
fn completion_scripts_are_for_each_shell() {
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let script = deployer(&format!("completion {shell}")).stdout();
        assert!(script.contains("topology-updater"), "{shell}");
    }
}

#[tokio::test]
async fn a_cluster_that_is_not_there_is_named() {
    let stderr = deployer("deploy").stderr();
    assert!(stderr.contains("set KUBECONFIG"), "{stderr}");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kubeconfig");
    // no server listens at this port
    let kubeconfig = "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], \
                      clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: u, user: {}}]}";
    std::fs::write(&path, kubeconfig).unwrap();
    // each asks for some seconds
    let commands = ["deploy", "remove", "validate", "detect", "setup"];
    let ran = join_all(commands.map(|command| deployer_on(&path, command))).await;
    for (command, ran) in commands.into_iter().zip(ran) {
        let stderr = ran.stderr();
        assert!(stderr.contains("http://127.0.0.1:1"), "{command}: {stderr}");
    }
    let stderr = deployer_on(Path::new("/nowhere/kubeconfig"), "deploy").await;
    assert!(stderr.stderr().contains("/nowhere/kubeconfig"));
}
