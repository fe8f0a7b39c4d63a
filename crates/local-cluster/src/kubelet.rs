//! The kubelet of one node: settings, configuration file and process.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use cluster_spec::kubelet::{KubeletSettings, Taint};
use fixtures::machines::Machine;
use serde_json::json;

use super::control_plane::{process, text};
use super::supervise::protocol::ProcessSpec;

/// Paths and addresses of one kubelet; all paths are the same on the host and in the node.
#[derive(Clone, Debug)]
pub(crate) struct Kubelet<'a> {
    pub(crate) cluster_dir: PathBuf,
    pub(crate) node_dir: PathBuf,
    pub(crate) program: &'a Path,
    pub(crate) node: &'a str,
    pub(crate) address: Ipv4Addr,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) cri_socket: PathBuf,
    /// Certificate of the authority that clients of the kubelet are known by.
    pub(crate) client_ca: PathBuf,
    pub(crate) taints: &'a [Taint],
}

/// Returns the name of a node's runtime process.
pub(crate) fn runtime_process(node: &str) -> String {
    format!("node/{node}")
}

/// Returns the name of a node's kubelet process.
pub(crate) fn process_name(node: &str) -> String {
    format!("kubelet/{node}")
}

impl Kubelet<'_> {
    /// Writes the configuration file, and a copy where a node has it that kubeadm has set up, for programs that read it there.
    pub(crate) fn write_config(
        &self,
        settings: &KubeletSettings,
        machine: &Machine,
    ) -> std::io::Result<()> {
        let mut config = settings.configuration(machine, &self.cri_socket, self.taints);
        // the whole machine can reach the port, and its users are not those of the cluster
        config["authentication"] = json!({
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": self.client_ca },
        });
        config["authorization"] = json!({ "mode": "Webhook" });
        let text = serde_yaml::to_string(&config).map_err(std::io::Error::other)?;
        let copy = self.node_dir.join("root/var/lib/kubelet/config.yaml");
        if let Some(directory) = copy.parent() {
            fs_err::create_dir_all(directory)?;
        }
        fs_err::write(copy, &text)?;
        fs_err::write(self.config_file(), text)
    }

    fn config_file(&self) -> PathBuf {
        self.node_dir.join("kubelet.yaml")
    }

    /// Returns the process, which joins the namespaces of the node's runtime.
    pub(crate) fn start(&self) -> ProcessSpec {
        let flags = [
            ("config", text(&self.config_file())),
            ("kubeconfig", text(&self.kubeconfig)),
            ("hostname-override", self.node.to_owned()),
            ("node-ip", self.address.to_string()),
            ("v", "2".to_owned()),
        ];
        let mut argv = vec![text(self.program)];
        argv.extend(
            flags
                .into_iter()
                .map(|(flag, value)| format!("--{flag}={value}")),
        );
        let mut start = process(&self.cluster_dir, &process_name(self.node), argv);
        start.join = Some(runtime_process(self.node));
        start
    }
}
