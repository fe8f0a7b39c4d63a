//! Reads a pod from the object of the API.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod as WirePod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use nrt::fingerprint::pod_hash;

use super::{
    HostPort, PREEMPTION_BY_SCHEDULER, Phase, Pod, PodKey, Preferences, SchedulingConstraints,
    volumes,
};
use crate::state::group_kind::GroupKind;
use crate::state::images;

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
        let request = nrt::request::of_pod(&spec, status.qos_class.as_deref());
        let nonzero_request = nonzero_request(&spec);
        let node_request = Arc::new(request.node_request());
        let (host_ports, volumes) = (host_ports(&spec), volumes::read(&key.name, &spec));
        let images = images::of_pod(&spec);
        let affinity = spec.affinity.unwrap_or_default();
        let apart = affinity.pod_anti_affinity.unwrap_or_default();
        let near = affinity.pod_affinity.unwrap_or_default();
        let preferences = Preferences {
            near: near
                .preferred_during_scheduling_ignored_during_execution
                .unwrap_or_default(),
            apart: apart
                .preferred_during_scheduling_ignored_during_execution
                .unwrap_or_default(),
        };
        let (phase, is_victim, condition) =
            (phase(&status), is_victim(&status), condition(&status));
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
            anti_affinity: apart
                .required_during_scheduling_ignored_during_execution
                .unwrap_or_default(),
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
                affinity: near
                    .required_during_scheduling_ignored_during_execution
                    .unwrap_or_default(),
                preferences: (preferences != Preferences::default()).then(|| Box::new(preferences)),
                spread: spec.topology_spread_constraints.unwrap_or_default(),
                controller: controller(metadata.owner_references),
                images,
                condition,
            },
        })
    }
}

fn phase(status: &PodStatus) -> Phase {
    match status.phase.as_deref() {
        Some("Running") => Phase::Running,
        Some("Succeeded" | "Failed") => Phase::Terminal,
        _ => Phase::Pending,
    }
}

/// Returns reason and message of the pod's `PodScheduled=False` condition.
fn condition(status: &PodStatus) -> Option<(String, String)> {
    let mut conditions = status.conditions.iter().flatten();
    let condition = conditions
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")?;
    Some((
        condition.reason.clone().unwrap_or_default(),
        condition.message.clone().unwrap_or_default(),
    ))
}

/// Returns whether the pod was chosen as a victim of preemption.
fn is_victim(status: &PodStatus) -> bool {
    status.conditions.iter().flatten().any(|condition| {
        condition.type_ == "DisruptionTarget"
            && condition.status == "True"
            && condition.reason.as_deref() == Some(PREEMPTION_BY_SCHEDULER)
    })
}

/// Returns the pod's controller, if it is of a kind that groups pods.
fn controller(owners: Option<Vec<OwnerReference>>) -> Option<(GroupKind, String)> {
    let mut owners = owners.into_iter().flatten();
    let owner = owners.find(|owner| owner.controller == Some(true))?;
    let kind = GroupKind::of_controller(&owner.api_version, &owner.kind)?;
    Some((kind, owner.name))
}

/// Returns CPU (milli) and memory for scores, with 100m and 200 MiB for each container that requests none.
fn nonzero_request(spec: &PodSpec) -> (i64, i64) {
    let whole = nrt::request::adjusted(spec, |requests| {
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
