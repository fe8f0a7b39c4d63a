//! The container runtime of the nodes of real kubelets.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The container runtime of every node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Runtime {
    /// The node runtime of this project: process trees without images, and control over each of them.
    #[default]
    Builtin,
    /// containerd with runc and CNI plugins: real containers of a real image.
    Containerd(ContainerPrograms),
}

/// The absolute paths of the programs that containers need.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct ContainerPrograms {
    /// containerd.
    pub containerd: PathBuf,
    /// `containerd-shim-runc-v2`.
    pub shim: PathBuf,
    /// runc.
    pub runc: PathBuf,
    /// Directory with the CNI plugins.
    pub cni: PathBuf,
    /// kube-proxy; none where the machine lacks `nft`, without which no Service answers.
    #[serde(default)]
    pub kube_proxy: Option<PathBuf>,
    /// The registry that nodes pull images from; it runs beside the control plane.
    #[serde(default)]
    pub registry: PathBuf,
}

impl Runtime {
    /// Returns the directories of its programs on nodes.
    pub fn program_dirs(&self) -> Vec<PathBuf> {
        let Self::Containerd(programs) = self else {
            return Vec::new();
        };
        let files = [&programs.containerd, &programs.shim, &programs.runc];
        let files = files.into_iter().chain(&programs.kube_proxy);
        let dirs = files.filter_map(|file| file.parent());
        dirs.map(PathBuf::from)
            .chain([programs.cni.clone()])
            .collect()
    }
}
