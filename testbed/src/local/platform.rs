//! The process of a local cluster that does what an OpenShift does by itself. It is a child of the holder, so it lives as long as the
//! cluster, also when who brought it up has ended.

use std::path::PathBuf;

use anyhow::Context as _;

use super::cluster::{ClusterSpec, LocalCluster};
use super::control_plane;
use super::supervise::protocol::Start;
use crate::openshift;

/// Name of the process.
const NAME: &str = "openshift";

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

/// The process for a cluster.
pub(crate) fn process(spec: &ClusterSpec) -> Start {
    let argv = [
        control_plane::text(&spec.bin_dir.join("numaresources-testbed")),
        NAME.to_owned(),
        "--name".to_owned(),
        spec.name.clone(),
        "--state-root".to_owned(),
        control_plane::text(&spec.state_root),
    ];
    control_plane::process(&spec.dir(), NAME, argv.to_vec())
}

/// What it does; returns only when it cannot.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let cluster = LocalCluster::around(&args.state_root, &args.name).await?;
    let flavour = cluster.spec().flavour;
    let flavour = flavour.with_context(|| format!("cluster {} is no OpenShift", args.name))?;
    openshift::run(cluster.client(), flavour, cluster.machines()).await;
    Ok(())
}
