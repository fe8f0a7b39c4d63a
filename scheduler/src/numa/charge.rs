//! What pods that no NRT accounts for yet take from the zones, which zones they may be on, and whether every order of admission works.
//!
//! Bindings are sent concurrently, and a kubelet sorts pods that arrive together, so any of the pods on their way may be admitted first.
//! Each takes the lowest zone with room: a pod that has room *beside* another may take the zone that the other needs. So a pod is let onto
//! a node only if each pod on its way there still finds room, whichever is admitted first.

use std::sync::Arc;

use topology::fit::{self, FreeZone, Misfit};
use topology::mask::{NumaMask, ZoneId};
use topology::policy::{ManagerConfig, Policy};
use topology::request::{ContainerKind, Pod as Request};
use topology::resource::{ResourceName, Resources};
use topology::zone::Zone;

use super::view::{Fresh, Unadmitted};
use crate::state::pod::{Phase, PodKey};

/// A charge of a pod.
#[derive(Clone, Debug)]
pub(super) struct Charge {
    /// The pod's request, if it determines which zones the pod may be on.
    pub(super) request: Option<Arc<Request>>,
    /// The amounts.
    pub(super) amounts: Resources,
    /// The pod's name, if it is unknown whether its kubelet has admitted it.
    pub(super) unadmitted: Option<PodKey>,
}

impl Charge {
    /// Creates a charge to every zone, for a pod of which nothing else is known.
    pub(super) fn everywhere(amounts: Resources) -> Self {
        Self {
            request: None,
            amounts,
            unadmitted: None,
        }
    }
}

impl Unadmitted {
    /// Returns `None` if every pod is known to be admitted.
    pub(super) fn new(
        before: impl Iterator<Item = (ZoneId, Resources)>,
        charges: &[Charge],
        masks: &[NumaMask],
    ) -> Option<Self> {
        let indexed = charges.iter().enumerate();
        let pods: Vec<_> = indexed
            .filter_map(|(index, charge)| {
                let name = charge.unadmitted.clone()?;
                Some((index, name, Arc::clone(charge.request.as_ref()?)))
            })
            .collect();
        let masks = masks.iter().copied();
        (!pods.is_empty()).then(|| Self {
            before: before.collect(),
            charges: charges
                .iter()
                .map(|charge| charge.amounts.clone())
                .zip(masks)
                .collect(),
            pods,
        })
    }

    /// Returns what is left for the pod of charge `own` if every other pod, and `more`, is admitted before it.
    fn left_to(&self, own: usize, more: (&Resources, NumaMask), fresh: &Fresh) -> Vec<FreeZone> {
        let others = self.charges.iter().enumerate();
        let others = others.filter(|(index, _)| *index != own);
        let taken: Vec<(&Resources, NumaMask)> = others
            .map(|(_, (amounts, mask))| (amounts, *mask))
            .chain([more])
            .collect();
        self.before
            .iter()
            .zip(&fresh.free)
            .map(|((id, available), zone)| {
                let mut available = available.clone();
                for (amounts, _) in taken.iter().filter(|(_, mask)| mask.contains(*id)) {
                    available.subtract_listed(amounts);
                }
                FreeZone {
                    id: *id,
                    available,
                    at_most: Some(zone.most().clone()),
                }
            })
            .collect()
    }
}

impl Fresh {
    /// Returns a pod on its way to the node that finds no room if a pod with `request` is admitted first, and what it lacks then. `node_has`
    /// as in [`fit::fit`].
    pub fn pod_without_room(
        &self,
        request: &Request,
        node_has: impl Fn(&str) -> bool,
    ) -> Option<(&PodKey, Misfit)> {
        let unadmitted = self.unadmitted.as_ref()?;
        let amounts = total_charge(&self.zones, &self.config, request);
        if amounts.is_zero() {
            return None;
        }
        let most = self.free.iter().map(|zone| (zone.id, zone.most()));
        let mask = possible_zones(&self.zones, &self.config, request, most);
        // if there is room for all at once, the order does not matter
        let is_ample = self.free.iter().all(|zone| {
            let has = |(name, wanted): (&ResourceName, i64)| {
                let left = zone.available.get(name.as_str());
                left.is_none_or(|left| left >= wanted)
            };
            !mask.contains(zone.id) || amounts.iter().all(has)
        });
        unadmitted.pods.iter().find_map(|(own, name, waiting)| {
            let mut containers = waiting.containers().iter();
            // what init containers need only while they run is not charged
            if is_ample && containers.all(|container| container.kind != ContainerKind::Init) {
                return None;
            }
            let left = unadmitted.left_to(*own, (&amounts, mask), self);
            let misfit = fit::fit(waiting, &self.config, &left, &node_has).err()?;
            Some((name, misfit))
        })
    }
}

/// Returns whether charges need not be made to every zone: the kubelet's managers are known, and it assigns one zone.
pub(super) fn charges_by_zone(config: &ManagerConfig) -> bool {
    config.policy == Policy::SingleNumaNode && config.managers.is_some()
}

/// Returns the zones that a pod may be on that was not admitted when zones had at most `most` left: those with room. Returns all zones
/// if none had room, because then nothing is known of the pod's zone.
pub(super) fn possible_zones<'a>(
    zones: &[Zone],
    config: &ManagerConfig,
    request: &Request,
    most: impl Iterator<Item = (ZoneId, &'a Resources)>,
) -> NumaMask {
    let with_room: NumaMask = most
        .filter(|(_, most)| request.may_use(config.scope, most, |name| is_zoned(zones, name)))
        .map(|(zone, _)| zone)
        .collect();
    if with_room.is_empty() {
        NumaMask::ALL
    } else {
        with_room
    }
}

/// Returns what a pod takes from the zones while no NRT accounts for it.
pub(super) fn total_charge(zones: &[Zone], config: &ManagerConfig, request: &Request) -> Resources {
    let zoned = |name: &ResourceName| is_zoned(zones, name);
    if config.managers.is_none() {
        return request.exclusive_request(zoned);
    }
    let mut total = request.kept_request(zoned);
    total.add(&unlisted(config, request, Phase::Pending));
    total
}

/// Returns what finished init containers of a pod may hold although no NRT can show it.
pub(super) fn unlisted(config: &ManagerConfig, request: &Request, phase: Phase) -> Resources {
    fit::unlisted(request, config, phase == Phase::Running)
}

/// Returns whether the zones hold any of a resource. Only such a resource can be taken from them.
pub(crate) fn is_zoned(zones: &[Zone], name: &ResourceName) -> bool {
    zones.iter().any(|zone| {
        zone.resources
            .get(name)
            .is_some_and(|amounts| amounts.allocatable > 0)
    })
}
