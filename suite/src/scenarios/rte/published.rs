//! The published object: its form, its fingerprint, and how pods change it.

use std::collections::BTreeSet;

use api::nrt::v1alpha2::NodeResourceTopology;
use api::{annotations, attributes};
use fixtures::machines::SAMPLE_DEVICES;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, ListParams};

use super::NEEDS;
use crate::context::Context;
use crate::context::padding::NUMACELL;
use crate::facts::allocatable;
use crate::observed::{NodeTopology, Zone, form, zones_difference};
use crate::recorder::PollResult;
use crate::resources::Resources;
use crate::scenario::{Scenario, body};
use crate::scenarios::registry::scenario;
use crate::step::StepError;
use crate::workload::{PodPlan, ResourceRequest};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario(
            "rte/pfp-nrt",
            NEEDS,
            body(|ctx| Box::pin(fingerprint_is_there(ctx))),
        ),
        scenario(
            "rte/pfp-method",
            NEEDS,
            body(|ctx| Box::pin(method_is_known(ctx))),
        ),
        scenario(
            "rte/pfp-stable",
            NEEDS,
            body(|ctx| Box::pin(fingerprint_is_stable(ctx))),
        ),
        scenario(
            "rte/pfp-change",
            NEEDS,
            body(|ctx| Box::pin(fingerprint_changes(ctx))),
        ),
        scenario(
            "rte/refresh-device",
            NEEDS,
            body(|ctx| Box::pin(devices_are_shown(ctx))),
        ),
        scenario(
            "tu/valid",
            NEEDS,
            body(|ctx| Box::pin(object_is_valid(ctx))),
        ),
        scenario(
            "tu/exclusive",
            NEEDS,
            body(|ctx| {
                Box::pin(pod_is_accounted(
                    ctx,
                    ResourceRequest::Limits(Resources::literal("1c 100Mi")),
                    true,
                ))
            }),
        ),
        scenario(
            "tu/frac-cpu",
            NEEDS,
            body(|ctx| {
                Box::pin(pod_is_accounted(
                    ctx,
                    ResourceRequest::Limits(Resources::literal("500m 100Mi")),
                    false,
                ))
            }),
        ),
        scenario(
            "tu/besteffort",
            NEEDS,
            body(|ctx| Box::pin(pod_is_accounted(ctx, ResourceRequest::Nothing, false))),
        ),
    ]
}

async fn objects(ctx: &Context) -> Result<Vec<NodeResourceTopology>, StepError> {
    let all = Api::<NodeResourceTopology>::all(ctx.client());
    let found = all.list(&ListParams::default()).await?.items;
    if found.is_empty() {
        return Err(StepError::fail("no node has an NRT"));
    }
    Ok(found)
}

/// Returns some node that scenarios can use.
pub(super) async fn some_node(ctx: &Context) -> Result<NodeTopology, StepError> {
    let settled = ctx.settle().await?;
    let node = settled
        .into_iter()
        .find(|node| crate::facts::is_candidate(node, None));
    node.ok_or_else(|| StepError::fail("no node has two zones and policy single-numa-node"))
}

fn fingerprint(node: &NodeTopology) -> Result<String, StepError> {
    node.attribute(attributes::POD_FINGERPRINT)
        .map(str::to_owned)
        .ok_or_else(|| StepError::fail(format!("the NRT of {} has no fingerprint", node.node)))
}

async fn fingerprint_is_there(ctx: &Context) -> Result<(), StepError> {
    ctx.step("each NRT has a fingerprint, twice the same", async {
        for object in objects(ctx).await? {
            let name = object.name_any();
            let annotation = object
                .annotations()
                .get(annotations::POD_FINGERPRINT)
                .cloned()
                .unwrap_or_default();
            if !annotation.starts_with("pfp0") {
                return Err(StepError::mismatch(
                    format!("annotation of the NRT of {name}"),
                    "pfp0...",
                    annotation,
                ));
            }
            let attribute = object
                .attributes
                .iter()
                .find(|attribute| attribute.name == attributes::POD_FINGERPRINT)
                .map_or("", |attribute| &attribute.value);
            if attribute != annotation {
                return Err(StepError::mismatch(
                    format!("attribute of the NRT of {name}"),
                    annotation,
                    attribute,
                ));
            }
        }
        Ok(())
    })
    .await
}

async fn method_is_known(ctx: &Context) -> Result<(), StepError> {
    ctx.step("each NRT names a method that exists", async {
        for node in ctx.topologies().await? {
            match node.attribute(attributes::POD_FINGERPRINT_METHOD) {
                Some("all" | "with-exclusive-resources") => {}
                seen => {
                    return Err(StepError::mismatch(
                        format!("method of {}", node.node),
                        "all or with-exclusive-resources",
                        seen.unwrap_or("none"),
                    ));
                }
            }
        }
        Ok(())
    })
    .await
}

async fn fingerprint_is_stable(ctx: &Context) -> Result<(), StepError> {
    let node = ctx.step("the cluster is settled", some_node(ctx)).await?;
    let before = fingerprint(&node)?;
    ctx.step("the exporter looked again and says the same", async {
        ctx.barrier(&node).await?;
        let after = fingerprint(&ctx.topology(&node.node).await?)?;
        if after == before {
            Ok(())
        } else {
            Err(StepError::mismatch(
                "the fingerprint changed",
                before,
                after,
            ))
        }
    })
    .await
}

async fn fingerprint_changes(ctx: &Context) -> Result<(), StepError> {
    let node = ctx.step("the cluster is settled", some_node(ctx)).await?;
    let before = fingerprint(&node)?;
    let resources = ResourceRequest::Limits(Resources::literal("1c 100Mi"));
    let plan = PodPlan::new("testpod", "", [resources]).bound_to(&node.node);
    let with_pod = ctx
        .step(
            "a pod with an exclusive CPU changes the fingerprint",
            async {
                ctx.create(plan.pod()).await?;
                ctx.pods_running(&[plan.name().to_owned()]).await?;
                other_fingerprint(ctx, &node.node, &before).await
            },
        )
        .await?;
    ctx.step("its deletion changes it again", async {
        ctx.delete::<Pod>(plan.name()).await?;
        other_fingerprint(ctx, &node.node, &with_pod).await?;
        ctx.restored(&node).await
    })
    .await
}

async fn other_fingerprint(ctx: &Context, node: &str, than: &str) -> Result<String, StepError> {
    let what = format!("the fingerprint of {node} is another");
    ctx.until(&what, ctx.deadlines().settled, async || {
        let now = fingerprint(&ctx.topology(node).await?)?;
        Ok(if now == than {
            PollResult::NotYet(format!("it is still {now}"))
        } else {
            PollResult::Ready(now)
        })
    })
    .await
}

async fn devices_are_shown(ctx: &Context) -> Result<(), StepError> {
    let sample = SAMPLE_DEVICES.into_iter().map(str::to_owned);
    let named: BTreeSet<String> = sample
        .chain(ctx.facts().devices.0.values().cloned())
        .collect();
    let is_meant = |name: &str| name.starts_with(NUMACELL) || named.contains(name);
    let nodes = ctx
        .step("kubelets have devices", async {
            let nodes = Api::<Node>::all(ctx.client());
            let all = nodes.list(&ListParams::default()).await?.items;
            let topologies = &ctx.facts().nodes;
            let has_exporter =
                |node: &&Node| topologies.iter().any(|one| one.node == node.name_any());
            let amounts = all.iter().filter(has_exporter).map(|node| {
                let devices = allocatable(node).filtered(|name, milli| milli > 0 && is_meant(name));
                (node.name_any(), devices)
            });
            let nodes: Vec<_> = amounts.filter(|(_, devices)| !devices.is_empty()).collect();
            if nodes.is_empty() {
                let names: Vec<_> = named.iter().map(String::as_str).collect();
                return Err(StepError::Skip(format!(
                    "no node's status has {} or a numacell",
                    names.join(", ")
                )));
            }
            Ok(nodes)
        })
        .await?;
    for (node, devices) in nodes {
        let title = format!("the zones of {node} have {devices}");
        ctx.step(
            title,
            ctx.until(
                "they have all of it, and no more",
                ctx.deadlines().settled,
                async || {
                    let topology = ctx.topology(&node).await?;
                    let zones = topology.zones.iter().map(Zone::allocatable);
                    let seen = Resources::sum(&zones.collect::<Vec<_>>());
                    let seen = seen.filtered(|name, _| is_meant(name));
                    Ok(if seen == devices {
                        PollResult::Ready(())
                    } else {
                        PollResult::NotYet(format!("they have {seen}"))
                    })
                },
            ),
        )
        .await?;
    }
    Ok(())
}

async fn object_is_valid(ctx: &Context) -> Result<(), StepError> {
    for object in ctx.step("there are NRTs", objects(ctx)).await? {
        let name = object.name_any();
        ctx.step(format!("the NRT of {name} is valid"), async {
            match form::flaw(&object) {
                None => Ok(()),
                Some(flaw) => Err(StepError::fail(format!("the NRT of {name} {flaw}"))),
            }
        })
        .await?;
    }
    Ok(())
}

/// Checks that a pod takes CPUs from a zone, or from none.
async fn pod_is_accounted(
    ctx: &Context,
    resources: ResourceRequest,
    takes: bool,
) -> Result<(), StepError> {
    let before = ctx.step("the cluster is settled", some_node(ctx)).await?;
    let cpus = |node: &NodeTopology| node.available().milli("cpu");
    let plan = PodPlan::new("testpod", "", [resources]).bound_to(&before.node);
    ctx.step("the pod runs", async {
        ctx.create(plan.pod()).await?;
        ctx.pods_running(&[plan.name().to_owned()]).await
    })
    .await?;
    let title = if takes {
        "a zone has fewer CPUs available"
    } else {
        "the exporter has seen the pod and no zone has fewer CPUs available"
    };
    ctx.step(title, async {
        if !takes {
            ctx.barrier(&before).await?;
        }
        let after = ctx.settled_on(&before.node).await?;
        if (cpus(&after) < cpus(&before)) == takes {
            return Ok(());
        }
        Err(StepError::mismatch(
            "available CPUs, in thousandths",
            format!(
                "{} than {}",
                if takes { "less" } else { "not less" },
                cpus(&before)
            ),
            zones_difference(&before, &after).unwrap_or_else(|| "no difference".to_owned()),
        ))
    })
    .await
}
