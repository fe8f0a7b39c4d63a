//! Checks of services.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::checks::{
    filled, indexed, one_of, optional_name, port, port_number, text, within, wrong,
};
use super::{addresses, meta, names};
use crate::failure::Cause;
use crate::values::fields::elements;

/// Longest time for which a client is sent to the same pod, in seconds.
const LONGEST_AFFINITY: i64 = 86_400;
const ONLY_BALANCERS: &str = "may only be used when `type` is 'LoadBalancer'";

/// Checks a specification. The addresses that the server gives are in it.
pub(super) fn check(spec: &Value, causes: &mut Vec<Cause>) {
    let kind = text(&spec["type"]);
    let headless = spec["clusterIPs"] == json!(["None"]);
    let balances = kind == "LoadBalancer";
    if !filled(&spec["ports"]) && !headless && kind != "ExternalName" {
        causes.push(Cause::required("spec.ports", ""));
    }
    if headless && (balances || kind == "NodePort") {
        let why = format!("may not be set to 'None' for {kind} services");
        causes.push(Cause::invalid("spec.clusterIPs[0]", &json!("None"), &why));
    }
    if kind == "ExternalName" {
        for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if filled(&spec[field]) {
                let why = "may not be set for ExternalName services";
                causes.push(Cause::forbidden(format!("spec.{field}"), why));
            }
        }
        let name = text(&spec["externalName"]);
        let name = name.strip_suffix('.').unwrap_or(name);
        if name.is_empty() {
            causes.push(Cause::required("spec.externalName", ""));
        } else {
            wrong(names::subdomain(name), name, "spec.externalName", causes);
        }
    }
    ports(spec, causes);
    meta::labels(&spec["selector"], "spec.selector", causes);
    affinity(spec, causes);
    if kind != "ExternalName" {
        causes.extend(addresses(spec));
    }
    for (at, address) in indexed(&spec["externalIPs"], "spec.externalIPs") {
        let given = text(address);
        if addresses::parse(given).is_some() {
            addresses::endpoint(given, &at, causes);
            addresses::not_loopback(given, &at, causes);
        } else {
            addresses::legacy(given, &at, causes);
        }
    }
    let kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    one_of(&spec["type"], &kinds, "spec.type", causes);
    repeated_ports(spec, kind, causes);
    let ranges = "spec.LoadBalancerSourceRanges";
    if filled(&spec["loadBalancerSourceRanges"]) && !balances {
        causes.push(Cause::forbidden(ranges, ONLY_BALANCERS));
    }
    for (at, range) in indexed(&spec["loadBalancerSourceRanges"], ranges) {
        addresses::legacy_range(text(range).trim(), &at, causes);
    }
    if !spec["allocateLoadBalancerNodePorts"].is_null() && !balances {
        causes.push(Cause::forbidden(
            "spec.allocateLoadBalancerNodePorts",
            ONLY_BALANCERS,
        ));
    }
    class(spec, causes);
    traffic(spec, kind, causes);
}

/// Checks which balancer is asked for.
pub(super) fn class(spec: &Value, causes: &mut Vec<Cause>) {
    let (class, at) = (&spec["loadBalancerClass"], "spec.loadBalancerClass");
    if class.is_null() {
        return;
    }
    if spec["type"] == "LoadBalancer" {
        wrong(names::key(text(class)), text(class), at, causes);
    } else {
        causes.push(Cause::forbidden(at, ONLY_BALANCERS));
    }
}

fn ports(spec: &Value, causes: &mut Vec<Cause>) {
    let several = spec["ports"].as_array().is_some_and(|list| list.len() > 1);
    let mut seen = HashSet::new();
    for (at, one) in indexed(&spec["ports"], "spec.ports") {
        let (name, at_name) = (text(&one["name"]), format!("{at}.name"));
        if !name.is_empty() {
            optional_name(&one["name"], names::label, &at_name, causes);
            if !seen.insert(name) {
                causes.push(Cause::duplicate(at_name, &json!(name)));
            }
        } else if several {
            causes.push(Cause::required(at_name, ""));
        }
        port_number(&one["port"], &format!("{at}.port"), causes);
        let protocols = ["SCTP", "TCP", "UDP"];
        one_of(
            &one["protocol"],
            &protocols,
            &format!("{at}.protocol"),
            causes,
        );
        port(&one["targetPort"], &format!("{at}.targetPort"), causes);
        let protocol = &one["appProtocol"];
        if !protocol.is_null() {
            let at = format!("{at}.appProtocol");
            wrong(names::key(text(protocol)), text(protocol), &at, causes);
        }
    }
}

/// Refuses ports that a service has twice, and those of nodes where it has none.
fn repeated_ports(spec: &Value, kind: &str, causes: &mut Vec<Cause>) {
    let number = |port: &Value, field: &str| port[field].as_i64().unwrap_or_default();
    let (mut nodes, mut own) = (HashSet::new(), HashSet::new());
    for (at, port) in indexed(&spec["ports"], "spec.ports") {
        let protocol = text(&port["protocol"]);
        let node = number(port, "nodePort");
        if node != 0 && kind == "ClusterIP" {
            let why = "may not be used when `type` is 'ClusterIP'";
            causes.push(Cause::forbidden(format!("{at}.nodePort"), why));
        }
        if node != 0 && !nodes.insert((protocol, node)) {
            causes.push(Cause::duplicate(format!("{at}.nodePort"), &json!(node)));
        }
        if !own.insert((protocol, number(port, "port"))) {
            let mut cause = Cause::duplicate(at, &Value::Null);
            cause.message = format!(
                "Duplicate value: {{\"Name\":\"\",\"Protocol\":{},\"AppProtocol\":null,\"Port\":{},\"TargetPort\":0,\"NodePort\":0}}",
                port["protocol"],
                number(port, "port")
            );
            causes.push(cause);
        }
    }
}

fn affinity(spec: &Value, causes: &mut Vec<Cause>) {
    if filled(&spec["sessionAffinity"]) {
        let kinds = ["ClientIP", "None"];
        one_of(
            &spec["sessionAffinity"],
            &kinds,
            "spec.sessionAffinity",
            causes,
        );
    } else {
        causes.push(Cause::required("spec.sessionAffinity", ""));
    }
    if spec["sessionAffinity"] != "ClientIP" {
        return;
    }
    let seconds = &spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"];
    let number = seconds.as_i64().unwrap_or_default();
    if !(1..=LONGEST_AFFINITY).contains(&number) {
        let why = format!("must be greater than 0 and less than {LONGEST_AFFINITY}");
        let at = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
        causes.push(Cause::invalid(at, &json!(number), &why));
    }
}

/// Checks the addresses of a service with their families.
pub(crate) fn addresses(spec: &Value) -> Vec<Cause> {
    let (all, path) = (&spec["clusterIPs"], "spec.clusterIPs");
    let list = all.as_array().map(Vec::as_slice).unwrap_or_default();
    let mut causes = Vec::new();
    let mut refuse = |why: &str| causes.push(Cause::invalid(path, all, why));
    match (text(&spec["clusterIP"]), list.first()) {
        ("", Some(_)) => refuse("must be empty when `clusterIP` is not specified"),
        ("", None) => {}
        (_, None) => causes.push(Cause::required(path, "")),
        (given, Some(first)) if text(first) != given => {
            refuse("first value must match `clusterIP`");
        }
        _ => {}
    }
    let mut seen = HashSet::new();
    for (at, family) in indexed(&spec["ipFamilies"], "spec.ipFamilies") {
        one_of(family, &["IPv4", "IPv6"], &at, &mut causes);
        if !seen.insert(text(family)) {
            causes.push(Cause::duplicate(at, family));
        }
    }
    if !spec["ipFamilyPolicy"].is_null() {
        let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
        let at = "spec.ipFamilyPolicy";
        one_of(&spec["ipFamilyPolicy"], &policies, at, &mut causes);
    }
    let mut is_valid = true;
    for (index, (at, address)) in indexed(all, path).enumerate() {
        if index == 0 && address == "None" {
            if list.len() > 1 {
                is_valid = false;
                let why = "'None' must be the first and only value";
                causes.push(Cause::invalid(path, all, why));
            }
            continue;
        }
        is_valid &= addresses::parse(text(address)).is_some();
        addresses::legacy(text(address), &at, &mut causes);
    }
    if list.len() > 2 {
        causes.push(Cause::invalid(path, all, "may only hold up to 2 values"));
    }
    if is_valid && list.first().is_some_and(|first| first != "None") {
        of_families(spec, list, &mut causes);
    }
    causes
}

/// Checks that addresses are of the families that are named, and of one each.
fn of_families(spec: &Value, list: &[Value], causes: &mut Vec<Cause>) {
    let is_v6 = |address: &Value| addresses::parse(text(address)).is_some_and(|one| one.is_ipv6());
    let path = "spec.clusterIPs";
    let both = list.iter().any(is_v6) && !list.iter().all(is_v6);
    if list.len() > 1 && !both {
        let why = "may specify no more than one IP for each IP family";
        causes.push(Cause::invalid(path, &spec["clusterIPs"], why));
    }
    let families = elements(&spec["ipFamilies"]);
    for (index, (address, family)) in list.iter().zip(families).enumerate() {
        let wanted = match text(family) {
            "IPv4" if is_v6(address) => "IPv4",
            "IPv6" if !is_v6(address) => "IPv6",
            _ => continue,
        };
        let why = format!("expected an {wanted} value as indicated by `ipFamilies[{index}]`");
        causes.push(Cause::invalid(format!("{path}[{index}]"), address, &why));
    }
}

fn traffic(spec: &Value, kind: &str, causes: &mut Vec<Cause>) {
    let is_outside = kind == "LoadBalancer"
        || kind == "NodePort"
        || (kind == "ClusterIP" && filled(&spec["externalIPs"]));
    let (policy, at) = (&spec["externalTrafficPolicy"], "spec.externalTrafficPolicy");
    if is_outside && !filled(policy) {
        causes.push(Cause::required(at, ""));
    } else if is_outside {
        one_of(policy, &["Cluster", "Local"], at, causes);
    } else if filled(policy) {
        let why = "may only be set for externally-accessible services";
        causes.push(Cause::invalid(at, policy, why));
    }
    let (port, at) = (&spec["healthCheckNodePort"], "spec.healthCheckNodePort");
    let number = port.as_i64().unwrap_or_default();
    if kind == "LoadBalancer" && policy == "Local" {
        if number == 0 {
            causes.push(Cause::required(at, ""));
        } else {
            within(port, 1, 65_535, at, causes);
        }
    } else if number != 0 {
        let why =
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        causes.push(Cause::invalid(at, port, why));
    }
    let internal = &spec["internalTrafficPolicy"];
    if !internal.is_null() {
        one_of(
            internal,
            &["Cluster", "Local"],
            "spec.internalTrafficPolicy",
            causes,
        );
    }
    let distribution = &spec["trafficDistribution"];
    if !distribution.is_null() {
        let all = ["PreferClose", "PreferSameZone", "PreferSameNode"];
        one_of(distribution, &all, "spec.trafficDistribution", causes);
    }
}
