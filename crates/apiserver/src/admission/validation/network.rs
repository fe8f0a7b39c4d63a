//! Checks of ingresses, network policies and addresses.

use serde_json::{Value, json};

use super::checks::{
    filled, indexed, label_selector, name, one_of, optional_name, port_number, text, wrong,
};
use super::{addresses, names};
use crate::failure::Cause;

const ABSOLUTE: &str = "must be an absolute path";

/// Checks the specification of an ingress.
pub(super) fn ingress(spec: &Value, causes: &mut Vec<Cause>) {
    if !filled(&spec["rules"]) && spec["defaultBackend"].is_null() {
        let why = "either `defaultBackend` or `rules` must be specified";
        causes.push(Cause::invalid("spec", &spec["rules"], why));
    }
    if !spec["defaultBackend"].is_null() {
        backend(&spec["defaultBackend"], "spec.defaultBackend", causes);
    }
    for (at, rule) in indexed(&spec["rules"], "spec.rules") {
        ingress_rule(rule, &at, causes);
    }
    for (at, tls) in indexed(&spec["tls"], "spec.tls") {
        for (at, host) in indexed(&tls["hosts"], &format!("{at}.hosts")) {
            wrong(host_name(text(host)), text(host), &at, causes);
        }
        let at = format!("{at}.secretName");
        optional_name(&tls["secretName"], names::subdomain, &at, causes);
    }
    let class = &spec["ingressClassName"];
    if !class.is_null() {
        let found = names::subdomain(text(class));
        wrong(found, text(class), "spec.ingressClassName", causes);
    }
}

fn host_name(host: &str) -> Vec<String> {
    if host.contains('*') {
        names::wildcard(host)
    } else {
        names::subdomain(host)
    }
}

fn ingress_rule(rule: &Value, path: &str, causes: &mut Vec<Cause>) {
    let host = text(&rule["host"]);
    if !host.is_empty() {
        let at = format!("{path}.host");
        if addresses::parse(host).is_some() {
            let why = "must be a DNS name, not an IP address";
            causes.push(Cause::invalid(&*at, &json!(host), why));
        }
        wrong(host_name(host), host, &at, causes);
    }
    if rule["http"].is_null() {
        return;
    }
    let at = format!("{path}.http.paths");
    if !filled(&rule["http"]["paths"]) {
        causes.push(Cause::required(&*at, ""));
    }
    for (at, path) in indexed(&rule["http"]["paths"], &at) {
        ingress_path(path, &at, causes);
    }
}

fn ingress_path(value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let given = text(&value["path"]);
    let at = format!("{path}.path");
    let mut refuse = |why: &str| causes.push(Cause::invalid(&*at, &json!(given), why));
    match value["pathType"].as_str() {
        None => {
            let at = format!("{path}.pathType");
            causes.push(Cause::required(at, "pathType must be specified"));
            return;
        }
        Some("Exact" | "Prefix") => {
            if !given.starts_with('/') {
                refuse(ABSOLUTE);
            }
            for part in ["//", "/./", "/../", "%2f", "%2F"] {
                if given.contains(part) {
                    refuse(&format!("must not contain '{part}'"));
                }
            }
            for end in ["/..", "/."] {
                if given.ends_with(end) {
                    refuse(&format!("cannot end with '{end}'"));
                }
            }
        }
        Some("ImplementationSpecific") => {
            if !given.is_empty() && !given.starts_with('/') {
                refuse(ABSOLUTE);
            }
        }
        Some(_) => one_of(
            &value["pathType"],
            &["Exact", "ImplementationSpecific", "Prefix"],
            &format!("{path}.pathType"),
            causes,
        ),
    }
    backend(&value["backend"], &format!("{path}.backend"), causes);
}

fn backend(value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let mut refuse = |why: &str| causes.push(Cause::invalid(path, &json!(""), why));
    let (service, resource) = (&value["service"], &value["resource"]);
    match (!service.is_null(), !resource.is_null()) {
        (true, true) => refuse("cannot set both resource and service backends"),
        (false, false) => refuse("resource or service backend is required"),
        (false, true) => reference(resource, &format!("{path}.resource"), causes),
        (true, false) => {
            let at = format!("{path}.service.name");
            name(&service["name"], names::service, &at, causes);
            let port = &service["port"];
            let number = port["number"].as_i64().unwrap_or_default() != 0;
            let at = format!("{path}.service.port");
            match (filled(&port["name"]), number) {
                (true, true) => {
                    let why = "cannot set both port name & port number";
                    causes.push(Cause::invalid(path, &json!(""), why));
                }
                (true, false) => {
                    let given = text(&port["name"]);
                    wrong(names::port(given), given, &format!("{at}.name"), causes);
                }
                (false, true) => port_number(&port["number"], &format!("{at}.number"), causes),
                (false, false) => {
                    causes.push(Cause::required(path, "port name or number is required"));
                }
            }
        }
    }
}

/// Checks a reference to an object of any kind.
fn reference(value: &Value, path: &str, causes: &mut Vec<Cause>) {
    if !value["apiGroup"].is_null() {
        let group = text(&value["apiGroup"]);
        wrong(
            names::subdomain(group),
            group,
            &format!("{path}.apiGroup"),
            causes,
        );
    }
    for field in ["kind", "name"] {
        name(
            &value[field],
            names::path_segment,
            &format!("{path}.{field}"),
            causes,
        );
    }
}

/// Checks the specification of an ingress class.
pub(super) fn ingress_class(spec: &Value, causes: &mut Vec<Cause>) {
    let controller = text(&spec["controller"]);
    if controller.len() > 250 {
        causes.push(Cause::too_long("spec.controller", 250));
    }
    if controller.is_empty() {
        causes.push(Cause::required("spec.controller", ""));
    } else {
        domain_path(controller, "spec.controller", causes);
    }
    let parameters = &spec["parameters"];
    if parameters.is_null() {
        return;
    }
    let path = "spec.parameters";
    reference(parameters, path, causes);
    let (scope, namespace) = (&parameters["scope"], &parameters["namespace"]);
    let at = format!("{path}.namespace");
    match scope.as_str() {
        None => causes.push(Cause::required(format!("{path}.scope"), "")),
        Some("Namespace") if namespace.is_null() => {
            let why = "`parameters.scope` is set to 'Namespace'";
            causes.push(Cause::required(at, why));
        }
        Some("Namespace") => wrong(names::label(text(namespace)), text(namespace), &at, causes),
        Some("Cluster") => {
            if !namespace.is_null() {
                let why = "`parameters.scope` is set to 'Cluster'";
                causes.push(Cause::forbidden(at, why));
            }
        }
        Some(_) => one_of(
            scope,
            &["Cluster", "Namespace"],
            &format!("{path}.scope"),
            causes,
        ),
    }
}

/// Checks a path behind a domain.
pub(super) fn domain_path(given: &str, path: &str, causes: &mut Vec<Cause>) {
    const FORM: &str =
        "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
    let Some((domain, rest)) = given
        .split_once('/')
        .filter(|(a, b)| !a.is_empty() && !b.is_empty())
    else {
        let why = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        causes.push(Cause::invalid(path, &json!(given), why));
        return;
    };
    wrong(names::subdomain(domain), domain, path, causes);
    let good = |c: char| c.is_ascii_alphanumeric() || "/-._~%!$&'()*+,;=:".contains(c);
    if !rest.chars().all(good) {
        causes.push(Cause::invalid(path, &json!(rest), FORM));
    }
}

/// Checks the specification of a network policy.
pub(super) fn network_policy(spec: &Value, causes: &mut Vec<Cause>) {
    label_selector(&spec["podSelector"], "spec.podSelector", causes);
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for (at, rule) in indexed(&spec[direction], &format!("spec.{direction}")) {
            for (at, port) in indexed(&rule["ports"], &format!("{at}.ports")) {
                policy_port(port, &at, causes);
            }
            for (at, peer) in indexed(&rule[peers], &format!("{at}.{peers}")) {
                policy_peer(peer, &at, causes);
            }
        }
    }
    let kinds = &spec["policyTypes"];
    if kinds.as_array().is_some_and(|kinds| kinds.len() > 2) {
        let why = "may not specify more than two policyTypes";
        causes.push(Cause::invalid("spec.policyTypes", kinds, why));
        return;
    }
    for (at, kind) in indexed(kinds, "spec.policyTypes") {
        one_of(kind, &["Ingress", "Egress"], &at, causes);
    }
}

fn policy_port(value: &Value, path: &str, causes: &mut Vec<Cause>) {
    if !value["protocol"].is_null() {
        let at = format!("{path}.protocol");
        one_of(&value["protocol"], &["TCP", "UDP", "SCTP"], &at, causes);
    }
    let (at, at_end) = (format!("{path}.port"), format!("{path}.endPort"));
    let end = &value["endPort"];
    let mut refuse_end = |why: &str| {
        if !end.is_null() {
            causes.push(Cause::invalid(&*at_end, end, why));
        }
    };
    match &value["port"] {
        Value::Null => refuse_end("may not be specified when `port` is not specified"),
        Value::String(name) => {
            refuse_end("may not be specified when `port` is non-numeric");
            wrong(names::port(name), name, &at, causes);
        }
        number => {
            let below = end.as_i64() < number.as_i64();
            port_number(number, &at, causes);
            if end.is_null() {
                return;
            }
            if below {
                let why = "must be greater than or equal to `port`";
                causes.push(Cause::invalid(&*at_end, number, why));
            }
            port_number(end, &at_end, causes);
        }
    }
}

fn policy_peer(peer: &Value, path: &str, causes: &mut Vec<Cause>) {
    let mut count = 0;
    for field in ["podSelector", "namespaceSelector"] {
        if !peer[field].is_null() {
            count += 1;
            label_selector(&peer[field], &format!("{path}.{field}"), causes);
        }
    }
    let block = &peer["ipBlock"];
    if block.is_null() {
        if count == 0 {
            causes.push(Cause::required(path, "must specify a peer"));
        }
        return;
    }
    ip_block(block, &format!("{path}.ipBlock"), causes);
    if count > 0 {
        let why = "may not specify both ipBlock and another peer";
        causes.push(Cause::forbidden(path, why));
    }
}

fn ip_block(block: &Value, path: &str, causes: &mut Vec<Cause>) {
    let given = text(&block["cidr"]);
    let at = format!("{path}.cidr");
    if given.is_empty() {
        causes.push(Cause::required(at, ""));
        return;
    }
    addresses::legacy_range(given, &at, causes);
    let Some(range) = addresses::parse_range(given) else {
        return;
    };
    for (at, except) in indexed(&block["except"], &format!("{path}.except")) {
        let given = text(except);
        addresses::legacy_range(given, &at, causes);
        let inner = addresses::parse_range(given);
        if inner.is_some_and(|inner| !range.strictly_contains(inner)) {
            let why = "must be a strict subset of `cidr`";
            causes.push(Cause::invalid(at, except, why));
        }
    }
}

/// Checks the specification of an address.
pub(super) fn ip_address(spec: &Value, causes: &mut Vec<Cause>) {
    let path = "spec.parentRef";
    let parent = &spec["parentRef"];
    if parent.is_null() {
        causes.push(Cause::required(path, ""));
        return;
    }
    optional_name(
        &parent["group"],
        names::subdomain,
        "spec.parentRef.group",
        causes,
    );
    for field in ["resource", "name"] {
        let at = format!("{path}.{field}");
        name(&parent[field], names::path_segment, &at, causes);
    }
    let at = "spec.parentRef.namespace";
    optional_name(&parent["namespace"], names::path_segment, at, causes);
}

/// Checks the specification of a range of addresses for services.
pub(super) fn service_cidr(spec: &Value, causes: &mut Vec<Cause>) {
    let path = "spec.cidrs";
    let ranges = spec["cidrs"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    match ranges {
        [] => causes.push(Cause::required(path, "at least one CIDR required")),
        [_] | [_, _] => {
            for (at, range) in indexed(&spec["cidrs"], path) {
                addresses::strict_range(text(range), &at, causes);
            }
            let families: Vec<bool> = ranges
                .iter()
                .filter_map(|range| addresses::parse_range(text(range)))
                .map(addresses::Range::is_v4)
                .collect();
            if let [one, other] = families.as_slice()
                && one == other
            {
                let why = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
                causes.push(Cause::invalid(path, &spec["cidrs"], why));
            }
        }
        _ => {
            let why = "may only hold up to 2 values";
            let cause = Cause::invalid(path, &Value::Null, why);
            causes.push(cause.with_value(&format!("{{\"CIDRs\":{}}}", spec["cidrs"])));
        }
    }
}
