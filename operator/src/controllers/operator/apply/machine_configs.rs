//! Takes the planned steps for machine configurations.

use api::openshift::machine_config::MachineConfig;
use apply::Cause;
use kube::api::{Api, DeleteParams, DynamicObject};
use manifests::rte::machine_config;
use serde_json::Value;

use super::super::plan::machine_configs::Step;
use crate::context::Context;

/// The machine configurations could not be reconciled.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The pool's selector does not match the labels of the machine configuration.
    #[error(
        "machine config {config:?} labels does not match the machine config pool {pool:?} machine config selector"
    )]
    Labels { config: String, pool: String },
    /// A call failed.
    #[error(transparent)]
    Apply(#[from] apply::Error),
    /// The machine configuration could not be deleted.
    #[error("failed to delete machine config {0:?}")]
    Delete(String, #[source] Cause),
}

/// Takes the steps in order and stops at the first failure.
pub(crate) async fn take(steps: &[Step], context: &Context) -> Result<(), Error> {
    for step in steps {
        match step {
            Step::Paused(pool) => tracing::info!(%pool, "Machine config pool is paused"),
            Step::TakesNone(pool) => {
                tracing::warn!(%pool, "Machine config pool has no machine config selector");
            }
            Step::Install(object) => install(object, context).await?,
            Step::Refuse { config, pool } => {
                return Err(Error::Labels {
                    config: config.clone(),
                    pool: pool.clone(),
                });
            }
            Step::Remove(name) => remove(name, context).await?,
        }
    }
    Ok(())
}

/// Applies a machine configuration. What it does stays as it is if it suffices: a change would restart all machines of the pool.
async fn install(wanted: &Value, context: &Context) -> Result<(), Error> {
    let version = &context.installation.version;
    let keep = |there: &DynamicObject, wanted: &Value| {
        let config = &there.data["spec"]["config"];
        machine_config::suffices(config, version).then(|| {
            let mut kept = wanted.clone();
            kept["spec"]["config"] = config.clone();
            kept
        })
    };
    context.applier.apply_over(wanted, keep).await?;
    Ok(())
}

/// Deletes a machine configuration, if it exists.
pub(crate) async fn remove(name: &str, context: &Context) -> Result<(), Error> {
    let api: Api<MachineConfig> = Api::all(context.client.clone());
    let failed = |error: kube::Error| Error::Delete(name.to_owned(), error.into());
    // a read is cheaper than a delete of a missing object, and leaves no write in the audit log
    if api.get_metadata_opt(name).await.map_err(failed)?.is_none() {
        return Ok(());
    }
    match api.delete(name, &DeleteParams::default()).await {
        Ok(_) => {
            tracing::info!(machineconfig = %name, "deleted");
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(failed(error)),
    }
}
