//! Allocates devices to containers (kubelet-node.md 8).

use std::collections::{BTreeMap, BTreeSet};

use topology::mask::NumaMask;

use super::preferences::PreferenceRequest;
use super::{Ids, Manager};
use crate::workload::{ContainerKind, ContainerRequest, Workload};

/// Why a container gets no devices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A container that holds devices asks for another number.
    #[error(
        "pod {pod:?} container {container:?} changed request for resource {resource:?} from {held} to {requested}"
    )]
    Changed {
        /// UID.
        pod: String,
        /// Container.
        container: String,
        /// Resource.
        resource: String,
        /// Number of devices held.
        held: usize,
        /// Number of devices requested.
        requested: usize,
    },
    /// The plugin has not registered since the kubelet started.
    #[error("cannot allocate unregistered device {0}")]
    Unregistered(String),
    /// No device is healthy.
    #[error("no healthy devices present; cannot allocate unhealthy devices {0}")]
    NoHealthy(String),
    /// A held device is not healthy any more.
    #[error(
        "previously allocated devices are no longer healthy; cannot allocate unhealthy devices {0}"
    )]
    HeldUnhealthy(String),
    /// Too few devices are free.
    #[error(
        "requested number of devices unavailable for {resource}. Requested: {requested}, Available: {available}"
    )]
    Unavailable {
        /// Resource.
        resource: String,
        /// Number still needed.
        requested: usize,
        /// Number of free devices.
        available: usize,
    },
}

/// What the kubelet does during an allocation.
#[derive(Clone, Copy, Debug)]
pub enum KubeletPhase<'a> {
    /// The kubelet runs, and these pods are active: devices of other pods are free.
    Running {
        /// Their UIDs.
        active: &'a BTreeSet<String>,
    },
    /// The kubelet starts and admits the pods that it finds: devices of other pods stay allocated.
    Starting {
        /// Whether the container runs according to the runtime.
        is_running: bool,
    },
}

impl Manager {
    /// Allocates the devices of a container.
    pub fn allocate(
        &mut self,
        pod: &Workload,
        container: &ContainerRequest,
        affinity: Option<NumaMask>,
        phase: KubeletPhase<'_>,
    ) -> Result<(), Error> {
        if self
            .reuse
            .as_ref()
            .is_none_or(|(owner, _)| *owner != pod.uid)
        {
            self.reuse = Some((pod.uid.clone(), BTreeMap::new()));
        }
        let mut changed = false;
        let mut is_stale_removed = false;
        for (resource, amount) in &container.limits {
            let count = usize::try_from(*amount).unwrap_or_default();
            if !self.is_known(resource) {
                continue;
            }
            if let KubeletPhase::Running { active } = phase
                && !is_stale_removed
            {
                self.remove_stale(active);
                is_stale_removed = true;
            }
            let held = self.held_of(pod, container, resource, count)?;
            if let KubeletPhase::Starting { is_running: true } = phase {
                // a running container keeps its devices, whether their plugin has registered or not
                continue;
            }
            let chosen = self.choose(pod, container, resource, (count, held), affinity)?;
            if !chosen.is_empty() {
                self.held
                    .entry(pod.uid.clone())
                    .or_default()
                    .entry(container.name.clone())
                    .or_default()
                    .insert(resource.clone(), chosen);
                changed = true;
            }
        }
        if changed {
            self.write();
        }
        self.update_reuse(pod, container);
        Ok(())
    }

    /// Returns the devices that the container already holds: none, or as many as it requests.
    fn held_of(
        &self,
        pod: &Workload,
        container: &ContainerRequest,
        resource: &str,
        count: usize,
    ) -> Result<Ids, Error> {
        let held = self
            .held(&pod.uid, &container.name)
            .and_then(|resources| resources.get(resource))
            .cloned()
            .unwrap_or_default();
        if !held.is_empty() && held.len() != count {
            return Err(Error::Changed {
                pod: pod.uid.clone(),
                container: container.name.clone(),
                resource: resource.to_owned(),
                held: held.len(),
                requested: count,
            });
        }
        Ok(held)
    }

    /// Returns the devices to allocate; none if the container already holds them.
    fn choose(
        &mut self,
        pod: &Workload,
        container: &ContainerRequest,
        resource: &str,
        (count, held): (usize, Ids),
        affinity: Option<NumaMask>,
    ) -> Result<Ids, Error> {
        if !self.plugins.contains_key(resource) {
            return Err(Error::Unregistered(resource.to_owned()));
        }
        let healthy = self.healthy(resource);
        if healthy.is_empty() {
            return Err(Error::NoHealthy(resource.to_owned()));
        }
        if !held.is_subset(&healthy) {
            return Err(Error::HeldUnhealthy(resource.to_owned()));
        }
        if !held.is_empty() || count == 0 {
            return Ok(Ids::new());
        }
        let first_choice: Ids = self
            .first_choice
            .iter()
            .filter(|entry| {
                (&entry.pod, &entry.container) == (&pod.uid, &container.name)
                    && entry.resource == resource
            })
            .flat_map(|entry| entry.ids.values().flatten().cloned())
            .collect();
        let mut chosen = Ids::new();
        let reusable = self.reusable(&pod.uid, resource);
        pick(&reusable, count, &first_choice, &mut chosen);
        let needed = count - chosen.len();
        if needed == 0 {
            return Ok(chosen);
        }
        let mut available = self.available(resource);
        available.retain(|id| !chosen.contains(id));
        if available.len() < needed {
            return Err(Error::Unavailable {
                resource: resource.to_owned(),
                requested: needed,
                available: available.len(),
            });
        }
        let [aligned, unaligned, anywhere] = self.by_affinity(resource, &available, affinity);
        let request = |from: &Ids, chosen: &Ids| PreferenceRequest {
            resource: resource.to_owned(),
            available: from.union(chosen).cloned().collect(),
            included: chosen.clone(),
            count,
        };
        if needed < aligned.len() {
            let preferred = self.preferred(request(&aligned, &chosen));
            let preferred = preferred.intersection(&aligned).cloned().collect();
            pick(&preferred, count, &first_choice, &mut chosen);
            pick(&aligned, count, &first_choice, &mut chosen);
            return Ok(chosen);
        }
        pick(&aligned, count, &first_choice, &mut chosen);
        if chosen.len() < count {
            let preferred = self.preferred(request(&available, &chosen));
            let preferred = preferred.intersection(&available).cloned().collect();
            for set in [preferred, unaligned, anywhere] {
                pick(&set, count, &first_choice, &mut chosen);
            }
        }
        Ok(chosen)
    }

    /// Returns the devices in the affinity, the other devices with a zone, and the devices without one.
    fn by_affinity(&self, resource: &str, available: &Ids, affinity: Option<NumaMask>) -> [Ids; 3] {
        let Some(mask) = affinity.filter(|_| self.is_aligned(resource)) else {
            return [Ids::new(), Ids::new(), available.clone()];
        };
        let mut sets = [Ids::new(), Ids::new(), Ids::new()];
        for id in available {
            let set = match self.zones_of(resource, id) {
                Some(zones) if zones.iter().any(|zone| mask.contains(*zone)) => 0,
                Some(zones) if !zones.is_empty() => 1,
                _ => 2,
            };
            sets[set].insert(id.clone());
        }
        sets
    }

    fn update_reuse(&mut self, pod: &Workload, container: &ContainerRequest) {
        let given = self
            .held(&pod.uid, &container.name)
            .cloned()
            .unwrap_or_default();
        let Some((_, reuse)) = &mut self.reuse else {
            return;
        };
        for (resource, ids) in given {
            let pool = reuse.entry(resource).or_default();
            if container.kind == ContainerKind::Init {
                pool.extend(ids);
            } else {
                pool.retain(|id| !ids.contains(id));
            }
        }
    }
}

/// Adds IDs from a set until there are `count`: those of `first_choice` first, then the lowest IDs.
fn pick(from: &Ids, count: usize, first_choice: &Ids, chosen: &mut Ids) {
    let first = from.intersection(first_choice);
    for id in first.chain(from.difference(first_choice)) {
        if chosen.len() < count {
            chosen.insert(id.clone());
        }
    }
}
