//! The version of Kubernetes, and the programs of a real control plane and kubelet.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The one Kubernetes version: the local lane runs its programs, and the simulated parts do as they do.
pub const KUBERNETES_VERSION: &str = "v1.35.4";
/// The etcd version that is built for it.
pub const ETCD_VERSION: &str = "v3.6.8";

/// Returns major and minor version, such as `1.35`: what programs of Kubernetes name in the user agents of their probes.
pub fn minor_version() -> &'static str {
    let version = KUBERNETES_VERSION.trim_start_matches('v');
    version.rsplit_once('.').map_or(version, |(minor, _)| minor)
}

/// The program that makes Services answer. Only nodes whose containers another runtime runs need it, so it is none of [`NAMES`].
pub const KUBE_PROXY: &str = "kube-proxy";

/// The program with Kubernetes' own end-to-end tests. No cluster needs it, so it is none of [`NAMES`].
pub const TESTS: &str = "e2e.test";

/// The absolute paths of the programs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Assets {
    /// etcd.
    pub etcd: PathBuf,
    /// kube-apiserver.
    pub kube_apiserver: PathBuf,
    /// kube-controller-manager.
    pub kube_controller_manager: PathBuf,
    /// kube-scheduler.
    pub kube_scheduler: PathBuf,
    /// kubelet.
    pub kubelet: PathBuf,
    /// kubectl.
    pub kubectl: PathBuf,
}

/// Names of the programs in the order of [`Assets`].
pub const NAMES: [&str; 6] = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kubectl",
];

impl Assets {
    /// Returns the paths of all programs in one directory, whether they exist or not.
    pub fn in_dir(dir: &Path) -> Self {
        Self::from_paths(NAMES.map(|name| dir.join(name)))
    }

    /// Returns the programs at these paths, in the order of [`NAMES`].
    pub fn from_paths(paths: [PathBuf; 6]) -> Self {
        let [
            etcd,
            kube_apiserver,
            kube_controller_manager,
            kube_scheduler,
            kubelet,
            kubectl,
        ] = paths;
        Self {
            etcd,
            kube_apiserver,
            kube_controller_manager,
            kube_scheduler,
            kubelet,
            kubectl,
        }
    }

    /// Returns the path of every program.
    pub fn all(&self) -> [&Path; 6] {
        [
            &self.etcd,
            &self.kube_apiserver,
            &self.kube_controller_manager,
            &self.kube_scheduler,
            &self.kubelet,
            &self.kubectl,
        ]
    }
}
