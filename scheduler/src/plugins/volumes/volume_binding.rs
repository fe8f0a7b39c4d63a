//! VolumeBinding: where the pod's bound volumes can be used, and which volumes its unbound claims would get on a node.

use std::collections::BTreeMap;

use super::volume_zone::ZONES;
use crate::plugins::plugin::Plugin;
use crate::plugins::rejection::Rejection;
use crate::plugins::volumes::{Volumes, check_owner, claim_of};
use crate::state::cluster::Cluster;
use crate::state::node::Node;
use crate::state::pod::{self, Pod, PodKey};
use crate::state::selector;
use crate::state::storage::{
    Capacity, Claim, ClaimState, Class, Reservation, Storage, Volume, is_migrated,
};

const NODE_CONFLICT: &str = "node(s) didn't match PersistentVolume's node affinity";
const NO_VOLUME: &str = "node(s) didn't find available persistent volumes to bind";
const NO_SPACE: &str = "node(s) did not have enough free storage";
const VOLUME_GONE: &str =
    "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";
const UNBOUND: &str = "pod has unbound immediate PersistentVolumeClaims";
const MIGRATED: &str =
    "node(s) use a CSI driver for a zonal in-tree PersistentVolume, which this scheduler does not";
/// The provisioner name of classes whose volumes are not provisioned automatically.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

impl Volumes<'_> {
    /// Runs VolumeBinding on a node.
    pub fn binding(&self, node: &Node) -> Result<(), Rejection> {
        let Some(demand) = &self.binding else {
            return Ok(());
        };
        demand.decide(node).map(drop).map_err(|reasons| Rejection {
            reasons: reasons.into_iter().map(Into::into).collect(),
            ..Rejection::unresolvable(Plugin::VolumeBinding, "")
        })
    }
}

/// The bound claims of a pod and those that still need a volume.
#[derive(Debug)]
pub struct VolumeDemand<'a> {
    storage: &'a Storage,
    bound: Vec<&'a Claim>,
    /// Claims that wait until their pod has a node.
    delayed: Vec<&'a Claim>,
    /// Volumes that any of `delayed` may get, by name.
    candidates: Vec<&'a Volume>,
    /// Volumes that are reserved for claims of pods whose binding is in progress.
    taken: BTreeMap<&'a str, &'a PodKey>,
    /// Claims whose volume is to be provisioned for a node, of pods whose binding is in progress.
    selected: BTreeMap<&'a PodKey, &'a str>,
}

impl<'a> VolumeDemand<'a> {
    /// Reads the claims; `None` if the pod has none.
    ///
    /// # Errors
    /// When no node fits in the current state.
    pub(super) fn new(
        storage: &'a Storage,
        pod: &Pod,
        volumes: &pod::Volumes,
    ) -> Result<Option<Self>, String> {
        if volumes.claims.is_empty() {
            return Ok(None);
        }
        let mut claims = Vec::new();
        for wanted in &volumes.claims {
            let claim = claim_of(storage, pod, &wanted.name).map_err(|missing| {
                if wanted.is_ephemeral {
                    format!(
                        "waiting for ephemeral volume controller to create the persistentvolumeclaim {:?}",
                        wanted.name
                    )
                } else {
                    missing
                }
            })?;
            let name = &wanted.name;
            match claim.state {
                ClaimState::Usable => {}
                ClaimState::Lost => {
                    return Err(format!(
                        "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {:?}",
                        claim.volume.as_deref().unwrap_or_default()
                    ));
                }
                ClaimState::Deleting => {
                    return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
                }
            }
            if wanted.is_ephemeral {
                check_owner(pod, claim)?;
            }
            claims.push(claim);
        }
        let (bound, unbound): (Vec<_>, Vec<_>) =
            claims.into_iter().partition(|claim| claim.is_bound());
        let waits = |claim: &&Claim| {
            let class = storage.class(&claim.class);
            claim.volume.is_none() && class.is_some_and(|class| class.waits_for_consumer)
        };
        if !unbound.iter().all(waits) {
            return Err(UNBOUND.to_owned());
        }
        Ok(Some(Self::of(storage, bound, unbound)))
    }

    fn of(storage: &'a Storage, bound: Vec<&'a Claim>, delayed: Vec<&'a Claim>) -> Self {
        let mut demand = Self {
            storage,
            bound,
            delayed,
            candidates: Vec::new(),
            taken: BTreeMap::new(),
            selected: BTreeMap::new(),
        };
        if demand.delayed.is_empty() {
            return demand;
        }
        let is_candidate = |volume: &&Volume| {
            let is_for = |claim: &&Claim| {
                let owner = volume.owner.as_ref();
                claim.class == volume.class && owner.is_none_or(|owner| claim.owns(owner))
            };
            demand.delayed.iter().any(is_for)
        };
        demand.candidates = storage.volumes().filter(is_candidate).collect();
        for reservation in storage.reservations() {
            let volumes = reservation.volumes.iter();
            demand
                .taken
                .extend(volumes.map(|(name, claim)| (name.as_str(), claim)));
            let claims = reservation.provisions.iter();
            demand
                .selected
                .extend(claims.map(|claim| (claim, reservation.node.as_str())));
        }
        demand
    }

    /// Returns what would have to be reserved for the pod on a node.
    ///
    /// # Errors
    /// Why the node does not fit.
    pub(super) fn decide(&self, node: &Node) -> Result<Reservation, Vec<&'static str>> {
        let mut reasons = Vec::new();
        reasons.extend(self.check_bound(node).err());
        let mut reservation = Reservation {
            node: node.name.clone(),
            ..Reservation::default()
        };
        if let Err(reason) = self.choose(node, &mut reservation) {
            // in kube-scheduler's order
            let first = reasons.first() == Some(&VOLUME_GONE);
            reasons.insert(if first { 0 } else { reasons.len() }, reason);
        }
        if reasons.is_empty() {
            Ok(reservation)
        } else {
            Err(reasons)
        }
    }

    fn check_bound(&self, node: &Node) -> Result<(), &'static str> {
        for claim in &self.bound {
            let volume = claim.volume.as_ref();
            let volume = volume.and_then(|name| self.storage.volume(name));
            let volume = volume.ok_or(VOLUME_GONE)?;
            let plugin = volume.source.as_ref().and_then(|source| source.plugin);
            let drivers = self.storage.node(&node.name);
            if plugin.is_some_and(|plugin| is_migrated(plugin, drivers)) && is_zonal(volume) {
                return Err(MIGRATED);
            }
            if !fits(volume, node) {
                return Err(NODE_CONFLICT);
            }
        }
        Ok(())
    }

    fn choose(&self, node: &Node, reservation: &mut Reservation) -> Result<(), &'static str> {
        let mut to_match = Vec::new();
        let mut to_provision = Vec::new();
        for claim in self.delayed.iter().copied() {
            let annotated = claim.selected_node.as_deref();
            match self.selected.get(&claim.key).copied().or(annotated) {
                Some(selected) if selected != node.name => return Err(NO_VOLUME),
                Some(_) => to_provision.push(claim),
                None => to_match.push(claim),
            }
        }
        // the smallest first, so that each gets the smallest volume that suffices
        to_match.sort_by_key(|claim| claim.requested.unwrap_or_default());
        for claim in to_match {
            match self.find(claim, node, &reservation.volumes) {
                Some(volume) => {
                    let pair = (volume.name.clone(), claim.key.clone());
                    reservation.volumes.push(pair);
                }
                None => to_provision.push(claim),
            }
        }
        for claim in to_provision {
            let class = self.storage.class(&claim.class).ok_or(NO_VOLUME)?;
            if class.provisioner.is_empty() || class.provisioner == NO_PROVISIONER {
                return Err(NO_VOLUME);
            }
            if !provisions_for(class, node) {
                return Err(NO_VOLUME);
            }
            if !self.has_space(claim, node) {
                return Err(NO_SPACE);
            }
            reservation.provisions.push(claim.key.clone());
        }
        Ok(())
    }

    /// Returns the volume that a claim would get on a node: one that is meant for it, otherwise the smallest that suffices.
    fn find(&self, claim: &Claim, node: &Node, chosen: &[(String, PodKey)]) -> Option<&'a Volume> {
        let mut best: Option<&Volume> = None;
        for volume in self.candidates.iter().copied() {
            let taken = self.taken.get(volume.name.as_str());
            let is_mine = match (taken, &volume.owner) {
                (Some(other), _) => **other == claim.key,
                (None, Some(owner)) => claim.owns(owner),
                (None, None) => false,
            };
            let is_free = taken.is_none() && volume.owner.is_none();
            let is_chosen = chosen.iter().any(|(name, _)| *name == volume.name);
            if is_chosen
                || !(is_mine || is_free)
                || volume.class != claim.class
                || volume.capacity < claim.requested.unwrap_or_default()
                || volume.is_block != claim.is_block
                || volume.attributes_class != claim.attributes_class
                || volume.is_deleting
            {
                continue;
            }
            if is_mine {
                return fits(volume, node).then_some(volume);
            }
            let is_selected = claim
                .selector
                .as_ref()
                .is_none_or(|selector| selector::labels(Some(selector), &volume.labels));
            let has_modes = claim
                .access_modes
                .iter()
                .all(|mode| volume.access_modes.contains(mode));
            let is_smaller = best.is_none_or(|best| best.capacity > volume.capacity);
            // the most expensive check comes last
            if volume.is_available && is_smaller && is_selected && has_modes && fits(volume, node) {
                best = Some(volume);
            }
        }
        best
    }

    fn has_space(&self, claim: &Claim, node: &Node) -> bool {
        let Some(requested) = claim.requested else {
            return true;
        };
        let Some(mut capacities) = self.storage.capacities(&claim.class) else {
            return true;
        };
        capacities.any(|Capacity { largest, nodes, .. }| {
            largest.is_some_and(|largest| largest.units() >= requested.units())
                && selector::labels(nodes.as_ref(), &node.labels)
        })
    }
}

/// Returns what has to be reserved for a pod on the chosen node; `None` if all its claims are bound.
pub fn reservation(cluster: &Cluster, pod: &Pod, node: &Node) -> Option<Reservation> {
    let volumes = pod.volumes.as_deref()?;
    let demand = VolumeDemand::new(cluster.storage(), pod, volumes).ok()??;
    let reservation = demand.decide(node).ok()?;
    let is_needed = !(reservation.volumes.is_empty() && reservation.provisions.is_empty());
    is_needed.then_some(reservation)
}

/// Returns whether a node can use a volume.
pub fn fits(volume: &Volume, node: &Node) -> bool {
    let terms = volume.node_terms.as_deref();
    terms.is_none_or(|terms| selector::any_term_by_labels(terms, &node.labels))
}

/// Returns whether a volume is available only in parts of the cluster.
fn is_zonal(volume: &Volume) -> bool {
    let mut labels = ZONES.iter();
    volume.node_terms.is_some() || labels.any(|(label, _)| volume.labels.contains_key(*label))
}

/// Returns whether a class provisions volumes for a node. A term without labels matches no node.
fn provisions_for(class: &Class, node: &Node) -> bool {
    let holds = |(label, values): &(String, Vec<String>)| {
        let value = node.labels.get(label);
        value.is_some_and(|value| values.contains(value))
    };
    let terms = &class.topologies;
    terms.is_empty()
        || terms
            .iter()
            .any(|term| !term.is_empty() && term.iter().all(holds))
}
