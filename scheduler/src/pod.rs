//! A pod as the scheduler sees it: everything that placing needs, computed once when the pod changes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use api::quantity::Amount;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container as WireContainer, NodeAffinity, Pod as WirePod, PodAffinityTerm, PodSpec, Toleration,
    TopologySpreadConstraint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use nrt::fingerprint::pod_hash;
use topology::request::{Container, ContainerKind, Pod as Request, Qos};
use topology::resource::{ResourceName, Resources};

/// Namespace and name of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodKey {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Where a pod is in its life, as far as resources care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not yet running; its kubelet may have admitted it or not.
    Pending,
    /// Running.
    Running,
    /// Succeeded or failed: it holds nothing any more.
    Terminal,
}

/// A pod.
#[derive(Clone, Debug)]
pub struct Pod {
    /// Namespace and name.
    pub key: PodKey,
    /// Tells apart pods that had the same name one after another.
    pub uid: String,
    /// Version of the object that this was read from.
    pub resource_version: Option<String>,
    /// The profile that is to place it.
    pub scheduler: String,
    /// Where it was placed.
    pub node: Option<String>,
    /// Phase.
    pub phase: Phase,
    /// Being deleted.
    pub deleting: bool,
    /// Higher goes first.
    pub priority: i32,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// What it asks for.
    pub request: Arc<Request>,
    /// What its node must have left, see [`Request::node_request`].
    pub node_request: Arc<Resources>,
    /// CPU (milli) and memory for scores, where containers that ask for nothing count as a little (scheduler.md 7.4).
    pub scored: (i64, i64),
    /// What it contributes to a fingerprint.
    pub hash: u64,
    /// Ports that it takes on the node.
    pub host_ports: Vec<HostPort>,
    /// Required anti-affinity to other pods, which those must respect too.
    pub anti_affinity: Vec<PodAffinityTerm>,
    /// What only matters until it is placed.
    pub wishes: Wishes,
}

/// Rules on where a pod may go.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wishes {
    /// Gates that hold it back.
    pub gates: Vec<String>,
    /// Labels that its node must have.
    pub node_selector: BTreeMap<String, String>,
    /// Rules about nodes, hard and soft.
    pub node_affinity: Option<NodeAffinity>,
    /// Taints that it puts up with.
    pub tolerations: Vec<Toleration>,
    /// Required affinity to other pods.
    pub affinity: Vec<PodAffinityTerm>,
    /// Hard spread constraints.
    pub spread: Vec<TopologySpreadConstraint>,
    /// Volumes that cannot be had without binding or claims.
    pub volumes: Option<&'static str>,
    /// The message of its `PodScheduled=False` condition, with the reason.
    pub condition: Option<(String, String)>,
}

/// A port on the node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    /// TCP, UDP or SCTP.
    pub protocol: String,
    /// Address on the node, `0.0.0.0` for all.
    pub ip: String,
    /// Number.
    pub port: i32,
}

impl HostPort {
    /// Whether both cannot be had on one node.
    pub fn clashes(&self, other: &Self) -> bool {
        const ANY: &str = "0.0.0.0";
        self.protocol == other.protocol
            && self.port == other.port
            && (self.ip == other.ip || self.ip == ANY || other.ip == ANY)
    }
}

/// Amounts of a quantity list in the units of [`topology::resource`]. What is no quantity is left out; the API server lets none pass.
pub fn resources(list: Option<&BTreeMap<String, Quantity>>) -> Resources {
    list.into_iter()
        .flatten()
        .filter_map(|(name, quantity)| {
            let name = ResourceName::from(name.as_str());
            let amount = Amount::try_from(quantity).ok()?;
            let amount = if name.is_cpu() {
                amount.milli()
            } else {
                amount.units()
            };
            Some((name, amount))
        })
        .collect()
}

impl Pod {
    /// Reads a pod. Nothing for objects without name or namespace, which no API server sends.
    pub fn read(wire: WirePod) -> Option<Self> {
        let WirePod {
            metadata,
            spec,
            status,
        } = wire;
        let (spec, status) = (spec.unwrap_or_default(), status.unwrap_or_default());
        let key = PodKey {
            namespace: metadata.namespace?,
            name: metadata.name?,
        };
        let request = request(&spec, status.qos_class.as_deref());
        let scored = scored(&request);
        let phase = match status.phase.as_deref() {
            Some("Running") => Phase::Running,
            Some("Succeeded" | "Failed") => Phase::Terminal,
            _ => Phase::Pending,
        };
        let condition = status
            .conditions
            .into_iter()
            .flatten()
            .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")
            .map(|condition| {
                (
                    condition.reason.unwrap_or_default(),
                    condition.message.unwrap_or_default(),
                )
            });
        let node_request = Arc::new(request.node_request());
        let (host_ports, volumes) = (host_ports(&spec), volumes(&spec));
        let affinity = spec.affinity.unwrap_or_default();
        let required = |terms: Option<Vec<PodAffinityTerm>>| terms.unwrap_or_default();
        let anti_affinity = affinity.pod_anti_affinity.unwrap_or_default();
        let pod_affinity = affinity.pod_affinity.unwrap_or_default();
        Some(Self {
            hash: pod_hash(&key.namespace, &key.name),
            key,
            uid: metadata.uid.unwrap_or_default(),
            resource_version: metadata.resource_version,
            scheduler: spec.scheduler_name.unwrap_or_default(),
            node: spec.node_name.filter(|name| !name.is_empty()),
            phase,
            deleting: metadata.deletion_timestamp.is_some(),
            priority: spec.priority.unwrap_or(0),
            labels: metadata.labels.unwrap_or_default(),
            created: metadata.creation_timestamp.map(|time| time.0),
            node_request,
            scored,
            request: Arc::new(request),
            host_ports,
            anti_affinity: required(
                anti_affinity.required_during_scheduling_ignored_during_execution,
            ),
            wishes: Wishes {
                gates: spec
                    .scheduling_gates
                    .into_iter()
                    .flatten()
                    .map(|gate| gate.name)
                    .collect(),
                node_selector: spec.node_selector.unwrap_or_default(),
                node_affinity: affinity.node_affinity,
                tolerations: spec.tolerations.unwrap_or_default(),
                affinity: required(
                    pod_affinity.required_during_scheduling_ignored_during_execution,
                ),
                spread: spec
                    .topology_spread_constraints
                    .unwrap_or_default()
                    .into_iter()
                    .filter(|constraint| constraint.when_unsatisfiable == "DoNotSchedule")
                    .collect(),
                volumes,
                condition,
            },
        })
    }
}

fn request(spec: &PodSpec, qos_class: Option<&str>) -> Request {
    let container = |wire: &WireContainer, kind| {
        let resources_of = wire.resources.as_ref();
        Container {
            name: wire.name.clone(),
            kind,
            requests: resources(resources_of.and_then(|list| list.requests.as_ref())),
            limits: resources(resources_of.and_then(|list| list.limits.as_ref())),
        }
    };
    let init = spec.init_containers.iter().flatten().map(|wire| {
        let sidecar = wire.restart_policy.as_deref() == Some("Always");
        container(
            wire,
            if sidecar {
                ContainerKind::Sidecar
            } else {
                ContainerKind::Init
            },
        )
    });
    let app = spec
        .containers
        .iter()
        .map(|wire| container(wire, ContainerKind::App));
    let mut request =
        Request::new(init.chain(app).collect()).with_overhead(resources(spec.overhead.as_ref()));
    if let Some(level) = &spec.resources {
        let (requests, limits) = (
            resources(level.requests.as_ref()),
            resources(level.limits.as_ref()),
        );
        if !requests.is_empty() || !limits.is_empty() {
            request = request.with_pod_level(requests, &limits);
        }
    }
    match qos_class {
        Some("Guaranteed") => request.with_qos(Qos::Guaranteed),
        Some("Burstable") => request.with_qos(Qos::Burstable),
        Some("BestEffort") => request.with_qos(Qos::BestEffort),
        _ => request,
    }
}

/// CPU and memory with 100m and 200 MiB for each container that sets none.
fn scored(request: &Request) -> (i64, i64) {
    const CPU: i64 = 100;
    const MEMORY: i64 = 200 << 20;
    let (mut cpu, mut memory) = (0, 0);
    for container in request
        .containers()
        .iter()
        .filter(|container| container.kind != ContainerKind::Init)
    {
        cpu += container.requests.get("cpu").unwrap_or(CPU);
        memory += container.requests.get("memory").unwrap_or(MEMORY);
    }
    let whole = request.node_request();
    (
        cpu.max(whole.amount("cpu")),
        memory.max(whole.amount("memory")),
    )
}

fn host_ports(spec: &PodSpec) -> Vec<HostPort> {
    spec.containers
        .iter()
        .flat_map(|container| container.ports.iter().flatten())
        .filter_map(|port| {
            Some(HostPort {
                protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
                ip: port
                    .host_ip
                    .clone()
                    .filter(|ip| !ip.is_empty())
                    .unwrap_or_else(|| "0.0.0.0".to_owned()),
                port: port.host_port.filter(|port| *port > 0)?,
            })
        })
        .collect()
}

/// Kinds of volumes whose rules this scheduler does not know. A pod with one is rejected rather than placed where it cannot run.
fn volumes(spec: &PodSpec) -> Option<&'static str> {
    spec.volumes.iter().flatten().find_map(|volume| {
        if volume.persistent_volume_claim.is_some() {
            Some("persistentVolumeClaim volumes are not supported by this scheduler")
        } else if volume.ephemeral.is_some() {
            Some("ephemeral volumes are not supported by this scheduler")
        } else if volume.gce_persistent_disk.is_some()
            || volume.aws_elastic_block_store.is_some()
            || volume.rbd.is_some()
            || volume.iscsi.is_some()
        {
            Some("volumes with exclusive disks are not supported by this scheduler")
        } else {
            None
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn mk_pod(spec: &serde_json::Value, status: &serde_json::Value) -> Pod {
        let wire = json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"app": "x"}},
            "spec": spec,
            "status": status,
        });
        Pod::read(serde_json::from_value(wire).expect("pod")).expect("named")
    }

    #[test]
    fn containers_keep_their_order_and_kind() {
        let pod = mk_pod(
            &json!({
                "schedulerName": "topo",
                "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}],
                "containers": [{"name": "a", "resources": {
                    "requests": {"cpu": "1500m", "memory": "1Gi", "vendor/nic": "2"},
                    "limits": {"cpu": "1500m", "memory": "1Gi", "vendor/nic": "2"},
                }}],
                "overhead": {"cpu": "250m"},
            }),
            &json!({"phase": "Pending"}),
        );
        let kinds: Vec<_> = pod
            .request
            .containers()
            .iter()
            .map(|container| container.kind)
            .collect();
        assert_eq!(
            kinds,
            [
                ContainerKind::Init,
                ContainerKind::Sidecar,
                ContainerKind::App
            ]
        );
        assert_eq!(pod.node_request.amount("cpu"), 1750);
        assert_eq!(pod.node_request.amount("memory"), 1 << 30);
        assert_eq!(pod.node_request.amount("vendor/nic"), 2);
        assert_eq!(pod.scored, (1750, (1 << 30) + (200 << 20)));
        assert_eq!(
            (pod.phase, pod.deleting, pod.node.as_deref()),
            (Phase::Pending, false, None)
        );
    }

    #[test]
    fn the_class_of_the_status_wins() {
        let pod = mk_pod(
            &json!({"containers": [{"name": "a"}]}),
            &json!({"qosClass": "Burstable"}),
        );
        assert_eq!(pod.request.qos(), Qos::Burstable);
    }

    #[test]
    fn the_condition_is_kept_with_its_reason() {
        let pod = mk_pod(
            &json!({"containers": []}),
            &json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "m"}]}),
        );
        assert_eq!(
            pod.wishes.condition,
            Some(("Unschedulable".to_owned(), "m".to_owned()))
        );
    }

    #[test]
    fn ports_clash_on_equal_or_any_address() {
        let port = |ip: &str, port| HostPort {
            protocol: "TCP".to_owned(),
            ip: ip.to_owned(),
            port,
        };
        assert!(port("0.0.0.0", 80).clashes(&port("10.0.0.1", 80)));
        assert!(!port("10.0.0.2", 80).clashes(&port("10.0.0.1", 80)));
        assert!(!port("0.0.0.0", 81).clashes(&port("0.0.0.0", 80)));
        let pod = mk_pod(
            &json!({"containers": [{"name": "a", "ports": [{"containerPort": 1}, {"containerPort": 2, "hostPort": 3}]}]}),
            &json!({}),
        );
        assert_eq!(pod.host_ports, [port("0.0.0.0", 3)]);
    }

    #[test]
    fn claims_are_noticed() {
        let volume = json!({"name": "v", "persistentVolumeClaim": {"claimName": "c"}});
        let pod = mk_pod(
            &json!({"containers": [], "volumes": [{"name": "e", "emptyDir": {}}, volume]}),
            &json!({}),
        );
        assert!(
            pod.wishes
                .volumes
                .is_some_and(|reason| reason.starts_with("persistentVolumeClaim"))
        );
    }
}
