//! The machine configuration that installs the legacy SELinux policy on the nodes of a pool (operator.md 4.4).

use std::collections::BTreeMap;

use api::openshift::machine_config::{MachineConfig, MachineConfigSpec};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::selinux::Policy;

/// Path of the policy on a node.
const POLICY_FILE: &str = "/etc/selinux/rte.cil";
/// Permissions of the policy file: 0644.
const POLICY_MODE: u32 = 0o644;
/// Path of the hook's description on a node.
const NOTIFIER_HOOK: &str = "/etc/containers/oci/hooks.d/rte-notifier.json";
/// Path of the hook's program on a node.
const NOTIFIER: &str = "/usr/local/bin/rte-notifier.sh";
/// Permissions of the program: 0755.
const NOTIFIER_MODE: u32 = 0o755;
/// Program of the hook. The runtime writes the state of the container to its input. Only Guaranteed pods get exclusive resources, and the
/// control group of every other one has its QoS class in its path. A failure must not stop the container.
const NOTIFIER_SCRIPT: &str = r#"#!/usr/bin/bash
bundle=$(/usr/bin/jq -r '.bundle')
cgroup=$(/usr/bin/jq -r '.linux.cgroupsPath // empty' "$bundle/config.json")
case "$cgroup" in
    *burstable*|*besteffort*) ;;
    *) touch "$1" || true ;;
esac
exit 0
"#;
/// Name of the unit that installs the policy.
const UNIT_NAME: &str = "rte-selinux-policy-install.service";
/// Systemd unit that installs the policy before the kubelet starts.
const UNIT: &str = "\
[Unit]
Description=SELinux policy of the resource topology exporter
Before=kubelet.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/sbin/semodule -i /etc/selinux/rte.cil

[Install]
WantedBy=multi-user.target
";

/// Returns the machine configuration for a version of OpenShift, with the labels that the machine config pool selects.
pub fn machine_config(
    name: &str,
    labels: BTreeMap<String, String>,
    version: &str,
) -> MachineConfig {
    let policy = STANDARD.encode(Policy::for_version(version).to_string());
    let config = json!({
        "ignition": {"version": "3.2.0"},
        "storage": {"files": [{
            "path": POLICY_FILE,
            "mode": POLICY_MODE,
            "overwrite": true,
            "contents": {"source": format!("data:text/plain;charset=utf-8;base64,{policy}")},
        }]},
        "systemd": {"units": [{
            "name": UNIT_NAME,
            "enabled": true,
            "contents": UNIT,
        }]},
    });
    let mut object = MachineConfig::new(name, MachineConfigSpec { config });
    object.metadata.labels = Some(labels);
    object
}

/// Returns the text of the legacy SELinux policy for a version of OpenShift, in the Common Intermediate Language.
pub fn policy(version: &str) -> String {
    Policy::for_version(version).to_string()
}

/// Adds the files of a hook that touches the notification file of the exporter whenever the runtime starts or stops a container of a Guaranteed
/// pod (deployer.md 5.5). The files come before those that are there.
pub fn add_notifier(config: &mut MachineConfig) {
    let file = |path: &str, mode: u32, text: &str| {
        json!({
            "path": path,
            "mode": mode,
            "overwrite": true,
            "contents": {"source": format!("data:text/plain;charset=utf-8;base64,{}", STANDARD.encode(text))},
        })
    };
    let hook = json!({
        "version": "1.0.0",
        "when": {"always": true},
        "hook": {"path": NOTIFIER, "args": ["rte-notifier.sh", "/run/rte/notify"]},
        "stages": ["poststart", "poststop"],
    });
    let files = [
        file(NOTIFIER_HOOK, POLICY_MODE, &hook.to_string()),
        file(NOTIFIER, NOTIFIER_MODE, NOTIFIER_SCRIPT),
    ];
    if let Some(all) = config
        .spec
        .config
        .pointer_mut("/storage/files")
        .and_then(Value::as_array_mut)
    {
        all.splice(0..0, files);
    }
}

/// Returns whether a machine configuration that is there already, perhaps of the original, installs a policy with which exporters can work on a
/// version of OpenShift. Each change of a machine configuration restarts all machines of its pool, so such a one is kept as it is.
pub fn suffices(config: &Value, version: &str) -> bool {
    let only = |list: &str| match config.pointer(list).and_then(Value::as_array)?.as_slice() {
        [one] => Some(one),
        _ => None,
    };
    let policy = |file: &Value| {
        let source = file.pointer("/contents/source")?.as_str()?;
        let (kind, data) = source.split_once(',')?;
        if file["path"] != POLICY_FILE || !kind.ends_with(";base64") {
            return None;
        }
        Policy::parse(&String::from_utf8(STANDARD.decode(data).ok()?).ok()?)
    };
    let installs = |unit: &Value| {
        let text = unit["contents"].as_str().unwrap_or_default();
        let command = text
            .lines()
            .find_map(|line| line.strip_prefix("ExecStart="));
        unit["name"] == UNIT_NAME
            && unit["enabled"] == true
            && command.is_some_and(|command| command.ends_with(POLICY_FILE))
    };
    only("/systemd/units").is_some_and(installs)
        && only("/storage/files")
            .and_then(policy)
            .is_some_and(|policy| policy.suffices_for(version))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const VERSION: &str = "4.20.0";

    fn rendered(version: &str) -> Value {
        let labels = BTreeMap::from([("role".to_owned(), "worker".to_owned())]);
        crate::to_value(&machine_config("51-cr-worker", labels, version))
    }

    #[test]
    fn policy_travels_as_it_is() {
        let object = rendered(VERSION);
        assert_eq!(object["apiVersion"], "machineconfiguration.openshift.io/v1");
        assert_eq!(
            object["metadata"],
            json!({"name": "51-cr-worker", "labels": {"role": "worker"}})
        );
        let file = &object["spec"]["config"]["storage"]["files"][0];
        assert_eq!(
            (&file["path"], &file["mode"]),
            (&json!("/etc/selinux/rte.cil"), &json!(420))
        );
        let source = file["contents"]["source"].as_str().unwrap();
        let encoded = source.rsplit_once(',').unwrap().1;
        let policy = Policy::for_version(VERSION).to_string();
        assert_eq!(STANDARD.decode(encoded).unwrap(), policy.as_bytes());
    }

    #[test]
    fn notifier_comes_before_the_policy_and_leaves_it_sufficient() {
        let mut object = machine_config("50-a", BTreeMap::new(), VERSION);
        add_notifier(&mut object);
        let files = object.spec.config["storage"]["files"].as_array().unwrap();
        let paths: Vec<&Value> = files.iter().map(|file| &file["path"]).collect();
        assert_eq!(paths, [NOTIFIER_HOOK, NOTIFIER, POLICY_FILE]);
        let modes: Vec<&Value> = files.iter().map(|file| &file["mode"]).collect();
        assert_eq!(modes, [420, 493, 420]);
    }

    /// Others write the same in another form: with comments, in another order.
    #[test]
    fn machine_configuration_of_another_program_suffices_if_its_policy_does() {
        let ours = Policy::for_version(VERSION).to_string();
        let lines: Vec<&str> = ours.lines().collect();
        let [first, statements @ .., last] = &lines[..] else {
            panic!("{ours}")
        };
        let statements: Vec<&str> = statements.iter().rev().map(|line| line.trim()).collect();
        let policy = format!(
            "{first}\n\t; some words\n\t{}\n{last}",
            statements.join("\n\t;\n\t")
        );
        let config = json!({
            "ignition": {"version": "3.2.0"},
            "storage": {"files": [{"path": "/etc/selinux/rte.cil", "mode": 420, "contents": {
                "source": format!("data:text/plain;charset=utf-8;base64,{}", STANDARD.encode(policy)),
            }}]},
            "systemd": {"units": [{"name": "rte-selinux-policy-install.service", "enabled": true,
                "contents": "[Service]\nExecStart=/usr/sbin/semodule -i /etc/selinux/rte.cil\n"}]},
        });
        assert!(suffices(&config, VERSION));
        assert!(suffices(&config, "4.12.0"));
        assert!(!suffices(&config, "4.10.0"), "it names another listener");
    }

    #[rstest]
    #[case::as_it_was("/ignition/version", json!("3.2.0"), true)]
    #[case::older_policy("/storage", rendered("4.11.0")["spec"]["config"]["storage"].clone(), false)]
    #[case::other_file("/storage/files/0/path", json!("/etc/other"), false)]
    #[case::no_files("/storage", json!({}), false)]
    #[case::garbled("/storage/files/0/contents/source", json!("data:;base64,!"), false)]
    #[case::no_policy("/storage/files/0/contents/source", json!("data:;base64,YQ=="), false)]
    #[case::not_enabled("/systemd/units/0/enabled", json!(false), false)]
    #[case::does_something_else("/systemd/units/0/contents", json!("[Service]\nExecStart=/bin/true"), false)]
    #[case::nothing("/systemd", json!(null), false)]
    fn machine_configuration_suffices_while_it_installs_the_policy(
        #[case] place: &str,
        #[case] value: Value,
        #[case] expected: bool,
    ) {
        let mut config = rendered(VERSION)["spec"]["config"].take();
        *config.pointer_mut(place).unwrap() = value;
        assert_eq!(suffices(&config, VERSION), expected);
    }
}
