//! Pods that fit run, although the cache charges more than they take until an NRT is published. Pods that do not fit stay pending
//! (scenarios-serial.md 9.1).
//!
//! The catalogue counts for two nodes. Here every number grows with the nodes, so that the load on each zone is the same.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;

use crate::context::Context;
use crate::context::arena::{Arena, Fit};
use crate::context::checks::{node_of, phase};
use crate::needs::Need;
use crate::observed::{NodeTopology, Zone};
use crate::recorder::PollResult;
use crate::resources::Resources;
use crate::scenario::{Scenario, body};
use crate::scenarios::load::{self, MEMORY, zone_cpus};
use crate::scenarios::registry::scenario;
use crate::scenarios::steps;
use crate::step::StepError;
use crate::workload::{PodPlan, ResourceRequest};

const NEEDS: &[Need] = &[Need::nodes(2), Need::CacheResync];
const WITH_DEVICE: &[Need] = &[Need::nodes(2), Need::CacheResync, Need::Device("d3")];
/// Label of the pods that another scheduler places.
const INTERFERES: &str = "e2e.test.openshift-kni.io/scheduler-interference";
/// The scheduler that comes with Kubernetes.
const DEFAULT_SCHEDULER: &str = "default-scheduler";
/// Limit of the catalogue for pods that the cache may keep pending while another scheduler interferes.
const INTERFERED: Duration = Duration::from_mins(5);
/// Pods that fill a machine.
struct Load {
    pods_per_zone: i64,
    /// One of this many pods is placed by the default scheduler.
    ratio: usize,
    to_request: fn(Resources) -> ResourceRequest,
    short: &'static str,
}

static GUARANTEED: Load = Load {
    pods_per_zone: 2,
    ratio: 2,
    to_request: ResourceRequest::Limits,
    short: "gu",
};

static BURSTABLE: Load = Load {
    pods_per_zone: 4,
    ratio: 5,
    to_request: ResourceRequest::Requests,
    short: "bu",
};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario(
            "cache/overreserve-corrected",
            NEEDS,
            body(|ctx| Box::pin(overreserve_corrected(ctx))),
        ),
        scenario(
            "cache/interference-gu",
            NEEDS,
            body(|ctx| Box::pin(interference(ctx, &GUARANTEED))),
        ),
        scenario(
            "cache/interference-bu",
            NEEDS,
            body(|ctx| Box::pin(interference(ctx, &BURSTABLE))),
        ),
        scenario(
            "cache/non-fitting-stays-pending",
            WITH_DEVICE,
            body(|ctx| Box::pin(non_fitting_stays_pending(ctx))),
        ),
        scenario(
            "cache/unblocked-on-delete",
            WITH_DEVICE,
            body(|ctx| Box::pin(unblocked_on_delete(ctx))),
        ),
    ]
}

async fn arena(ctx: &Context) -> Result<Arena, StepError> {
    let title = format!("two nodes have a zone with {MEMORY}");
    let fit = Fit::Zone(Resources::literal(&format!("1c {MEMORY}")));
    let arena = ctx.step(title, ctx.arena(None, 2, &fit)).await?;
    ctx.step("the cluster is settled", ctx.settle()).await?;
    Ok(arena)
}

async fn overreserve_corrected(ctx: &Context) -> Result<(), StepError> {
    let arena = arena(ctx).await?;
    load::one_for_each_zone(ctx, &arena, "ovrfix-pod").await
}

/// Computes the CPUs of each pod: whole cores, 6 tenths of an equal share of the zone. The divisions are those of the catalogue.
fn cpus(zone_cpus: i64, pods_per_zone: i64) -> i64 {
    const THREADS: i64 = 2;
    zone_cpus / THREADS / pods_per_zone * 6 / 10 * THREADS
}

async fn interference(ctx: &Context, load: &Load) -> Result<(), StepError> {
    let arena = arena(ctx).await?;
    let cpus = cpus(zone_cpus(&arena), load.pods_per_zone);
    let request = Resources::literal(&format!("{cpus}c {MEMORY}"));
    let count = 2 * arena.nodes().len() * usize::try_from(load.pods_per_zone).unwrap_or_default();
    let mut names = Vec::new();
    let mut ours = BTreeSet::new();
    let title = format!(
        "{count} pods are created, one in {} for {DEFAULT_SCHEDULER}",
        load.ratio
    );
    ctx.step(title, async {
        let mut pods = Vec::new();
        for index in 0..count {
            let name = format!("ovrfix-pod-{}-{index}", load.short);
            let interferes = index.is_multiple_of(load.ratio);
            let (scheduler, resources) = if interferes {
                (DEFAULT_SCHEDULER, (load.to_request)(request.clone()))
            } else {
                ours.insert(name.clone());
                (ctx.scheduler(), ResourceRequest::Limits(request.clone()))
            };
            let mut pod = arena
                .confine(PodPlan::new(&name, scheduler, [resources]))
                .pod();
            if interferes {
                let marks = pod.metadata.annotations.get_or_insert_default();
                marks.insert(INTERFERES.to_owned(), "true".to_owned());
            }
            pods.push(pod);
            names.push(name);
        }
        ctx.create_all(pods).await
    })
    .await?;
    let title = format!("all of them run within {} s", INTERFERED.as_secs());
    let mut pods = ctx
        .step(title, ctx.pods_running_within(&names, INTERFERED))
        .await?;
    pods.retain(|pod| {
        pod.metadata
            .name
            .as_ref()
            .is_some_and(|name| ours.contains(name))
    });
    steps::stack_placed_all(ctx, &pods).await
}

/// Creates one pod more than there are nodes. By sums each node has room for two: for their CPUs, and for a device each. But only one zone has
/// devices, and a pod takes more than half of its CPUs, so that only a scheduler that knows zones lets the last pod wait. Returns the pods
/// that run and the name of the one that stays pending.
async fn one_too_many(
    ctx: &Context,
    name: &str,
    tenths: i64,
) -> Result<(Vec<Pod>, String), StepError> {
    let arena = one_zone_with_devices(ctx).await?;
    let cpus = zone_cpus(&arena) * tenths / 10;
    let devices = &ctx.facts().devices;
    let request = Resources::literal(&format!("d3=1 {cpus}c {MEMORY}")).with_devices(devices);
    let names: Vec<String> = (0..=arena.nodes().len())
        .map(|index| format!("{name}-{index}"))
        .collect();
    let title = format!(
        "of {} pods all but one run, each on a node of its own",
        names.len()
    );
    let running = ctx
        .step(title, async {
            for name in &names {
                let resources = ResourceRequest::Limits(request.clone());
                ctx.create(arena.plan(ctx, name, [resources]).pod()).await?;
            }
            all_but_one(ctx, &names).await
        })
        .await?;
    steps::stack_placed_all(ctx, &running).await?;
    let runs: BTreeSet<_> = running
        .iter()
        .filter_map(|pod| pod.metadata.name.as_deref())
        .collect();
    let Some(left) = names.iter().find(|name| !runs.contains(name.as_str())) else {
        return Err(StepError::fail("no pod is left"));
    };
    let left = left.clone();
    ctx.step(
        format!("{left} stays pending"),
        ctx.stay_pending(std::slice::from_ref(&left), "cannot align"),
    )
    .await?;
    Ok((running, left))
}

/// Takes nodes that have three devices in one of their zones, and pods that hold those of the other zones.
async fn one_zone_with_devices(ctx: &Context) -> Result<Arena, StepError> {
    let devices = &ctx.facts().devices;
    let wanted = Resources::literal(&format!("d3=3 1c {MEMORY}")).with_devices(devices);
    let none = Resources::literal("d3=0").with_devices(devices);
    let arena = ctx
        .step(format!("two nodes have one zone with {wanted}"), async {
            let arena = ctx.arena(None, 2, &Fit::Zone(wanted.clone())).await?;
            let there = |zone: &&Zone| wanted.fits_in(&zone.available());
            let odd = |node: &&NodeTopology| node.zones.iter().filter(there).count() != 1;
            match arena.nodes().iter().find(odd) {
                None => Ok(arena),
                Some(node) => {
                    let reason = format!("{} has more zones like that", node.node);
                    Err(StepError::Skip(reason))
                }
            }
        })
        .await?;
    ctx.step("no other zone has a device left", async {
        let mut pads = Vec::new();
        for node in arena.nodes() {
            let left = node.zones.iter().map(|zone| {
                let has_room = wanted.fits_in(&zone.available());
                let lists_it = none.iter().all(|(name, _)| zone.available().has(name));
                if lists_it && !has_room {
                    none.clone()
                } else {
                    Resources::new()
                }
            });
            let left: Vec<Resources> = left.collect();
            pads.extend(ctx.pad(node, &left, "devices").await?);
        }
        ctx.padded(&pads).await
    })
    .await?;
    Ok(arena)
}

/// Waits until all of these pods but one run, and returns those.
async fn all_but_one(ctx: &Context, names: &[String]) -> Result<Vec<Pod>, StepError> {
    let what = format!("{} of {} pods run", names.len() - 1, names.len());
    ctx.until(&what, ctx.deadlines().running, async || {
        let mut running = Vec::new();
        for name in names {
            let pod = ctx.pod(name).await?;
            match phase(&pod) {
                "Running" => running.push(pod),
                "Pending" => {}
                other => {
                    return Err(StepError::mismatch(
                        format!("pod {name} was refused"),
                        "Running or Pending",
                        other,
                    ));
                }
            }
        }
        let nodes: BTreeSet<_> = running.iter().filter_map(node_of).collect();
        if nodes.len() < running.len() {
            return Err(StepError::mismatch(
                "pods share a node that has room for one",
                format!("{} nodes", running.len()),
                format!("{nodes:?}"),
            ));
        }
        Ok(if running.len() + 1 == names.len() {
            PollResult::Ready(running)
        } else {
            PollResult::NotYet(format!("{} run", running.len()))
        })
    })
    .await
}

async fn non_fitting_stays_pending(ctx: &Context) -> Result<(), StepError> {
    one_too_many(ctx, "keep-pnd-pod", 7).await.map(drop)
}

async fn unblocked_on_delete(ctx: &Context) -> Result<(), StepError> {
    let (running, left) = one_too_many(ctx, "cache-awk-pod", 6).await?;
    let Some(gone) = running.first().and_then(|pod| pod.metadata.name.clone()) else {
        return Err(StepError::fail("no pod runs"));
    };
    ctx.step(format!("{gone} is deleted"), ctx.delete::<Pod>(&gone))
        .await?;
    let pods = ctx
        .step(
            format!("{left} runs, too"),
            ctx.pods_running_within(&[left], INTERFERED),
        )
        .await?;
    steps::stack_placed_all(ctx, &pods).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfering_pods_are_as_large_as_in_the_catalogue() {
        assert_eq!(cpus(22, 2), 6);
        assert_eq!(cpus(22, 4), 2);
        assert_eq!(cpus(80, 2), 24);
    }
}
