//! Padding: Guaranteed pods that leave exactly the required amounts in a zone (scenarios-serial.md 7.5, 7.6).

use std::collections::BTreeMap;

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::ListParams;
use thiserror::Error;

use crate::context::Context;
use crate::context::arena::Arena;
use crate::context::checks::{describe, phase};
use crate::observed::{NodeTopology, Zone};
use crate::recorder::PollResult;
use crate::resources::{CPU, MEMORY, Resources};
use crate::step::StepError;
use crate::workload::{PodPlan, ResourceRequest};

/// Prefix of the resources of the numacell device plugin; the zone's number follows, with two digits.
pub const NUMACELL: &str = "kni.node/numacell";
/// Scheduler of the padding pods. Each of them names its node, so no scheduler's choice is tested.
const SCHEDULER: &str = "default-scheduler";
/// How often a padding pod that its kubelet refused is created again.
const MAX_RECREATIONS: usize = 3;

/// Why a zone cannot be padded.
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
    /// The zone has less than the padding should leave.
    #[error(
        "zone {zone} has {available} available, less than the {free} that the padding should leave"
    )]
    TooSmall {
        /// Name of the zone.
        zone: String,
        /// What the zone has.
        available: String,
        /// What the padding should leave.
        free: String,
    },
}

/// A padding pod, and what it leaves.
#[derive(Clone, Debug)]
pub struct Pad {
    plan: PodPlan,
    node: String,
    zone: String,
    /// What the zone has available when the pod runs.
    left: Resources,
    /// Whether the pod holds CPUs and memory exclusively. Without both it is not Guaranteed and the zone does not change.
    exclusive: bool,
}

/// Returns what a pod must take so that the zone has exactly `free` left. Resources that `free` does not name do not change.
pub fn amounts_to_pad(zone: &Zone, free: &Resources) -> Result<Resources, Error> {
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

/// Returns what should be left in each zone. The base load is added to the first zone, because the scheduler counts it although no zone
/// does (7.2).
pub fn with_base_load(free: &[Resources], base: &Resources) -> Vec<Resources> {
    let mut free = free.to_vec();
    if let Some(first) = free.first_mut() {
        let named = base.core().filtered(|name, _| first.has(name));
        first.add(&named);
    }
    free
}

/// Returns the list with a device that only this zone has, so that the kubelet takes all of it from there.
pub fn pinned_to(list: &Resources, zone: u32) -> Resources {
    let mut pinned = list.clone();
    pinned.set(&format!("{NUMACELL}{zone:02}"), 1000);
    pinned
}

/// Returns what is left where both zones of a node are left the same.
pub fn in_both_zones(free: &Resources) -> [Resources; 2] {
    [free.clone(), free.clone()]
}

impl Context {
    /// Pads the zones of a node to leave `free[i]` in zone `i` (plus the node's base load in zone 0). Zones beyond the list do not
    /// change.
    pub async fn pad(
        &self,
        node: &NodeTopology,
        free: &[Resources],
        tag: &str,
    ) -> Result<Vec<Pad>, StepError> {
        let base = self.base_load(&node.node).await?;
        let mut pads = Vec::new();
        for (zone, free) in node.zones.iter().zip(with_base_load(free, &base)) {
            let take = amounts_to_pad(zone, &free)
                .map_err(|error| StepError::fail(format!("cannot pad {}: {error}", node.node)))?;
            if take.is_empty() {
                continue;
            }
            let pod = format!("padpod-{}-{}-{tag}", node.node, zone.id);
            let limits = ResourceRequest::Limits(pinned_to(&take, zone.id));
            let plan = PodPlan::new(&pod, SCHEDULER, [limits])
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

    /// Waits until all padding runs, the cluster is settled, and each zone has exactly what should be left.
    ///
    /// A settled cluster is not enough: a kubelet lists a pod shortly before it assigns resources to the pod, so an NRT can have the
    /// fingerprint of the padding and still the amounts from before. Nor is padding that ran once: a kubelet that starts again may refuse it
    /// then.
    pub async fn padded(&self, pads: &[Pad]) -> Result<Vec<NodeTopology>, StepError> {
        let mut refused = vec![0; pads.len()];
        let limit = self.deadlines().running;
        self.until("all padding runs", limit, async || {
            let missing = self.missing_padding(pads, &mut refused).await?;
            Ok(missing.map_or(PollResult::Ready(()), PollResult::NotYet))
        })
        .await?;
        self.settle().await?;
        let limit = self.deadlines().settled;
        self.until(
            "each padded zone has exactly what is to be left",
            limit,
            async || {
                if let Some(missing) = self.missing_padding(pads, &mut refused).await? {
                    return Ok(PollResult::NotYet(missing));
                }
                let nodes = self.topologies().await?;
                for pad in pads {
                    let mut zones = nodes
                        .iter()
                        .filter(|node| node.node == pad.node)
                        .flat_map(|node| &node.zones);
                    let Some(zone) = zones.find(|zone| zone.name == pad.zone) else {
                        return Err(StepError::fail(format!(
                            "zone {} of {} is gone",
                            pad.zone, pad.node
                        )));
                    };
                    let available = zone.available().filtered(|name, _| pad.left.has(name));
                    if available != pad.left {
                        return Ok(PollResult::NotYet(format!(
                            "the padding of {} {} (exclusive: {}) left {available} instead of {}",
                            pad.node, pad.zone, pad.exclusive, pad.left
                        )));
                    }
                }
                Ok(PollResult::Ready(nodes))
            },
        )
        .await
    }

    /// Deletes padding pods and waits until the cluster is settled.
    pub async fn unpad(&self, pads: &[Pad]) -> Result<Vec<NodeTopology>, StepError> {
        for pad in pads {
            self.delete::<Pod>(pad.plan.name()).await?;
        }
        self.settle().await
    }

    /// Returns what is seen of padding that does not run, and creates it again where its kubelet refused it: `refused` counts how often.
    ///
    /// A kubelet that has just started refuses pods that request devices until their plugins have registered again (kubelet-node.md 8.3). No
    /// controller creates a bare pod again, so this function does: padding is a precondition of a scenario, not what it tests.
    async fn missing_padding(
        &self,
        pads: &[Pad],
        refused: &mut [usize],
    ) -> Result<Option<String>, StepError> {
        let pods = self.api::<Pod>();
        let there = pods.list(&ListParams::default()).await?;
        let there: BTreeMap<String, Pod> =
            there.into_iter().map(|pod| (pod.name_any(), pod)).collect();
        let mut missing = None;
        for (pad, refused) in pads.iter().zip(refused) {
            let name = pad.plan.name();
            let seen = match there.get(name) {
                Some(pod) if phase(pod) == "Running" => continue,
                Some(pod) if phase(pod) == "Failed" => {
                    let seen = describe(pod);
                    *refused += 1;
                    if *refused > MAX_RECREATIONS {
                        let message = format!("padding was refused {refused} times");
                        return Err(StepError::mismatch(message, "Running", seen));
                    }
                    self.recorder.note(&format!("{seen}; it is created again"));
                    self.delete::<Pod>(name).await?;
                    self.create(pad.plan.pod()).await?;
                    seen
                }
                // it was created again, but the request or the answer was lost
                None => {
                    self.create(pad.plan.pod()).await?;
                    format!("{name} is missing")
                }
                Some(pod) => describe(pod),
            };
            missing.get_or_insert(seen);
        }
        Ok(missing)
    }

    /// Pads nodes one after another to leave the same amounts in each of them. Does not wait until the padding runs.
    pub async fn pad_each<'a>(
        &self,
        nodes: impl IntoIterator<Item = &'a NodeTopology>,
        free: &[Resources],
        tag: &str,
    ) -> Result<Vec<Pad>, StepError> {
        let mut pads = Vec::new();
        for node in nodes {
            pads.extend(self.pad(node, free, tag).await?);
        }
        Ok(pads)
    }

    /// Pads the target to leave the first amounts, and every other node to leave the others, and waits. `tag` is that of the others'
    /// padding.
    pub async fn pad_target_and_others(
        &self,
        arena: &Arena,
        target: &[Resources],
        others: &[Resources],
        tag: &str,
    ) -> Result<Vec<NodeTopology>, StepError> {
        let mut pads = self.pad(arena.target(), target, "target").await?;
        pads.extend(self.pad_each(arena.others(), others, tag).await?);
        self.padded(&pads).await
    }

    /// Pads every node but the target to leave the same amounts in each zone, and waits.
    pub async fn pad_others(
        &self,
        arena: &Arena,
        free: &Resources,
    ) -> Result<Vec<NodeTopology>, StepError> {
        let free = in_both_zones(free);
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
        Err(
            "zone node-0 has cpu=22 available, less than the cpu=23 that the padding should leave"
        )
    )]
    #[case("d2=1", Err("resource d2 not found in zone node-0"))]
    fn padding_takes_all_but_what_is_to_be_left(
        #[case] free: &str,
        #[case] expected: Result<&str, &str>,
    ) {
        let zone = &node("n", &["22c 60Gi d1=5"]).zones[0];
        let take = amounts_to_pad(zone, &Resources::literal(free));
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
