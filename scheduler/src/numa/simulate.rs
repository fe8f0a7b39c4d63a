//! What the zones of a node would have left if some of its pods were evicted (scheduler.md 6).
//!
//! An NRT may publish the zone of each container. Only what is known to become free is added. Pods that no NRT accounts for yet stay
//! charged.

use std::collections::BTreeMap;
use std::sync::Arc;

use nrt::placement::{self, Container};
use topology::mask::ZoneId;
use topology::request::{Pod as Request, Qos};
use topology::resource::Resources;

use super::charge::is_zoned;
use super::held::HeldByPod;
use super::ledger::Ledger;
use super::settings::Settings;
use super::view::View;
use crate::state::pod::{Pod, PodKey};

/// Why it is unknown what would be left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The victims hold resources, but their zones are unknown.
    #[error("no resources to add, cannot process eviction simulation")]
    NothingToAdd,
    /// Pods are gone whose zones are still published as taken. They may leave enough room.
    #[error("pods that are gone are still accounted for")]
    NotReleased,
    /// More would be left than is allocatable.
    #[error("resource release request exceeds NUMA allocatable")]
    ExceedsAllocatable,
}

impl Ledger {
    /// Returns the view of the node as if `victims` were gone and `nominated` were there, see
    /// [`Cache::simulate`](crate::numa::cache::Cache::simulate).
    pub(crate) fn simulate(
        &self,
        settings: &Settings,
        victims: &[&Pod],
        nominated: &[Arc<Request>],
    ) -> Result<View, Error> {
        let (Some(base), View::Fresh(_)) = (self.base.nrt(), self.view()) else {
            return Ok(self.view().clone());
        };
        let holding: Vec<&Pod> = victims
            .iter()
            .copied()
            .filter(|victim| {
                victim.request.qos() == Qos::Guaranteed || victim.request.asks_for_devices()
            })
            .collect();
        let base = &self.with_released(base);
        let is_placement_known = settings.placement && !self.held_by_pod.0.is_empty();
        if holding.is_empty() || !is_placement_known {
            return Ok(self.compute_from(settings, base, nominated));
        }
        if self.awaits_release() {
            return Err(Error::NotReleased);
        }
        let mut base = base.clone();
        let mut added = false;
        let held = holding
            .iter()
            .filter(|victim| {
                let tracked = self.pods.get(&victim.key);
                tracked.is_some_and(|tracked| tracked.uid == victim.uid && tracked.accounted)
            })
            .filter_map(|victim| self.held_by_pod.0.get(&victim.key))
            .flatten();
        for (id, amounts) in held {
            let zones = &mut Arc::make_mut(&mut base.topology).zones;
            let zone = zones.iter_mut().find(|zone| zone.id == *id);
            let Some(zone) = zone else { continue };
            for (name, amount) in amounts.iter() {
                let Some(resource) = zone.resources.get_mut(name) else {
                    continue;
                };
                resource.available += amount;
                if resource.available > resource.allocatable {
                    return Err(Error::ExceedsAllocatable);
                }
                added = true;
            }
        }
        if !added {
            return Err(Error::NothingToAdd);
        }
        Ok(self.compute_from(settings, &base, nominated))
    }

    /// Returns whether a pod is gone or has ended whose zones the base still shows as taken.
    pub(crate) fn awaits_release(&self) -> bool {
        self.held_by_pod.0.keys().any(|key| {
            let tracked = self.pods.get(key);
            !tracked.is_some_and(|tracked| tracked.accounted && tracked.lives())
        })
    }

    /// Reads where the containers of the pods in the base are. Nothing is known if the base does not publish it, or publishes it for other
    /// containers.
    pub(super) fn read_placement(&mut self) {
        self.held_by_pod = HeldByPod::default();
        let Some(base) = self.base.nrt() else { return };
        let topology = Arc::clone(&base.topology);
        let Some(encoded) = &topology.placement else {
            return;
        };
        let zoned = |name: &_| is_zoned(&topology.zones, name);
        let accounted = self.pods.iter().filter(|(_, pod)| pod.accounted);
        let in_base = accounted.map(|(key, pod)| (key, &pod.request));
        let gone = self.departed.iter().map(|pod| (&pod.key, &pod.request));
        let mut parts: BTreeMap<Container<'_>, (&PodKey, Resources)> = BTreeMap::new();
        for (key, request) in in_base.chain(gone) {
            for (container, part) in request.exclusive_containers(zoned) {
                let container = Container {
                    namespace: &key.namespace,
                    pod: &key.name,
                    container: &container.name,
                };
                parts.insert(container, (key, part));
            }
        }
        let mut held = HeldByPod::default();
        match placement::decode(encoded, parts.keys().copied()) {
            Err(error) => tracing::debug!(%error, "NUMA placement not used"),
            Ok(placed) => {
                for (container, node) in placed {
                    let zone = u64::try_from(node).ok().and_then(ZoneId::new);
                    if let (Some(zone), Some((key, part))) = (zone, parts.get(&container)) {
                        let zones = held.0.entry((*key).clone()).or_default();
                        zones.entry(zone).or_default().add(part);
                    }
                }
            }
        }
        for pod in self.departed.iter_mut().filter(|pod| pod.ended) {
            if let Some(zones) = held.0.remove(&pod.key) {
                pod.is_held = false;
                self.released_by_ended.push(zones);
            }
        }
        self.held_by_pod = held;
    }
}
