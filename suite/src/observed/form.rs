//! The form that every NRT has to have, as the original's own suite requires it (resource-topology-exporter test/e2e/topology_updater).

use api::nrt::v1alpha2::NodeResourceTopology;
use api::{attributes, nrt};

use super::NodeTopology;

/// Returns the first deviation from the required form, as the end of a sentence about the object.
pub fn flaw(object: &NodeResourceTopology) -> Option<String> {
    if !object.topology_policies.is_empty() {
        return Some("has topologyPolicies, which are deprecated".to_owned());
    }
    for name in [
        attributes::TOPOLOGY_MANAGER_POLICY,
        attributes::TOPOLOGY_MANAGER_SCOPE,
    ] {
        let found = object
            .attributes
            .iter()
            .find(|attribute| attribute.name == name);
        if found.is_none_or(|attribute| attribute.value.is_empty()) {
            return Some(format!("has no attribute {name}"));
        }
    }
    let node = match NodeTopology::read(object) {
        Ok(node) => node,
        Err(error) => return Some(format!("is not readable: {error}")),
    };
    if node.zones.is_empty() {
        return Some("has no zones".to_owned());
    }
    let zones = object
        .zones
        .iter()
        .filter(|zone| zone.zone_type == nrt::ZONE_TYPE_NODE);
    for zone in zones {
        if zone.costs.is_empty() {
            return Some(format!("has a zone {} without costs", zone.name));
        }
    }
    for zone in &node.zones {
        if !zone.resources.contains_key("cpu") {
            return Some(format!("has a zone {} without CPUs", zone.name));
        }
        for (resource, amounts) in &zone.resources {
            if amounts.available < 0 || amounts.capacity < amounts.available {
                return Some(format!(
                    "has {resource} of {} available {} of {} (thousandths)",
                    zone.name, amounts.available, amounts.capacity
                ));
            }
        }
    }
    None
}
