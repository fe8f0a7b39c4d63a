//! What the volume plugins share: VolumeRestrictions, NodeVolumeLimits, VolumeBinding and VolumeZone (scheduler.md 7.3). Each of them has
//! a file of its own.
//!
//! Results that do not depend on a node are computed once for an attempt. Each plugin may find at that point that no node fits, for
//! example because a claim does not exist.

pub mod node_volume_limits;
pub mod volume_binding;
pub mod volume_restrictions;
pub mod volume_zone;

use crate::plugins::plugin::Plugin;
use crate::plugins::rejection::Rejection;
use crate::state::cluster::Cluster;
use crate::state::node::NodeState;
use crate::state::pod::{self, Pod, PodKey};
use crate::state::storage::{Claim, Storage};

/// The volume plugins, in their default order.
pub const PLUGINS: [Plugin; 4] = [
    Plugin::VolumeRestrictions,
    Plugin::NodeVolumeLimits,
    Plugin::VolumeBinding,
    Plugin::VolumeZone,
];

/// What the plugins of a profile need to know about the volumes of a pod.
pub struct Volumes<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) pod: &'a Pod,
    pub(super) requested: &'a pod::Volumes,
    /// Whether a claim that only one pod may use is in use.
    pub(super) in_use: bool,
    pub(super) binding: Option<volume_binding::VolumeDemand<'a>>,
    /// Zones and regions of the pod's volumes.
    zones: Vec<volume_zone::Zone<'a>>,
}

impl<'a> Volumes<'a> {
    /// Prepares to examine nodes with those of `plugins` that read volumes; `None` if the pod has no volumes.
    ///
    /// # Errors
    /// When no node fits.
    pub fn new(
        plugins: &[Plugin],
        cluster: &'a Cluster,
        pod: &'a Pod,
    ) -> Result<Option<Self>, Rejection> {
        let Some(requested) = pod.volumes.as_deref() else {
            return Ok(None);
        };
        let mut prepared = Self {
            cluster,
            pod,
            requested,
            in_use: false,
            binding: None,
            zones: Vec::new(),
        };
        for plugin in plugins.iter().filter(|plugin| PLUGINS.contains(plugin)) {
            prepared
                .known()
                .and_then(|()| prepared.prepare(*plugin))
                .map_err(|reason| Rejection {
                    everywhere: true,
                    ..Rejection::unresolvable(*plugin, reason)
                })?;
        }
        Ok(Some(prepared))
    }

    /// Checks that all needed kinds of objects are known, because a pod is not placed by guess.
    fn known(&self) -> Result<(), String> {
        let unknown: Vec<&str> = self
            .storage()
            .unknown_kinds()
            .map(crate::state::storage::Kind::plural)
            .collect();
        if !self.requested.need_objects() || unknown.is_empty() {
            return Ok(());
        }
        Err(format!(
            "volumes cannot be checked: {} could not be listed yet, see the scheduler's log",
            unknown.join(" ")
        ))
    }

    fn prepare(&mut self, plugin: Plugin) -> Result<(), String> {
        match plugin {
            Plugin::VolumeRestrictions => self.in_use = self.is_in_use()?,
            Plugin::VolumeBinding => {
                self.binding =
                    volume_binding::VolumeDemand::new(self.storage(), self.pod, self.requested)?;
            }
            Plugin::VolumeZone => self.zones = self.find_zones()?,
            _ => {}
        }
        Ok(())
    }

    pub(super) fn storage(&self) -> &'a Storage {
        self.cluster.storage()
    }

    /// Iterates over the claims that the pod refers to by name.
    pub(super) fn named(&self) -> impl Iterator<Item = Result<&'a Claim, String>> {
        let claims = self.requested.named_claims();
        claims.map(move |claim| claim_of(self.storage(), self.pod, &claim.name))
    }

    /// Iterates over the pods of a node that have volumes.
    pub(super) fn pods_with_volumes(&self, state: &NodeState) -> impl Iterator<Item = &'a Pod> {
        let cluster = self.cluster;
        let pods = state.pods.iter().filter_map(|key| cluster.pod(key));
        pods.filter(|pod| pod.volumes.is_some())
    }
}

/// Returns a claim of the pod's namespace.
///
/// # Errors
/// When it is not known.
pub(super) fn claim_of<'a>(
    storage: &'a Storage,
    pod: &Pod,
    name: &str,
) -> Result<&'a Claim, String> {
    let key = PodKey {
        namespace: pod.key.namespace.clone(),
        name: name.to_owned(),
    };
    storage
        .claim(&key)
        .ok_or_else(|| format!("persistentvolumeclaim {name:?} not found"))
}

/// Checks that an ephemeral volume's claim was created for this pod.
pub(super) fn check_owner(pod: &Pod, claim: &Claim) -> Result<(), String> {
    if claim.controller.as_ref() == Some(&pod.uid) {
        return Ok(());
    }
    Err(format!(
        "PVC {} was not created for pod {} (pod is not owner)",
        claim.key, pod.key
    ))
}

#[cfg(test)]
mod tests;
