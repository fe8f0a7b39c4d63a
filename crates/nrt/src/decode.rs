//! An NRT object in the form the scheduler needs (scheduler.md 3.2, 3.3, 5.8).

use api::attributes;
use api::nrt::v1alpha2::NodeResourceTopology;
use api::nrt::{ResourceInfo, ZONE_TYPE_NODE, Zone as WireZone, attribute};
use api::quantity::Amount;
use topology::mask::ZoneId;
use topology::policy::{CpuManager, ManagerConfig, Managers, Policy, Scope};
use topology::resource::ResourceName;
use topology::zone::{Amounts, Zone};

use crate::fingerprint::{self, Method};
use crate::placement::Encoded;

/// Prefix of the name of a NUMA zone.
pub(crate) const ZONE_PREFIX: &str = "node-";

/// What an NRT says about its node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeTopology {
    /// The NUMA zones, in the order of the object.
    pub zones: Vec<Zone>,
    /// The kubelet's settings.
    pub config: ManagerConfig,
    /// Which pods the amounts account for, if the object publishes it.
    pub fingerprint: Option<Published>,
    /// Where the containers of those pods run. Set only if the object publishes it and its attributes say that each container is on
    /// one NUMA node.
    pub placement: Option<Encoded>,
}

/// A published fingerprint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// The text, see [`crate::fingerprint`].
    pub text: String,
    /// Which pods it covers.
    pub method: Method,
}

/// A part of an object that `decode` leaves out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// A zone of type `Node` whose name does not end in a usable number.
    #[error("zone {0:?} is not named node-<0 to 63>")]
    ZoneName(String),
    /// A zone number that appears twice; the later zone is left out.
    #[error("zone {0:?} appears twice")]
    RepeatedZone(String),
    /// A cost whose destination is not a zone name.
    #[error("zone {zone:?} has a cost to {to:?}")]
    CostName {
        /// The zone.
        zone: String,
        /// The destination's name.
        to: String,
    },
    /// An amount that is not a quantity; the resource is left out.
    #[error("zone {zone:?} has no valid amount of {resource:?}")]
    Quantity {
        /// The zone.
        zone: String,
        /// The resource.
        resource: String,
    },
}

/// Reads an object. Parts that cannot be used are left out and returned as problems.
pub fn decode(nrt: &NodeResourceTopology) -> (NodeTopology, Vec<Problem>) {
    let mut problems = Vec::new();
    let mut zones: Vec<Zone> = Vec::with_capacity(nrt.zones.len());
    for wire in nrt
        .zones
        .iter()
        .filter(|zone| zone.zone_type == ZONE_TYPE_NODE)
    {
        let Some(id) = zone_id(&wire.name) else {
            problems.push(Problem::ZoneName(wire.name.clone()));
            continue;
        };
        if zones.iter().any(|zone| zone.id == id) {
            problems.push(Problem::RepeatedZone(wire.name.clone()));
            continue;
        }
        zones.push(zone(id, wire, &mut problems));
    }
    let topology = NodeTopology {
        zones,
        config: manager_config(nrt),
        fingerprint: published(nrt),
        placement: placement(nrt),
    };
    (topology, problems)
}

/// Parses the number in a zone's name: `node-` and decimal digits, small enough for a [`ZoneId`].
pub fn zone_id(name: &str) -> Option<ZoneId> {
    let digits = name.strip_prefix(ZONE_PREFIX)?;
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain
        .then(|| digits.parse().ok())
        .flatten()
        .and_then(ZoneId::new)
}

fn zone(id: ZoneId, wire: &WireZone, problems: &mut Vec<Problem>) -> Zone {
    let mut zone = Zone::new(id);
    for cost in &wire.costs {
        match zone_id(&cost.name) {
            Some(to) => drop(zone.distances.insert(to, cost.value)),
            None => problems.push(Problem::CostName {
                zone: wire.name.clone(),
                to: cost.name.clone(),
            }),
        }
    }
    for resource in &wire.resources {
        match amounts(resource) {
            Some(amounts) => drop(
                zone.resources
                    .insert(resource.name.as_str().into(), amounts),
            ),
            None => problems.push(Problem::Quantity {
                zone: wire.name.clone(),
                resource: resource.name.clone(),
            }),
        }
    }
    zone
}

fn amounts(resource: &ResourceInfo) -> Option<Amounts> {
    let name = ResourceName::from(resource.name.as_str());
    let read = |given| {
        let amount = Amount::try_from(given).ok()?;
        Some(amount.in_unit_of(name.as_str()))
    };
    Some(Amounts {
        capacity: read(&resource.capacity)?,
        allocatable: read(&resource.allocatable)?,
        available: read(&resource.available)?,
    })
}

/// Applies the deprecated policy first, then the attributes. The last valid attribute of each name wins (scheduler.md 3.2).
fn manager_config(nrt: &NodeResourceTopology) -> ManagerConfig {
    let mut config = ManagerConfig::default();
    if let Some((policy, scope)) = nrt
        .topology_policies
        .first()
        .and_then(|word| deprecated(word))
    {
        (config.policy, config.scope) = (policy, scope);
    }
    for given in &nrt.attributes {
        match given.name.as_str() {
            attributes::TOPOLOGY_MANAGER_SCOPE => {
                config.scope = given.value.parse().unwrap_or(config.scope);
            }
            attributes::TOPOLOGY_MANAGER_POLICY => {
                config.policy = given.value.parse().unwrap_or(config.policy);
            }
            attributes::TOPOLOGY_MANAGER_MAX_NUMA_NODES => {
                if let Some(count) = given.value.parse::<u64>().ok().filter(|count| *count > 1) {
                    let largest = u64::from(ManagerConfig::LARGEST_MAX_NUMA_NODES);
                    config.max_numa_nodes = count.min(largest) as u16;
                }
            }
            _ => {}
        }
    }
    config.managers = managers(nrt);
    config
}

/// Returns the managers, which are known only if the exporter publishes the policies of both.
fn managers(nrt: &NodeResourceTopology) -> Option<Managers> {
    let value = |name| attribute(&nrt.attributes, name);
    let threads = |name| value(name)?.parse().ok().filter(|threads| *threads > 0);
    let cpus = match value(attributes::CPU_MANAGER_POLICY)? {
        "static" => threads(attributes::CPU_MANAGER_FULL_PCPUS_ONLY)
            .map_or(CpuManager::Single, CpuManager::WholeCores),
        _ => CpuManager::Shared,
    };
    let memory = value(attributes::MEMORY_MANAGER_POLICY)? == "Static";
    Some(Managers {
        cpus,
        packed_cores: threads(attributes::CPU_MANAGER_PACKED_CORES),
        memory,
    })
}

fn deprecated(word: &str) -> Option<(Policy, Scope)> {
    match word {
        "SingleNUMANodePodLevel" => Some((Policy::SingleNumaNode, Scope::Pod)),
        "SingleNUMANodeContainerLevel" => Some((Policy::SingleNumaNode, Scope::Container)),
        "BestEffortPodLevel" => Some((Policy::BestEffort, Scope::Pod)),
        "BestEffortContainerLevel" => Some((Policy::BestEffort, Scope::Container)),
        "RestrictedPodLevel" => Some((Policy::Restricted, Scope::Pod)),
        "RestrictedContainerLevel" => Some((Policy::Restricted, Scope::Container)),
        _ => None,
    }
}

/// Returns the fingerprint attribute, or else the annotation, which always covers all pods (scheduler.md 5.8).
fn published(nrt: &NodeResourceTopology) -> Option<Published> {
    if let Some((text, method)) = fingerprint::published(&nrt.attributes) {
        return Some(Published {
            text: text.to_owned(),
            method,
        });
    }
    let text = nrt
        .metadata
        .annotations
        .as_ref()?
        .get(api::annotations::POD_FINGERPRINT)?;
    Some(Published {
        text: text.clone(),
        method: Method::All,
    })
}

/// Returns the placement if the policy attribute is `single-numa-node`; the deprecated policy field is not enough
/// (scheduler.md 6). Vectors of zones without a number are left out.
fn placement(nrt: &NodeResourceTopology) -> Option<Encoded> {
    let policy = attribute(&nrt.attributes, attributes::TOPOLOGY_MANAGER_POLICY)?;
    if policy.parse() != Ok(Policy::SingleNumaNode) {
        return None;
    }
    let metadata = attribute(&nrt.attributes, attributes::NUMA_PLACEMENT_METADATA)?;
    let vector = |zone: &WireZone| {
        let vector = attribute(&zone.attributes, attributes::NUMA_PLACEMENT_VECTOR)?;
        Some((usize::from(zone_id(&zone.name)?.get()), vector.to_owned()))
    };
    Some(Encoded {
        metadata: metadata.to_owned(),
        vectors: nrt.zones.iter().filter_map(vector).collect(),
    })
}

#[cfg(test)]
mod tests;
