//! What an NRT must contain, by plain arithmetic: what the machine has for pods, minus what the state files say that containers of active
//! pods hold (rte.md 4.4). Also the effects of the entries that do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Write as _};

use api::attributes;
use api::nrt::v1alpha2::NodeResourceTopology;
use api::nrt::{self, ResourceInfo, Zone};

use super::holdings::{self, Holding, Pods, Standing};
use super::machine::{Amount, NodeFacts, ZoneFacts};
use super::state::NodeState;

/// A value that is not as required.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Node, zone and resource, and which of its numbers differs.
    pub(crate) place: String,
    /// What was expected, with its terms.
    pub(crate) expected: String,
    /// What was seen instead.
    pub(crate) seen: String,
}

/// The entries that do not count, each with what it holds. All of them had the required effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Uncounted {
    /// CPUs and devices of finished init containers: the kubelet keeps them, the NRT shows them as available.
    pub(crate) finished_init: BTreeSet<String>,
    /// Finished init containers whose memory the kubelet has released.
    pub(crate) released_init: BTreeSet<String>,
    /// Entries of containers whose pods have ended or are gone: still in the state files, available in the NRT.
    pub(crate) stale: BTreeSet<String>,
    /// Memory over several zones, of containers that count: none of these zones has any of it available.
    pub(crate) spanning: BTreeSet<String>,
}

fn differs(place: impl Display, expected: impl Display, seen: impl Display) -> Difference {
    Difference {
        place: place.to_string(),
        expected: expected.to_string(),
        seen: seen.to_string(),
    }
}

/// Compares an NRT with the machine and the state files of its node.
pub(crate) fn compare(
    node: &NodeFacts,
    state: &NodeState,
    pods: &Pods<'_>,
    seen: &NodeResourceTopology,
) -> Result<Uncounted, Difference> {
    let name = &node.name;
    let held = holdings::read(node, state, pods).map_err(|error| {
        differs(
            format!("state files of {name}"),
            "entries that make sense",
            error,
        )
    })?;
    held_once(name, &held)?;
    attributes(node, seen)?;
    let names = |zones: &[String]| zones.join(", ");
    let expected: Vec<String> = (0..node.zones.len())
        .map(|id| format!("node-{id}"))
        .collect();
    let mut there: Vec<String> = seen.zones.iter().map(|zone| zone.name.clone()).collect();
    there.sort();
    if there != expected {
        return Err(differs(
            format!("zones of {name}"),
            names(&expected),
            names(&there),
        ));
    }
    for (id, facts) in node.zones.iter().enumerate() {
        for zone in seen.zones.iter().filter(|zone| zone.name == expected[id]) {
            let held: Vec<&Holding> = held.iter().filter(|one| one.zone == id).collect();
            compare_zone(name, facts, zone, &held)?;
        }
    }
    kubelets_view(node, state, &held)?;
    uncounted(node, state, pods, &held)
}

/// Checks that no CPU and no device is held twice: a stale entry is gone before its units are assigned again.
fn held_once(node: &str, held: &[Holding]) -> Result<(), Difference> {
    let mut owners: BTreeMap<(&str, &str), &Holding> = BTreeMap::new();
    for one in held {
        for id in &one.ids {
            if let Some(other) = owners.insert((&one.resource, id), one) {
                let place = format!("{node} {} {id}", one.resource);
                return Err(differs(
                    place,
                    "held by one container",
                    format!("{} and {}", other.owner, one.owner),
                ));
            }
        }
    }
    Ok(())
}

fn attributes(node: &NodeFacts, seen: &NodeResourceTopology) -> Result<(), Difference> {
    let wanted = [
        (attributes::TOPOLOGY_MANAGER_POLICY, &node.policy),
        (attributes::TOPOLOGY_MANAGER_SCOPE, &node.scope),
    ];
    for (attribute, expected) in wanted {
        let value = nrt::attribute(&seen.attributes, attribute);
        if value != Some(expected) {
            let place = format!("{} attribute {attribute}", node.name);
            return Err(differs(place, expected, value.unwrap_or("nothing")));
        }
    }
    Ok(())
}

fn compare_zone(
    node: &str,
    facts: &ZoneFacts,
    seen: &Zone,
    held: &[&Holding],
) -> Result<(), Difference> {
    let place = |what: &str| format!("{node} {} {what}", seen.name);
    if seen.zone_type != "Node" {
        return Err(differs(place("type"), "Node", &seen.zone_type));
    }
    let distances: BTreeMap<String, i64> = facts
        .distances
        .iter()
        .enumerate()
        .map(|(id, &distance)| (format!("node-{id}"), distance))
        .collect();
    let costs: BTreeMap<String, i64> = seen
        .costs
        .iter()
        .map(|cost| (cost.name.clone(), cost.value))
        .collect();
    if costs != distances || seen.costs.len() != distances.len() {
        return Err(differs(
            place("costs"),
            format!("{distances:?}"),
            format!("{:?}", seen.costs),
        ));
    }
    let mut listed: Vec<&str> = seen
        .resources
        .iter()
        .map(|resource| resource.name.as_str())
        .collect();
    listed.sort_unstable();
    let expected: Vec<&str> = facts.resources.keys().map(String::as_str).collect();
    if listed != expected {
        return Err(differs(
            place("resources"),
            expected.join(", "),
            listed.join(", "),
        ));
    }
    for resource in &seen.resources {
        let Amount {
            capacity,
            allocatable,
        } = facts.resources[&resource.name];
        let counted: Vec<&Holding> = held
            .iter()
            .filter(|one| one.resource == resource.name && one.standing == Standing::Active)
            .copied()
            .collect();
        let place = place(&resource.name);
        compare_amounts(&place, resource, [capacity, allocatable], &counted)?;
    }
    Ok(())
}

/// Compares the three amounts of a resource in a zone with what there is and what is held of it.
fn compare_amounts(
    place: &str,
    resource: &ResourceInfo,
    [capacity, allocatable]: [i64; 2],
    counted: &[&Holding],
) -> Result<(), Difference> {
    // memory over several zones is charged in full to each, which may be more than a zone has
    let available = (allocatable - sum(counted)).max(0);
    let terms = terms(counted);
    let numbers = [
        ("capacity", &resource.capacity, capacity, String::new()),
        (
            "allocatable",
            &resource.allocatable,
            allocatable,
            String::new(),
        ),
        (
            "available",
            &resource.available,
            available,
            format!(" = {allocatable}{terms}"),
        ),
    ];
    for (what, quantity, expected, terms) in numbers {
        let place = format!("{place} {what}");
        let milli = api::quantity::milli(quantity)
            .map_err(|error| differs(&place, expected, format!("{:?}: {error}", quantity.0)))?;
        if Some(milli) != expected.checked_mul(1000) {
            return Err(differs(place, format!("{expected}{terms}"), &quantity.0));
        }
    }
    Ok(())
}

fn sum<'a>(held: impl IntoIterator<Item = &'a &'a Holding>) -> i64 {
    held.into_iter().map(|one| one.amount).sum()
}

/// Formats what is subtracted from an amount, for people.
fn terms(held: &[&Holding]) -> String {
    let mut text = String::new();
    for one in held {
        // writing to a string cannot fail
        let _ = write!(text, " - {one}");
    }
    text
}

/// Checks the kubelet's own sums in the same files: what it has left, plus what containers hold, whether they count or not, equals what it
/// has for pods. So what the NRT has available beyond what the kubelet could assign is held by the entries that do not count. Zones that
/// share the memory of a container are added up, because nothing says how much of it is in which zone.
fn kubelets_view(node: &NodeFacts, state: &NodeState, held: &[Holding]) -> Result<(), Difference> {
    for (id, facts) in node.zones.iter().enumerate() {
        let shared = &state.cpus.default_cpu_set.0;
        let free = facts
            .cpus
            .iter()
            .filter(|cpu| shared.contains(cpu) && !facts.reserved_cpus.contains(cpu))
            .count() as i64;
        left_of("cpu", node, &[id], free, held)?;
    }
    if !node.manages_memory {
        return Ok(());
    }
    let sums = state.memory.machine_state.as_ref();
    for resource in ["memory", "hugepages-2Mi", "hugepages-1Gi"] {
        for group in groups(node.zones.len(), resource, held) {
            let mut free = 0;
            let mut is_listed = false;
            for &id in &group {
                let Some(amount) = node.zones[id].resources.get(resource) else {
                    continue;
                };
                let memory = sums.and_then(|sums| sums.get(&id)?.memory_map.get(resource));
                let place = format!(
                    "memory_manager_state of {} node-{id} {resource} allocatable",
                    node.name
                );
                let Some(memory) = memory else {
                    return Err(differs(place, amount.allocatable, "nothing"));
                };
                if memory.allocatable != amount.allocatable {
                    return Err(differs(place, amount.allocatable, memory.allocatable));
                }
                free += memory.free;
                is_listed = true;
            }
            if is_listed {
                left_of(resource, node, &group, free, held)?;
            }
        }
    }
    Ok(())
}

/// Groups the zones: zones are in one group if a container has a resource of several of them.
fn groups(zones: usize, resource: &str, held: &[Holding]) -> Vec<Vec<usize>> {
    let mut group_of: Vec<usize> = (0..zones).collect();
    let spanning = held
        .iter()
        .filter(|one| one.resource == resource && one.is_first());
    for one in spanning {
        for &zone in &one.spans {
            let (from, to) = (group_of[zone], group_of[one.zone]);
            for group in &mut group_of {
                if *group == from {
                    *group = to;
                }
            }
        }
    }
    let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (zone, group) in group_of.into_iter().enumerate() {
        groups.entry(group).or_default().push(zone);
    }
    groups.into_values().collect()
}

/// Checks that the kubelet has left in these zones together what the holders leave.
fn left_of(
    resource: &str,
    node: &NodeFacts,
    zones: &[usize],
    free: i64,
    held: &[Holding],
) -> Result<(), Difference> {
    let holders: Vec<&Holding> = held
        .iter()
        .filter(|one| zones.contains(&one.zone) && one.resource == resource && one.is_first())
        .collect();
    let allocatable: i64 = zones
        .iter()
        .filter_map(|&zone| node.zones[zone].resources.get(resource))
        .map(|amount| amount.allocatable)
        .sum();
    let expected = allocatable - sum(&holders);
    if free == expected {
        return Ok(());
    }
    let names: Vec<String> = zones.iter().map(|zone| format!("node-{zone}")).collect();
    let place = format!(
        "what the kubelet of {} has left in {} of {resource}",
        node.name,
        names.join("+")
    );
    Err(differs(
        place,
        format!("{expected} = {allocatable}{}", terms(&holders)),
        free,
    ))
}

/// Lists the entries that do not count, and checks that each has its effect.
fn uncounted(
    node: &NodeFacts,
    state: &NodeState,
    pods: &Pods<'_>,
    held: &[Holding],
) -> Result<Uncounted, Difference> {
    let name = &node.name;
    let mut uncounted = Uncounted::default();
    let mut kept = BTreeSet::new();
    for one in held.iter().filter(|one| one.is_first()) {
        let text = format!("{name} {}", one.by_name());
        if one.standing == Standing::Active {
            // the comparison above showed that the NRT has it unavailable in each zone
            if !one.spans.is_empty() {
                uncounted.spanning.insert(text);
            }
            continue;
        }
        // the comparison above showed that the NRT has them available; in the state files they are not
        if one.resource == "cpu"
            && let Some(id) = one.ids.iter().find(|id| {
                id.parse()
                    .is_ok_and(|cpu| state.cpus.default_cpu_set.0.contains(&cpu))
            })
        {
            let place = format!("{name} CPU {id} of {}", one.owner);
            return Err(differs(place, "kept by the kubelet", "in its default set"));
        }
        if one.standing == Standing::Stale {
            uncounted.stale.insert(text);
        } else if one.ids.is_empty() && !node.spans_zones() {
            kept.insert(one.owner.clone());
        } else {
            uncounted.finished_init.insert(text);
        }
    }
    // the memory manager releases what a finished init container had (kubelet-node.md 7.4), unless the app container got other zones
    if !kept.is_empty() {
        let kept: Vec<String> = kept.into_iter().collect();
        let place = format!("{name} memory of finished init containers");
        return Err(differs(
            place,
            "given back",
            format!("kept for {}", kept.join(", ")),
        ));
    }
    if node.manages_memory {
        uncounted.released_init = pods.finished_inits_with_memory(name);
    }
    Ok(uncounted)
}

#[cfg(test)]
mod tests;
