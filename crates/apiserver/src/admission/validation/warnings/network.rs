//! Warnings about services, their endpoints, and what else has addresses.

use serde_json::Value;

use super::super::checks::{filled, indexed, text};
use super::Warnings;

const MANAGED_BY_OF_ENDPOINTS: &str = "endpoints.kubernetes.io/managed-by";
const MANAGED_BY_OF_SLICES: &str = "endpointslice.kubernetes.io/managed-by";
const ENDPOINTS_CONTROLLER: &str = "endpoint-controller";
const SLICE_CONTROLLERS: [&str; 2] = [
    "endpointslice-controller.k8s.io",
    "endpointslicemirroring-controller.k8s.io",
];
const INGRESS_CLASS: &str = "kubernetes.io/ingress.class";
const TOPOLOGY_HINTS: &str = "service.kubernetes.io/topology-aware-hints";

pub(super) fn service(object: &Value, warnings: &mut Warnings) {
    let spec = &object["spec"];
    if !object["metadata"]["annotations"][TOPOLOGY_HINTS].is_null() {
        let told = format!(
            "annotation {TOPOLOGY_HINTS} is deprecated, please use service.kubernetes.io/topology-mode instead"
        );
        warnings.0.push(told);
    }
    let cluster_ip = text(&spec["clusterIP"]);
    if !cluster_ip.is_empty() && cluster_ip != "None" {
        for (at, address) in indexed(&spec["clusterIPs"], "spec.clusterIPs") {
            warnings.address(address, &at);
        }
    }
    let tell = |warnings: &mut Warnings, told: &str| warnings.0.push(told.to_owned());
    if spec["type"] == "ClusterIP" && cluster_ip == "None" {
        if filled(&spec["loadBalancerIP"]) {
            tell(
                warnings,
                "spec.loadBalancerIP is ignored for headless services",
            );
        }
        if filled(&spec["externalIPs"]) {
            tell(
                warnings,
                "spec.externalIPs is ignored for headless services",
            );
        }
        if spec["sessionAffinity"] != "None" {
            tell(
                warnings,
                "spec.SessionAffinity is ignored for headless services",
            );
        }
    }
    for (at, address) in indexed(&spec["externalIPs"], "spec.externalIPs") {
        warnings.address(address, &at);
    }
    warnings.address(&spec["loadBalancerIP"], "spec.loadBalancerIP");
    let at = "spec.loadBalancerSourceRanges";
    for (at, range) in indexed(&spec["loadBalancerSourceRanges"], at) {
        warnings.range(range, &at);
    }
    let is_name = spec["type"] == "ExternalName";
    if is_name && filled(&spec["externalIPs"]) {
        let told = r#"spec.externalIPs is ignored when spec.type is "ExternalName""#;
        tell(warnings, told);
    }
    if !is_name && filled(&spec["externalName"]) {
        let told = r#"spec.externalName is ignored when spec.type is not "ExternalName""#;
        tell(warnings, told);
    }
    if spec["trafficDistribution"] == "PreferClose" {
        let why = r#""PreferClose" is deprecated; use "PreferSameZone""#;
        warnings.warn("spec.trafficDistribution", why);
    }
}

pub(super) fn endpoints(object: &Value, warnings: &mut Warnings) {
    if object["metadata"]["labels"][MANAGED_BY_OF_ENDPOINTS] == ENDPOINTS_CONTROLLER {
        return;
    }
    for (path, subset) in indexed(&object["subsets"], "subsets") {
        for field in ["addresses", "notReadyAddresses"] {
            for (at, address) in indexed(&subset[field], &format!("{path}.{field}")) {
                warnings.address(&address["ip"], &format!("{at}.ip"));
            }
        }
    }
}

pub(super) fn slice(before: Option<&Value>, object: &Value, warnings: &mut Warnings) {
    if before.is_none() && object["addressType"] == "FQDN" {
        // the path is the server's
        warnings.warn("spec.addressType", "FQDN endpoints are deprecated");
    }
    let manager = text(&object["metadata"]["labels"][MANAGED_BY_OF_SLICES]);
    if SLICE_CONTROLLERS.contains(&manager) {
        return;
    }
    for (path, endpoint) in indexed(&object["endpoints"], "endpoints") {
        for (at, address) in indexed(&endpoint["addresses"], &format!("{path}.addresses")) {
            warnings.address(address, &at);
        }
    }
}

pub(super) fn policy(object: &Value, warnings: &mut Warnings) {
    for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
        for (path, rule) in indexed(&object["spec"][rules], &format!("spec.{rules}")) {
            for (path, peer) in indexed(&rule[peers], &format!("{path}.{peers}")) {
                let block = &peer["ipBlock"];
                warnings.range(&block["cidr"], &format!("{path}.ipBlock.cidr"));
                for (at, range) in indexed(&block["except"], &format!("{path}.ipBlock.except")) {
                    warnings.range(range, &at);
                }
            }
        }
    }
}

pub(super) fn ingress(object: &Value, warnings: &mut Warnings) {
    let is_annotated = !object["metadata"]["annotations"][INGRESS_CLASS].is_null();
    if is_annotated && object["spec"]["ingressClassName"].is_null() {
        let told = format!(
            "annotation {INGRESS_CLASS:?} is deprecated, please use 'spec.ingressClassName' instead"
        );
        warnings.0.push(told);
    }
}

pub(super) fn node(object: &Value, warnings: &mut Warnings) {
    let spec = &object["spec"];
    if !spec["configSource"].is_null() {
        warnings.warn("spec.configSource", "the feature is removed");
    }
    if filled(&spec["externalID"]) {
        let why = "this field is deprecated, and is unused by Kubernetes";
        warnings.warn("spec.externalID", why);
    }
    for (at, range) in indexed(&spec["podCIDRs"], "spec.podCIDRs") {
        warnings.range(range, &at);
    }
}
