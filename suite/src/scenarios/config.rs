//! Configuration of the stack and its effects (scenarios-serial.md 9.6).

use api::operator::v1::{NodeGroup, NodeGroupConfig, NumaResourcesOperatorStatus};
use api::operator::{InfoRefreshMode, InfoRefreshPause, ObjectReference, PodsFingerprinting};
use api::{conditions, names};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use serde::Deserialize;
use serde_json::json;

use crate::context::Context;
use crate::machine_pools;
use crate::recorder::PollResult;
use crate::scenario::{Body, Need, Scenario, StepError, body};
use crate::scenarios::{labels, title};
use crate::workload::{PodPlan, ResourceRequest};

mod groups;
mod kubelets;
mod moved;
mod security;

pub(super) use security::{Profile, tls_flags};

const CONTEXT: &str = "[serial][disruptive] numaresources configuration management";

fn scenario(
    id: &'static str,
    test_id: impl Into<Option<u32>>,
    text: &str,
    own_labels: &str,
    body: Body,
) -> Scenario {
    let test_id = test_id.into();
    Scenario {
        id,
        test_id,
        title: title(CONTEXT, test_id, "", text),
        labels: labels(&["disruptive", "feature:config"], own_labels),
        needs: Vec::new(),
        body,
    }
}

/// Builds a scenario that needs `OpenShift`.
fn on_openshift(
    id: &'static str,
    test_id: impl Into<Option<u32>>,
    text: &str,
    own_labels: &str,
    body: Body,
) -> Scenario {
    Scenario {
        needs: vec![Need::OpenShift],
        ..scenario(id, test_id, text, own_labels, body)
    }
}

pub(super) fn scenarios() -> Vec<Scenario> {
    let mut all = vec![
        scenario(
            "config/nrt-attributes",
            84315,
            "should reflect correct TM configuration in the NRT object attributes",
            "tier0",
            body(|ctx| Box::pin(nrt_attributes(ctx))),
        ),
        scenario(
            "config/sched-modify",
            54916,
            "should be able to modify the configurable values under the NUMAResourcesScheduler CR",
            "tier2 schedrst feature:schedrst",
            body(|ctx| Box::pin(scheduler_is_renamed(ctx))),
        ),
        scenario(
            "config/nodegroup-config-status",
            84307,
            "should report the NodeGroupConfig in the status",
            "tier2",
            body(|ctx| Box::pin(groups_are_reported(ctx))),
        ),
        scenario(
            "config/related-objects",
            84309,
            "should report relatedObjects in the status",
            "related_objects",
            body(|ctx| Box::pin(related_objects_are_reported(ctx))),
        ),
        scenario(
            "config/poolname-and-selector",
            84311,
            "should not allow configuring PoolName and MCP selector on same node group",
            "tier2 ngpoolname feature:ngpoolname",
            body(|ctx| Box::pin(two_specifiers_are_refused(ctx))),
        ),
        scenario(
            "config/poolname-status",
            84312,
            "should report the NodeGroupConfig in the NodeGroupStatus with NodePool set and allow updates",
            "tier1 ngpoolname feature:ngpoolname",
            body(|ctx| Box::pin(changed_groups_are_reported(ctx))),
        ),
        scenario(
            "config/poolname-duplicate",
            80823,
            "should not allow duplicate and empty PoolName values on the same node group. duplicate pool name",
            "tier2 ngpoolname feature:ngpoolname",
            body(|ctx| Box::pin(duplicates_are_refused(ctx))),
        ),
        scenario(
            "config/poolname-empty",
            80823,
            "should not allow duplicate and empty PoolName values on the same node group. empty pool name",
            "tier2 ngpoolname feature:ngpoolname",
            body(|ctx| Box::pin(empty_names_are_refused(ctx))),
        ),
        scenario(
            "config/no-mcp-selector-hs",
            80912,
            "should not allow MCP selector on hypershift",
            "tier2 ngpoolname feature:ngpoolname",
            body(|ctx| Box::pin(selectors_are_refused_without_pools(ctx))),
        ),
    ];
    all.extend(kubelets::scenarios());
    all.extend(moved::scenarios());
    all.extend(groups::scenarios());
    all.extend(security::scenarios());
    all
}

async fn scheduler_is_renamed(ctx: &Context) -> Result<(), StepError> {
    const NAME: &str = "test-topology-scheduler";
    ctx.step("the scheduler has another name", async {
        ctx.set_scheduler_field("schedulerName", json!(NAME))
            .await?;
        let status = ctx.scheduler_resource().await?.status.unwrap_or_default();
        let seen = status.scheduler_name.unwrap_or_default();
        if seen == NAME {
            return Ok(());
        }
        Err(StepError::mismatch("name in the status", NAME, seen))
    })
    .await?;
    let generation = ctx.scheduler_resource().await?.metadata.generation;
    ctx.step("a pod that asks for it runs", async {
        let plan = PodPlan::new("testpod", NAME, [ResourceRequest::Nothing]);
        ctx.create(plan.pod()).await?;
        let pod = ctx.pods_running(&[plan.name().to_owned()]).await?.remove(0);
        ctx.scheduled_by(NAME, &pod).await
    })
    .await?;
    ctx.step("nobody has changed the resource since", async {
        ctx.scheduler_available().await?;
        let now = ctx.scheduler_resource().await?.metadata.generation;
        if now == generation {
            return Ok(());
        }
        let [expected, seen] = [generation, now].map(Option::unwrap_or_default);
        Err(StepError::mismatch(
            "generation of the resource",
            expected,
            seen,
        ))
    })
    .await
}

async fn two_specifiers_are_refused(ctx: &Context) -> Result<(), StepError> {
    let group = NodeGroup {
        machine_config_pool_selector: Some(selector()),
        ..pool("test2")
    };
    one_more_is_refused(ctx, group, "must have only a single specifier set").await
}

async fn duplicates_are_refused(ctx: &Context) -> Result<(), StepError> {
    let groups = ctx.operator_resource().await?.spec.node_groups;
    let mut names = groups.iter().filter_map(|group| group.pool_name.as_deref());
    let name = names
        .next()
        .ok_or_else(|| StepError::Skip("no node group has a pool name".to_owned()))?;
    let message = format!("the pool name {name:?} has duplicates");
    one_more_is_refused(ctx, pool(name), &message).await
}

async fn empty_names_are_refused(ctx: &Context) -> Result<(), StepError> {
    let before = ctx.operator_resource().await?.spec.node_groups.len();
    let message = format!("pool name for pool #{before} cannot be empty");
    one_more_is_refused(ctx, pool(""), &message).await
}

async fn selectors_are_refused_without_pools(ctx: &Context) -> Result<(), StepError> {
    if ctx.facts().openshift {
        let reason = "the cluster has machine config pools, which selectors are for";
        return Err(StepError::Skip(reason.to_owned()));
    }
    let group = NodeGroup {
        machine_config_pool_selector: Some(selector()),
        ..NodeGroup::default()
    };
    one_more_is_refused(ctx, group, "Should specify PoolName only").await
}

fn pool(name: &str) -> NodeGroup {
    NodeGroup {
        pool_name: Some(name.to_owned()),
        ..NodeGroup::default()
    }
}

/// Returns a selector that matches no machine config pool.
fn selector() -> LabelSelector {
    LabelSelector {
        match_labels: Some([("test2".to_owned(), "test2".to_owned())].into()),
        ..LabelSelector::default()
    }
}

/// Checks that the resource is Degraded, with this in the message, while it has this group in addition, and Available without it. The
/// original requires that it stays Available throughout, which is impossible: the two conditions exclude each other
/// (scenarios-serial.md 12).
async fn one_more_is_refused(
    ctx: &Context,
    group: NodeGroup,
    message: &str,
) -> Result<(), StepError> {
    let before = ctx.operator_resource().await?.spec.node_groups;
    let mut groups = before.clone();
    groups.push(group);
    ctx.step("the resource is Degraded for the group", async {
        ctx.set_node_groups(&groups).await?;
        ctx.operator_is(
            conditions::DEGRADED,
            conditions::REASON_NODE_GROUPS,
            message,
        )
        .await
    })
    .await?;
    ctx.step("it is Available without", async {
        ctx.set_node_groups(&before).await?;
        ctx.operator_is(conditions::AVAILABLE, conditions::AVAILABLE, "")
            .await
    })
    .await
}

async fn groups_are_reported(ctx: &Context) -> Result<(), StepError> {
    ctx.step(
        "the status has each node group as it is in force",
        reported(ctx),
    )
    .await
}

/// Waits until the status has exactly the node groups of the spec, with defaults for what they leave out, and their DaemonSets.
async fn reported(ctx: &Context) -> Result<(), StepError> {
    let limit = ctx.deadlines().installed;
    ctx.until("status and node groups agree", limit, async || {
        let object = ctx.operator_resource().await?;
        let status = object.status.unwrap_or_default();
        let difference = status_difference(&object.spec.node_groups, &status);
        Ok(difference.map_or(PollResult::Ready(()), PollResult::NotYet))
    })
    .await
}

/// Returns the first difference between the status and the spec. On `OpenShift` a selector may match several pools.
fn status_difference(groups: &[NodeGroup], status: &NumaResourcesOperatorStatus) -> Option<String> {
    let counts = (status.node_groups.len(), status.daemonsets.len());
    if counts != (groups.len(), groups.len()) {
        return Some(format!(
            "{} node groups have {} entries and {} DaemonSets in the status",
            groups.len(),
            counts.0,
            counts.1
        ));
    }
    groups.iter().find_map(|group| {
        let name = group.pool_name.as_deref()?;
        let config = group.normalized_config();
        let Some(seen) = status
            .node_groups
            .iter()
            .find(|seen| seen.pool_name == name)
        else {
            return Some(format!("the status has no node group {name}"));
        };
        if seen.config != config {
            let [seen, wanted] = [&seen.config, &config].map(|config| json!(config));
            return Some(format!("{name} has the configuration {seen}, not {wanted}"));
        }
        let listed = status.daemonsets.contains(&seen.daemon_set);
        (!listed).then(|| format!("DaemonSet {} of {name} is not listed", seen.daemon_set))
    })
}

async fn changed_groups_are_reported(ctx: &Context) -> Result<(), StepError> {
    const NAME: &str = "mcp-test";
    let before = ctx.operator_resource().await?.spec.node_groups;
    if before.iter().any(|group| group.pool_name.is_none()) {
        let reason = "a node group has a selector instead of a pool name";
        return Err(StepError::Skip(reason.to_owned()));
    }
    if ctx.facts().openshift {
        kubelets::empty_pool(ctx, NAME).await?;
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

async fn related_objects_are_reported(ctx: &Context) -> Result<(), StepError> {
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

/// Settings that the operator passes to the exporters of a pool (operator.md 7).
#[derive(Debug, Deserialize)]
struct ExporterConfig {
    kubelet: KubeletPart,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct KubeletPart {
    topology_manager_policy: Option<String>,
    topology_manager_scope: Option<String>,
}

pub(super) async fn nrt_attributes(ctx: &Context) -> Result<(), StepError> {
    let maps = ctx
        .step(
            "each pool has a ConfigMap with its topology manager settings",
            async {
                ctx.until(
                    "a ConfigMap of the operator is there",
                    ctx.deadlines().running,
                    async || {
                        let params = ListParams::default().labels(api::labels::OPERATOR_NAME);
                        let maps = Api::<ConfigMap>::all(ctx.client())
                            .list(&params)
                            .await?
                            .items;
                        Ok(if maps.is_empty() {
                            PollResult::NotYet(format!(
                                "no ConfigMap has the label {}",
                                api::labels::OPERATOR_NAME
                            ))
                        } else {
                            PollResult::Ready(maps)
                        })
                    },
                )
                .await
            },
        )
        .await?;
    for map in maps {
        let pool = map
            .labels()
            .get(api::labels::POOL)
            .cloned()
            .unwrap_or_default();
        let config = ctx
            .step(
                format!("pool {pool}: the ConfigMap says policy single-numa-node"),
                async { single_numa_node(&map) },
            )
            .await?;
        let nodes = ctx
            .step(format!("pool {pool} has nodes"), nodes_of(ctx, &pool))
            .await?;
        for node in nodes {
            ctx.step(
                format!("{node}: kubelet, ConfigMap and NRT say the same"),
                agree(ctx, &node, &config),
            )
            .await?;
        }
    }
    Ok(())
}

fn single_numa_node(map: &ConfigMap) -> Result<KubeletPart, StepError> {
    let config = config_of(map)?;
    let policy = config.topology_manager_policy.as_deref();
    if policy != Some("single-numa-node") {
        return Err(StepError::mismatch(
            format!("policy in ConfigMap {}", map.name_any()),
            "single-numa-node",
            policy.unwrap_or_default(),
        ));
    }
    Ok(config)
}

/// Parses the settings that a ConfigMap of the operator passes to exporters.
pub(super) fn config_of(map: &ConfigMap) -> Result<KubeletPart, StepError> {
    let name = map.name_any();
    let text = map
        .data
        .as_ref()
        .and_then(|data| data.get(api::names::CONFIG_KEY));
    let text = text.ok_or_else(|| {
        StepError::fail(format!(
            "ConfigMap {name} has no key {}",
            api::names::CONFIG_KEY
        ))
    })?;
    let config: ExporterConfig = serde_yaml::from_str(text)
        .map_err(|error| StepError::fail(format!("ConfigMap {name} is not readable: {error}")))?;
    Ok(config.kubelet)
}

/// Returns the nodes of a pool. It is an error if there are none.
pub(super) async fn nodes_of(ctx: &Context, pool: &str) -> Result<Vec<String>, StepError> {
    let params = ListParams::default().labels(&api::labels::node_role(pool));
    let nodes: Vec<_> = Api::<Node>::all(ctx.client())
        .list(&params)
        .await?
        .items
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    if nodes.is_empty() {
        return Err(StepError::fail(format!(
            "no node has the label {}",
            api::labels::node_role(pool)
        )));
    }
    ctx.recorder.saw(nodes.join(", "));
    Ok(nodes)
}

/// Waits until the kubelet, the ConfigMap and the NRT of a node agree.
pub(super) async fn agree(
    ctx: &Context,
    node: &str,
    config: &KubeletPart,
) -> Result<(), StepError> {
    let kubelet = kubelet_settings(ctx, node).await?;
    let show = |policy: Option<&str>, scope: Option<&str>| {
        format!(
            "policy {}, scope {}",
            policy.unwrap_or("none"),
            scope.unwrap_or("container")
        )
    };
    let part = |part: &KubeletPart| {
        show(
            part.topology_manager_policy.as_deref(),
            part.topology_manager_scope.as_deref(),
        )
    };
    let expected = part(&kubelet);
    if part(config) != expected {
        return Err(StepError::mismatch(
            format!("the ConfigMap differs from the kubelet of {node}"),
            expected,
            part(config),
        ));
    }
    ctx.until(
        &format!("the NRT of {node} says {expected}"),
        // when the ConfigMap changes, exporters restart one node after another
        ctx.deadlines().installed,
        async || {
            let nrt = ctx.topology(node).await?;
            let seen = show(
                nrt.attribute(api::attributes::TOPOLOGY_MANAGER_POLICY),
                nrt.attribute(api::attributes::TOPOLOGY_MANAGER_SCOPE),
            );
            Ok(if seen == expected {
                PollResult::Ready(())
            } else {
                PollResult::NotYet(seen)
            })
        },
    )
    .await?;
    ctx.recorder.saw(expected);
    Ok(())
}

async fn kubelet_settings(ctx: &Context, node: &str) -> Result<KubeletPart, StepError> {
    let kubelet = machine_pools::kubelet(&ctx.client(), node).await?;
    serde_json::from_value(kubelet)
        .map_err(|error| StepError::fail(format!("configz of {node} is not readable: {error}")))
}
