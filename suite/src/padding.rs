//! Padding: Guaranteed pods that leave exactly the wanted amounts in a zone (scenarios-serial.md 7.5, 7.6).

use std::collections::BTreeMap;

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::ListParams;
use thiserror::Error;

use crate::arena::Arena;
use crate::checks::{describe, phase};
use crate::context::Context;
use crate::observed::{NodeTopology, Zone};
use crate::recorder::Look;
use crate::resources::{CPU, MEMORY, Resources};
use crate::scenario::Stop;
use crate::workload::{Asks, PodPlan};

/// Prefix of the resources of the numacell device plugin; the zone's number follows, with two digits.
pub const NUMACELL: &str = "kni.node/numacell";
/// Scheduler of the padding: it is told the node, so nobody's choice is tested.
const SCHEDULER: &str = "default-scheduler";
/// How often a padding pod that its kubelet refused is made again.
const MADE_AGAIN: usize = 3;

/// A zone cannot be padded so.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Error {
    /// The zone does not have the resource.
    #[error("resource {resource} not found in zone {zone}")]
    Missing {
        /// Name of the resource.
        resource: String,
        /// Name of the zone.
        zone: String,
    },
    /// The zone has less than what is to be left.
    #[error("zone {zone} has {available} available, less than the {free} to be left")]
    TooSmall {
        /// Name of the zone.
        zone: String,
        /// What it has.
        available: String,
        /// What is to be left.
        free: String,
    },
}

/// A padding pod, and what it leaves.
#[derive(Clone, Debug)]
pub struct Pad {
    plan: PodPlan,
    node: String,
    zone: String,
    /// What the zone has available afterwards.
    left: Resources,
    /// Whether the pod holds CPUs and memory exclusively; without both it is not Guaranteed and the zone does not change.
    exclusive: bool,
}

/// What a pod must take for the zone to have exactly `free` left; resources that `free` does not name are left alone.
pub fn to_take(zone: &Zone, free: &Resources) -> Result<Resources, Error> {
    let available = zone.available();
    let mut take = Resources::new();
    for (resource, milli) in free.zone_level().iter() {
        if !available.has(resource) {
            return Err(Error::Missing {
                resource: resource.to_owned(),
                zone: zone.name.clone(),
            });
        }
        let pad = available.milli(resource) - milli;
        if pad < 0 {
            let one = |milli| Resources::from_iter([(resource.to_owned(), milli)]).to_string();
            return Err(Error::TooSmall {
                zone: zone.name.clone(),
                available: one(available.milli(resource)),
                free: one(milli),
            });
        }
        if pad > 0 {
            take.set(resource, pad);
        }
    }
    Ok(take)
}

/// What is to be left in each zone, the base load added to the first, as the scheduler counts it although no zone does (7.2).
pub fn with_base_load(free: &[Resources], base: &Resources) -> Vec<Resources> {
    let mut free = free.to_vec();
    if let Some(first) = free.first_mut() {
        let named = base.core().filtered(|name, _| first.has(name));
        first.add(&named);
    }
    free
}

impl Context {
    /// Pads the zones of a node to leave `free[i]` in zone `i` (plus the node's base load in zone 0); zones beyond the list are
    /// left alone.
    pub async fn pad(
        &self,
        node: &NodeTopology,
        free: &[Resources],
        tag: &str,
    ) -> Result<Vec<Pad>, Stop> {
        let base = self.base_load(&node.node).await?;
        let mut pads = Vec::new();
        for (zone, free) in node.zones.iter().zip(with_base_load(free, &base)) {
            let take = to_take(zone, &free)
                .map_err(|error| Stop::fail(format!("cannot pad {}: {error}", node.node)))?;
            if take.is_empty() {
                continue;
            }
            let pod = format!("padpod-{}-{}-{tag}", node.node, zone.id);
            let mut limits = take.clone();
            limits.set(&format!("{NUMACELL}{:02}", zone.id), 1000);
            let plan = PodPlan::new(&pod, SCHEDULER, [Asks::Limits(limits)])
                .with_label("e2e-serial-pad-node", &node.node)
                .with_label("e2e-serial-pad-numazone", &zone.name)
                .on_nodes_with(api::labels::HOSTNAME, &node.node);
            self.create(plan.pod()).await?;
            let exclusive = take.has(CPU) && take.has(MEMORY);
            let left = if exclusive {
                free.zone_level()
            } else {
                free.zone_level().filtered(|name, _| name.contains('/'))
            };
            pads.push(Pad {
                plan,
                node: node.node.clone(),
                zone: zone.name.clone(),
                left,
                exclusive,
            });
        }
        Ok(pads)
    }

    /// Waits until all padding runs, the cluster is settled, and each zone has exactly what is to be left.
    ///
    /// Settled alone is not enough: a kubelet lists a pod a moment before it has given it anything, so that an NRT can have the
    /// fingerprint of the padding and still the amounts from before.
    pub async fn padded(&self, pads: &[Pad]) -> Result<Vec<NodeTopology>, Stop> {
        self.padding_runs(pads).await?;
        self.settle().await?;
        let limit = self.deadlines().settled;
        self.until(
            "each padded zone has exactly what is to be left",
            limit,
            async || {
                let nodes = self.topologies().await?;
                for pad in pads {
                    let mut zones = nodes
                        .iter()
                        .filter(|node| node.node == pad.node)
                        .flat_map(|node| &node.zones);
                    let Some(zone) = zones.find(|zone| zone.name == pad.zone) else {
                        return Err(Stop::fail(format!(
                            "zone {} of {} is gone",
                            pad.zone, pad.node
                        )));
                    };
                    let available = zone.available().filtered(|name, _| pad.left.has(name));
                    if available != pad.left {
                        return Ok(Look::NotYet(format!(
                            "the padding of {} {} (exclusive: {}) left {available} instead of {}",
                            pad.node, pad.zone, pad.exclusive, pad.left
                        )));
                    }
                }
                Ok(Look::Ready(nodes))
            },
        )
        .await
    }

    /// Takes padding away again, and waits until the cluster is settled.
    pub async fn unpad(&self, pads: &[Pad]) -> Result<Vec<NodeTopology>, Stop> {
        for pad in pads {
            self.delete::<Pod>(pad.plan.name()).await?;
        }
        self.settle().await
    }

    /// Waits until all padding runs.
    ///
    /// A kubelet that has just started refuses what asks for devices until their plugins have registered again (kubelet-node.md 8.3).
    /// Nobody makes a bare pod again, so this does: padding is the ground that a scenario stands on, not what it tests.
    async fn padding_runs(&self, pads: &[Pad]) -> Result<(), Stop> {
        let pods = self.api::<Pod>();
        let limit = self.deadlines().running;
        let mut refused = vec![0; pads.len()];
        self.until("all padding runs", limit, async || {
            let there = pods.list(&ListParams::default()).await?;
            let there: BTreeMap<String, Pod> =
                there.into_iter().map(|pod| (pod.name_any(), pod)).collect();
            let mut missing = None;
            for (pad, refused) in pads.iter().zip(&mut refused) {
                let name = pad.plan.name();
                let seen = match there.get(name) {
                    Some(pod) if phase(pod) == "Running" => continue,
                    Some(pod) if phase(pod) == "Failed" => {
                        let seen = describe(pod);
                        *refused += 1;
                        if *refused > MADE_AGAIN {
                            let message = format!("padding was refused {refused} times");
                            return Err(Stop::mismatch(message, "Running", seen));
                        }
                        self.recorder.tell(&format!("{seen}; it is made again"));
                        self.delete::<Pod>(name).await?;
                        self.create(pad.plan.pod()).await?;
                        seen
                    }
                    // made again, but the answer was lost, or the request
                    None => {
                        self.create(pad.plan.pod()).await?;
                        format!("{name} is missing")
                    }
                    Some(pod) => describe(pod),
                };
                missing.get_or_insert(seen);
            }
            Ok(missing.map_or(Look::Ready(()), Look::NotYet))
        })
        .await
    }

    /// Pads every node but the target to leave the same in each zone, and waits.
    pub async fn pad_others(
        &self,
        arena: &Arena,
        free: &Resources,
    ) -> Result<Vec<NodeTopology>, Stop> {
        let free = [free.clone(), free.clone()];
        let pads = arena.others().map(|node| self.pad(node, &free, "others"));
        let pads = try_join_all(pads).await?;
        self.padded(&pads.concat()).await
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::observed::tests::node;

    #[rstest]
    #[case("3c 3Gi", Ok("cpu=19 memory=57Gi"))]
    #[case("22c 60Gi", Ok("nothing"))]
    #[case("1500m", Ok("cpu=20500m"))]
    #[case("d1=1 eph=1Gi", Ok("d1=4"))]
    #[case(
        "23c",
        Err("zone node-0 has cpu=22 available, less than the cpu=23 to be left")
    )]
    #[case("d2=1", Err("resource d2 not found in zone node-0"))]
    fn padding_takes_all_but_what_is_to_be_left(
        #[case] free: &str,
        #[case] expected: Result<&str, &str>,
    ) {
        let zone = &node("n", &["22c 60Gi d1=5"]).zones[0];
        let take = to_take(zone, &Resources::literal(free));
        let texts = take
            .map(|list| list.to_string())
            .map_err(|error| error.to_string());
        assert_eq!(texts, expected.map(str::to_owned).map_err(str::to_owned));
    }

    #[test]
    fn the_base_load_stays_free_in_the_first_zone_only() {
        let free = [Resources::literal("1c 1Gi"), Resources::literal("1c 1Gi")];
        let padded = with_base_load(&free, &Resources::literal("2c 1Gi eph=1Gi d1=1"));
        assert_eq!(
            padded,
            [Resources::literal("3c 2Gi"), Resources::literal("1c 1Gi")]
        );
        let cpu_only = with_base_load(&[Resources::literal("1c")], &Resources::literal("2c 1Gi"));
        assert_eq!(cpu_only, [Resources::literal("3c")]);
    }
}
