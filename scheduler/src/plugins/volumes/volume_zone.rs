//! VolumeZone: whether a node is in the zones and regions of the pod's volumes (scheduler.md 7.3).

use std::collections::BTreeSet;

use crate::plugins::plugin::Plugin;
use crate::plugins::rejection::Rejection;
use crate::plugins::volumes::Volumes;
use crate::state::node::Node;

const NO_ZONE: &str = "node(s) had no available volume zone";

/// Zone and region labels of volumes and nodes, each with the equivalent label of nodes.
pub(super) const ZONES: [(&str, &str); 4] = [
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

/// A zone or region of a volume.
pub(super) struct Zone<'a> {
    /// The label that names it.
    label: &'static str,
    /// The equivalent label of nodes.
    alias: &'static str,
    values: BTreeSet<&'a str>,
}

impl<'a> Volumes<'a> {
    /// Returns the zones and regions of the pod's volumes.
    pub(super) fn find_zones(&self) -> Result<Vec<Zone<'a>>, String> {
        let storage = self.storage();
        let mut zones = Vec::new();
        for claim in self.named() {
            let claim = claim?;
            let Some(name) = &claim.volume else {
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
            };
            let volume = storage
                .volume(name)
                .ok_or_else(|| format!("persistentvolume {name:?} not found"))?;
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
}

/// Splits a label that may name several values; `None` if one of them is empty.
fn values(list: &str) -> Option<BTreeSet<&str>> {
    let values: BTreeSet<&str> = list.split("__").map(str::trim).collect();
    (!values.contains("")).then_some(values)
}
