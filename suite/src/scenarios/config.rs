//! Configuration of the stack and what follows from it (scenarios-serial.md 9.6).

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use serde::Deserialize;

use crate::context::Context;
use crate::recorder::Look;
use crate::scenario::{Scenario, Stop, body};
use crate::scenarios::{labels, title};

const CONTEXT: &str = "[serial][disruptive] numaresources configuration management";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![Scenario {
        id: "config/nrt-attributes",
        test_id: Some(84315),
        title: title(
            CONTEXT,
            Some(84315),
            "",
            "should reflect correct TM configuration in the NRT object attributes",
        ),
        labels: labels(&["disruptive", "feature:config"], "tier0"),
        needs: Vec::new(),
        body: body(|ctx| Box::pin(nrt_attributes(ctx))),
    }]
}

/// Settings that the operator hands to the exporters of a pool (operator.md 7).
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

/// The part of a kubelet's `configz` that matters here.
#[derive(Debug, Deserialize)]
struct Configz {
    kubeletconfig: KubeletPart,
}

async fn nrt_attributes(ctx: &Context) -> Result<(), Stop> {
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
                            Look::NotYet(format!(
                                "no ConfigMap has the label {}",
                                api::labels::OPERATOR_NAME
                            ))
                        } else {
                            Look::Ready(maps)
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

fn single_numa_node(map: &ConfigMap) -> Result<KubeletPart, Stop> {
    let config = config_of(map)?;
    let policy = config.topology_manager_policy.as_deref();
    if policy != Some("single-numa-node") {
        return Err(Stop::mismatch(
            format!("policy in ConfigMap {}", map.name_any()),
            "single-numa-node",
            policy.unwrap_or_default(),
        ));
    }
    Ok(config)
}

/// What a ConfigMap of the operator hands to exporters.
pub(super) fn config_of(map: &ConfigMap) -> Result<KubeletPart, Stop> {
    let name = map.name_any();
    let text = map
        .data
        .as_ref()
        .and_then(|data| data.get(api::names::CONFIG_KEY));
    let text = text.ok_or_else(|| {
        Stop::fail(format!(
            "ConfigMap {name} has no key {}",
            api::names::CONFIG_KEY
        ))
    })?;
    let config: ExporterConfig = serde_yaml::from_str(text)
        .map_err(|error| Stop::fail(format!("ConfigMap {name} is not readable: {error}")))?;
    Ok(config.kubelet)
}

/// The nodes of a pool; there must be some.
pub(super) async fn nodes_of(ctx: &Context, pool: &str) -> Result<Vec<String>, Stop> {
    let params = ListParams::default().labels(&api::labels::node_role(pool));
    let nodes: Vec<_> = Api::<Node>::all(ctx.client())
        .list(&params)
        .await?
        .items
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    if nodes.is_empty() {
        return Err(Stop::fail(format!(
            "no node has the label {}",
            api::labels::node_role(pool)
        )));
    }
    ctx.recorder.saw(nodes.join(", "));
    Ok(nodes)
}

/// Waits until kubelet, ConfigMap and NRT of a node say the same.
pub(super) async fn agree(ctx: &Context, node: &str, config: &KubeletPart) -> Result<(), Stop> {
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
        return Err(Stop::mismatch(
            format!("the ConfigMap differs from the kubelet of {node}"),
            expected,
            part(config),
        ));
    }
    ctx.until(
        &format!("the NRT of {node} says {expected}"),
        ctx.deadlines().settled,
        async || {
            let nrt = ctx.topology(node).await?;
            let seen = show(
                nrt.attribute(api::attributes::TOPOLOGY_MANAGER_POLICY),
                nrt.attribute(api::attributes::TOPOLOGY_MANAGER_SCOPE),
            );
            Ok(if seen == expected {
                Look::Ready(())
            } else {
                Look::NotYet(seen)
            })
        },
    )
    .await?;
    ctx.recorder.saw(expected);
    Ok(())
}

async fn kubelet_settings(ctx: &Context, node: &str) -> Result<KubeletPart, Stop> {
    let url = format!("/api/v1/nodes/{node}/proxy/configz");
    let request = http::Request::get(&url)
        .body(Vec::new())
        .map_err(|error| Stop::fail(format!("{url}: {error}")))?;
    let configz: Configz = ctx.client().request(request).await?;
    Ok(configz.kubeletconfig)
}
