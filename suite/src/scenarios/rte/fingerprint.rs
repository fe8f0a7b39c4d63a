//! What a fingerprint proves: the zones account for exactly its pods. The scheduler drops its own, pessimistic charge for a pod as soon as
//! the pod is in a published fingerprint. Not in the catalogue: the original does not guarantee this, because a kubelet lists a pod while
//! it still assigns resources to the pod.

use std::collections::BTreeMap;

use api::attributes;
use api::nrt::v1alpha2::NodeResourceTopology;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};

use super::NEEDS;
use crate::context::Context;
use crate::context::padding::NUMACELL;
use crate::context::settle::{counted, fingerprint};
use crate::observed::NodeTopology;
use crate::resources::Resources;
use crate::scenario::{Scenario, body};
use crate::scenarios::registry::scenario;
use crate::step::StepError;
use crate::workload::{PodPlan, ResourceRequest};

/// Number of pods that are created at once, and number of rounds.
const PODS: usize = 5;
const ROUNDS: usize = 3;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![scenario(
        "rte/pfp-proves",
        NEEDS,
        body(|ctx| Box::pin(fingerprints_prove(ctx))),
    )]
}

async fn fingerprints_prove(ctx: &Context) -> Result<(), StepError> {
    let mut versions = 0;
    for round in 1..=ROUNDS {
        let before = ctx
            .step(format!("round {round}: the cluster is settled"), async {
                let settled = ctx.settle().await?;
                let node = settled
                    .into_iter()
                    .find(|node| crate::facts::is_candidate(node, None));
                node.ok_or_else(|| {
                    StepError::fail("no node has two zones and policy single-numa-node")
                })
            })
            .await?;
        let others = counted(&before, &pods(ctx).await?);
        let requests = requests(&before)?;
        let plans: Vec<PodPlan> = (0..PODS)
            .map(|index| {
                let name = format!("testpod-{round}-{index}");
                PodPlan::new(&name, "", requests.clone()).bound_to(&before.node)
            })
            .collect();
        let after = ctx
            .step(
                format!("round {round}: {PODS} pods with devices and CPUs run"),
                run(ctx, &plans, &before.node),
            )
            .await?;
        let possible = possible(ctx, &before, &others, &plans);
        ctx.step(
            format!("round {round}: each NRT accounts for the pods of its fingerprint"),
            async {
                for version in versions_between(ctx, &before, &after).await? {
                    proves(&version, &possible)?;
                    versions += 1;
                }
                Ok(())
            },
        )
        .await?;
        for plan in &plans {
            ctx.delete::<Pod>(plan.name()).await?;
        }
        ctx.restored(&before).await?;
    }
    ctx.recorder
        .saw(format!("{versions} versions in {ROUNDS} rounds"));
    Ok(())
}

async fn pods(ctx: &Context) -> Result<Vec<Pod>, StepError> {
    let all = Api::<Pod>::all(ctx.client());
    Ok(all.list(&ListParams::default()).await?.items)
}

/// Returns the requests of two containers, the first one with a device, too: the kubelet assigns resources to one after the other.
fn requests(node: &NodeTopology) -> Result<[ResourceRequest; 2], StepError> {
    let mut names = node.zones.iter().flat_map(|zone| zone.resources.keys());
    let device = names.find(|name| name.starts_with(NUMACELL));
    let device =
        device.ok_or_else(|| StepError::fail(format!("{} has no numacell devices", node.node)))?;
    let plain = Resources::literal("1c 32Mi");
    let with_device = plain.plus(&Resources::from_iter([(device.clone(), 1000)]));
    Ok([
        ResourceRequest::Limits(with_device),
        ResourceRequest::Limits(plain),
    ])
}

/// Starts all pods and returns the NRT that accounts for them.
async fn run(ctx: &Context, plans: &[PodPlan], node: &str) -> Result<NodeTopology, StepError> {
    for plan in plans {
        ctx.create(plan.pod()).await?;
    }
    let names: Vec<String> = plans.iter().map(|plan| plan.name().to_owned()).collect();
    ctx.pods_running(&names).await?;
    ctx.settled_on(node).await
}

/// Returns what is available with each subset of the pods, by the fingerprint of the subset, because a kubelet may admit them in any order.
fn possible(
    ctx: &Context,
    before: &NodeTopology,
    others: &[(String, String)],
    plans: &[PodPlan],
) -> BTreeMap<String, Resources> {
    let available = before.available();
    (0_usize..1 << plans.len())
        .map(|set| {
            let chosen = plans.iter().enumerate();
            let chosen = chosen.filter(|(index, _)| set & (1 << index) != 0);
            let mut names = others.to_vec();
            let mut held = Resources::new();
            for (_, plan) in chosen {
                names.push((ctx.namespace.clone(), plan.name().to_owned()));
                held.add(&plan.total());
            }
            let left = available
                .iter()
                .filter(|(name, _)| plans.iter().any(|plan| plan.total().has(name)))
                .map(|(name, milli)| (name.to_owned(), milli - held.milli(name)));
            (fingerprint(&names), left.collect())
        })
        .collect()
}

/// Returns all versions of a node's NRT after the first one up to the last one.
async fn versions_between(
    ctx: &Context,
    first: &NodeTopology,
    last: &NodeTopology,
) -> Result<Vec<NodeTopology>, StepError> {
    let objects = Api::<NodeResourceTopology>::all(ctx.client());
    let only = WatchParams::default()
        .fields(&format!("metadata.name={}", first.node))
        .timeout(60);
    let mut events = objects.watch(&only, &first.resource_version).await?.boxed();
    let mut versions = Vec::new();
    while let Some(event) = events.next().await {
        let object = match event? {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => object,
            WatchEvent::Error(status) => return Err(kube::Error::Api(status).into()),
            WatchEvent::Deleted(_) => return Err(StepError::fail("the NRT was deleted")),
            WatchEvent::Bookmark(_) => continue,
        };
        let version = NodeTopology::read(&object).map_err(|error| {
            StepError::fail(format!(
                "the NRT of {} is not readable: {error}",
                first.node
            ))
        })?;
        let is_last = version.resource_version == last.resource_version;
        versions.push(version);
        if is_last {
            return Ok(versions);
        }
    }
    Err(StepError::fail("the watch of the NRT ended too early"))
}

/// Checks that a version has the amounts that belong to its fingerprint.
fn proves(version: &NodeTopology, possible: &BTreeMap<String, Resources>) -> Result<(), StepError> {
    let published = version.attribute(attributes::POD_FINGERPRINT).unwrap_or("");
    let Some(expected) = possible.get(published) else {
        return Err(StepError::mismatch(
            format!("the fingerprint of {}", version.node),
            "that of some of the pods",
            published,
        ));
    };
    let seen = version.available().filtered(|name, _| expected.has(name));
    if seen == *expected {
        return Ok(());
    }
    Err(StepError::mismatch(
        format!("available on {} with fingerprint {published}", version.node),
        expected,
        seen,
    ))
}
