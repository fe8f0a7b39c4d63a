//! Addresses and node ports of services.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use serde_json::{Value, json};

use crate::failure::{Cause, Failure, Subject};
use crate::storage::{Key, State};
use crate::values::draws;
use crate::values::fields::remove;

mod families;
mod ports;

/// First two bytes of the addresses of services: 10.96.0.0/16.
const RANGE: [u8; 2] = [10, 96];

/// Returns the addresses of services.
pub(crate) fn service_range() -> String {
    format!("{}.{}.0.0/16", RANGE[0], RANGE[1])
}

/// Returns the address of the service `kubernetes`.
pub(crate) fn first_service_address() -> Ipv4Addr {
    Ipv4Addr::new(RANGE[0], RANGE[1], 0, 1)
}

/// Gives a service the addresses and ports that it lacks, and keeps those that it had. What is only tried reserves nothing.
pub(super) fn allocate(
    state: &State,
    object: &mut Value,
    before: Option<&Value>,
    is_tried: bool,
) -> Result<(), Failure> {
    if let Some(before) = before {
        keep(object, before);
    }
    normalize(object, before);
    families::settle(object, before)?;
    if needs_address(object) && !has_addresses(before) {
        address(state, object)?;
    }
    match before {
        None => ports::of_new(state, object, is_tried)?,
        Some(before) => ports::of_change(state, object, before, is_tried)?,
    }
    ports::health(state, object, before)?;
    if let Some(before) = before {
        drop_unused(object, before);
    }
    // it has no meaning there, and no read shows it
    let policy = &object["spec"]["internalTrafficPolicy"];
    if is_external(object) && ["Cluster", "Local"].iter().any(|known| policy == known) {
        remove(&mut object["spec"], "internalTrafficPolicy");
    }
    Ok(())
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["spec"][field].as_str().unwrap_or_default()
}

fn list(object: &Value, field: &str) -> Vec<Value> {
    object["spec"][field]
        .as_array()
        .cloned()
        .unwrap_or_default()
}

fn is_external(object: &Value) -> bool {
    object["spec"]["type"] == "ExternalName"
}

fn is_headless(object: &Value) -> bool {
    list(object, "clusterIPs").first() == Some(&json!("None"))
}

/// Returns whether a balancer sends to ports of nodes with a pod only, so that they tell whether they have one.
fn needs_health_port(object: &Value) -> bool {
    object["spec"]["type"] == "LoadBalancer" && object["spec"]["externalTrafficPolicy"] == "Local"
}

/// Returns whether a service can be reached from outside.
fn is_outside(object: &Value) -> bool {
    match text(object, "type") {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !list(object, "externalIPs").is_empty(),
        _ => false,
    }
}

fn needs_address(object: &Value) -> bool {
    !is_external(object) && !is_headless(object)
}

/// Returns whether a service was there before with all the addresses that it needs.
fn has_addresses(before: Option<&Value>) -> bool {
    before.is_some_and(|before| !is_external(before))
}

/// Takes over what was given to the service before and is not in its new form.
fn keep(object: &mut Value, before: &Value) {
    if !is_external(object) && !is_external(before) {
        if text(object, "clusterIP").is_empty() {
            object["spec"]["clusterIP"] = before["spec"]["clusterIP"].clone();
        }
        if list(object, "clusterIPs").is_empty() {
            object["spec"]["clusterIPs"] = before["spec"]["clusterIPs"].clone();
        }
    }
    ports::keep(object, before);
    if needs_health_port(object) && needs_health_port(before) {
        let port = &mut object["spec"]["healthCheckNodePort"];
        if port.as_i64().unwrap_or_default() == 0 {
            *port = before["spec"]["healthCheckNodePort"].clone();
        }
    }
}

fn has_same_addresses(one: &Value, other: &Value) -> bool {
    text(one, "clusterIP") == text(other, "clusterIP")
        && list(one, "clusterIPs") == list(other, "clusterIPs")
}

/// Brings the first of the addresses and the list of all of them together, as far as it is clear what was meant.
fn normalize(object: &mut Value, before: Option<&Value>) {
    let first = text(object, "clusterIP").to_owned();
    let all = list(object, "clusterIPs");
    let Some(before) = before else {
        if !first.is_empty() && all.is_empty() {
            object["spec"]["clusterIPs"] = json!([first]);
        }
        return;
    };
    if first == text(before, "clusterIP") || all != list(before, "clusterIPs") {
        return;
    }
    // only the first one was changed, so the list follows
    object["spec"]["clusterIPs"] = if first.is_empty() {
        Value::Null
    } else {
        json!([first])
    };
}

fn address(state: &State, object: &mut Value) -> Result<(), Failure> {
    let own = |key: &Key| {
        object["metadata"]["namespace"] == key.namespace.as_str()
            && object["metadata"]["name"] == key.name.as_str()
    };
    let given = list(object, "clusterIPs");
    let given = given.first().and_then(Value::as_str).unwrap_or_default();
    let address = if given.is_empty() {
        free_address(state)
    } else {
        let is_taken = state
            .list("services", "")
            .any(|(key, other)| !own(key) && other["spec"]["clusterIP"] == given);
        let parsed = given.parse::<Ipv4Addr>();
        let why = if is_taken {
            "provided IP is already allocated"
        } else if parsed.is_ok_and(|address| address.octets()[..2] != RANGE) {
            "the provided network does not match the current range"
        } else {
            ""
        };
        if !why.is_empty() {
            let why = format!("failed to allocate IP {given}: {why}");
            let all = &object["spec"]["clusterIPs"];
            return Err(refused(
                object,
                &[Cause::invalid("spec.clusterIPs", all, &why)],
            ));
        }
        given.to_owned()
    };
    let spec = &mut object["spec"];
    spec["clusterIP"] = json!(address);
    match spec["clusterIPs"]
        .as_array_mut()
        .and_then(|all| all.first_mut())
    {
        Some(first) => *first = json!(address),
        None => spec["clusterIPs"] = json!([address]),
    }
    Ok(())
}

fn free_address(state: &State) -> String {
    let taken: HashSet<&str> = state
        .list("services", "")
        .filter_map(|(_, service)| service["spec"]["clusterIP"].as_str())
        .collect();
    loop {
        let random = draws::id();
        let [third, fourth, ..] = *random.as_bytes();
        // the lower part of the range is reserved for addresses that users choose
        if third == 0 || third == u8::MAX && fourth == u8::MAX {
            continue;
        }
        let address = Ipv4Addr::new(RANGE[0], RANGE[1], third, fourth).to_string();
        if !taken.contains(address.as_str()) {
            break address;
        }
    }
}

/// Drops what a changed service has from before and cannot have with its new type, unless the change touches it.
fn drop_unused(object: &mut Value, before: &Value) {
    let mut unused: Vec<&str> = Vec::new();
    let is_same = |object: &Value, field: &str| object["spec"][field] == before["spec"][field];
    if !is_external(before) && is_external(object) {
        if has_same_addresses(object, before) {
            unused.extend(["clusterIP", "clusterIPs"]);
        }
        unused.extend(["ipFamilies", "ipFamilyPolicy"]);
    }
    ports::drop_unused(object, before);
    if needs_health_port(before) && !needs_health_port(object) {
        unused.push("healthCheckNodePort");
    }
    let balances = |object: &Value| object["spec"]["type"] == "LoadBalancer";
    if balances(before) && !balances(object) {
        unused.extend(["allocateLoadBalancerNodePorts", "loadBalancerClass"]);
    }
    if is_outside(before) && !is_outside(object) {
        unused.push("externalTrafficPolicy");
    }
    for field in unused {
        if is_same(object, field) {
            remove(&mut object["spec"], field);
        }
    }
}

/// Refuses a service for what is wrong with it.
fn refused(object: &Value, causes: &[Cause]) -> Failure {
    let subject = Subject {
        group: "",
        resource: "Service",
        name: object["metadata"]["name"].as_str().unwrap_or_default(),
    };
    Failure::invalid(&subject, causes)
}
