//! The kubelets' topology manager settings, and whether the operator's ConfigMaps and the NRTs say the same.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use serde::Deserialize;

use crate::context::Context;
use crate::machine_pools;
use crate::recorder::PollResult;
use crate::step::StepError;

/// Settings that the operator passes to the exporters of a pool (operator.md 7). It has every key that the file may have: what reads it
/// strictly refuses any other.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ExporterConfig {
    kubelet: ToldPart,
    #[serde(default, rename = "podExclude")]
    _pod_exclude: Vec<BTreeMap<String, String>>,
    #[serde(default, rename = "resourceExclude")]
    _resource_exclude: BTreeMap<String, Vec<String>>,
}

/// The section of the kubelet in that file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ToldPart {
    topology_manager_policy: Option<String>,
    topology_manager_scope: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct KubeletPart {
    pub(super) topology_manager_policy: Option<String>,
    pub(super) topology_manager_scope: Option<String>,
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
    Ok(KubeletPart {
        topology_manager_policy: config.kubelet.topology_manager_policy,
        topology_manager_scope: config.kubelet.topology_manager_scope,
    })
}

/// Returns the nodes of a pool. It is an error if there are none.
pub(super) async fn nodes_of(ctx: &Context, pool: &str) -> Result<Vec<String>, StepError> {
    let (key, value) = ctx.facts().environment.platform.label_of_pool(pool);
    let label = format!("{key}={value}");
    let params = ListParams::default().labels(&label);
    let nodes: Vec<_> = Api::<Node>::all(ctx.client())
        .list(&params)
        .await?
        .items
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    if nodes.is_empty() {
        return Err(StepError::fail(format!("no node has the label {label}")));
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
