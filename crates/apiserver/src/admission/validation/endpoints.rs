//! Checks of endpoints and of slices of them.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::checks::{filled, indexed, name, one_of, optional_name, port_number, text, wrong};
use super::{addresses, names};
use crate::failure::Cause;

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
/// Most addresses of an endpoint.
const MOST_ADDRESSES: usize = 100;
/// Most zones or nodes that an endpoint is hinted for.
const MOST_HINTS: usize = 8;

/// Checks the endpoints of a service.
pub(super) fn check(object: &Value, causes: &mut Vec<Cause>) {
    for (path, subset) in indexed(&object["subsets"], "subsets") {
        if !filled(&subset["addresses"]) && !filled(&subset["notReadyAddresses"]) {
            let why = "must specify `addresses` or `notReadyAddresses`";
            causes.push(Cause::required(&*path, why));
        }
        for field in ["addresses", "notReadyAddresses"] {
            for (at, address) in indexed(&subset[field], &format!("{path}.{field}")) {
                endpoint_address(address, &at, causes);
            }
        }
        let several = subset["ports"]
            .as_array()
            .is_some_and(|ports| ports.len() > 1);
        for (at, port) in indexed(&subset["ports"], &format!("{path}.ports")) {
            let at_name = format!("{at}.name");
            if several {
                name(&port["name"], names::label, &at_name, causes);
            } else {
                optional_name(&port["name"], names::label, &at_name, causes);
            }
            port_number(&port["port"], &format!("{at}.port"), causes);
            protocol(&port["protocol"], &format!("{at}.protocol"), causes);
            app_protocol(port, &at, causes);
        }
    }
}

fn endpoint_address(value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let (given, at) = (text(&value["ip"]), format!("{path}.ip"));
    addresses::legacy(given, &at, causes);
    optional_name(
        &value["hostname"],
        names::label,
        &format!("{path}.hostname"),
        causes,
    );
    node_name(&value["nodeName"], &format!("{path}.nodeName"), causes);
    addresses::endpoint(given, &at, causes);
}

fn node_name(value: &Value, path: &str, causes: &mut Vec<Cause>) {
    if !value.is_null() {
        wrong(names::subdomain(text(value)), text(value), path, causes);
    }
}

fn protocol(value: &Value, path: &str, causes: &mut Vec<Cause>) {
    if filled(value) {
        one_of(value, &PROTOCOLS, path, causes);
    } else {
        causes.push(Cause::required(path, ""));
    }
}

fn app_protocol(port: &Value, path: &str, causes: &mut Vec<Cause>) {
    let value = &port["appProtocol"];
    if !value.is_null() {
        let at = format!("{path}.appProtocol");
        wrong(names::key(text(value)), text(value), &at, causes);
    }
}

/// Checks a slice of endpoints.
pub(super) fn slice(object: &Value, causes: &mut Vec<Cause>) {
    without_endpoints(object, causes);
    endpoints_of_slice(object, causes);
}

/// Checks a changed slice. Endpoints that stay are not looked at again: older servers let in others.
pub(super) fn changed_slice(before: &Value, object: &Value, causes: &mut Vec<Cause>) {
    without_endpoints(object, causes);
    if before["endpoints"] != object["endpoints"] {
        endpoints_of_slice(object, causes);
    }
}

fn endpoints_of_slice(object: &Value, causes: &mut Vec<Cause>) {
    let family = text(&object["addressType"]);
    for (path, endpoint) in indexed(&object["endpoints"], "endpoints") {
        endpoint_of_slice(endpoint, family, &path, causes);
    }
}

fn without_endpoints(object: &Value, causes: &mut Vec<Cause>) {
    let family = text(&object["addressType"]);
    if family.is_empty() {
        causes.push(Cause::required("addressType", ""));
    } else {
        one_of(
            &object["addressType"],
            &["FQDN", "IPv4", "IPv6"],
            "addressType",
            causes,
        );
    }
    let mut seen = HashSet::new();
    for (path, port) in indexed(&object["ports"], "ports") {
        let (given, at) = (text(&port["name"]), format!("{path}.name"));
        optional_name(&port["name"], names::label, &at, causes);
        if !seen.insert(given) {
            causes.push(Cause::duplicate(at, &json!(given)));
        }
        if port["protocol"].is_null() {
            causes.push(Cause::required(format!("{path}.protocol"), ""));
        } else {
            one_of(
                &port["protocol"],
                &PROTOCOLS,
                &format!("{path}.protocol"),
                causes,
            );
        }
        app_protocol(port, &path, causes);
    }
}

fn endpoint_of_slice(endpoint: &Value, family: &str, path: &str, causes: &mut Vec<Cause>) {
    let at = format!("{path}.addresses");
    match endpoint["addresses"].as_array().map_or(0, Vec::len) {
        0 => causes.push(Cause::required(&*at, "must contain at least 1 address")),
        count if count > MOST_ADDRESSES => {
            causes.push(Cause::too_many(&*at, count, MOST_ADDRESSES));
        }
        _ => {}
    }
    for (inner, address) in indexed(&endpoint["addresses"], &at) {
        let given = text(address);
        match family {
            "IPv4" | "IPv6" => slice_address(given, family, &at, &inner, causes),
            "FQDN" => name(address, names::full_domain, &inner, causes),
            _ => {}
        }
    }
    node_name(&endpoint["nodeName"], &format!("{path}.nodeName"), causes);
    let host = &endpoint["hostname"];
    if !host.is_null() {
        wrong(
            names::label(text(host)),
            text(host),
            &format!("{path}.hostname"),
            causes,
        );
    }
    for (field, check) in [
        ("forZones", names::value as fn(&str) -> Vec<String>),
        ("forNodes", names::subdomain),
    ] {
        let (hints, at) = (&endpoint["hints"][field], format!("{path}.hints.{field}"));
        let count = hints.as_array().map_or(0, Vec::len);
        if count > MOST_HINTS {
            causes.push(Cause::too_many(at, count, MOST_HINTS));
            return;
        }
        let mut seen = HashSet::new();
        for (at, hint) in indexed(hints, &at) {
            let (given, at) = (text(&hint["name"]), format!("{at}.name"));
            if !seen.insert(given) {
                causes.push(Cause::duplicate(&*at, &json!(given)));
            }
            wrong(check(given), given, &at, causes);
        }
    }
}

/// Checks an address of a slice; that the family is another is told of the whole list.
fn slice_address(given: &str, family: &str, list: &str, path: &str, causes: &mut Vec<Cause>) {
    let before = causes.len();
    if family == "IPv4" {
        addresses::legacy(given, path, causes);
    } else {
        wrong(addresses::strict(given), given, path, causes);
    }
    if causes.len() > before {
        return;
    }
    let is_v4 = addresses::parse(given).is_some_and(|address| address.is_ipv4());
    if is_v4 != (family == "IPv4") {
        let why = format!("must be an {family} address");
        causes.push(Cause::invalid(list, &json!(given), &why));
    }
    addresses::endpoint(given, path, causes);
}
