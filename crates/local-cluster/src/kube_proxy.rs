//! kube-proxy of one node: it makes the addresses of Services answer, by rules of nftables in the node's network.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;

use cluster_spec::kubernetes::KUBE_PROXY;
use serde::Deserialize;

use super::control_plane::{process, text};
use super::kubelet::runtime_process;
use super::net::POD_NETWORKS;
use super::supervise::protocol::ProcessSpec;

/// Port of its health.
const HEALTH_PORT: u16 = 10256;

/// Returns the name of a node's kube-proxy process.
pub(crate) fn process_name(node: &str) -> String {
    format!("{KUBE_PROXY}/{node}")
}

/// Returns the process, which joins the namespaces of the node's runtime.
pub(crate) fn process_of(
    cluster_dir: &Path,
    node: &str,
    address: Ipv4Addr,
    program: &Path,
) -> ProcessSpec {
    let kubeconfig = cluster_dir.join("kubeconfigs").join(KUBE_PROXY);
    let flags = [
        ("kubeconfig", text(&kubeconfig)),
        ("hostname-override", node.to_owned()),
        ("proxy-mode", "nftables".to_owned()),
        // What comes from elsewhere is masqueraded, so that answers come back by the same node.
        ("detect-local-mode", "ClusterCIDR".to_owned()),
        ("cluster-cidr", POD_NETWORKS.to_owned()),
        // Limits of connections are the host's, and stay as they are.
        ("conntrack-max-per-core", "0".to_owned()),
        ("conntrack-min", "0".to_owned()),
        ("conntrack-tcp-timeout-established", "0".to_owned()),
        ("conntrack-tcp-timeout-close-wait", "0".to_owned()),
        ("healthz-bind-address", format!("{address}:{HEALTH_PORT}")),
        ("v", "2".to_owned()),
    ];
    let mut argv = vec![text(program)];
    argv.extend(
        flags
            .into_iter()
            .map(|(flag, value)| format!("--{flag}={value}")),
    );
    let mut start = process(cluster_dir, &process_name(node), argv);
    start.join = Some(runtime_process(node));
    start
}

/// Returns the path at which the API server passes a request for the health of a node's kube-proxy on.
pub(crate) fn health_path(node: &str) -> String {
    format!("/api/v1/nodes/http:{node}:{HEALTH_PORT}/proxy/livez")
}

/// Returns whether kube-proxy has written rules, by its answer to a request for its health: before that, it has no time of an update.
pub(crate) fn has_rules(health: &str) -> bool {
    let health: Health = serde_json::from_str(health).unwrap_or_default();
    !health.status.is_empty()
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Health {
    /// By family of addresses.
    status: BTreeMap<String, serde_json::Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_there_once_a_family_was_updated() {
        assert!(!has_rules(
            r#"{"lastUpdated":"0001-01-01T00:00:00Z","status":{}}"#
        ));
        assert!(!has_rules("no JSON"));
        assert!(has_rules(r#"{"status":{"IPv4":{"healthy":true}}}"#));
    }
}
