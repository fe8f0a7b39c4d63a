//! The process of a local cluster that does what an OpenShift does by itself.

use anyhow::Context as _;

use super::enclosing::Args;

/// Runs the platform; returns only when it cannot go on.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let cluster = args.cluster().await?;
    let spec = cluster.spec();
    let flavour = spec.flavour;
    let flavour =
        flavour.with_context(|| format!("cluster {} is not an OpenShift cluster", spec.name))?;
    openshift::run(cluster.client(), flavour, cluster.machines()).await;
    Ok(())
}
