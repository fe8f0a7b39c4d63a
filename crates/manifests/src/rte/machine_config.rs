//! The machine configuration that installs the legacy SELinux policy on the nodes of a pool (operator.md 4.4).

use std::collections::BTreeMap;

use api::openshift::machine_config::{MachineConfig, MachineConfigSpec};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

/// Path of the policy on a node.
const POLICY_FILE: &str = "/etc/selinux/rte.cil";
/// Permissions of the policy file: 0644.
const POLICY_MODE: u32 = 0o644;
/// The policy: the permissions of a container, and access to the kubelet's podresources socket, its files and the notification file.
const POLICY: &str = "\
(block rte
    (type process)
    (roletype system_r process)
    (typeattributeset domain (process))
    (typeattributeset container_domain (process))
    (typeattributeset container_net_domain (process))
    (typeattributeset svirt_sandbox_domain (process))
    (typeattributeset mcs_constrained_type (process))
    (allow process container_var_lib_t (dir (add_name create getattr ioctl lock open read remove_name search write)))
    (allow process container_var_lib_t (file (append create getattr ioctl lock open read rename setattr unlink write)))
    (allow process container_var_lib_t (sock_file (append getattr open read write)))
    (allow process kubelet_var_lib_t (dir (getattr ioctl lock open read search)))
    (allow process kubelet_var_lib_t (file (getattr ioctl lock open read)))
    (allow process kubelet_var_lib_t (sock_file (append getattr open read write)))
    (allow process unconfined_service_t (unix_stream_socket (connectto)))
    (allow process container_runtime_t (unix_stream_socket (connectto)))
    (allow process kubelet_t (unix_stream_socket (connectto)))
    (allow process var_run_t (dir (add_name create getattr ioctl lock open read remove_name search write)))
    (allow process var_run_t (file (append create getattr ioctl lock open read rename setattr unlink write)))
)
";
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

/// Returns the machine configuration with the labels that the machine config pool selects.
pub fn machine_config(name: &str, labels: BTreeMap<String, String>) -> MachineConfig {
    let policy = STANDARD.encode(POLICY);
    let config = json!({
        "ignition": {"version": "3.2.0"},
        "storage": {"files": [{
            "path": POLICY_FILE,
            "mode": POLICY_MODE,
            "overwrite": true,
            "contents": {"source": format!("data:text/plain;charset=utf-8;base64,{policy}")},
        }]},
        "systemd": {"units": [{
            "name": "rte-selinux-policy-install.service",
            "enabled": true,
            "contents": UNIT,
        }]},
    });
    let mut object = MachineConfig::new(name, MachineConfigSpec { config });
    object.metadata.labels = Some(labels);
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks only the parentheses of the policy, because the tests have no SELinux.
    #[test]
    fn policy_is_balanced_and_travels_as_it_is() {
        let depth = POLICY.chars().try_fold(0_u32, |depth, char| match char {
            '(' => Some(depth + 1),
            ')' => depth.checked_sub(1),
            _ => Some(depth),
        });
        assert_eq!(depth, Some(0));
        let labels = BTreeMap::from([("role".to_owned(), "worker".to_owned())]);
        let object = crate::to_value(&machine_config("51-cr-worker", labels));
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
        assert_eq!(STANDARD.decode(encoded).unwrap(), POLICY.as_bytes());
    }
}
