//! The contract between the cluster (which prepares a node's namespaces) and the node runtime (which runs in them).

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use cluster_spec::images::Image;
use serde::{Deserialize, Serialize};

/// The input of `numaresources-testbed node`, read as JSON from the file named by `--spec`.
///
/// The process is started inside the node's mount and network namespaces: `/` is already the root of the node (host programs and libraries
/// read-only below `/usr`, simulated hardware below `/sys`, private `/var`, `/run`, `/etc`, `/tmp`) and the node's own network link is up.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct NodeSpec {
    /// Name of the Kubernetes Node.
    pub node: String,
    /// Unix socket on which the CRI v1 runtime and image services are served.
    pub cri_socket: PathBuf,
    /// Unix socket of the control protocol (JSON lines): signals and facts about containers.
    pub control_socket: PathBuf,
    /// Directory for the runtime's own state; private to the node.
    pub state_dir: PathBuf,
    /// First address of this node's pod network; the bridge of the sandboxes has it.
    pub pod_gateway: Ipv4Addr,
    /// Prefix length of the pod network of this node.
    pub pod_prefix: u8,
    /// Address of the node itself, reported for pods on the host network.
    pub node_address: Ipv4Addr,
    /// Images by repository (a reference without tag and digest).
    pub images: BTreeMap<String, Image>,
    /// Host path → directory that a volume of this path gets instead; for faults (e.g. a proxy in front of the podresources socket).
    #[serde(default)]
    pub host_path_overrides: BTreeMap<PathBuf, PathBuf>,
}
