//! Installs the legacy SELinux policy on the machines of a pool with a machine configuration, and reports the state of the pools
//! (operator.md 4.4).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::openshift::machine_config::{
    ConfigurationSource, MachineConfig, MachineConfigPool as Mcp, UPDATED,
};
use api::operator::v1::{MachineConfigPool, NumaResourcesOperator, NumaResourcesOperatorStatus};
use api::{labels, names};
use apply::Cause;
use kube::api::{Api, DeleteParams, ListParams};
use kube::{Resource as _, ResourceExt as _};
use manifests::rte::machine_config::machine_config;
use manifests::to_value;

use crate::conditions::Outcome;
use crate::context::Context;
use crate::node_groups::Pool;
use crate::node_groups::selectors;

/// When to check a pool that is updating again if no event arrives earlier.
const UPDATING_REQUEUE: Duration = Duration::from_mins(1);

/// The machine configurations could not be reconciled.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
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

/// State of the pools.
pub(super) struct Pools {
    /// Names of the paused pools, sorted.
    pub(super) paused: BTreeSet<String>,
    /// The outcome to report instead of continuing, if a pool is still updating.
    pub(super) outcome: Option<Outcome>,
}

/// Reconciles the machine configurations with the pools, and reports the progress of the pools.
pub(super) async fn sync(
    cr: &NumaResourcesOperator,
    pools: &[Pool],
    context: &Context,
    new_status: &mut NumaResourcesOperatorStatus,
) -> Result<Pools, Error> {
    let mut paused = BTreeSet::new();
    for (pool, mcp) in pools_with_mcp(pools) {
        if mcp.spec.paused {
            tracing::info!(pool = %pool.name, "Machine config pool is paused");
            paused.insert(pool.name.clone());
        } else if mcp.spec.machine_config_selector.is_none() {
            tracing::warn!(pool = %pool.name, "Machine config pool has no machine config selector");
        } else if pool.custom_selinux_policy {
            install(cr, pool, mcp, context).await?;
        } else {
            remove(&names::machine_config(&cr.name_any(), &pool.name), context).await?;
        }
    }
    new_status.machineconfigpools = Vec::new();
    for (pool, mcp) in pools_with_mcp(pools) {
        new_status
            .machineconfigpools
            .push(status(pool, mcp, context));
        if !paused.contains(&pool.name) && !is_updated(cr, pool, mcp) {
            let outcome = Some(Outcome::Progressing {
                message: format!("{} is updating", pool.name),
                requeue_after: UPDATING_REQUEUE,
            });
            return Ok(Pools { paused, outcome });
        }
    }
    for (status, pool) in new_status.machineconfigpools.iter_mut().zip(pools) {
        status.config = Some(pool.config.clone());
    }
    Ok(Pools {
        paused,
        outcome: None,
    })
}

fn pools_with_mcp(pools: &[Pool]) -> impl Iterator<Item = (&Pool, &Mcp)> {
    let all = pools.iter();
    all.filter_map(|pool| pool.machine_config_pool.as_ref().map(|mcp| (pool, mcp)))
}

async fn install(
    cr: &NumaResourcesOperator,
    pool: &Pool,
    mcp: &Mcp,
    context: &Context,
) -> Result<(), Error> {
    let name = names::machine_config(&cr.name_any(), &pool.name);
    let selector = mcp.spec.machine_config_selector.clone();
    let selector = selector.unwrap_or_default();
    let wanted = selector.match_labels.clone().unwrap_or_default();
    let labels = if wanted.is_empty() {
        BTreeMap::from([(labels::MACHINE_CONFIG_ROLE.to_owned(), pool.name.clone())])
    } else {
        wanted
    };
    if !selectors::matches(&selector, &labels) {
        return Err(Error::Labels {
            config: name,
            pool: pool.name.clone(),
        });
    }
    let mut object = to_value(&machine_config(&name, labels));
    if let Some(owner) = apply::controller_reference(cr) {
        apply::set_owner(&mut object, &owner);
    }
    context.applier.apply(&object).await?;
    Ok(())
}

async fn remove(name: &str, context: &Context) -> Result<(), Error> {
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

/// Returns whether a pool has the desired configuration on every machine: with our machine configuration if it needs the policy, and
/// without it otherwise.
fn is_updated(cr: &NumaResourcesOperator, pool: &Pool, mcp: &Mcp) -> bool {
    let Some(status) = &mcp.status else {
        return !pool.custom_selinux_policy;
    };
    let name = names::machine_config(&cr.name_any(), &pool.name);
    let has_it = |source: &ConfigurationSource| source.name == name;
    let listed = status.configuration.source.iter().any(has_it);
    listed == pool.custom_selinux_policy && status.condition(UPDATED) != Some("False")
}

fn status(pool: &Pool, mcp: &Mcp, context: &Context) -> MachineConfigPool {
    let status = mcp.status.as_ref();
    let conditions = status.filter(|_| context.forwards_pool_conditions);
    MachineConfigPool {
        name: pool.name.clone(),
        conditions: conditions
            .map(|status| status.conditions.clone())
            .unwrap_or_default(),
        config: None,
    }
}

/// Deletes the machine configurations of pools that are no longer selected.
pub(super) async fn collect_garbage(
    cr: &NumaResourcesOperator,
    pools: &[Pool],
    context: &Context,
) -> Result<(), Error> {
    let expected: BTreeSet<String> = pools
        .iter()
        .map(|pool| names::machine_config(&cr.name_any(), &pool.name))
        .collect();
    let api: Api<MachineConfig> = Api::all(context.client.clone());
    let found = api.list_metadata(&ListParams::default()).await;
    let found = found.map_err(|error| Error::Delete("*".into(), error.into()))?;
    let uid = cr.meta().uid.as_deref();
    for object in found.items {
        let mut owners = object.owner_references().iter();
        let owned = owners.any(|owner| Some(owner.uid.as_str()) == uid);
        let name = object.name_any();
        if owned && !expected.contains(&name) {
            remove(&name, context).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use api::operator::v1::NumaResourcesOperatorSpec;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn pool(custom: bool, status: &Value) -> (Pool, Mcp) {
        let mcp: Mcp = serde_json::from_value(
            json!({"metadata": {"name": "worker"}, "spec": {}, "status": status}),
        )
        .unwrap();
        let group = serde_json::from_value(json!({
            "poolName": "worker",
            "annotations": {api::annotations::SELINUX_POLICY: if custom { "custom" } else { "" }},
        }))
        .unwrap();
        let all = [mcp.clone()];
        let selected = crate::node_groups::machine_pools::select(&[group], &all).unwrap();
        (selected.pools[0].clone(), mcp)
    }

    fn having(sources: &[&str], updated: &str) -> Value {
        let sources: Vec<Value> = sources.iter().map(|name| json!({"name": name})).collect();
        json!({"configuration": {"source": sources}, "conditions": [{"type": "Updated", "status": updated}]})
    }

    const OURS: &str = "51-numaresourcesoperator-worker";

    #[rstest]
    #[case::nothing_wanted(false, having(&["00-worker"], "True"), true)]
    #[case::not_gone_yet(false, having(&["00-worker", OURS], "True"), false)]
    #[case::gone_but_not_everywhere(false, having(&["00-worker"], "False"), false)]
    #[case::nobody_says(false, having(&[], "Unknown"), true)]
    #[case::no_status_nothing_wanted(false, Value::Null, true)]
    #[case::not_there_yet(true, having(&["00-worker"], "True"), false)]
    #[case::there_but_not_everywhere(true, having(&[OURS], "False"), false)]
    #[case::there(true, having(&[OURS], "True"), true)]
    #[case::no_status(true, Value::Null, false)]
    fn pool_is_updated_when_its_machines_have_what_is_wanted(
        #[case] custom: bool,
        #[case] status: Value,
        #[case] expected: bool,
    ) {
        let cr =
            NumaResourcesOperator::new(names::OPERATOR_CR, NumaResourcesOperatorSpec::default());
        let (pool, mcp) = pool(custom, &status);
        assert_eq!(is_updated(&cr, &pool, &mcp), expected);
    }
}
