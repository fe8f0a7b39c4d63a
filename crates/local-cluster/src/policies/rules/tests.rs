use rstest::rstest;
use serde_json::{Value, json};

use super::*;

const POD: Ipv4Addr = Ipv4Addr::new(10, 244, 1, 2);
const IN_POD: Place = Place::Pod {
    node: Ipv4Addr::new(10, 244, 1, 1),
};
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
    serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "here"}, "spec": spec}))
        .unwrap()
}

/// Returns the rules of pod `here/target` in its own network.
fn rules(specs: &[Value]) -> String {
    rules_at(IN_POD, specs)
}

/// Returns the rules of pod `here/target`; the other pods are `here/peer`, `there/peer` and `here/other`.
fn rules_at(place: Place, specs: &[Value]) -> String {
    let namespaces: Vec<Namespace> = ["here", "there"]
        .map(|name| {
            serde_json::from_value(json!({"metadata": {"name": name, "labels": {"name": name}}}))
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
    of_pod(&objects, &pods[0], POD, place)
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
        assert_eq!(text, IN_POD.open(POD));
    }
}

#[rstest]
#[case::in_by_default(json!({}), true, false)]
#[case::both_with_rules_out(json!({"egress": []}), true, true)]
#[case::out_alone(json!({"policyTypes": ["Egress"]}), false, true)]
#[case::both(json!({"policyTypes": ["Ingress", "Egress"]}), true, true)]
fn directions_are_closed_by_type(#[case] spec: Value, #[case] ingress: bool, #[case] egress: bool) {
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

#[test]
fn node_closes_the_ways_of_one_pod_and_leaves_all_other_traffic_alone() {
    let text = rules_at(
        Place::Node,
        &[json!({
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": [{"port": 2112}]}],
            "egress": [{"ports": [{"port": 6443}]}],
        })],
    );
    let expected = "table inet policies-10-244-1-2 {}
delete table inet policies-10-244-1-2
table inet policies-10-244-1-2 {
  chain egress {
    ct state established,related accept
    tcp dport 6443 accept
    ip daddr 10.96.0.1 tcp dport 443 accept
    drop
  }
  chain input {
    type filter hook input priority 0; policy accept;
    ip saddr 10.244.1.2 jump egress
  }
  chain ingress {
    ct state established,related accept
    tcp dport 2112 accept
    drop
  }
  chain forward {
    type filter hook forward priority 0; policy accept;
    ip saddr 10.244.1.2 ip daddr 10.244.1.2 accept
    ip saddr 10.244.1.2 jump egress
    ip daddr 10.244.1.2 jump ingress
  }
}
";
    assert_eq!(text, expected);
}

#[test]
fn direction_that_no_policy_closes_is_not_in_the_rules_of_the_node() {
    let text = rules_at(Place::Node, &[json!({})]);
    assert!(text.contains("jump ingress"), "{text}");
    assert!(!text.contains("egress"), "{text}");
    assert_eq!(rules_at(Place::Node, &[]), Place::Node.open(POD));
}
