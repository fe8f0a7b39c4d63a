//! Processes that add to a local cluster what its Kubernetes programs do not do. Each runs this program in another role as a child of the
//! holder, and finds its cluster by name.

use std::path::PathBuf;

use super::cluster::{ClusterSpec, LocalCluster};
use super::control_plane;
use super::supervise::protocol::ProcessSpec;

/// Which cluster.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the cluster.
    #[arg(long)]
    name: String,
    /// Directory of all clusters.
    #[arg(long)]
    state_root: PathBuf,
}

impl Args {
    /// Returns the cluster.
    pub(crate) async fn cluster(&self) -> anyhow::Result<LocalCluster> {
        Ok(LocalCluster::enclosing(&self.state_root, &self.name).await?)
    }
}

/// Returns the process with this role for a cluster.
pub(crate) fn process(spec: &ClusterSpec, role: &str) -> ProcessSpec {
    let argv = [
        control_plane::text(&spec.bin_dir.join("numaresources-testbed")),
        role.to_owned(),
        "--name".to_owned(),
        spec.name.clone(),
        "--state-root".to_owned(),
        control_plane::text(&spec.state_root),
    ];
    control_plane::process(&spec.dir(), role, argv.to_vec())
}
