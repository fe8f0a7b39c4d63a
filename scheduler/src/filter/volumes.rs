//! The volume plugins: VolumeRestrictions, NodeVolumeLimits, VolumeBinding, VolumeZone (scheduler.md 7.3).
//!
//! Results that do not depend on a node are computed once for an attempt. Each plugin may find at that point that no node fits, for
//! example because a claim does not exist.

use std::collections::BTreeSet;

use super::{Plugin, Rejection};
use crate::state::cluster::{Cluster, Node, NodeState};
use crate::state::pod::{self, Pod, PodKey};
use crate::state::storage::{Claim, Storage};

pub mod binding;
mod limits;

/// The volume plugins, in their default order.
pub const PLUGINS: [Plugin; 4] = [
    Plugin::VolumeRestrictions,
    Plugin::NodeVolumeLimits,
    Plugin::VolumeBinding,
    Plugin::VolumeZone,
];

const READ_WRITE_ONCE_POD: &str = "ReadWriteOncePod";
const IN_USE: &str = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";
const NO_DISK: &str = "node(s) had no available disk";
const NO_ZONE: &str = "node(s) had no available volume zone";

/// Zone and region labels of volumes and nodes, each with the equivalent label of nodes.
const ZONES: [(&str, &str); 4] = [
    (
        "failure-domain.beta.kubernetes.io/zone",
        "topology.kubernetes.io/zone",
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        "topology.kubernetes.io/region",
    ),
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    (
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/region",
    ),
];

/// What the plugins of a profile need to know about the volumes of a pod.
pub struct Volumes<'a> {
    cluster: &'a Cluster,
    pod: &'a Pod,
    requested: &'a pod::Volumes,
    /// Whether a claim that only one pod may use is in use.
    in_use: bool,
    binding: Option<binding::VolumeDemand<'a>>,
    /// Zones and regions of the pod's volumes.
    zones: Vec<Zone<'a>>,
}

/// A zone or region of a volume.
struct Zone<'a> {
    /// The label that names it.
    label: &'static str,
    /// The equivalent label of nodes.
    alias: &'static str,
    values: BTreeSet<&'a str>,
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
                    binding::VolumeDemand::new(self.storage(), self.pod, self.requested)?;
            }
            Plugin::VolumeZone => self.zones = self.find_zones()?,
            _ => {}
        }
        Ok(())
    }

    fn storage(&self) -> &'a Storage {
        self.cluster.storage()
    }

    /// Iterates over the claims that the pod refers to by name.
    fn named(&self) -> impl Iterator<Item = Result<&'a Claim, String>> {
        let claims = self.requested.named_claims();
        claims.map(move |claim| claim_of(self.storage(), self.pod, &claim.name))
    }

    fn is_in_use(&self) -> Result<bool, String> {
        let mut in_use = false;
        for claim in self.named() {
            let claim = claim?;
            in_use |= claim
                .access_modes
                .iter()
                .any(|mode| mode == READ_WRITE_ONCE_POD)
                && self.cluster.is_claim_in_use(&claim.key);
        }
        Ok(in_use)
    }

    /// Runs VolumeRestrictions on a node.
    pub fn restrictions(&self, state: &NodeState) -> Result<(), Rejection> {
        let plugin = Plugin::VolumeRestrictions;
        let clashing = self.pods_with_volumes(state).find_map(|other| {
            let volumes = other.volumes.as_ref()?;
            let disks = &self.requested.disks;
            let clashes = |disk: &pod::Disk| volumes.disks.iter().any(|other| disk.clashes(other));
            disks.iter().find(|disk| clashes(disk)).map(|_| &other.key)
        });
        if let Some(other) = clashing {
            return Err(Rejection {
                detail: Some(format!("pod {other} has the disk")),
                ..Rejection::new(plugin, NO_DISK)
            });
        }
        if self.in_use {
            return Err(Rejection::new(plugin, IN_USE));
        }
        Ok(())
    }

    /// Runs NodeVolumeLimits on a node.
    pub fn limits(&self, node: &Node, state: &NodeState) -> Result<(), Rejection> {
        limits::filter(
            self.storage(),
            (self.pod, self.requested),
            node,
            self.pods_with_volumes(state),
        )
    }

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

    /// Runs VolumeZone on a node.
    pub fn zone(&self, node: &Node) -> Result<(), Rejection> {
        let has_zone_label = ZONES
            .iter()
            .any(|(label, _)| node.labels.contains_key(*label));
        if !has_zone_label {
            return Ok(());
        }
        for zone in &self.zones {
            let Zone {
                label,
                alias,
                values,
            } = zone;
            let value = node.labels.get(*label).or_else(|| node.labels.get(*alias));
            if !value.is_some_and(|value| values.contains(value.as_str())) {
                let values: Vec<&str> = values.iter().copied().collect();
                return Err(Rejection {
                    detail: Some(format!("a volume is in {label} {}", values.join(", "))),
                    ..Rejection::unresolvable(Plugin::VolumeZone, NO_ZONE)
                });
            }
        }
        Ok(())
    }

    fn pods_with_volumes(&self, state: &NodeState) -> impl Iterator<Item = &'a Pod> {
        let cluster = self.cluster;
        let pods = state.pods.iter().filter_map(|key| cluster.pod(key));
        pods.filter(|pod| pod.volumes.is_some())
    }

    fn find_zones(&self) -> Result<Vec<Zone<'a>>, String> {
        let storage = self.storage();
        let mut zones = Vec::new();
        for claim in self.named() {
            let claim = claim?;
            if claim.volume.is_empty() {
                if claim.class.is_empty() {
                    return Err(
                        "PersistentVolumeClaim had no pv name and storageClass name".to_owned()
                    );
                }
                let class = storage.class(&claim.class).ok_or_else(|| {
                    format!("storageclass.storage.k8s.io {:?} not found", claim.class)
                })?;
                if class.waits_for_consumer {
                    continue;
                }
                return Err("PersistentVolume had no name".to_owned());
            }
            let volume = storage
                .volume(&claim.volume)
                .ok_or_else(|| format!("persistentvolume {:?} not found", claim.volume))?;
            for (label, alias) in ZONES {
                let values = volume.labels.get(label).and_then(|list| values(list));
                zones.extend(values.map(|values| Zone {
                    label,
                    alias,
                    values,
                }));
            }
        }
        Ok(zones)
    }
}

/// Splits a label that may name several values; `None` if one of them is empty.
fn values(list: &str) -> Option<BTreeSet<&str>> {
    let values: BTreeSet<&str> = list.split("__").map(str::trim).collect();
    (!values.contains("")).then_some(values)
}

fn claim_of<'a>(storage: &'a Storage, pod: &Pod, name: &str) -> Result<&'a Claim, String> {
    let key = PodKey {
        namespace: pod.key.namespace.clone(),
        name: name.to_owned(),
    };
    storage
        .claim(&key)
        .ok_or_else(|| format!("persistentvolumeclaim {name:?} not found"))
}

/// Checks that an ephemeral volume's claim was created for this pod.
fn check_owner(pod: &Pod, claim: &Claim) -> Result<(), String> {
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
