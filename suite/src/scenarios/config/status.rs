//! What the status of the stack's resources says of their node groups and objects.

use api::names;
use api::operator::v1::{NodeGroup, NodeGroupConfig, NumaResourcesOperatorStatus};
use api::operator::{InfoRefreshMode, InfoRefreshPause, ObjectReference, PodsFingerprinting};
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::api::Api;
use serde_json::{Value, json};

use super::pool;
use crate::context::Context;
use crate::recorder::PollResult;
use crate::scenarios::steps;
use crate::step::StepError;

pub(in crate::scenarios) async fn groups_are_reported(ctx: &Context) -> Result<(), StepError> {
    ctx.step(
        "the status has each node group as it is in force",
        reported(ctx),
    )
    .await
}

/// Waits until the status has exactly the node groups of the spec, with defaults for what they leave out, their DaemonSets, and on `OpenShift` their
/// machine config pools.
async fn reported(ctx: &Context) -> Result<(), StepError> {
    let limit = ctx.deadlines().installed;
    ctx.until("status and node groups agree", limit, async || {
        let object = ctx.operator_resource().await?;
        let status = object.status.unwrap_or_default();
        let openshift = ctx.facts().is_openshift();
        let difference = status_difference(&object.spec.node_groups, &status, openshift);
        Ok(difference.map_or(PollResult::Ready(()), PollResult::NotYet))
    })
    .await
}

/// Returns the first difference between the status and the spec. On `OpenShift` a selector may match several pools.
fn status_difference(
    groups: &[NodeGroup],
    status: &NumaResourcesOperatorStatus,
    openshift: bool,
) -> Option<String> {
    let pools = if openshift { groups.len() } else { 0 };
    let seen = [
        status.node_groups.len(),
        status.daemonsets.len(),
        status.machineconfigpools.len(),
    ];
    if seen != [groups.len(), groups.len(), pools] {
        let [entries, sets, pools] = seen;
        return Some(format!(
            "{} node groups have {entries} entries, {sets} DaemonSets and {pools} machine config pools in the status",
            groups.len(),
        ));
    }
    groups.iter().find_map(|group| {
        let name = group.pool_name.as_deref()?;
        let wanted = in_force(group);
        let Some(seen) = status
            .node_groups
            .iter()
            .find(|seen| seen.pool_name == name)
        else {
            return Some(format!("the status has no node group {name}"));
        };
        let config = json!(seen.config);
        if config != wanted {
            return Some(format!(
                "node group {name} has the configuration {config}, not {wanted}"
            ));
        }
        if !status.daemonsets.contains(&seen.daemon_set) {
            return Some(format!(
                "DaemonSet {} of {name} is not listed",
                seen.daemon_set
            ));
        }
        if !openshift {
            return None;
        }
        let mut pools = status.machineconfigpools.iter();
        let Some(pool) = pools.find(|pool| pool.name == name) else {
            return Some(format!("the status has no machine config pool {name}"));
        };
        let config = json!(pool.config);
        (config != wanted).then(|| {
            format!("machine config pool {name} has the configuration {config}, not {wanted}")
        })
    })
}

/// Returns the settings of a group that are in force: its own, and defaults for what it leaves out (operator.md 1.4). They are written down
/// here, because this judges the operator.
fn in_force(group: &NodeGroup) -> Value {
    let mut all = json!({
        "podsFingerprinting": "EnabledExclusiveResources",
        "infoRefreshMode": "Periodic",
        "infoRefreshPeriod": "10s",
        "infoRefreshPause": "Disabled",
    });
    let own = json!(group.config.clone().unwrap_or_default());
    for (field, value) in own.as_object().into_iter().flatten() {
        all[field] = value.clone();
    }
    all
}

pub(super) async fn changed_groups_are_reported(ctx: &Context) -> Result<(), StepError> {
    const NAME: &str = "mcp-test";
    let before = ctx.operator_resource().await?.spec.node_groups;
    if before.iter().any(|group| group.pool_name.is_none()) {
        let reason = "a node group has a selector instead of a pool name";
        return Err(StepError::Skip(reason.to_owned()));
    }
    if ctx.facts().is_openshift() {
        steps::empty_pool(ctx, NAME).await?;
    }
    let configs = [
        NodeGroupConfig {
            pods_fingerprinting: Some(PodsFingerprinting::Enabled),
            info_refresh_mode: Some(InfoRefreshMode::Periodic),
            info_refresh_pause: Some(InfoRefreshPause::Enabled),
            ..NodeGroupConfig::default()
        },
        NodeGroupConfig {
            pods_fingerprinting: Some(PodsFingerprinting::Disabled),
            info_refresh_mode: Some(InfoRefreshMode::Events),
            ..NodeGroupConfig::default()
        },
    ];
    for config in configs {
        let mut groups = before.clone();
        groups.push(NodeGroup {
            config: Some(config),
            ..pool(NAME)
        });
        ctx.step("a group for a pool without nodes is reported", async {
            ctx.set_node_groups(&groups).await?;
            reported(ctx).await
        })
        .await?;
    }
    ctx.step("nothing of it is left without it", async {
        ctx.set_node_groups(&before).await?;
        let name = names::rte_daemon_set(names::OPERATOR_CR, NAME);
        let sets = Api::<DaemonSet>::namespaced(ctx.client(), names::NAMESPACE);
        let limit = ctx.deadlines().gone;
        ctx.until("its DaemonSet is gone", limit, async || {
            Ok(match sets.get_opt(&name).await? {
                Some(_) => PollResult::NotYet(format!("DaemonSet {name} is there")),
                None => PollResult::Ready(()),
            })
        })
        .await?;
        reported(ctx).await
    })
    .await
}

pub(super) async fn related_objects_are_reported(ctx: &Context) -> Result<(), StepError> {
    ctx.step("the operator's resource names what belongs to it", async {
        let object = ctx.operator_resource().await?;
        let status = object.status.unwrap_or_default();
        let mut expected = vec![
            related("", "namespaces", "", names::NAMESPACE),
            related(
                "machineconfiguration.openshift.io",
                "kubeletconfigs",
                "",
                "",
            ),
            related(
                "machineconfiguration.openshift.io",
                "machineconfigs",
                "",
                "",
            ),
            related(api::nrt::GROUP, api::nrt::PLURAL, "", ""),
        ];
        let sets = object.spec.node_groups.iter().filter_map(|group| {
            let pool = group.pool_name.as_deref()?;
            let name = names::rte_daemon_set(names::OPERATOR_CR, pool);
            Some(related("apps", "daemonsets", names::NAMESPACE, &name))
        });
        expected.extend(sets);
        same(expected, status.related_objects)
    })
    .await?;
    ctx.step("the scheduler's resource names what belongs to it", async {
        let status = ctx.scheduler_resource().await?.status.unwrap_or_default();
        let expected = vec![
            related("", "namespaces", "", names::NAMESPACE),
            related("apps", "deployments", names::NAMESPACE, names::SCHEDULER),
        ];
        same(expected, status.related_objects)
    })
    .await
}

fn related(group: &str, resource: &str, namespace: &str, name: &str) -> ObjectReference {
    ObjectReference {
        group: group.to_owned(),
        resource: resource.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

/// Checks that both lists have the same objects, in any order.
fn same(expected: Vec<ObjectReference>, seen: Vec<ObjectReference>) -> Result<(), StepError> {
    let lines = |objects: Vec<ObjectReference>| {
        let mut lines: Vec<String> = objects
            .into_iter()
            .map(|object| {
                let ObjectReference {
                    group,
                    resource,
                    namespace,
                    name,
                } = object;
                format!("{group}/{resource}/{namespace}/{name}")
            })
            .collect();
        lines.sort_unstable();
        lines.join(", ")
    };
    let [expected, seen] = [expected, seen].map(lines);
    if expected == seen {
        return Ok(());
    }
    Err(StepError::mismatch("related objects", expected, seen))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_status(config: &Value, pools: &Value) -> NumaResourcesOperatorStatus {
        let set = json!({"namespace": "n", "name": "s"});
        serde_json::from_value(json!({
            "daemonsets": [set],
            "nodeGroups": [{"daemonsets": set, "config": config, "selector": "p"}],
            "machineconfigpools": pools,
        }))
        .unwrap()
    }

    #[test]
    fn a_status_has_the_settings_in_force_in_both_places() {
        let group: NodeGroup =
            serde_json::from_value(json!({"poolName": "p", "config": {"infoRefreshPeriod": "3s"}}))
                .unwrap();
        let groups = [group];
        let good = json!({
            "podsFingerprinting": "EnabledExclusiveResources", "infoRefreshMode": "Periodic",
            "infoRefreshPeriod": "3s", "infoRefreshPause": "Disabled",
        });
        let mut bad = good.clone();
        bad["infoRefreshPeriod"] = json!("10s");
        let pool = |config: &Value| json!([{"name": "p", "config": config}]);
        let difference = |config: &Value, pools: &Value, openshift| {
            status_difference(&groups, &mk_status(config, pools), openshift)
        };
        assert_eq!(difference(&good, &json!([]), false), None);
        assert_eq!(difference(&good, &pool(&good), true), None);
        let starts =
            |text: Option<String>, with: &str| text.is_some_and(|text| text.starts_with(with));
        assert!(starts(
            difference(&bad, &pool(&good), true),
            "node group p has the configuration"
        ));
        assert!(starts(
            difference(&good, &pool(&bad), true),
            "machine config pool p has the configuration"
        ));
        assert!(starts(
            difference(&good, &json!([]), true),
            "1 node groups have 1 entries, 1 DaemonSets and 0 machine"
        ));
    }
}
