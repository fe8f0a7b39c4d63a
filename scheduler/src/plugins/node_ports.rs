//! NodePorts: whether the host ports of a pod are free on a node (scheduler.md 7.3).

use crate::plugins::plugin::Plugin;
use crate::plugins::rejection::Rejection;
use crate::state::cluster::Cluster;
use crate::state::node::NodeState;
use crate::state::pod::Pod;

/// Rejects a node if one of its pods uses a host port of the pod.
pub fn filter(pod: &Pod, state: &NodeState, cluster: &Cluster) -> Result<(), Rejection> {
    if pod.host_ports.is_empty() {
        return Ok(());
    }
    let taken = state
        .pods
        .iter()
        .filter_map(|key| cluster.pod(key))
        .flat_map(|other| &other.host_ports)
        .find(|taken| pod.host_ports.iter().any(|wanted| wanted.clashes(taken)));
    match taken {
        None => Ok(()),
        Some(port) => Err(Rejection {
            detail: Some(format!(
                "{} {}:{} is taken",
                port.protocol, port.ip, port.port
            )),
            ..Rejection::new(
                Plugin::NodePorts,
                "node(s) didn't have free ports for the requested pod ports",
            )
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{mk_node, mk_pod};

    #[test]
    fn a_taken_port_is_named_in_the_detail() {
        let mut cluster = Cluster::new();
        cluster.apply_node(mk_node("n", "cpu=4"));
        let port = crate::state::pod::HostPort {
            protocol: "TCP".to_owned(),
            ip: "0.0.0.0".to_owned(),
            port: 80,
        };
        let holder = Pod {
            node: Some("n".to_owned()),
            host_ports: vec![port.clone()],
            ..mk_pod("other", "")
        };
        cluster.apply_pod(holder);
        let (_, state) = cluster.nodes().next().expect("one node");
        let pod = Pod {
            host_ports: vec![port],
            ..mk_pod("p", "")
        };
        let rejection = filter(&pod, state, &cluster).expect_err("taken");
        assert_eq!(rejection.detail.as_deref(), Some("TCP 0.0.0.0:80 is taken"));
        assert_eq!(filter(&mk_pod("q", ""), state, &cluster), Ok(()));
    }
}
