//! The machine configurations that install the legacy SELinux policy on the machines of a pool, and the state of the pools
//! (operator.md 4.4).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::openshift::machine_config::{ConfigurationSource, MachineConfigPool as Mcp, UPDATED};
use api::operator::v1::{MachineConfigPool, NumaResourcesOperator};
use api::{labels, names};
use kube::ResourceExt as _;
use manifests::rte::machine_config::machine_config;
use manifests::to_value;
use serde_json::Value;

use crate::node_groups::{Pool, selectors};
use crate::report::conditions::Outcome;

/// When to check a pool that is updating again if no event arrives earlier.
const UPDATING_REQUEUE: Duration = Duration::from_mins(1);

/// What to do for one pool.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Nothing, because the pool with this name is paused.
    Paused(String),
    /// Nothing, because the pool with this name takes no machine configurations.
    TakesNone(String),
    /// Apply this machine configuration, unless one that suffices is there.
    Install(Value),
    /// Stop: the selector of the pool does not match the labels of the machine configuration.
    Refuse {
        /// Name of the machine configuration.
        config: String,
        /// Name of the pool.
        pool: String,
    },
    /// Delete the machine configuration with this name.
    Remove(String),
}

/// State of the pools.
#[derive(Debug, PartialEq)]
pub(crate) struct Progress {
    /// Names of the paused pools, sorted.
    pub(crate) paused: BTreeSet<String>,
    /// The pools as the status lists them; only up to the first one that is still updating.
    pub(crate) pools: Vec<MachineConfigPool>,
    /// The outcome to report instead of continuing, if a pool is still updating.
    pub(crate) updating: Option<Outcome>,
}

/// Returns what to do for the pools, in their order, on a version of OpenShift.
pub(crate) fn steps(cr: &NumaResourcesOperator, pools: &[Pool], version: &str) -> Vec<Step> {
    let step = |(pool, mcp): (&Pool, &Mcp)| {
        let name = names::machine_config(&cr.name_any(), &pool.name);
        if mcp.spec.paused {
            Step::Paused(pool.name.clone())
        } else if mcp.spec.machine_config_selector.is_none() {
            Step::TakesNone(pool.name.clone())
        } else if pool.custom_selinux_policy {
            install(cr, pool, mcp, name, version)
        } else {
            Step::Remove(name)
        }
    };
    pools_with_mcp(pools).map(step).collect()
}

/// Returns the names of the machine configurations that belong to these pools.
pub(crate) fn expected(cr: &NumaResourcesOperator, pools: &[Pool]) -> BTreeSet<String> {
    let names = pools
        .iter()
        .map(|pool| names::machine_config(&cr.name_any(), &pool.name));
    names.collect()
}

/// Returns the state of the pools after all steps are taken. Nothing was asked of a paused pool, nor of one that takes no machine
/// configurations, so there is nothing to wait for (operator.md 4.4).
pub(crate) fn progress(
    cr: &NumaResourcesOperator,
    pools: &[Pool],
    forwards_conditions: bool,
) -> Progress {
    let paused = pools_with_mcp(pools).filter(|(_, mcp)| mcp.spec.paused);
    let mut progress = Progress {
        paused: paused.map(|(pool, _)| pool.name.clone()).collect(),
        pools: Vec::new(),
        updating: None,
    };
    for (pool, mcp) in pools_with_mcp(pools) {
        progress.pools.push(status(pool, mcp, forwards_conditions));
        let takes_any = mcp.spec.machine_config_selector.is_some();
        let waits = takes_any && !progress.paused.contains(&pool.name);
        if waits && !is_updated(cr, pool, mcp) {
            progress.updating = Some(Outcome::Progressing {
                message: format!("{} is updating", pool.name),
                requeue_after: UPDATING_REQUEUE,
            });
            return progress;
        }
    }
    for (status, pool) in progress.pools.iter_mut().zip(pools) {
        status.config = Some(pool.config.clone());
    }
    progress
}

fn pools_with_mcp(pools: &[Pool]) -> impl Iterator<Item = (&Pool, &Mcp)> {
    let all = pools.iter();
    all.filter_map(|pool| pool.machine_config_pool.as_ref().map(|mcp| (pool, mcp)))
}

fn install(
    cr: &NumaResourcesOperator,
    pool: &Pool,
    mcp: &Mcp,
    name: String,
    version: &str,
) -> Step {
    let selector = mcp.spec.machine_config_selector.clone();
    let selector = selector.unwrap_or_default();
    let wanted = selector.match_labels.clone().unwrap_or_default();
    let labels = if wanted.is_empty() {
        BTreeMap::from([(labels::MACHINE_CONFIG_ROLE.to_owned(), pool.name.clone())])
    } else {
        wanted
    };
    if !selectors::matches(&selector, &labels) {
        return Step::Refuse {
            config: name,
            pool: pool.name.clone(),
        };
    }
    let mut object = to_value(&machine_config(&name, labels, version));
    if let Some(owner) = apply::controller_reference(cr) {
        apply::set_owner(&mut object, &owner);
    }
    Step::Install(object)
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

fn status(pool: &Pool, mcp: &Mcp, forwards_conditions: bool) -> MachineConfigPool {
    let status = mcp.status.as_ref();
    let conditions = status.filter(|_| forwards_conditions);
    MachineConfigPool {
        name: pool.name.clone(),
        conditions: conditions
            .map(|status| status.conditions.clone())
            .unwrap_or_default(),
        config: None,
    }
}

#[cfg(test)]
mod tests {
    use api::operator::v1::NumaResourcesOperatorSpec;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn pool(custom: bool, status: &Value) -> (Pool, Mcp) {
        pool_with(custom, &selecting(&json!({})), status)
    }

    fn pool_with(custom: bool, spec: &Value, status: &Value) -> (Pool, Mcp) {
        let mcp: Mcp = serde_json::from_value(
            json!({"metadata": {"name": "worker"}, "spec": spec, "status": status}),
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

    fn resource() -> NumaResourcesOperator {
        NumaResourcesOperator::new(names::OPERATOR_CR, NumaResourcesOperatorSpec::default())
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
        let cr = resource();
        let (pool, mcp) = pool(custom, &status);
        assert_eq!(is_updated(&cr, &pool, &mcp), expected);
    }

    fn selecting(selector: &Value) -> Value {
        json!({"machineConfigSelector": selector})
    }

    #[rstest]
    #[case::paused(true, json!({"paused": true}), Step::Paused("worker".into()))]
    #[case::takes_none(true, json!({}), Step::TakesNone("worker".into()))]
    #[case::not_wanted(false, selecting(&json!({})), Step::Remove(OURS.into()))]
    #[case::labels_do_not_match(
        true,
        selecting(&json!({"matchExpressions": [{"key": "k", "operator": "Exists"}]})),
        Step::Refuse { config: OURS.into(), pool: "worker".into() }
    )]
    fn pools_without_an_installation(
        #[case] custom: bool,
        #[case] spec: Value,
        #[case] expected: Step,
    ) {
        let (pool, _) = pool_with(custom, &spec, &Value::Null);
        assert_eq!(steps(&resource(), &[pool], "4.20.0"), [expected]);
    }

    #[rstest]
    #[case::labels_of_the_selector(json!({"matchLabels": {"a": "b"}}), json!({"a": "b"}))]
    #[case::role(json!({}), json!({labels::MACHINE_CONFIG_ROLE: "worker"}))]
    fn installed_object_has_labels_that_the_pool_selects(
        #[case] selector: Value,
        #[case] labels: Value,
    ) {
        let (pool, _) = pool_with(true, &selecting(&selector), &Value::Null);
        let steps = steps(&resource(), &[pool], "4.20.0");
        let [Step::Install(object)] = &steps[..] else {
            panic!("{steps:?}")
        };
        assert_eq!(object["metadata"]["name"], OURS);
        assert_eq!(object["metadata"]["labels"], labels);
    }

    #[test]
    fn first_pool_that_is_updating_ends_the_list_and_a_paused_one_does_not() {
        let (mut paused, _) = pool_with(true, &json!({"paused": true}), &having(&[], "False"));
        paused.name = "held".into();
        let (updating, _) = pool(true, &having(&[], "False"));
        let found = progress(&resource(), &[paused, updating.clone(), updating], true);
        assert_eq!(found.paused, BTreeSet::from(["held".to_owned()]));
        let names: Vec<&str> = found.pools.iter().map(|pool| pool.name.as_str()).collect();
        assert_eq!(names, ["held", "worker"]);
        assert!(found.pools.iter().all(|pool| pool.config.is_none()));
        let expected = Outcome::Progressing {
            message: "worker is updating".into(),
            requeue_after: UPDATING_REQUEUE,
        };
        assert_eq!(found.updating, Some(expected));
    }

    #[rstest]
    #[case::policy_of_the_machines(false)]
    #[case::policy_of_ours(true)]
    fn pool_without_a_selector_is_served_without_a_wait(#[case] custom: bool) {
        let updating = having(&["00-worker"], "False");
        let (pool, _) = pool_with(custom, &json!({}), &updating);
        let found = progress(&resource(), std::slice::from_ref(&pool), false);
        assert_eq!(found.updating, None);
        assert_eq!(found.pools[0].config, Some(pool.config));
    }

    #[rstest]
    #[case::forwarded(true, 1)]
    #[case::not_forwarded(false, 0)]
    fn updated_pools_are_listed_with_their_configuration(
        #[case] forwards_conditions: bool,
        #[case] conditions: usize,
    ) {
        let (pool, _) = pool(true, &having(&[OURS], "True"));
        let found = progress(
            &resource(),
            std::slice::from_ref(&pool),
            forwards_conditions,
        );
        assert_eq!(found.updating, None);
        assert_eq!(found.pools[0].conditions.len(), conditions);
        assert_eq!(found.pools[0].config, Some(pool.config));
    }
}
