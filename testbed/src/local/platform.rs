//! The process of a local cluster that does what an OpenShift does by itself. It is a child of the holder, so it lives as long as the
//! cluster, even after the process that brought the cluster up has ended.

use anyhow::Context as _;

use super::cluster::ClusterSpec;
use super::helper_process::{self, Args};
use super::supervise::protocol::ProcessSpec;
use crate::openshift;

/// Name of the process.
const NAME: &str = "openshift";

/// Returns the process for a cluster.
pub(crate) fn process(spec: &ClusterSpec) -> ProcessSpec {
    helper_process::process(spec, NAME)
}

/// Runs the platform; returns only when it cannot go on.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let cluster = args.cluster().await?;
    let spec = cluster.spec();
    let flavour = spec.flavour;
    let flavour =
        flavour.with_context(|| format!("cluster {} is not an OpenShift cluster", spec.name))?;
    openshift::run(cluster.client(), flavour, cluster.machines()).await;
    Ok(())
}
