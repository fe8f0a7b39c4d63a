//! Network policies: only the named traffic is allowed.

use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPort,
    NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::meta;

fn tcp(port: u16) -> NetworkPolicyPort {
    NetworkPolicyPort {
        port: Some(IntOrString::Int(i32::from(port))),
        protocol: Some("TCP".into()),
        end_port: None,
    }
}

fn policy(
    name: &str,
    namespace: &str,
    pods: &BTreeMap<String, String>,
    spec: NetworkPolicySpec,
) -> NetworkPolicy {
    NetworkPolicy {
        metadata: meta::namespaced(name, namespace),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(meta::selecting(pods)),
            ..spec
        }),
    }
}

pub(crate) fn deny_all(
    name: &str,
    namespace: &str,
    pods: &BTreeMap<String, String>,
) -> NetworkPolicy {
    let policy_types = Some(vec!["Ingress".into(), "Egress".into()]);
    policy(
        name,
        namespace,
        pods,
        NetworkPolicySpec {
            policy_types,
            ..NetworkPolicySpec::default()
        },
    )
}

pub(crate) fn egress(
    name: &str,
    namespace: &str,
    pods: &BTreeMap<String, String>,
    ports: &[u16],
) -> NetworkPolicy {
    let rule = NetworkPolicyEgressRule {
        ports: Some(ports.iter().copied().map(tcp).collect()),
        to: None,
    };
    let policy_types = Some(vec!["Egress".into()]);
    policy(
        name,
        namespace,
        pods,
        NetworkPolicySpec {
            policy_types,
            egress: Some(vec![rule]),
            ..NetworkPolicySpec::default()
        },
    )
}

pub(crate) fn ingress(
    name: &str,
    namespace: &str,
    pods: &BTreeMap<String, String>,
    port: u16,
) -> NetworkPolicy {
    let rule = NetworkPolicyIngressRule {
        ports: Some(vec![tcp(port)]),
        from: None,
    };
    let policy_types = Some(vec!["Ingress".into()]);
    policy(
        name,
        namespace,
        pods,
        NetworkPolicySpec {
            policy_types,
            ingress: Some(vec![rule]),
            ..NetworkPolicySpec::default()
        },
    )
}
