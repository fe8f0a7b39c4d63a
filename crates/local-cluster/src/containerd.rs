//! containerd as the runtime of a node: its configuration, its process, and the images that it gets.
//!
//! Its pods get their addresses from the CNI plugins ptp and host-local, in the same pod network that the node has with any runtime. Each has a
//! link of its own to the node, so that the node routes all of its traffic: there kube-proxy translates the addresses of Services, and
//! network policies apply.

pub(crate) mod archive;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use cluster_spec::runtime::ContainerPrograms;
use programs::child::output_within;
use serde_json::json;

use super::control_plane::text;
use super::net::{pod_gateway, pod_network};
use super::node_handle::NodeHandle;

/// Longest time for the import of the images of a node.
const IMPORT_LIMIT: Duration = Duration::from_mins(5);
/// How containerd keeps the files of containers. Layers are shared, so that a container costs no copy of its image.
const SNAPSHOTTER: &str = "overlayfs";

/// The images of a node could not be imported.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program could not be run.
    #[error("cannot import images into node {node} with {program}")]
    Run {
        /// Name of the node.
        node: String,
        /// The program.
        program: String,
        /// What went wrong.
        #[source]
        source: std::io::Error,
    },
    /// containerd refused them.
    #[error("containerd of node {node} refused the images: {message}")]
    Refused {
        /// Name of the node.
        node: String,
        /// What `ctr` wrote.
        message: String,
    },
}

/// Writes the configuration of containerd and of the pod network.
pub(crate) fn write(
    node: &NodeHandle,
    index: usize,
    programs: &ContainerPrograms,
) -> std::io::Result<()> {
    let networks = node.dir().join("cni");
    fs_err::create_dir_all(&networks)?;
    let network = json!({
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [{
            "type": "ptp",
            "ipam": {
                "type": "host-local",
                "ranges": [[{ "subnet": pod_network(index), "gateway": pod_gateway(index) }]],
                "routes": [{ "dst": "0.0.0.0/0" }],
            },
        }],
    });
    fs_err::write(networks.join("pods.conflist"), network.to_string())?;
    fs_err::write(
        node.dir().join("containerd.toml"),
        configuration(node, &networks, programs),
    )
}

/// Returns the configuration of containerd; TOML takes strings and lists in the form of JSON.
fn configuration(node: &NodeHandle, networks: &Path, programs: &ContainerPrograms) -> String {
    let quoted = |path: &Path| json!(text(path)).to_string();
    let dir = node.dir();
    format!(
        r#"version = 2
root = {root}
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
address = {socket}
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
stream_server_address = "127.0.0.1"
# CPUs and memory are pretend, so nothing of them can be set, and the host's may not allow lower scores.
disable_cgroup = true
disable_apparmor = true
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "{SNAPSHOTTER}"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = {runc}
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = {cni}
conf_dir = {networks}
"#,
        root = quoted(&dir.join("containerd")),
        socket = quoted(&node.cri_socket()),
        pause = api::names::STACK_IMAGE,
        runc = quoted(&programs.runc),
        cni = quoted(&programs.cni),
        networks = quoted(networks),
    )
}

/// Returns the command line of containerd.
pub(crate) fn command(node: &NodeHandle, programs: &ContainerPrograms) -> [String; 3] {
    [
        text(&programs.containerd),
        "--config".to_owned(),
        text(&node.dir().join("containerd.toml")),
    ]
}

/// Returns the search path of containerd, which looks its shim up there.
pub(crate) fn path(programs: &ContainerPrograms) -> String {
    let shim = programs.shim.parent().map(text).unwrap_or_default();
    format!("{shim}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
}

/// Imports the images of an archive into a node (blocking).
pub(crate) fn import(
    node: &NodeHandle,
    programs: &ContainerPrograms,
    archive: &Path,
) -> Result<(), Error> {
    let mut command = Command::new(&programs.ctr);
    command
        .arg("--address")
        .arg(node.cri_socket())
        .args(["--namespace", "k8s.io", "images", "import"])
        .args(["--snapshotter", SNAPSHOTTER])
        .arg(archive);
    let output = output_within(&mut command, IMPORT_LIMIT).map_err(|source| Error::Run {
        node: node.name().to_owned(),
        program: text(&programs.ctr),
        source,
    })?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::Refused {
        node: node.name().to_owned(),
        message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}
