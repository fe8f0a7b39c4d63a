//! Which resources are compared by amount: the rules of the original filter, or those of the kubelet's managers where they are known.

use super::{Lack, Obstacle};
use crate::policy::{CpuManager, ManagerConfig, Managers};
use crate::request::{Container, ContainerKind, Pod, Qos};
use crate::resource::{CPU, ResourceName, Resources};

/// The comparison rules for one pod on one node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    qos: Qos,
    pod_level: bool,
    managers: Option<Managers>,
}

impl Rules {
    pub(super) fn new(pod: &Pod, config: &ManagerConfig) -> Self {
        Self {
            qos: pod.qos(),
            pod_level: pod.has_pod_level(),
            managers: config.managers,
        }
    }

    /// Returns whether the managers of the kubelet are known.
    pub(super) fn are_exact(self) -> bool {
        self.managers.is_some()
    }

    /// Returns the CPUs of a core, if the CPU manager takes the whole cores of a zone in one order.
    pub(super) fn packed_cores(self) -> Option<u16> {
        self.managers?.packed_cores
    }

    /// Returns whether a zone must have the wanted amount of a resource. Otherwise the resource is shared and only has to be listed.
    pub(super) fn compares(self, name: &ResourceName, wanted: i64) -> bool {
        if !name.is_affine() {
            return true;
        }
        if self.qos != Qos::Guaranteed {
            return false;
        }
        match self.managers {
            None => true,
            Some(_) if self.pod_level => false,
            // CPUs that are not whole come from the shared pool (kubelet-node.md 6.2)
            Some(managers) if name.is_cpu() => {
                managers.cpus != CpuManager::Shared && wanted % 1000 == 0
            }
            Some(managers) => managers.memory,
        }
    }

    /// Returns whether the original filter compares an amount of the pod that these rules do not compare.
    pub(super) fn differ_from_original(self, pod: &Pod) -> bool {
        self.are_exact()
            && self.qos == Qos::Guaranteed
            && pod.containers().iter().any(|container| {
                let mut requested = container.requests.iter();
                requested.any(|(name, wanted)| wanted != 0 && !self.compares(name, wanted))
            })
    }

    /// Returns the resources that a container withholds from others.
    pub(super) fn held(self, requests: &Resources) -> impl Iterator<Item = (&ResourceName, i64)> {
        let held = move |(name, amount): &(&ResourceName, i64)| self.compares(name, *amount);
        requests.iter().filter(held)
    }

    /// Returns what the pod as a whole needs from one zone, in two parts: what produces hints, and what does not. Where the managers are
    /// known, only resources that they compare count, unlike in the original filter.
    pub(super) fn of_pod(self, pod: &Pod) -> (Resources, Resources) {
        if !self.are_exact() {
            return (pod.aligned_request(), Resources::new());
        }
        let total = pod.peak(|name, amount| self.compares(name, amount));
        let hinted = |name: &ResourceName| {
            !name.is_memory_like()
                || pod
                    .containers()
                    .iter()
                    .filter(|container| container.kind == ContainerKind::App)
                    .any(|container| container.requests.get(name.as_str()).is_some())
        };
        let part = |wanted: bool| {
            let amounts = total.iter();
            amounts
                .filter(|(name, _)| hinted(name) == wanted)
                .map(|(name, amount)| (name.clone(), amount))
                .collect()
        };
        (part(true), part(false))
    }

    /// Checks what `full-pcpus-only` demands before any zone is considered (kubelet-node.md 6.3): whole cores, and enough CPUs that are
    /// not held by anyone, not even by an init container of the same pod. `untouched` returns the latter, in thousandths.
    pub(super) fn whole_cores(
        self,
        container: &Container,
        untouched: impl FnOnce() -> i64,
    ) -> Result<(), Lack> {
        let Some(Managers {
            cpus: CpuManager::WholeCores(threads),
            ..
        }) = self.managers
        else {
            return Ok(());
        };
        let wanted = container.requests.amount(CPU);
        let name = ResourceName::from(CPU);
        if wanted == 0 || !self.compares(&name, wanted) {
            return Ok(());
        }
        let obstacle = if wanted % (1000 * i64::from(threads.max(1))) != 0 {
            Obstacle::WholeCores(threads)
        } else if untouched() < wanted {
            Obstacle::HeldByInit
        } else {
            return Ok(());
        };
        Err(Lack {
            resource: name,
            wanted,
            obstacle: Some(obstacle),
        })
    }
}
