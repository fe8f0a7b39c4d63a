//! Whether a pod can be aligned to single zones, and if not, why (scheduler.md 3.3 to 3.5).

use std::borrow::Cow;
use std::fmt;

use crate::mask::{NumaMask, ZoneId};
use crate::policy::Scope;
use crate::request::{Container, ContainerKind, Pod, Qos};
use crate::resource::{ResourceName, Resources};

pub mod explain;

/// What is left in a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreeZone {
    /// Its id.
    pub id: ZoneId,
    /// What is left of each resource that the zone holds; a resource that is used up is listed with 0.
    pub available: Resources,
}

/// What could not be aligned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The pod as one.
    Pod,
    /// A container by itself.
    Container {
        /// Its name.
        name: String,
        /// Its kind.
        kind: ContainerKind,
    },
}

/// Why a pod cannot be aligned: the first resource, in order of name, that left no zone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", Detail(self))]
pub struct Misfit {
    /// What could not be aligned.
    pub subject: Subject,
    /// The resource that ruled out the last zone.
    pub resource: ResourceName,
    /// How much of it was asked for.
    pub wanted: i64,
    /// What each zone had left of it then; none where the zone does not hold it.
    pub zones: Vec<(ZoneId, Option<i64>)>,
}

impl Misfit {
    /// The reason in the words that other programs match (scheduler.md 3.5).
    pub fn reason(&self) -> &'static str {
        match &self.subject {
            Subject::Pod => "cannot align pod",
            Subject::Container {
                kind: ContainerKind::App,
                ..
            } => "cannot align container",
            Subject::Container {
                kind: ContainerKind::Init,
                ..
            } => "cannot align init container",
            Subject::Container {
                kind: ContainerKind::Sidecar,
                ..
            } => "cannot align sidecar container",
        }
    }
}

struct Detail<'a>(&'a Misfit);

impl fmt::Display for Detail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Misfit {
            subject,
            resource,
            wanted,
            zones,
        } = self.0;
        f.write_str(self.0.reason())?;
        if let Subject::Container { name, .. } = subject {
            write!(f, " {name}")?;
        }
        let unit = if resource.is_cpu() { "m" } else { "" };
        write!(f, ": {resource} wanted {wanted}{unit}")?;
        for (zone, available) in zones {
            match available {
                Some(amount) => write!(f, ", zone {zone} has {amount}{unit}")?,
                None => write!(f, ", zone {zone} has none")?,
            }
        }
        Ok(())
    }
}

/// Whether the kubelet can align `pod` on a node with these zones under policy single-numa-node. `node_has` tells which resources
/// the node as a whole lists.
///
/// Container scope tries the containers in spec order, each on the zone with the lowest id that suffices; init containers need room
/// only while they run, sidecars keep what they took.
pub fn fit(
    pod: &Pod,
    scope: Scope,
    zones: &[FreeZone],
    node_has: impl Fn(&str) -> bool,
) -> Result<(), Misfit> {
    match scope {
        Scope::Pod => {
            let request = pod.aligned_request();
            place(&request, pod.qos(), zones, &node_has)
                .map(drop)
                .map_err(|lack| lack.into_misfit(Subject::Pod, zones))
        }
        Scope::Container => fit_containers(pod, zones, &node_has),
    }
}

fn fit_containers(
    pod: &Pod,
    zones: &[FreeZone],
    node_has: &impl Fn(&str) -> bool,
) -> Result<(), Misfit> {
    let mut left = Cow::Borrowed(zones);
    let count = pod.containers().len();
    for (index, container) in pod.containers().iter().enumerate() {
        let zone = place(&container.requests, pod.qos(), &left, node_has)
            .map_err(|lack| lack.into_misfit(subject(container), &left))?;
        let keeps = container.kind != ContainerKind::Init;
        if keeps && index + 1 < count {
            let taken = held(&container.requests, pod.qos());
            if let Some(found) = left.to_mut().iter_mut().find(|free| free.id == zone) {
                found.available.subtract_listed(&taken);
            }
        }
    }
    Ok(())
}

fn subject(container: &Container) -> Subject {
    Subject::Container {
        name: container.name.clone(),
        kind: container.kind,
    }
}

/// What a container keeps from later ones: without guaranteed service its CPUs and memory are shared.
fn held(requests: &Resources, qos: Qos) -> Resources {
    requests
        .iter()
        .filter(|(name, _)| qos == Qos::Guaranteed || !name.is_affine())
        .map(|(name, amount)| (name.clone(), amount))
        .collect()
}

struct Lack {
    resource: ResourceName,
    wanted: i64,
}

impl Lack {
    fn into_misfit(self, subject: Subject, zones: &[FreeZone]) -> Misfit {
        let zones = zones
            .iter()
            .map(|zone| (zone.id, zone.available.get(self.resource.as_str())))
            .collect();
        Misfit {
            subject,
            resource: self.resource,
            wanted: self.wanted,
            zones,
        }
    }
}

/// The zone with the lowest id that has everything (scheduler.md 3.4). Zone 0 if nothing that is asked for is tied to zones.
fn place(
    request: &Resources,
    qos: Qos,
    zones: &[FreeZone],
    node_has: &impl Fn(&str) -> bool,
) -> Result<ZoneId, Lack> {
    let mut mask = NumaMask::ALL;
    for (name, wanted) in request.iter().filter(|(_, wanted)| *wanted != 0) {
        let lack = || Lack {
            resource: name.clone(),
            wanted,
        };
        if !node_has(name.as_str()) {
            return Err(lack());
        }
        let shared = qos != Qos::Guaranteed && name.is_affine();
        let mut listed = false;
        let mut suitable = NumaMask::NONE;
        for zone in zones {
            if let Some(available) = zone.available.get(name.as_str()) {
                listed = true;
                if shared || available >= wanted {
                    suitable.insert(zone.id);
                }
            }
        }
        if !listed && name.is_host_level() {
            continue;
        }
        mask = mask & suitable;
        if mask.is_empty() {
            return Err(lack());
        }
    }
    Ok(mask.lowest().expect("the mask is not empty"))
}

#[cfg(test)]
mod tests;
