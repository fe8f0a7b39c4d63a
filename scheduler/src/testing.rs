//! Short forms of pods and nodes for the tests of this crate.

use std::sync::Arc;

use nrt::decode::NodeTopology;
use scheduler_config::args::{ForeignPodsDetect, ResyncMethod};
use topology::mask::ZoneId;
use topology::policy::{ManagerConfig, Policy};
use topology::request::{Container, ContainerKind, Pod as Request};
use topology::resource::{ResourceName, Resources};
use topology::zone::{Amounts, Zone};

use crate::numa::cache::Cache;
use crate::numa::settings::{Mode, Settings};
use crate::state::node::Node;
use crate::state::pod::{Phase, Pod, PodKey, SchedulingConstraints};

/// Builds the key of an object.
pub(crate) fn mk_key(namespace: &str, name: &str) -> PodKey {
    PodKey {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

/// Parses `cpu=2 memory=4Gi vendor/nic=1`; cpu in cores.
pub(crate) fn mk_resources(text: &str) -> Resources {
    text.split_whitespace()
        .map(|item| {
            let (name, amount) = item.split_once('=').expect("name=amount");
            let amount: api::quantity::Amount = amount.parse().expect("quantity");
            (ResourceName::from(name), amount.in_unit_of(name))
        })
        .collect()
}

/// Builds a cache for profile `topo`. `placement` says whether it reads the placement in NRTs.
pub(crate) fn mk_cache(placement: bool) -> Cache {
    Cache::new(Settings {
        mode: Mode::OverReserve,
        foreign: ForeignPodsDetect::All,
        method: ResyncMethod::Autodetect,
        profiles: ["topo".to_owned()].into(),
        trace: false,
        placement,
    })
}

/// Builds a pending pod of one app container with requests equal to limits.
pub(crate) fn mk_pod(name: &str, requests: &str) -> Pod {
    mk_pod_of(
        name,
        vec![mk_container(ContainerKind::App, requests, requests)],
    )
}

/// Builds a container from requests and limits in the form of [`mk_resources`].
pub(crate) fn mk_container(kind: ContainerKind, requests: &str, limits: &str) -> Container {
    Container {
        name: format!("{kind:?}").to_lowercase(),
        kind,
        requests: mk_resources(requests),
        limits: mk_resources(limits),
    }
}

/// Builds a pending pod of these containers, in namespace `ns`.
pub(crate) fn mk_pod_of(name: &str, containers: Vec<Container>) -> Pod {
    let request = Request::new(containers);
    let node_request = request.node_request();
    Pod {
        key: PodKey {
            namespace: "ns".to_owned(),
            name: name.to_owned(),
        },
        uid: format!("uid-{name}"),
        resource_version: None,
        scheduler: "topo".to_owned(),
        node: None,
        phase: Phase::Pending,
        deleting: false,
        priority: 0,
        preempts: true,
        nominated: None,
        started: None,
        is_victim: false,
        labels: [("app".to_owned(), name.to_owned())].into(),
        created: None,
        nonzero_request: (node_request.amount("cpu"), node_request.amount("memory")),
        node_request: Arc::new(node_request),
        request: Arc::new(request),
        hash: nrt::fingerprint::pod_hash("ns", name),
        host_ports: Vec::new(),
        anti_affinity: Vec::new(),
        volumes: None,
        constraints: SchedulingConstraints::default(),
    }
}

/// Builds a node with this allocatable, 110 pods unless given, and its host name as label.
pub(crate) fn mk_node(name: &str, allocatable: &str) -> Node {
    let mut allocatable = mk_resources(allocatable);
    if allocatable.get("pods").is_none() {
        allocatable.set("pods", 110);
    }
    Node {
        name: name.to_owned(),
        labels: [("kubernetes.io/hostname".to_owned(), name.to_owned())].into(),
        allocatable,
        ..Node::default()
    }
}

/// Builds what an exporter publishes for a kubelet with policy single-numa-node whose zones have this left.
pub(crate) fn mk_nrt(zones: &[&str]) -> NodeTopology {
    let zone = |(id, left): (usize, &&str)| Zone {
        resources: mk_resources(left)
            .iter()
            .map(|(name, available)| {
                (
                    name.clone(),
                    Amounts {
                        capacity: available,
                        allocatable: available,
                        available,
                    },
                )
            })
            .collect(),
        ..Zone::new(ZoneId::new(id as u64).expect("small"))
    };
    NodeTopology {
        zones: zones.iter().enumerate().map(zone).collect(),
        config: ManagerConfig {
            policy: Policy::SingleNumaNode,
            ..ManagerConfig::default()
        },
        fingerprint: None,
        placement: None,
    }
}
