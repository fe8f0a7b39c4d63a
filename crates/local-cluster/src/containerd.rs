//! containerd as the runtime of a node: its configuration, its process, and the images that it gets from the cluster's own registry.
//!
//! Its pods get their addresses from the CNI plugins ptp and host-local, in the same pod network that the node has with any runtime. Each has a
//! link of its own to the node, so that the node routes all of its traffic: there kube-proxy translates the addresses of Services, and
//! network policies apply.

pub(crate) mod images;
pub(crate) mod registry;

use std::path::Path;

use cluster_spec::runtime::ContainerPrograms;
use serde_json::json;

use super::control_plane::text;
use super::net::{pod_gateway, pod_network};
use super::node_handle::NodeHandle;

/// How containerd keeps the files of containers. Layers are shared, so that a container costs no copy of its image.
const SNAPSHOTTER: &str = "overlayfs";

/// Writes the configuration of containerd and of the pod network.
pub(crate) fn write(
    cluster_dir: &Path,
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
        configuration(cluster_dir, node, &networks, programs),
    )
}

/// Returns the configuration of containerd; TOML takes strings and lists in the form of JSON.
fn configuration(
    cluster_dir: &Path,
    node: &NodeHandle,
    networks: &Path,
    programs: &ContainerPrograms,
) -> String {
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
[plugins."io.containerd.grpc.v1.cri".registry]
config_path = {registries}
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
        registries = quoted(&registry::hosts_dir(cluster_dir)),
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
