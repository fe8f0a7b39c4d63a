//! Translates network policies into nftables rules for a pod's own network namespace.
//!
//! A direction of a pod that no policy selects is open; a selected one is closed except for what some policy allows. Replies on allowed
//! connections always pass, and a node always reaches its own pods, as in every implementation of policies. Policies cover TCP, UDP and
//! SCTP; no other protocol passes where a direction is closed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt as _;
use kube::core::{Selector, SelectorExt as _};

/// Rules that let everything through: they add the table so that deleting it cannot fail, and delete it.
pub const OPEN: &str = "table inet policies {}\ndelete table inet policies\n";
const INGRESS: &str = "Ingress";
const EGRESS: &str = "Egress";
/// Port of the API server's service, and the port of the server behind it, which policies refer to: implementations translate addresses of
/// services before they apply policies, and nearly every API server listens on this port. Here the service's address is the server's own,
/// so it stands for both.
const SERVICE_PORT: u16 = 443;
const SERVER_PORT: i32 = 6443;

/// Everything that the rules depend on.
pub struct ClusterObjects<'a> {
    /// All policies.
    pub policies: &'a [NetworkPolicy],
    /// All namespaces.
    pub namespaces: &'a [Namespace],
    /// All pods.
    pub pods: &'a [Pod],
    /// Address of the API server's service.
    pub kubernetes: Ipv4Addr,
}

/// Returns the rules for a pod; [`OPEN`] if no policy selects it. `node` is the address of its node in the pod network.
pub fn of_pod(objects: &ClusterObjects<'_>, pod: &Pod, node: Ipv4Addr) -> String {
    let mut text = OPEN.to_owned();
    let selecting: Vec<(&NetworkPolicy, &NetworkPolicySpec)> = objects
        .policies
        .iter()
        .filter_map(|policy| Some((policy, policy.spec.as_ref()?)))
        .filter(|(policy, spec)| selects(policy, spec, pod))
        .collect();
    let mut chains = String::new();
    if selecting.iter().any(|(_, spec)| applies_to(spec, INGRESS)) {
        let mut lines = vec![format!("ip saddr {node} accept")];
        for (policy, spec) in &selecting {
            for rule in spec.ingress.iter().flatten() {
                let ports = |_: Option<&Pod>| {
                    ports(rule.ports.as_deref(), |name| {
                        named(pod, name).into_iter().collect()
                    })
                };
                lines.extend(objects.lines("saddr", policy, rule.from.as_deref(), ports));
            }
        }
        chains.push_str(&chain("input", "iif", &lines));
    }
    if selecting.iter().any(|(_, spec)| applies_to(spec, EGRESS)) {
        let mut lines = Vec::new();
        for (policy, spec) in &selecting {
            for rule in spec.egress.iter().flatten() {
                let listed = rule.ports.as_deref();
                let ports = |peer: Option<&Pod>| {
                    let peers: Vec<&Pod> =
                        peer.map_or_else(|| objects.pods.iter().collect(), |peer| vec![peer]);
                    ports(listed, |name| {
                        peers.iter().filter_map(|peer| named(peer, name)).collect()
                    })
                };
                lines.extend(objects.lines("daddr", policy, rule.to.as_deref(), ports));
                if rule.to.as_ref().is_none_or(Vec::is_empty) && is_open(listed, SERVER_PORT) {
                    let service = objects.kubernetes;
                    lines.push(format!(
                        "ip daddr {service} tcp dport {SERVICE_PORT} accept"
                    ));
                }
            }
        }
        chains.push_str(&chain("output", "oif", &lines));
    }
    if !chains.is_empty() {
        let _ = write!(text, "table inet policies {{\n{chains}}}\n");
    }
    text
}

fn chain(hook: &str, device: &str, lines: &[String]) -> String {
    let mut text = format!(
        "  chain {hook} {{\n    type filter hook {hook} priority 0; policy drop;\n    {device} lo accept\n    ct state established,related accept\n"
    );
    for line in lines {
        let _ = writeln!(text, "    {line}");
    }
    text.push_str("  }\n");
    text
}

fn selects(policy: &NetworkPolicy, spec: &NetworkPolicySpec, pod: &Pod) -> bool {
    let selector = spec.pod_selector.clone().unwrap_or_default();
    policy.namespace() == pod.namespace() && matches(&selector, pod.labels())
}

/// Returns whether a policy applies to a direction. A policy without types applies to ingress, and to egress if it has an egress section.
fn applies_to(spec: &NetworkPolicySpec, direction: &str) -> bool {
    match spec.policy_types.as_deref() {
        None | Some([]) => direction == INGRESS || spec.egress.is_some(),
        Some(types) => types.iter().any(|one| one == direction),
    }
}

/// Returns whether a selector matches labels. An invalid selector matches nothing; the API server accepts none.
fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    Selector::try_from(selector.clone()).is_ok_and(|selector| selector.matches(labels))
}

impl ClusterObjects<'_> {
    /// Returns the lines that accept the peers of a rule at its ports; all peers if the rule names none. For a pod as peer, `ports` gets
    /// that pod.
    fn lines(
        &self,
        address: &str,
        policy: &NetworkPolicy,
        peers: Option<&[NetworkPolicyPeer]>,
        ports: impl Fn(Option<&Pod>) -> Ports,
    ) -> Vec<String> {
        let Some(peers) = peers.filter(|peers| !peers.is_empty()) else {
            return ports(None).lines("");
        };
        let mut lines = Vec::new();
        for peer in peers {
            if let Some(block) = &peer.ip_block {
                lines.extend(ports(None).lines(&of_block(address, block)));
                continue;
            }
            for pod in self
                .pods
                .iter()
                .filter(|pod| self.is_peer(policy, peer, pod))
            {
                if let Some(ip) = address_of(pod) {
                    lines.extend(ports(Some(pod)).lines(&format!("ip {address} {ip} ")));
                }
            }
        }
        lines
    }

    fn is_peer(&self, policy: &NetworkPolicy, peer: &NetworkPolicyPeer, pod: &Pod) -> bool {
        let is_there = match &peer.namespace_selector {
            None => policy.namespace() == pod.namespace(),
            Some(selector) => self.namespaces.iter().any(|namespace| {
                pod.namespace().as_ref() == namespace.metadata.name.as_ref()
                    && matches(selector, namespace.labels())
            }),
        };
        let selector = peer.pod_selector.as_ref();
        is_there && selector.is_none_or(|selector| matches(selector, pod.labels()))
    }
}

/// Returns the address of a pod that has not ended and is not in the host's network.
pub fn address_of(pod: &Pod) -> Option<Ipv4Addr> {
    let is_host = pod.spec.as_ref().and_then(|spec| spec.host_network);
    let status = pod.status.as_ref()?;
    let is_over = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    if is_host == Some(true) || is_over {
        return None;
    }
    status.pod_ip.as_ref()?.parse().ok()
}

fn of_block(address: &str, block: &IPBlock) -> String {
    let mut text = format!("ip {address} {} ", block.cidr);
    if let Some(except) = block.except.as_ref().filter(|except| !except.is_empty()) {
        let _ = write!(text, "ip {address} != {{ {} }} ", except.join(", "));
    }
    text
}

/// Ports that are accepted.
enum Ports {
    /// All ports of every protocol that policies cover.
    All,
    /// Ranges by protocol; empty if a name matches no port.
    Some(BTreeSet<(&'static str, String)>),
}

impl Ports {
    /// Returns the lines that accept the ports; `beginning` restricts the peers.
    fn lines(self, beginning: &str) -> Vec<String> {
        match self {
            Self::All => vec![format!(
                "{beginning}meta l4proto {{ tcp, udp, sctp }} accept"
            )],
            Self::Some(ranges) => ranges
                .into_iter()
                .map(|(protocol, range)| match range.as_str() {
                    "" => format!("{beginning}meta l4proto {protocol} accept"),
                    range => format!("{beginning}{protocol} dport {range} accept"),
                })
                .collect(),
        }
    }
}

/// Returns the ports of a rule; `named` returns the numbers of a port name.
fn ports(listed: Option<&[NetworkPolicyPort]>, named: impl Fn(&str) -> Vec<i32>) -> Ports {
    let Some(listed) = listed.filter(|listed| !listed.is_empty()) else {
        return Ports::All;
    };
    let mut ranges = BTreeSet::new();
    for port in listed {
        let protocol = protocol(port);
        match (&port.port, port.end_port) {
            (None, _) => {
                ranges.insert((protocol, String::new()));
            }
            (Some(IntOrString::Int(first)), Some(last)) => {
                ranges.insert((protocol, format!("{first}-{last}")));
            }
            (Some(IntOrString::Int(number)), None) => {
                ranges.insert((protocol, number.to_string()));
            }
            (Some(IntOrString::String(name)), _) => {
                ranges.extend(
                    named(name)
                        .iter()
                        .map(|number| (protocol, number.to_string())),
                );
            }
        }
    }
    Ports::Some(ranges)
}

fn protocol(port: &NetworkPolicyPort) -> &'static str {
    match port.protocol.as_deref() {
        Some("UDP") => "udp",
        Some("SCTP") => "sctp",
        _ => "tcp",
    }
}

/// Returns whether the ports of a rule include this TCP port.
fn is_open(listed: Option<&[NetworkPolicyPort]>, number: i32) -> bool {
    let Some(listed) = listed.filter(|listed| !listed.is_empty()) else {
        return true;
    };
    listed.iter().any(|port| {
        protocol(port) == "tcp"
            && match (&port.port, port.end_port) {
                (None, _) => true,
                (Some(IntOrString::Int(first)), Some(last)) => (*first..=last).contains(&number),
                (Some(IntOrString::Int(one)), None) => *one == number,
                (Some(IntOrString::String(_)), _) => false,
            }
    })
}

/// Returns the number of a pod's port with this name.
fn named(pod: &Pod, name: &str) -> Option<i32> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    let found = ports.find(|port| port.name.as_deref() == Some(name))?;
    Some(found.container_port)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    const NODE: Ipv4Addr = Ipv4Addr::new(10, 244, 1, 1);
    const KUBERNETES: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);

    fn mk_pod(namespace: &str, app: &str, ip: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": app, "namespace": namespace, "labels": {"app": app}},
            "spec": {"containers": [{"name": "main", "ports": [{"name": "metrics", "containerPort": 2112}]}]},
            "status": {"podIP": ip, "phase": "Running"},
        }))
        .unwrap()
    }

    fn mk_policy(spec: &Value) -> NetworkPolicy {
        let mut spec = spec.clone();
        if spec["podSelector"].is_null() {
            spec["podSelector"] = json!({"matchLabels": {"app": "target"}});
        }
        serde_json::from_value(
            json!({"metadata": {"name": "p", "namespace": "here"}, "spec": spec}),
        )
        .unwrap()
    }

    /// Returns the rules of pod `here/target`; the other pods are `here/peer`, `there/peer` and `here/other`.
    fn rules(specs: &[Value]) -> String {
        let namespaces: Vec<Namespace> = ["here", "there"]
            .map(|name| {
                serde_json::from_value(
                    json!({"metadata": {"name": name, "labels": {"name": name}}}),
                )
                .unwrap()
            })
            .to_vec();
        let pods = [
            mk_pod("here", "target", "10.244.1.2"),
            mk_pod("here", "peer", "10.244.1.3"),
            mk_pod("there", "peer", "10.244.2.3"),
            mk_pod("here", "other", "10.244.2.4"),
        ];
        let policies: Vec<NetworkPolicy> = specs.iter().map(mk_policy).collect();
        let objects = ClusterObjects {
            policies: &policies,
            namespaces: &namespaces,
            pods: &pods,
            kubernetes: KUBERNETES,
        };
        of_pod(&objects, &pods[0], NODE)
    }

    /// Returns the lines of a chain that accept peers.
    fn let_through(text: &str, hook: &str) -> Vec<String> {
        let Some((_, rest)) = text.split_once(&format!("chain {hook} {{")) else {
            return Vec::new();
        };
        let chain = rest.split_once("  }\n").unwrap().0;
        let always = ["type filter", "iif lo", "oif lo", "ct state"];
        chain
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !always.iter().any(|one| line.starts_with(one)))
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn a_pod_that_no_policy_selects_is_open() {
        let others = json!({"podSelector": {"matchLabels": {"app": "other"}}, "policyTypes": ["Ingress", "Egress"]});
        for text in [rules(&[]), rules(&[others])] {
            assert_eq!(text, OPEN);
        }
    }

    #[rstest]
    #[case::in_by_default(json!({}), true, false)]
    #[case::both_with_rules_out(json!({"egress": []}), true, true)]
    #[case::out_alone(json!({"policyTypes": ["Egress"]}), false, true)]
    #[case::both(json!({"policyTypes": ["Ingress", "Egress"]}), true, true)]
    fn directions_are_closed_by_type(
        #[case] spec: Value,
        #[case] ingress: bool,
        #[case] egress: bool,
    ) {
        let text = rules(&[spec]);
        assert_eq!(
            (text.contains("chain input"), text.contains("chain output")),
            (ingress, egress),
            "{text}"
        );
    }

    #[test]
    fn a_closed_pod_is_reached_by_its_node_alone() {
        let text = rules(&[json!({"policyTypes": ["Ingress", "Egress"]})]);
        assert_eq!(let_through(&text, "input"), ["ip saddr 10.244.1.1 accept"]);
        assert_eq!(let_through(&text, "output"), Vec::<String>::new());
    }

    #[rstest]
    #[case::anybody_anywhere(json!({}), &["meta l4proto { tcp, udp, sctp } accept"])]
    #[case::port(json!({"ports": [{"port": 2112, "protocol": "TCP"}]}), &["tcp dport 2112 accept"])]
    #[case::range(json!({"ports": [{"port": 10, "endPort": 20, "protocol": "UDP"}]}), &["udp dport 10-20 accept"])]
    #[case::protocol(json!({"ports": [{"protocol": "UDP"}]}), &["meta l4proto udp accept"])]
    #[case::own_name(json!({"ports": [{"port": "metrics"}]}), &["tcp dport 2112 accept"])]
    #[case::unknown_name(json!({"ports": [{"port": "nothing"}]}), &[])]
    #[case::pods_here(json!({"from": [{"podSelector": {"matchLabels": {"app": "peer"}}}], "ports": [{"port": 1}]}), &["ip saddr 10.244.1.3 tcp dport 1 accept"])]
    #[case::namespace(json!({"from": [{"namespaceSelector": {"matchLabels": {"name": "there"}}}], "ports": [{"port": 1}]}), &["ip saddr 10.244.2.3 tcp dport 1 accept"])]
    #[case::pods_elsewhere(
        json!({"from": [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "peer"}}}], "ports": [{"port": 1}]}),
        &["ip saddr 10.244.1.3 tcp dport 1 accept", "ip saddr 10.244.2.3 tcp dport 1 accept"]
    )]
    #[case::nobody(json!({"from": [{"podSelector": {"matchLabels": {"app": "ghost"}}}]}), &[])]
    #[case::block(
        json!({"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}], "ports": [{"port": 1}]}),
        &["ip saddr 10.0.0.0/8 ip saddr != { 10.1.0.0/16 } tcp dport 1 accept"]
    )]
    fn who_may_come_in(#[case] rule: Value, #[case] expected: &[&str]) {
        let text = rules(&[json!({"ingress": [rule]})]);
        let seen = let_through(&text, "input");
        assert_eq!(seen[0], "ip saddr 10.244.1.1 accept");
        assert_eq!(seen[1..], *expected);
    }

    #[rstest]
    #[case::to_the_api_server(json!({"ports": [{"port": 6443, "protocol": "TCP"}]}), &["tcp dport 6443 accept", "ip daddr 10.96.0.1 tcp dport 443 accept"])]
    #[case::elsewhere(json!({"ports": [{"port": 53, "protocol": "UDP"}]}), &["udp dport 53 accept"])]
    #[case::name_of_the_peer(
        json!({"to": [{"podSelector": {"matchLabels": {"app": "other"}}}], "ports": [{"port": "metrics"}]}),
        &["ip daddr 10.244.2.4 tcp dport 2112 accept"]
    )]
    fn where_to_go(#[case] rule: Value, #[case] expected: &[&str]) {
        let text = rules(&[json!({"policyTypes": ["Egress"], "egress": [rule]})]);
        assert_eq!(let_through(&text, "output"), *expected);
    }

    #[test]
    fn what_one_policy_allows_no_other_forbids() {
        let text = rules(&[
            json!({"policyTypes": ["Ingress", "Egress"]}),
            json!({"ingress": [{"ports": [{"port": 2112}]}]}),
        ]);
        assert_eq!(let_through(&text, "input")[1..], ["tcp dport 2112 accept"]);
    }
}
