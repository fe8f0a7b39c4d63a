//! A pod in the form the scheduler needs: everything for placing it, computed once when the pod changes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::state::cluster::GroupKind;
use crate::state::images::{self, ImageId};
use crate::state::storage::Source;
use api::quantity::Amount;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container as WireContainer, NodeAffinity, Pod as WirePod, PodAffinityTerm, PodSpec, Toleration,
    TopologySpreadConstraint, Volume as WireVolume, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use nrt::fingerprint::pod_hash;
use topology::request::{Container, ContainerKind, Pod as Request, Qos};
use topology::resource::{ResourceName, Resources};

/// Reason of the `DisruptionTarget` condition of preempted pods.
pub const PREEMPTION_BY_SCHEDULER: &str = "PreemptionByScheduler";

/// Namespace and name of a pod, or of another object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodKey {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl PodKey {
    /// Returns namespace and name of an object, or `None` for objects without them, which no API server sends.
    pub fn of(metadata: &ObjectMeta) -> Option<Self> {
        Some(Self {
            namespace: metadata.namespace.clone()?,
            name: metadata.name.clone()?,
        })
    }

    /// Returns the key of a cluster-scoped object, whose namespace is empty.
    pub fn unscoped(name: impl Into<String>) -> Self {
        Self {
            namespace: String::new(),
            name: name.into(),
        }
    }
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The phase of a pod, as far as resources are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not yet running. The kubelet may or may not have admitted it.
    Pending,
    /// Running.
    Running,
    /// Succeeded or failed; it no longer holds anything.
    Terminal,
}

/// A pod.
#[derive(Clone, Debug)]
pub struct Pod {
    /// Namespace and name.
    pub key: PodKey,
    /// Distinguishes successive pods of the same name.
    pub uid: String,
    /// Resource version of the object that this was read from.
    pub resource_version: Option<String>,
    /// The scheduler name, which selects the profile that places it.
    pub scheduler: String,
    /// The node on which it is placed.
    pub node: Option<String>,
    /// Phase.
    pub phase: Phase,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Priority; a higher one goes first.
    pub priority: i32,
    /// Whether it may preempt other pods.
    pub preempts: bool,
    /// The node where others were preempted for it, as its status says.
    pub nominated: Option<String>,
    /// When its kubelet acknowledged it (`status.startTime`).
    pub started: Option<Timestamp>,
    /// Whether it was chosen as a victim of preemption.
    pub is_victim: bool,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// What it requests.
    pub request: Arc<Request>,
    /// What its node must have left, see [`Request::node_request`].
    pub node_request: Arc<Resources>,
    /// CPU (milli) and memory for scores, where containers without requests count with small defaults (scheduler.md 7.4).
    pub nonzero_request: (i64, i64),
    /// Its contribution to a fingerprint.
    pub hash: u64,
    /// Ports that it uses on the node.
    pub host_ports: Vec<HostPort>,
    /// Required anti-affinity to other pods, which those must respect too.
    pub anti_affinity: Vec<PodAffinityTerm>,
    /// Volumes that restrict its nodes; `None` for most pods.
    pub volumes: Option<Box<Volumes>>,
    /// What only matters until it is placed.
    pub constraints: SchedulingConstraints,
}

/// Scheduling constraints of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SchedulingConstraints {
    /// Scheduling gates.
    pub gates: Vec<String>,
    /// Labels that its node must have.
    pub node_selector: BTreeMap<String, String>,
    /// Node affinity, required and preferred.
    pub node_affinity: Option<NodeAffinity>,
    /// Tolerations.
    pub tolerations: Vec<Toleration>,
    /// Required affinity to other pods.
    pub affinity: Vec<PodAffinityTerm>,
    /// Preferred affinity and anti-affinity to other pods.
    pub preferences: Option<Box<Preferences>>,
    /// Spread constraints, required and preferred.
    pub spread: Vec<TopologySpreadConstraint>,
    /// Its controller, if it is of a kind that groups pods.
    pub controller: Option<(GroupKind, String)>,
    /// The images of its containers, one for each container.
    pub images: Vec<ImageId>,
    /// Reason and message of its `PodScheduled=False` condition.
    pub condition: Option<(String, String)>,
}

/// Preferred affinity and anti-affinity of a pod to other pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Preferences {
    /// Pods to be near.
    pub near: Vec<WeightedPodAffinityTerm>,
    /// Pods to be apart from.
    pub apart: Vec<WeightedPodAffinityTerm>,
}

/// A port on the node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    /// TCP, UDP or SCTP.
    pub protocol: String,
    /// Address on the node; `0.0.0.0` for all.
    pub ip: String,
    /// Number.
    pub port: i32,
}

/// Volumes of a pod that restrict its nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Volumes {
    /// Claims, in the order of the pod.
    pub claims: Vec<VolumeClaim>,
    /// Disks that pods can share only with restrictions.
    pub disks: Vec<Disk>,
    /// Volumes that the pod defines inline and that a CSI driver may have to attach.
    pub inline: Vec<Source>,
}

impl Volumes {
    /// Iterates over the claims that the pod refers to by name.
    pub fn named_claims(&self) -> impl Iterator<Item = &VolumeClaim> {
        self.claims.iter().filter(|claim| !claim.is_ephemeral)
    }

    /// Returns whether they cannot be examined without other objects.
    pub fn need_objects(&self) -> bool {
        !(self.claims.is_empty() && self.inline.is_empty())
    }
}

/// A PersistentVolumeClaim that a pod uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeClaim {
    /// Its name, in the namespace of the pod.
    pub name: String,
    /// Whether it is created for the pod and deleted with it.
    pub is_ephemeral: bool,
}

/// A disk that a pod defines inline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    id: DiskId,
    read_only: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum DiskId {
    Gce(String),
    Aws(String),
    Iscsi(String),
    Rbd {
        monitors: Vec<String>,
        pool: Option<String>,
        image: String,
    },
}

impl Disk {
    fn read(volume: &WireVolume) -> Option<Self> {
        let new = |id, read_only: Option<bool>| Self {
            id,
            read_only: read_only == Some(true),
        };
        if let Some(disk) = &volume.gce_persistent_disk {
            Some(new(DiskId::Gce(disk.pd_name.clone()), disk.read_only))
        } else if let Some(disk) = &volume.aws_elastic_block_store {
            // usable by one pod only, even read-only
            Some(new(DiskId::Aws(disk.volume_id.clone()), None))
        } else if let Some(disk) = &volume.iscsi {
            Some(new(DiskId::Iscsi(disk.iqn.clone()), disk.read_only))
        } else {
            let disk = volume.rbd.as_ref()?;
            let id = DiskId::Rbd {
                monitors: disk.monitors.clone(),
                pool: disk.pool.clone(),
                image: disk.image.clone(),
            };
            Some(new(id, disk.read_only))
        }
    }

    /// Returns whether both cannot be used on one node.
    pub fn clashes(&self, other: &Self) -> bool {
        let is_same = match (&self.id, &other.id) {
            (
                DiskId::Rbd {
                    monitors,
                    pool,
                    image,
                },
                DiskId::Rbd {
                    monitors: others,
                    pool: other_pool,
                    image: other_image,
                },
            ) => {
                let mut monitors = monitors.iter();
                pool == other_pool
                    && image == other_image
                    && monitors.any(|monitor| others.contains(monitor))
            }
            (mine, theirs) => mine == theirs,
        };
        is_same && !(self.read_only && other.read_only)
    }
}

impl HostPort {
    /// Returns whether both cannot be used on one node.
    pub fn clashes(&self, other: &Self) -> bool {
        const ANY: &str = "0.0.0.0";
        self.protocol == other.protocol
            && self.port == other.port
            && (self.ip == other.ip || self.ip == ANY || other.ip == ANY)
    }
}

/// Returns the amounts of a quantity list in the units of [`topology::resource`]. Invalid quantities are left out; the API server
/// accepts none.
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
    /// Reads a pod. Returns `None` for objects without name or namespace, which no API server sends.
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
        let nonzero_request = nonzero_request(&spec);
        let phase = match status.phase.as_deref() {
            Some("Running") => Phase::Running,
            Some("Succeeded" | "Failed") => Phase::Terminal,
            _ => Phase::Pending,
        };
        let condition = status
            .conditions
            .iter()
            .flatten()
            .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")
            .map(|condition| {
                (
                    condition.reason.clone().unwrap_or_default(),
                    condition.message.clone().unwrap_or_default(),
                )
            });
        let is_victim = status.conditions.iter().flatten().any(|condition| {
            condition.type_ == "DisruptionTarget"
                && condition.status == "True"
                && condition.reason.as_deref() == Some(PREEMPTION_BY_SCHEDULER)
        });
        let node_request = Arc::new(request.node_request());
        let (host_ports, volumes) = (host_ports(&spec), volumes(&key.name, &spec));
        let images = images::of_pod(&spec);
        let owners = metadata.owner_references.unwrap_or_default();
        let controller = owners
            .into_iter()
            .find(|owner| owner.controller == Some(true))
            .and_then(|owner| {
                let kind = GroupKind::of_controller(&owner.api_version, &owner.kind)?;
                Some((kind, owner.name))
            });
        let affinity = spec.affinity.unwrap_or_default();
        let required = |terms: Option<Vec<PodAffinityTerm>>| terms.unwrap_or_default();
        let anti_affinity = affinity.pod_anti_affinity.unwrap_or_default();
        let pod_affinity = affinity.pod_affinity.unwrap_or_default();
        let preferences = Preferences {
            near: pod_affinity
                .preferred_during_scheduling_ignored_during_execution
                .unwrap_or_default(),
            apart: anti_affinity
                .preferred_during_scheduling_ignored_during_execution
                .unwrap_or_default(),
        };
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
            preempts: spec.preemption_policy.as_deref() != Some("Never"),
            nominated: status.nominated_node_name.filter(|name| !name.is_empty()),
            started: status.start_time.map(|time| time.0),
            is_victim,
            labels: metadata.labels.unwrap_or_default(),
            created: metadata.creation_timestamp.map(|time| time.0),
            node_request,
            nonzero_request,
            request: Arc::new(request),
            host_ports,
            anti_affinity: required(
                anti_affinity.required_during_scheduling_ignored_during_execution,
            ),
            volumes,
            constraints: SchedulingConstraints {
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
                preferences: (preferences != Preferences::default()).then(|| Box::new(preferences)),
                spread: spec.topology_spread_constraints.unwrap_or_default(),
                controller,
                images,
                condition,
            },
        })
    }
}

fn request(spec: &PodSpec, qos_class: Option<&str>) -> Request {
    let request = request_with(spec, |_| {});
    match qos_class {
        Some("Guaranteed") => request.with_qos(Qos::Guaranteed),
        Some("Burstable") => request.with_qos(Qos::Burstable),
        Some("BestEffort") => request.with_qos(Qos::BestEffort),
        _ => request,
    }
}

/// Returns what a pod requests if `adjust` changes the requests of each container.
fn request_with(spec: &PodSpec, adjust: impl Fn(&mut Resources)) -> Request {
    let container = |wire: &WireContainer, kind| {
        let resources_of = wire.resources.as_ref();
        let mut requests = resources(resources_of.and_then(|list| list.requests.as_ref()));
        adjust(&mut requests);
        Container {
            name: wire.name.clone(),
            kind,
            requests,
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
    request
}

/// Returns CPU (milli) and memory for scores, with 100m and 200 MiB for each container that requests none.
fn nonzero_request(spec: &PodSpec) -> (i64, i64) {
    let whole = request_with(spec, |requests| {
        for (name, little) in [("cpu", 100), ("memory", 200 << 20)] {
            if requests.get(name).is_none() {
                requests.set(name, little);
            }
        }
    });
    let whole = whole.node_request();
    (whole.amount("cpu"), whole.amount("memory"))
}

fn host_ports(spec: &PodSpec) -> Vec<HostPort> {
    let sidecars = spec
        .init_containers
        .iter()
        .flatten()
        .filter(|container| container.restart_policy.as_deref() == Some("Always"));
    spec.containers
        .iter()
        .chain(sidecars)
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

fn volumes(pod: &str, spec: &PodSpec) -> Option<Box<Volumes>> {
    let mut found = Volumes::default();
    for volume in spec.volumes.iter().flatten() {
        if let Some(claim) = &volume.persistent_volume_claim {
            found.claims.push(VolumeClaim {
                name: claim.claim_name.clone(),
                is_ephemeral: false,
            });
        } else if volume.ephemeral.is_some() {
            found.claims.push(VolumeClaim {
                name: format!("{pod}-{}", volume.name),
                is_ephemeral: true,
            });
        } else {
            found.disks.extend(Disk::read(volume));
            found.inline.extend(Source::of_inline(volume));
        }
    }
    (found != Volumes::default()).then(|| Box::new(found))
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
        // the sidecar counts with the defaults of both
        assert_eq!(pod.nonzero_request, (1850, (1 << 30) + (200 << 20)));
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
            pod.constraints.condition,
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
    fn volumes_that_any_node_can_have_are_not_kept() {
        let of = |volumes: serde_json::Value| {
            mk_pod(&json!({"containers": [], "volumes": volumes}), &json!({})).volumes
        };
        assert_eq!(of(json!([{"name": "e", "emptyDir": {}}])), None);
        let claims = json!([
            {"name": "v", "persistentVolumeClaim": {"claimName": "c"}},
            {"name": "e", "ephemeral": {}},
        ]);
        let claims = of(claims).expect("claims").claims;
        let names: Vec<_> = claims
            .iter()
            .map(|claim| (claim.name.as_str(), claim.is_ephemeral))
            .collect();
        assert_eq!(names, [("c", false), ("p-e", true)]);
    }

    #[test]
    fn disks_clash_unless_both_only_read() {
        let disk = |volume: serde_json::Value| {
            let mut volume = volume;
            volume["name"] = json!("v");
            let volume = serde_json::from_value(volume).expect("volume");
            Disk::read(&volume).expect("disk")
        };
        let rbd = |monitors: &[&str], image: &str, read_only: bool| {
            disk(
                json!({"rbd": {"monitors": monitors, "pool": "p", "image": image, "readOnly": read_only}}),
            )
        };
        assert!(rbd(&["a", "b"], "i", true).clashes(&rbd(&["b"], "i", false)));
        assert!(!rbd(&["a", "b"], "i", true).clashes(&rbd(&["b"], "i", true)));
        assert!(!rbd(&["a"], "i", false).clashes(&rbd(&["b"], "i", false)));
        assert!(!rbd(&["a"], "i", false).clashes(&rbd(&["a"], "j", false)));
        let aws =
            |id: &str| disk(json!({"awsElasticBlockStore": {"volumeID": id, "readOnly": true}}));
        assert!(aws("x").clashes(&aws("x")));
        assert!(!aws("x").clashes(&disk(json!({"gcePersistentDisk": {"pdName": "x"}}))));
    }
}
