//! `NodeResourceTopology` objects as the scenarios read them, and the comparisons of the catalogue (scenarios-serial.md 7.3, 7.4).

use std::collections::BTreeMap;

use api::nrt::v1alpha2::NodeResourceTopology;
use api::{attributes, nrt, quantity};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::resources::{Resources, is_native};
use crate::step::StepError;

pub mod form;

/// Topology manager scope of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Each container is aligned by itself.
    Container,
    /// The pod is aligned as a whole.
    Pod,
}

impl Scope {
    /// Returns the value of the NRT attribute.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Container => "container",
            Self::Pod => "pod",
        }
    }

    /// Returns the message of the scheduler when no zone fits (scheduler.md 3.5).
    pub fn alignment_failure(self) -> &'static str {
        match self {
            Self::Container => "cannot align container",
            Self::Pod => "cannot align pod",
        }
    }
}

/// Why an NRT cannot be read.
#[derive(Debug, Error)]
pub enum Error {
    /// The amount of a resource is not a quantity.
    #[error("resource {resource} in {zone} of the NRT of {node}")]
    Quantity {
        /// Name of the NRT.
        node: String,
        /// Name of the zone.
        zone: String,
        /// Name of the resource.
        resource: String,
        /// Why.
        #[source]
        source: quantity::ParseError,
    },
    /// A zone's name has no number.
    #[error("zone {zone:?} of the NRT of {node} has no number in its name")]
    ZoneName {
        /// Name of the NRT.
        node: String,
        /// Name of the zone.
        zone: String,
    },
}

/// The content of one NRT. Zones keep the order of the object: `z0` and `z1` of the catalogue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeTopology {
    /// Name of the node.
    pub node: String,
    /// Resource version of the object.
    pub resource_version: String,
    /// Attributes of the object, in its order.
    pub attributes: Vec<(String, String)>,
    /// Zones, in the object's order.
    pub zones: Vec<Zone>,
}

/// One NUMA zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Zone {
    /// Name in the object.
    pub name: String,
    /// Number of the NUMA node.
    pub id: u32,
    /// Amounts by resource name.
    pub resources: BTreeMap<String, Amounts>,
}

/// Amounts of one resource in one zone, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amounts {
    /// The whole amount.
    pub capacity: i64,
    /// The amount that pods may use.
    pub allocatable: i64,
    /// The amount that is not used.
    pub available: i64,
}

impl NodeTopology {
    /// Reads an object.
    pub fn read(object: &NodeResourceTopology) -> Result<Self, Error> {
        let node = object.metadata.name.clone().unwrap_or_default();
        let zones = object
            .zones
            .iter()
            .filter(|zone| zone.zone_type == nrt::ZONE_TYPE_NODE)
            .map(|zone| {
                let digits = zone.name.strip_prefix("node-").unwrap_or(&zone.name);
                let id = digits.parse().map_err(|_| Error::ZoneName {
                    node: node.clone(),
                    zone: zone.name.clone(),
                })?;
                let resources = zone
                    .resources
                    .iter()
                    .map(|resource| {
                        let milli = |quantity| {
                            quantity::milli(quantity).map_err(|source| Error::Quantity {
                                node: node.clone(),
                                zone: zone.name.clone(),
                                resource: resource.name.clone(),
                                source,
                            })
                        };
                        let amounts = Amounts {
                            capacity: milli(&resource.capacity)?,
                            allocatable: milli(&resource.allocatable)?,
                            available: milli(&resource.available)?,
                        };
                        Ok((resource.name.clone(), amounts))
                    })
                    .collect::<Result<_, _>>()?;
                Ok(Zone {
                    name: zone.name.clone(),
                    id,
                    resources,
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            resource_version: object.metadata.resource_version.clone().unwrap_or_default(),
            attributes: object
                .attributes
                .iter()
                .map(|a| (a.name.clone(), a.value.clone()))
                .collect(),
            node,
            zones,
        })
    }

    /// Returns the value of an attribute. The first attribute of that name counts.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// Returns whether the policy is `single-numa-node`.
    pub fn single_numa_node(&self) -> bool {
        self.attribute(attributes::TOPOLOGY_MANAGER_POLICY) == Some("single-numa-node")
    }

    /// Returns the scope of the topology manager.
    pub fn scope(&self) -> Option<Scope> {
        match self.attribute(attributes::TOPOLOGY_MANAGER_SCOPE)? {
            "container" => Some(Scope::Container),
            "pod" => Some(Scope::Pod),
            _ => None,
        }
    }

    /// Returns whether some zone has the request available (7.3, "any zone").
    pub fn any_zone_fits(&self, request: &Resources) -> bool {
        self.zones
            .iter()
            .any(|zone| request.fits_in(&zone.available()))
    }

    /// Returns whether all zones together have the request available (7.3, "any node").
    pub fn node_fits(&self, request: &Resources) -> bool {
        request.fits_in(&self.available())
    }

    /// Returns the available amounts of all zones together.
    pub fn available(&self) -> Resources {
        Resources::sum(&self.zones.iter().map(Zone::available).collect::<Vec<_>>())
    }

    /// Describes the zones with their available amounts, for people.
    pub fn describe(&self) -> String {
        let zone = |zone: &Zone| format!("{}: {}", zone.name, zone.available());
        format!(
            "{} available {}",
            self.node,
            self.zones.iter().map(zone).collect::<Vec<_>>().join("; ")
        )
    }
}

impl Zone {
    /// Returns the available amounts.
    pub fn available(&self) -> Resources {
        self.resources
            .iter()
            .map(|(name, amounts)| (name.clone(), amounts.available))
            .collect()
    }

    /// Returns the allocatable amounts.
    pub fn allocatable(&self) -> Resources {
        self.resources
            .iter()
            .map(|(name, amounts)| (name.clone(), amounts.allocatable))
            .collect()
    }
}

/// Returns the first difference between the zones of two states of a node (7.4, `EqualZones` without tolerance). The order of zones does
/// not matter.
pub fn zones_difference(before: &NodeTopology, after: &NodeTopology) -> Option<String> {
    let by_name = |node: &NodeTopology| -> BTreeMap<String, Zone> {
        node.zones
            .iter()
            .map(|zone| (zone.name.clone(), zone.clone()))
            .collect()
    };
    let (old, new) = (by_name(before), by_name(after));
    if !old.keys().eq(new.keys()) {
        let names =
            |zones: &BTreeMap<String, Zone>| zones.keys().cloned().collect::<Vec<_>>().join(",");
        return Some(format!(
            "{}: zones {} became {}",
            before.node,
            names(&old),
            names(&new)
        ));
    }
    old.values().zip(new.values()).find_map(|(old, new)| {
        let names = old.resources.keys().chain(new.resources.keys());
        names.into_iter().find_map(|name| {
            let (a, b) = (old.resources.get(name), new.resources.get(name));
            (a != b).then(|| {
                let show = |amounts: Option<&Amounts>| match amounts {
                    None => "nothing".to_owned(),
                    Some(a) => {
                        let one = |milli| Resources::from_iter([(name.clone(), milli)]);
                        format!("available {} of {}", one(a.available), one(a.allocatable))
                    }
                };
                format!(
                    "{} {}: {} became {}",
                    before.node,
                    old.name,
                    show(a),
                    show(b)
                )
            })
        })
    })
}

/// Returns the NRT of a node. It is an error if there is none.
pub fn topology_of<'a>(
    topologies: &'a [NodeTopology],
    node: &str,
) -> Result<&'a NodeTopology, StepError> {
    let found = topologies.iter().find(|topology| topology.node == node);
    found.ok_or_else(|| StepError::fail(format!("node {node} has no NRT")))
}

/// Returns the first difference between two states of several nodes.
pub fn difference(before: &[NodeTopology], after: &[NodeTopology]) -> Option<String> {
    let of = |all: &[NodeTopology], node: &str| all.iter().position(|one| one.node == node);
    let changed = before.iter().find_map(|old| match of(after, &old.node) {
        None => Some(format!("the NRT of {} is gone", old.node)),
        Some(index) => zones_difference(old, &after[index]),
    });
    changed.or_else(|| {
        let new = after.iter().find(|new| of(before, &new.node).is_none())?;
        Some(format!("the NRT of {} is new", new.node))
    })
}

/// Checks that the pod's resources are accounted on its node: exactly these, nothing more (stricter than 7.4, which accepts
/// over-accounting), and with scope `pod` all of them in one zone. Returns the difference, if there is one.
///
/// CPU, memory and hugepages count only for Guaranteed pods.
pub fn accounting_difference(
    before: &NodeTopology,
    after: &NodeTopology,
    required: &Resources,
    guaranteed: bool,
    one_zone: bool,
) -> Option<String> {
    let wanted = required
        .zone_level()
        .filtered(|name, milli| milli > 0 && (guaranteed || !is_native(name)));
    let mut zones = Vec::new();
    for old in &before.zones {
        let Some(new) = after.zones.iter().find(|zone| zone.name == old.name) else {
            return Some(format!("zone {} of {} is gone", old.name, before.node));
        };
        zones.push((old, old.available().minus(&new.available())));
    }
    let taken = |list: &Resources| list.filtered(|_, milli| milli != 0);
    if let Some((name, _)) = wanted.iter().find(|(name, _)| {
        before
            .zones
            .iter()
            .any(|zone| !zone.resources.contains_key(*name))
    }) {
        return Some(format!(
            "resource {name} is not listed in every zone of {}",
            before.node
        ));
    }
    let node = taken(&Resources::sum(zones.iter().map(|(_, list)| list)));
    if node != wanted {
        let each: Vec<_> = zones
            .iter()
            .map(|(zone, list)| format!("{}: {}", zone.name, taken(list)))
            .collect();
        return Some(format!("{} on {} ({})", node, before.node, each.join("; ")));
    }
    if one_zone && !wanted.is_empty() && !zones.iter().any(|(_, list)| taken(list) == wanted) {
        let each: Vec<_> = zones
            .iter()
            .map(|(zone, list)| format!("{}: {}", zone.name, taken(list)))
            .collect();
        return Some(format!(
            "spread over the zones of {}: {}",
            before.node,
            each.join("; ")
        ));
    }
    None
}

#[cfg(test)]
pub(crate) mod tests;
