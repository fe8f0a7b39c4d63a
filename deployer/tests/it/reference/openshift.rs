//! What the exporters have on OpenShift and HyperShift (deployer.md 5.4, 5.5).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rstest::rstest;
use serde_json::{Value, json};

use super::{HYPERSHIFT, OPENSHIFT, Rendered, item};
use crate::process::deployer;

const V1: &str = "resource-topology-exporter";
const V2: &str = "resource-topology-exporter-v2";
const MACHINE_CONFIG: &str = "50-resource-topology-exporter";

fn constraints<'a>(rendered: &'a Rendered, name: &str) -> &'a Value {
    rendered.object("SecurityContextConstraints", name)
}

#[test]
fn both_constraints_are_there_as_in_the_table() {
    for platform in [OPENSHIFT, HYPERSHIFT] {
        let rendered = Rendered::new(platform);
        assert_eq!(rendered.names("SecurityContextConstraints"), [V1, V2]);
        for name in [V1, V2] {
            let one = constraints(&rendered, name);
            assert_eq!(one["apiVersion"], "security.openshift.io/v1");
            assert_eq!(one["allowHostDirVolumePlugin"], true);
            for strategy in ["fsGroup", "runAsUser", "supplementalGroups"] {
                assert_eq!(one[strategy]["type"], "RunAsAny", "{name} {strategy}");
            }
            assert_eq!(one["readOnlyRootFilesystem"], false);
            assert_eq!(
                one["users"],
                json!(["system:serviceaccount:tas-topology-updater:rte"])
            );
            assert_eq!(one["seLinuxContext"]["type"], "MustRunAs");
            assert_eq!(one["seLinuxContext"]["seLinuxOptions"]["level"], "s0");
            // ours: pods ask for this profile, and no pod may ask for one that is not listed
            assert_eq!(one["seccompProfiles"], json!(["runtime/default"]));
        }
        assert_eq!(constraints(&rendered, V1)["volumes"], json!(["*"]));
        assert_eq!(
            constraints(&rendered, V2)["volumes"],
            json!([
                "configMap",
                "downwardAPI",
                "emptyDir",
                "hostPath",
                "projected",
                "secret"
            ])
        );
    }
}

fn selinux_type(constraints: &Value) -> &Value {
    &constraints["seLinuxContext"]["seLinuxOptions"]["type"]
}

/// Type of the constraints v1 and v2, of the container, and the constraints that its pod requires.
#[rstest]
#[case::usual(OPENSHIFT, "", "container_device_plugin_t", V2)]
#[case::legacy(OPENSHIFT, "--updater-scc=v1", "rte.process", V1)]
#[case::legacy_without_policy(
    OPENSHIFT,
    "--updater-scc=v1 --updater-custom-selinux-policy=false",
    "container_device_plugin_t",
    V2
)]
#[case::hosted(HYPERSHIFT, "", "container_device_plugin_t", V2)]
#[case::hosted_legacy(HYPERSHIFT, "--updater-scc=v1", "container_device_plugin_t", V2)]
fn the_container_has_the_type_that_its_constraints_allow(
    #[case] platform: &str,
    #[case] flags: &str,
    #[case] expected: &str,
    #[case] required: &str,
) {
    let rendered = Rendered::new(&format!("{platform} {flags}"));
    let set = rendered.object("DaemonSet", "resource-topology-exporter");
    let container = item(
        &set["spec"]["template"]["spec"]["containers"],
        "resource-topology-exporter",
    );
    assert_eq!(
        container["securityContext"]["seLinuxOptions"],
        json!({"type": expected, "level": "s0"})
    );
    // ours: the page has the constraints v1 whatever the type is, so that the defaults of the original contradict themselves
    let annotations = &set["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(annotations["openshift.io/required-scc"], required);
    assert_eq!(selinux_type(constraints(&rendered, required)), expected);
    assert_eq!(
        selinux_type(constraints(&rendered, V2)),
        "container_device_plugin_t"
    );
}

/// Whether there is a machine configuration, and its files.
#[rstest]
// ours: the page has the policy by default, though nothing uses it then; each machine configuration restarts all machines of its pool
#[case::usual(OPENSHIFT, "", None)]
#[case::legacy(OPENSHIFT, "--updater-scc=v1", Some(&["/etc/selinux/rte.cil"][..]))]
#[case::hooks(
    OPENSHIFT,
    "--updater-cri-hooks-enable",
    Some(&["/etc/containers/oci/hooks.d/rte-notifier.json", "/usr/local/bin/rte-notifier.sh", "/etc/selinux/rte.cil"][..])
)]
#[case::no_policy(
    OPENSHIFT,
    "--updater-scc=v1 --updater-cri-hooks-enable --updater-custom-selinux-policy=false",
    None
)]
#[case::hosted(HYPERSHIFT, "--updater-scc=v1 --updater-cri-hooks-enable", None)]
fn machines_get_files_only_on_openshift_with_the_policy(
    #[case] platform: &str,
    #[case] flags: &str,
    #[case] expected: Option<&[&str]>,
) {
    let rendered = Rendered::new(&format!("{platform} {flags}"));
    let Some(expected) = expected else {
        assert!(rendered.names("MachineConfig").is_empty());
        return;
    };
    let config = rendered.object("MachineConfig", MACHINE_CONFIG);
    assert_eq!(config["apiVersion"], "machineconfiguration.openshift.io/v1");
    assert_eq!(
        config["metadata"]["labels"],
        json!({"machineconfiguration.openshift.io/role": "worker"})
    );
    let ignition = &config["spec"]["config"];
    assert_eq!(ignition["ignition"]["version"], "3.2.0");
    let files = ignition["storage"]["files"].as_array().unwrap();
    let paths: Vec<&str> = files
        .iter()
        .map(|file| file["path"].as_str().unwrap())
        .collect();
    assert_eq!(paths, expected);
    for file in files {
        let source = file["contents"]["source"].as_str().unwrap();
        assert!(
            source.starts_with("data:text/plain;charset=utf-8;base64,"),
            "{source}"
        );
        let mode = if file["path"] == "/usr/local/bin/rte-notifier.sh" {
            493
        } else {
            420
        };
        assert_eq!(file["mode"], mode, "{}", file["path"]);
    }
    let units = ignition["systemd"]["units"].as_array().unwrap();
    assert_eq!(units.len(), 1);
}

/// Returns what a file of the machine configuration contains.
fn file(path: &str) -> String {
    let rendered = Rendered::new(&format!(
        "{OPENSHIFT} --updater-scc=v1 --updater-cri-hooks-enable"
    ));
    let config = rendered.object("MachineConfig", MACHINE_CONFIG);
    let files = config["spec"]["config"]["storage"]["files"]
        .as_array()
        .unwrap();
    let file = files.iter().find(|file| file["path"] == path).unwrap();
    let source = file["contents"]["source"].as_str().unwrap();
    let bytes = STANDARD.decode(source.rsplit_once(',').unwrap().1).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn the_unit_installs_the_policy_before_the_kubelet() {
    let rendered = Rendered::new(&format!("{OPENSHIFT} --updater-scc=v1"));
    let config = rendered.object("MachineConfig", MACHINE_CONFIG);
    let unit = &config["spec"]["config"]["systemd"]["units"][0];
    assert_eq!(unit["name"], "rte-selinux-policy-install.service");
    assert_eq!(unit["enabled"], true);
    let text = unit["contents"].as_str().unwrap();
    for line in [
        "Before=kubelet.service",
        "Type=oneshot",
        "ExecStart=/usr/sbin/semodule -i /etc/selinux/rte.cil",
        "WantedBy=multi-user.target",
    ] {
        assert!(text.lines().any(|own| own == line), "{line} in {text}");
    }
    // `true` and `yes` are the same for systemd; the description is for people
    assert!(text.contains("RemainAfterExit=yes"), "{text}");
    assert_eq!(
        file("/etc/selinux/rte.cil"),
        deployer("-P openshift:4.20.0 render policy").stdout()
    );
}

#[test]
fn the_hook_touches_the_notification_file_after_start_and_stop() {
    let hook: Value =
        serde_json::from_str(&file("/etc/containers/oci/hooks.d/rte-notifier.json")).unwrap();
    assert_eq!(hook["version"], "1.0.0");
    assert_eq!(hook["when"], json!({"always": true}));
    assert_eq!(hook["hook"]["path"], "/usr/local/bin/rte-notifier.sh");
    assert_eq!(
        hook["hook"]["args"],
        json!(["rte-notifier.sh", "/run/rte/notify"])
    );
    assert_eq!(hook["stages"], json!(["poststart", "poststop"]));
    let script = file("/usr/local/bin/rte-notifier.sh");
    for part in [
        "/usr/bin/jq -r '.bundle'",
        ".linux.cgroupsPath",
        "/config.json",
        "touch",
    ] {
        assert!(script.contains(part), "{part} in {script}");
    }
}

/// The rows of the table of statements: eras, then what is there in each.
const STATEMENTS: [(&str, [bool; 3]); 11] = [
    ("(typeattributeset domain (process))", [true; 3]),
    ("(typeattributeset container_domain (process))", [true; 3]),
    (
        "(typeattributeset container_net_domain (process))",
        [true; 3],
    ),
    (
        "(typeattributeset svirt_sandbox_domain (process))",
        [true; 3],
    ),
    ("(typeattributeset sandbox_net_domain (process))", [true; 3]),
    (
        "(typeattributeset mcs_constrained_type (process))",
        [false, true, true],
    ),
    ("proc_type (file (open read))", [false, true, true]),
    (
        "container_var_lib_t (sock_file (append getattr ioctl lock open read write))",
        [true; 3],
    ),
    (
        "kubelet_var_lib_t (sock_file (append getattr ioctl lock open read write))",
        [false, false, true],
    ),
    (
        "container_runtime_t (unix_stream_socket (connectto))",
        [true, false, false],
    ),
    (
        "kubelet_t (unix_stream_socket (connectto))",
        [false, true, true],
    ),
];

#[rstest]
#[case::older_than_the_oldest("4.9.1", 0)]
#[case::oldest("4.10.3", 0)]
#[case::second("4.11.0", 1)]
#[case::last_of_the_second("4.17.20", 1)]
#[case::before_its_release("4.18.0-rc.1", 1)]
#[case::newest("4.18.0", 2)]
#[case::newer_than_the_newest("4.99.0", 2)]
fn the_policy_of_a_version_has_the_statements_of_the_table(
    #[case] version: &str,
    #[case] era: usize,
) {
    let policy = deployer(&format!("-P openshift:{version} render policy")).stdout();
    for part in [
        "(block rte",
        "(type process)",
        "(roletype system_r process)",
        "container_var_run_t (dir (add_name write))",
        "container_var_run_t (file (create open read write))",
    ] {
        assert!(policy.contains(part), "{part} in {policy}");
    }
    for (statement, eras) in STATEMENTS {
        // after a blank, so that it is not the end of another type's name
        let has = policy.contains(&format!(" {statement}"));
        assert_eq!(has, eras[era], "{statement} in {policy}");
    }
}
