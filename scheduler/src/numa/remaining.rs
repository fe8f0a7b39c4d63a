//! What is left in the zones of a node.

use std::sync::Arc;

use nrt::decode::NodeTopology;
use nrt::fingerprint::Method;
use scheduler_config::args::ForeignPodsDetect;
use topology::fit::FreeZone;
use topology::mask::{NumaMask, ZoneId};
use topology::request::Pod as Request;
use topology::resource::Resources;
use topology::zone::Amounts;

use super::charge::{self, Charge, is_zoned, total_charge, unlisted};
use super::ledger::{Ledger, Numbered};
use super::settings::{Mode, Settings};
use super::tracked::{Binding, DepartedPod, Tracked};
use super::view::{Fresh, Unadmitted, View};
use crate::state::pod::PodKey;

impl Ledger {
    pub(super) fn compute(&self, settings: &Settings) -> View {
        match self.base.nrt() {
            Some(base) => self.compute_from(settings, &self.with_released(base), &[]),
            None => View::Absent,
        }
    }

    /// Returns the base plus what ended pods held, where the NRT published the zone. A kubelet reports that a pod ended once its containers
    /// have, and from then on gives what they held to others, so there is no need to wait for an exporter.
    pub(super) fn with_released(&self, base: &Numbered) -> Numbered {
        let ended = self
            .pods
            .iter()
            .filter(|(_, pod)| pod.accounted && !pod.lives())
            .filter_map(|(key, _)| self.held_by_pod.0.get(key));
        base.with_amounts_added(ended.chain(&self.released_by_ended))
    }

    /// Returns the view for this base, with `added` charged in addition.
    pub(super) fn compute_from(
        &self,
        settings: &Settings,
        base: &Numbered,
        added: &[Arc<Request>],
    ) -> View {
        let Some(latest) = &self.latest else {
            return View::Absent;
        };
        if settings.mode == Mode::DiscardReserved && self.is_binding() {
            return View::Stale;
        }
        let Some(charges) = self.charges(settings, &latest.topology, added) else {
            return View::Stale;
        };
        let config = &latest.topology.config;
        let bounds = self.bounds(base, &latest.topology);
        let charges_by_zone = charge::charges_by_zone(config) && self.base.is_understood();
        let masks: Vec<NumaMask> = charges
            .iter()
            .map(|charge| match &charge.request {
                Some(request) if charges_by_zone => {
                    let most = bounds.iter().map(|(zone, most)| (*zone, most));
                    charge::possible_zones(&latest.topology.zones, config, request, most)
                }
                _ => NumaMask::ALL,
            })
            .collect();
        let before = || by_zone(&base.topology, |amounts| amounts.available);
        let free = before()
            .zip(bounds)
            .map(|((id, mut available), bound)| {
                for (charge, mask) in charges.iter().zip(&masks) {
                    if mask.contains(id) {
                        available.subtract_listed(&charge.amounts);
                    }
                }
                let is_known = config.managers.is_none() || bound.1 == available;
                FreeZone {
                    id,
                    available,
                    at_most: (!is_known).then_some(bound.1),
                }
            })
            .collect();
        // where everything is charged to all zones, there is room for all pods in any order
        let unadmitted = charges_by_zone.then(|| Unadmitted::new(before(), &charges, &masks));
        View::Fresh(Fresh {
            unadmitted: unadmitted.flatten(),
            ..Fresh::new(*config, free, base.topology.zones.clone())
        })
    }

    /// Returns whether the binding of any pod is in progress.
    fn is_binding(&self) -> bool {
        let mut pods = self.pods.values();
        pods.any(|pod| pod.binding == Binding::InProgress)
    }

    /// Returns the charges for the pods of the node, and for `added`; `None` if a foreign pod makes the amounts unusable.
    fn charges(
        &self,
        settings: &Settings,
        latest: &NodeTopology,
        added: &[Arc<Request>],
    ) -> Option<Vec<Charge>> {
        let mut charges = Vec::new();
        if settings.mode != Mode::OverReserve {
            return Some(charges);
        }
        let (zones, config) = (&latest.zones, &latest.config);
        for (key, pod) in self.pods.iter().filter(|(_, pod)| pod.lives()) {
            if pod.accounted {
                let left = unlisted(config, &pod.request, pod.phase);
                charges.push(Charge::everywhere(left));
                continue;
            }
            if pod.foreign && self.closes_node(pod, settings, latest) {
                return None;
            }
            charges.push(Charge {
                request: Some(Arc::clone(&pod.request)),
                amounts: total_charge(zones, config, &pod.request),
                unadmitted: (!pod.seen_by_kubelet).then(|| key.clone()),
            });
        }
        let lingering = self.lingering.iter().map(|pod| &pod.request);
        let others = lingering.chain(added);
        charges
            .extend(others.map(|request| Charge::everywhere(total_charge(zones, config, request))));
        charges.retain(|charge| !charge.amounts.is_zero());
        Some(charges)
    }

    /// Returns the most that each zone may have left: the base plus what terminating pods hold there, or all that is allocatable where the
    /// latter is not known.
    fn bounds(&self, base: &Numbered, latest: &NodeTopology) -> Vec<(ZoneId, Resources)> {
        let follows = latest.config.managers.is_some();
        let has_unknown_releases = follows && self.has_unknown_releases(latest);
        let going = self
            .pods
            .iter()
            .filter(|(_, pod)| follows && pod.accounted && pod.lives() && pod.deleting)
            .filter_map(|(key, _)| self.held_by_pod.0.get(key));
        let most = base.with_amounts_added(going);
        let zones = by_zone(&most.topology, |amounts| {
            if has_unknown_releases {
                amounts.allocatable
            } else {
                amounts.available
            }
        });
        zones.collect()
    }

    /// Returns whether a pod in the base is gone or terminating and it is unknown where it holds resources. Then every zone may have more
    /// room than the base says.
    fn has_unknown_releases(&self, latest: &NodeTopology) -> bool {
        let holds =
            |request: &Request| !total_charge(&latest.zones, &latest.config, request).is_zero();
        let goes = |(key, pod): (&PodKey, &Tracked)| {
            pod.accounted
                && (pod.deleting || !pod.lives())
                && !self.held_by_pod.0.contains_key(key)
                && holds(&pod.request)
        };
        let is_held = |pod: &DepartedPod| pod.is_held && holds(&pod.request);
        !self.base.is_understood()
            || self.departed.iter().any(is_held)
            || self.pods.iter().any(goes)
    }

    /// Returns whether a foreign pod that no NRT accounts for makes the amounts unusable.
    fn closes_node(&self, pod: &Tracked, settings: &Settings, topology: &NodeTopology) -> bool {
        let exclusive = || {
            pod.request
                .is_exclusive(|name| is_zoned(&topology.zones, name))
        };
        match settings.foreign {
            ForeignPodsDetect::None => false,
            ForeignPodsDetect::OnlyExclusiveResources => exclusive(),
            // A settled node has accounted for all that its fingerprint covers. What the fingerprint does not cover takes nothing.
            ForeignPodsDetect::All => {
                !self.base.is_understood()
                    || exclusive()
                    || fingerprint_covers_all(settings, topology)
            }
        }
    }
}

/// Iterates over the zones with one of the amounts of each resource.
fn by_zone(
    topology: &NodeTopology,
    one: impl Fn(&Amounts) -> i64 + Copy,
) -> impl Iterator<Item = (ZoneId, Resources)> {
    topology.zones.iter().map(move |zone| {
        let amounts = zone.resources.iter();
        let ones = amounts.map(|(name, amounts)| (name.clone(), one(amounts)));
        (zone.id, ones.collect())
    })
}

fn fingerprint_covers_all(settings: &Settings, topology: &NodeTopology) -> bool {
    topology
        .fingerprint
        .as_ref()
        .is_some_and(|published| settings.fingerprint_method(published.method) == Method::All)
}
