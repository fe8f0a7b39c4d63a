//! Ports of nodes that belong to services.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use super::{list, needs_health_port, refused, text};
use crate::failure::{Cause, Failure};
use crate::storage::State;
use crate::values::draws;
use crate::values::fields::{elements, remove};

/// Node ports that are given to services.
const NODE_PORTS: std::ops::RangeInclusive<u16> = 30000..=32767;
const TAKEN: &str = "provided port is already allocated";
const HEALTH: &str = "healthCheckNodePort";

/// The ports that services have.
struct Known {
    taken: HashSet<u64>,
    /// Whether a port that is reserved stays free.
    is_tried: bool,
}

impl Known {
    fn new(state: &State, is_tried: bool) -> Self {
        let taken = state.list("services", "").flat_map(|(_, service)| {
            let health = number(&service["spec"][HEALTH]);
            node_ports(service).into_iter().chain([health])
        });
        Self {
            taken: taken.filter(|port| *port != 0).collect(),
            is_tried,
        }
    }

    /// Reserves a port; returns why it cannot be.
    fn reserve(&mut self, port: u64) -> Option<&'static str> {
        if self.taken.contains(&port) {
            return Some(TAKEN);
        }
        if self.is_tried {
            return None;
        }
        if !u16::try_from(port).is_ok_and(|port| NODE_PORTS.contains(&port)) {
            return Some(
                "provided port is not in the valid range. The range of valid ports is 30000-32767",
            );
        }
        self.taken.insert(port);
        None
    }

    /// Reserves any port; 0 when all are taken.
    fn next(&mut self) -> u64 {
        let start = usize::from(draws::id().as_bytes()[0]);
        let free = NODE_PORTS
            .map(u64::from)
            .cycle()
            .skip(start * 8)
            .take(NODE_PORTS.len())
            .find(|number| !self.taken.contains(number));
        let free = free.unwrap_or_default();
        self.taken.insert(free);
        free
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

/// Returns the ports of nodes that a service names.
fn node_ports(object: &Value) -> HashSet<u64> {
    let ports = elements(&object["spec"]["ports"]);
    let numbers = ports.map(|port| number(&port["nodePort"]));
    numbers.filter(|number| *number != 0).collect()
}

fn uses_ports(object: &Value) -> bool {
    matches!(text(object, "type"), "NodePort" | "LoadBalancer")
}

/// Returns whether ports that are not given are looked for.
fn wants_ports(object: &Value) -> bool {
    match text(object, "type") {
        "NodePort" => true,
        "LoadBalancer" => object["spec"]["allocateLoadBalancerNodePorts"] != false,
        _ => false,
    }
}

/// Takes over the ports that a service had, by the names of its own.
pub(super) fn keep(object: &mut Value, before: &Value) {
    if !wants_ports(object) || !wants_ports(before) {
        return;
    }
    let used = &node_ports(before) & &node_ports(object);
    let before = list(before, "ports");
    let ports = object["spec"]["ports"].as_array_mut().into_iter().flatten();
    for port in ports.filter(|port| number(&port["nodePort"]) == 0) {
        // the last of several ports of a name counts
        let known = before.iter().rfind(|known| known["name"] == port["name"]);
        let known = known.map_or(0, |known| number(&known["nodePort"]));
        if known != 0 && !used.contains(&known) {
            port["nodePort"] = json!(known);
        }
    }
}

fn refuse(object: &Value, index: usize, port: u64, why: &str) -> Failure {
    let at = format!("spec.ports[{index}].nodePort");
    refused(object, &[Cause::invalid(at, &json!(port), why)])
}

/// Gives a new service its ports; the same port of several protocols gets one.
pub(super) fn of_new(state: &State, object: &mut Value, is_tried: bool) -> Result<(), Failure> {
    if !uses_ports(object) {
        return Ok(());
    }
    let mut known = Known::new(state, is_tried);
    let mut given: HashMap<u64, u64> = HashMap::new();
    let ports = list(object, "ports");
    for (index, port) in ports.iter().enumerate() {
        let (own, wanted) = (number(&port["port"]), number(&port["nodePort"]));
        if wanted == 0 && !wants_ports(object) {
            continue;
        }
        let node_port = match given.get(&own).copied() {
            Some(shared) if wanted == 0 => shared,
            Some(shared) if wanted == shared => continue,
            Some(_) => {
                if let Some(why) = known.reserve(wanted) {
                    return Err(refuse(object, index, wanted, why));
                }
                continue;
            }
            None => {
                let same = ports.iter().filter(|other| number(&other["port"]) == own);
                let asked = same
                    .map(|other| number(&other["nodePort"]))
                    .find(|asked| *asked != 0);
                let chosen = match asked {
                    Some(asked) => {
                        if let Some(why) = known.reserve(asked) {
                            return Err(refuse(object, index, asked, why));
                        }
                        asked
                    }
                    None => known.next(),
                };
                given.insert(own, chosen);
                chosen
            }
        };
        object["spec"]["ports"][index]["nodePort"] = json!(node_port);
    }
    Ok(())
}

/// Gives a changed service the ports that it lacks.
pub(super) fn of_change(
    state: &State,
    object: &mut Value,
    before: &Value,
    is_tried: bool,
) -> Result<(), Failure> {
    if !uses_ports(object) {
        return Ok(());
    }
    let mut known = Known::new(state, is_tried);
    let own = node_ports(before);
    let (mut reserved, mut seen) = (HashSet::new(), HashSet::new());
    for (index, port) in list(object, "ports").iter().enumerate() {
        let mut wanted = number(&port["nodePort"]);
        if wanted == 0 && !wants_ports(object) {
            continue;
        }
        if wanted == 0 {
            wanted = known.next();
            object["spec"]["ports"][index]["nodePort"] = json!(wanted);
        } else if !own.contains(&wanted)
            && reserved.insert(wanted)
            && let Some(why) = known.reserve(wanted)
        {
            return Err(refuse(object, index, wanted, why));
        }
        let protocol = port["protocol"].as_str().unwrap_or_default().to_owned();
        if !seen.insert((protocol.clone(), wanted)) {
            return Err(Failure::internal_without_reason(format!(
                "duplicate nodePort: {{{protocol} {wanted}}}"
            )));
        }
    }
    Ok(())
}

/// Gives a service the port at which nodes tell whether they have a pod of it.
pub(super) fn health(
    state: &State,
    object: &mut Value,
    before: Option<&Value>,
) -> Result<(), Failure> {
    if !needs_health_port(object) || before.is_some_and(needs_health_port) {
        return Ok(());
    }
    let mut known = Known::new(state, true);
    known.taken.extend(node_ports(object));
    let given = object["spec"][HEALTH].as_i64().unwrap_or_default();
    let wanted = number(&object["spec"][HEALTH]);
    if given == 0 {
        object["spec"][HEALTH] = json!(known.next());
    } else if let Some(why) = known.reserve(wanted) {
        return Err(Failure::internal(format!(
            "failed to allocate requested HealthCheck NodePort {wanted}: {why}"
        )));
    }
    Ok(())
}

/// Drops the ports of a changed service that has none with its new type, unless the change names others.
pub(super) fn drop_unused(object: &mut Value, before: &Value) {
    if !uses_ports(before) || uses_ports(object) {
        return;
    }
    if !node_ports(before).is_superset(&node_ports(object)) {
        return;
    }
    for port in object["spec"]["ports"].as_array_mut().into_iter().flatten() {
        remove(port, "nodePort");
    }
}
