//! Addresses and node ports of services.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use serde_json::{Value, json};

use crate::failure::{Cause, Failure, Subject};
use crate::storage::State;
use crate::values::draws;

/// First two bytes of the addresses of services: 10.96.0.0/16.
const RANGE: [u8; 2] = [10, 96];
/// Node ports that are given to services.
const NODE_PORTS: std::ops::RangeInclusive<u16> = 30000..=32767;

/// Returns the addresses of services.
pub(crate) fn service_range() -> String {
    format!("{}.{}.0.0/16", RANGE[0], RANGE[1])
}

/// Returns the address of the service `kubernetes`.
pub(crate) fn first_service_address() -> Ipv4Addr {
    Ipv4Addr::new(RANGE[0], RANGE[1], 0, 1)
}

/// Gives a service the addresses and ports that it lacks, and keeps those that it had.
pub(super) fn allocate(
    state: &State,
    object: &mut Value,
    before: Option<&Value>,
) -> Result<(), Failure> {
    if let Some(before) = before {
        keep(object, before);
    }
    let kind = object["spec"]["type"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    if kind == "ExternalName" {
        if let Some(spec) = object["spec"].as_object_mut() {
            for field in [
                "clusterIP",
                "clusterIPs",
                "ipFamilies",
                "ipFamilyPolicy",
                "internalTrafficPolicy",
            ] {
                spec.remove(field);
            }
        }
        return Ok(());
    }
    address(state, object)?;
    if kind == "NodePort" || kind == "LoadBalancer" {
        node_ports(state, object)?;
    }
    if kind == "LoadBalancer" && object["spec"]["externalTrafficPolicy"] == "Local" {
        health_port(state, object, before);
    }
    Ok(())
}

/// Gives a service the port at which nodes tell whether they have a pod of it.
fn health_port(state: &State, object: &mut Value, before: Option<&Value>) {
    const FIELD: &str = "healthCheckNodePort";
    if object["spec"][FIELD].as_u64().unwrap_or_default() != 0 {
        return;
    }
    let kept = before.map(|before| before["spec"][FIELD].clone());
    if let Some(kept) = kept.filter(|kept| kept.as_u64().is_some_and(|port| port != 0)) {
        object["spec"][FIELD] = kept;
        return;
    }
    let taken: HashSet<u64> = state
        .list("services", "")
        .map(|(_, service)| &**service)
        .chain([&*object])
        .flat_map(|service| {
            let ports = service["spec"]["ports"].as_array().into_iter().flatten();
            let ports = ports.map(|port| &port["nodePort"]);
            ports
                .chain([&service["spec"][FIELD]])
                .filter_map(Value::as_u64)
        })
        .collect();
    let start = usize::from(draws::id().as_bytes()[0]);
    if let Some(port) = free_port(start, &taken) {
        object["spec"][FIELD] = json!(port);
    }
}

/// Returns a node port that nobody has, looking from a place on.
fn free_port(start: usize, taken: &HashSet<u64>) -> Option<u64> {
    NODE_PORTS
        .map(u64::from)
        .cycle()
        .skip(start * 8)
        .take(NODE_PORTS.len())
        .find(|number| !taken.contains(number))
}

fn keep(object: &mut Value, before: &Value) {
    let is_internal = |service: &Value| service["spec"]["type"] != "ExternalName";
    if !is_internal(object) || !is_internal(before) {
        return;
    }
    for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if object["spec"][field].is_null() {
            object["spec"][field] = before["spec"][field].clone();
        }
    }
    if object["spec"]["type"] == "ClusterIP" {
        return;
    }
    let old = before["spec"]["ports"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let ports = object["spec"]["ports"].as_array_mut().into_iter().flatten();
    for port in ports {
        if port.get("nodePort").is_some() {
            continue;
        }
        let same = old
            .iter()
            .find(|old| old["port"] == port["port"] && old["protocol"] == port["protocol"]);
        if let Some(number) = same.and_then(|old| old.get("nodePort")) {
            port["nodePort"] = number.clone();
        }
    }
}

fn address(state: &State, object: &mut Value) -> Result<(), Failure> {
    let own = |key: &crate::storage::Key, object: &Value| {
        object["metadata"]["namespace"] == key.namespace.as_str()
            && object["metadata"]["name"] == key.name.as_str()
    };
    let given = object["spec"]["clusterIP"]
        .as_str()
        .filter(|address| !address.is_empty())
        .or_else(|| object["spec"]["clusterIPs"][0].as_str())
        .map(str::to_owned);
    let address = match given {
        Some(address) if address == "None" => address,
        Some(address) => {
            let taken = state
                .list("services", "")
                .any(|(key, other)| !own(key, object) && other["spec"]["clusterIP"] == *address);
            let parsed = address.parse::<Ipv4Addr>();
            let within = parsed
                .as_ref()
                .is_ok_and(|address| address.octets()[..2] == RANGE);
            let why = if taken {
                "provided IP is already allocated"
            } else if parsed.is_ok() && !within {
                "the provided network does not match the current range"
            } else {
                // that it is no address is for the validation
                ""
            };
            if !why.is_empty() {
                return Err(invalid(
                    object,
                    "spec.clusterIPs",
                    &json!([address]),
                    &format!("failed to allocate IP {address}: {why}"),
                ));
            }
            address
        }
        None => {
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
    };
    let spec = &mut object["spec"];
    let headless = address == "None";
    let selects = spec["selector"]
        .as_object()
        .is_some_and(|selector| !selector.is_empty());
    let (families, policy) = if headless && !selects {
        (json!(["IPv4", "IPv6"]), json!("RequireDualStack"))
    } else {
        (json!(["IPv4"]), json!("SingleStack"))
    };
    spec["clusterIPs"] = json!([address]);
    spec["clusterIP"] = json!(address);
    if spec["ipFamilyPolicy"].is_null() {
        spec["ipFamilyPolicy"] = policy;
    }
    if spec["ipFamilies"].is_null() {
        spec["ipFamilies"] = families;
    }
    Ok(())
}

fn node_ports(state: &State, object: &mut Value) -> Result<(), Failure> {
    let (namespace, name) = (
        object["metadata"]["namespace"].clone(),
        object["metadata"]["name"].clone(),
    );
    let mut taken: HashSet<u64> = state
        .list("services", "")
        .filter(|(key, _)| namespace != key.namespace.as_str() || name != key.name.as_str())
        .flat_map(|(_, service)| service["spec"]["ports"].as_array().into_iter().flatten())
        .filter_map(|port| port["nodePort"].as_u64())
        .collect();
    let others = taken.clone();
    let mut ports = object["spec"]["ports"].take();
    let mut refused = None;
    for (index, port) in ports.as_array_mut().into_iter().flatten().enumerate() {
        match port["nodePort"].as_u64() {
            Some(number) if others.contains(&number) => {
                refused.get_or_insert_with(|| {
                    (
                        index,
                        port["nodePort"].clone(),
                        "provided port is already allocated",
                    )
                });
            }
            Some(number) if !u16::try_from(number).is_ok_and(|port| NODE_PORTS.contains(&port)) => {
                refused.get_or_insert_with(|| (
                    index,
                    port["nodePort"].clone(),
                    "provided port is not in the valid range. The range of valid ports is 30000-32767",
                ));
            }
            // that a service has one twice is for the validation
            Some(number) => drop(taken.insert(number)),
            None => {
                let start = usize::from(draws::id().as_bytes()[0]);
                if let Some(number) = free_port(start, &taken) {
                    taken.insert(number);
                    port["nodePort"] = json!(number);
                }
            }
        }
    }
    object["spec"]["ports"] = ports;
    match refused {
        Some((index, number, why)) => Err(invalid(
            object,
            &format!("spec.ports[{index}].nodePort"),
            &number,
            why,
        )),
        None => Ok(()),
    }
}

fn invalid(object: &Value, field: &str, value: &Value, why: &str) -> Failure {
    let subject = Subject {
        group: "",
        resource: "Service",
        name: object["metadata"]["name"].as_str().unwrap_or_default(),
    };
    Failure::invalid(&subject, &[Cause::invalid(field, value, why)])
}
