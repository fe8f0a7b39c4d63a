//! Translates network policies into nftables rules for a pod's own network namespace, or for its node's, through which all of its traffic
//! passes.
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

const INGRESS: &str = "Ingress";
const EGRESS: &str = "Egress";
/// Port of the API server, as of its service, and the port that policies refer to: implementations translate addresses of services before they
/// apply policies, and nearly every API server listens on that port.
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
    /// Address of the API server, as the place of the rules sees it.
    pub kubernetes: Ipv4Addr,
}

/// Where the rules of a pod apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In its own network. The address of the API server is that of its service.
    Pod {
        /// Address of its node in the pod network.
        node: Ipv4Addr,
    },
    /// In the network of its node, after the translation of services' addresses. What the node itself sends to the pod passes no rule there.
    Node,
}

impl Place {
    /// Returns rules that let everything from and to a pod with this address through: they add its table so that deleting it cannot fail, and
    /// delete it.
    pub fn open(self, pod: Ipv4Addr) -> String {
        let table = self.table(pod);
        format!("table inet {table} {{}}\ndelete table inet {table}\n")
    }

    fn table(self, pod: Ipv4Addr) -> String {
        match self {
            Self::Pod { .. } => "policies".to_owned(),
            Self::Node => format!("policies-{}", pod.to_string().replace('.', "-")),
        }
    }

    /// Returns the rules that close directions but for what the lines accept.
    fn closed(self, pod: Ipv4Addr, lines: &Directions) -> String {
        let table = self.table(pod);
        let mut text = format!("table inet {table} {{\n");
        match self {
            Self::Pod { .. } => {
                for (lines, hook, device) in [
                    (&lines.ingress, "input", "iif"),
                    (&lines.egress, "output", "oif"),
                ] {
                    if let Some(lines) = lines {
                        text.push_str(&chain(hook, device, lines));
                    }
                }
            }
            Self::Node => {
                // A policy never keeps a pod from itself, also by the address of a service.
                let mut forward = vec![format!("ip saddr {pod} ip daddr {pod} accept")];
                if let Some(lines) = &lines.egress {
                    text.push_str(&verdicts("egress", lines));
                    let jump = format!("ip saddr {pod} jump egress");
                    text.push_str(&hooked("input", std::slice::from_ref(&jump)));
                    forward.push(jump);
                }
                if let Some(lines) = &lines.ingress {
                    text.push_str(&verdicts("ingress", lines));
                    forward.push(format!("ip daddr {pod} jump ingress"));
                }
                text.push_str(&hooked("forward", &forward));
            }
        }
        text.push_str("}\n");
        text
    }
}

/// The lines that accept connections, for each direction that some policy closes.
#[derive(Debug, Default)]
struct Directions {
    ingress: Option<Vec<String>>,
    egress: Option<Vec<String>>,
}

/// Returns the rules for a pod with an address; [`Place::open`] if no policy selects it.
pub fn of_pod(objects: &ClusterObjects<'_>, pod: &Pod, address: Ipv4Addr, place: Place) -> String {
    let lines = directions(objects, pod, place);
    let mut text = place.open(address);
    if lines.ingress.is_some() || lines.egress.is_some() {
        text.push_str(&place.closed(address, &lines));
    }
    text
}

fn directions(objects: &ClusterObjects<'_>, pod: &Pod, place: Place) -> Directions {
    let mut closed = Directions::default();
    let selecting: Vec<(&NetworkPolicy, &NetworkPolicySpec)> = objects
        .policies
        .iter()
        .filter_map(|policy| Some((policy, policy.spec.as_ref()?)))
        .filter(|(policy, spec)| selects(policy, spec, pod))
        .collect();
    if selecting.iter().any(|(_, spec)| applies_to(spec, INGRESS)) {
        let mut lines = match place {
            Place::Pod { node } => vec![format!("ip saddr {node} accept")],
            Place::Node => Vec::new(),
        };
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
        closed.ingress = Some(lines);
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
        closed.egress = Some(lines);
    }
    closed
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

/// Returns a chain that accepts what the lines say and drops the rest of the traffic that it gets.
fn verdicts(name: &str, lines: &[String]) -> String {
    let mut text = format!("  chain {name} {{\n    ct state established,related accept\n");
    for line in lines {
        let _ = writeln!(text, "    {line}");
    }
    text.push_str("    drop\n  }\n");
    text
}

/// Returns a chain that hands traffic over to others and leaves the rest alone.
fn hooked(hook: &str, lines: &[String]) -> String {
    let mut text =
        format!("  chain {hook} {{\n    type filter hook {hook} priority 0; policy accept;\n");
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
mod tests;
