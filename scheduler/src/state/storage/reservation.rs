//! What is reserved for a pod whose binding is in progress, and how far the binding of its volumes is.

use super::{Storage, Volume};
use crate::state::pod::PodKey;

/// Volumes and claims that are reserved for a pod until they are bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reservation {
    /// The pod's node.
    pub node: String,
    /// Existing volumes, each with the claim that gets it.
    pub volumes: Vec<(String, PodKey)>,
    /// Claims whose volumes are to be provisioned.
    pub provisions: Vec<PodKey>,
}

/// Progress of binding the volumes of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All claims are bound.
    Bound,
    /// Another component has to act.
    Waiting,
    /// They will not be bound; the reason.
    Failed(String),
}

impl Storage {
    /// Reserves volumes and claims for the pod of that uid, so that no other pod gets them.
    pub fn reserve(&mut self, uid: &str, reservation: Reservation) {
        self.reservations.insert(uid.to_owned(), reservation);
    }

    /// Releases the reservation for the pod of that uid. Returns false if there is none.
    pub fn release(&mut self, uid: &str) -> bool {
        self.reservations.remove(uid).is_some()
    }

    /// Iterates over all reservations.
    pub fn reservations(&self) -> impl Iterator<Item = &Reservation> {
        self.reservations.values()
    }

    /// Returns the progress of a reservation's volumes. `written` holds the versions of the objects as they were written, volumes first; a
    /// cached object with an older version says nothing yet. `fits` decides whether the node can use a volume.
    pub fn progress(
        &self,
        reservation: &Reservation,
        written: &[u64],
        fits: impl Fn(&Volume) -> bool,
    ) -> Progress {
        let failed = |text: String| Progress::Failed(text);
        let misfit = |volume: &Volume| {
            let Reservation { node, .. } = reservation;
            failed(format!(
                "pv {:?} node affinity doesn't match node {node:?}",
                volume.name
            ))
        };
        let mut all_bound = true;
        let mut versions = written.iter().copied();
        for (name, key) in &reservation.volumes {
            let version = versions.next().unwrap_or(0);
            let (Some(volume), Some(claim)) = (self.volumes.get(name), self.claims.get(key)) else {
                return failed(format!("pv {name:?} or its claim {key} is gone"));
            };
            if volume.version < version {
                return Progress::Waiting;
            }
            if !fits(volume) {
                return misfit(volume);
            }
            let owner = volume.owner.as_ref();
            if owner.is_none_or(|owner| owner.uid.is_none()) {
                return failed(format!("ClaimRef got reset for pv {name:?}"));
            }
            all_bound &= claim.is_bound();
        }
        for key in &reservation.provisions {
            let version = versions.next().unwrap_or(0);
            let Some(claim) = self.claims.get(key) else {
                return failed(format!("claim {key} is gone"));
            };
            if claim.version < version {
                return Progress::Waiting;
            }
            if claim.selected_node.as_ref() != Some(&reservation.node) {
                return failed(format!("provisioning failed for PVC {:?}", key.name));
            }
            if let Some(name) = &claim.volume {
                let Some(volume) = self.volumes.get(name) else {
                    // either a watch shows the volume later, or the claim is unbound
                    return Progress::Waiting;
                };
                if !fits(volume) {
                    return misfit(volume);
                }
            }
            all_bound &= claim.is_bound();
        }
        if all_bound {
            Progress::Bound
        } else {
            Progress::Waiting
        }
    }
}
