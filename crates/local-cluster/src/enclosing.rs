//! The cluster that a helper process is part of, by its command line.

use std::path::PathBuf;

use super::cluster::LocalCluster;

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
