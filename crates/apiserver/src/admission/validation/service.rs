//! Checks of services.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::checks::{
    filled, indexed, one_of, optional_name, port, port_number, text, within, wrong,
};
use super::{addresses, meta, names};
use crate::failure::Cause;

/// Longest time for which a client is sent to the same pod, in seconds.
const LONGEST_AFFINITY: i64 = 86_400;
const ONLY_BALANCERS: &str = "may only be used when `type` is 'LoadBalancer'";

/// Checks a specification. The addresses that the server gives are in it.
pub(super) fn check(spec: &Value, causes: &mut Vec<Cause>) {
    let kind = text(&spec["type"]);
    let headless = spec["clusterIP"] == "None";
    let balances = kind == "LoadBalancer";
    if !filled(&spec["ports"]) && !headless && kind != "ExternalName" {
        causes.push(Cause::required("spec.ports", ""));
    }
    if headless && (balances || kind == "NodePort") {
        let why = format!("may not be set to 'None' for {kind} services");
        causes.push(Cause::invalid("spec.clusterIPs[0]", &json!("None"), &why));
    }
    if kind == "ExternalName" {
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
        families(spec, causes);
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
    let class = &spec["loadBalancerClass"];
    if !class.is_null() {
        let at = "spec.loadBalancerClass";
        if balances {
            wrong(names::key(text(class)), text(class), at, causes);
        } else {
            causes.push(Cause::forbidden(at, ONLY_BALANCERS));
        }
    }
    traffic(spec, kind, causes);
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

fn families(spec: &Value, causes: &mut Vec<Cause>) {
    let mut seen = HashSet::new();
    for (at, family) in indexed(&spec["ipFamilies"], "spec.ipFamilies") {
        one_of(family, &["IPv4", "IPv6"], &at, causes);
        if !seen.insert(text(family)) {
            causes.push(Cause::duplicate(at, family));
        }
    }
    for (at, address) in indexed(&spec["clusterIPs"], "spec.clusterIPs") {
        let given = text(address);
        if given != "None" {
            addresses::legacy(given, &at, causes);
        }
        if addresses::parse(given).is_some_and(|address| address.is_ipv6()) {
            let why = "IPv6 is not configured on this cluster";
            causes.push(Cause::invalid(at, address, why));
        }
    }
    if !spec["ipFamilyPolicy"].is_null() {
        let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
        one_of(
            &spec["ipFamilyPolicy"],
            &policies,
            "spec.ipFamilyPolicy",
            causes,
        );
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
