//! What is compared by amount: as the original filter does, or as the kubelet's managers do where they are known.

use super::state::State;
use super::{Lack, Obstacle};
use crate::policy::{CpuManager, ManagerConfig, Managers};
use crate::request::{Container, ContainerKind, Pod, Qos};
use crate::resource::{CPU, ResourceName, Resources};

/// What is compared for one pod on one node.
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

    /// Whether the managers of the kubelet are known.
    pub(super) fn are_exact(self) -> bool {
        self.managers.is_some()
    }

    /// Whether a zone must have as much of a resource as is wanted. Else it is shared, and only has to be there.
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

    /// Whether the original filter compares anything of a pod that is not compared here.
    pub(super) fn leave_out_any(self, pod: &Pod) -> bool {
        self.are_exact()
            && self.qos == Qos::Guaranteed
            && pod.containers().iter().any(|container| {
                let mut asked = container.requests.iter();
                asked.any(|(name, wanted)| wanted != 0 && !self.compares(name, wanted))
            })
    }

    /// What a container keeps from others.
    pub(super) fn held(self, requests: &Resources) -> impl Iterator<Item = (&ResourceName, i64)> {
        let held = move |(name, amount): &(&ResourceName, i64)| self.compares(name, *amount);
        requests.iter().filter(held)
    }

    /// What the pod as a whole needs of one zone, and what of it gives no hint. Other than with the original filter, only what the managers
    /// look at counts where they are known.
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

    /// What `full-pcpus-only` demands before anything is looked for (kubelet-node.md 6.3): whole cores, and so many CPUs that nobody
    /// holds, not even an init container of the same pod.
    pub(super) fn whole_cores(self, container: &Container, state: &State<'_>) -> Result<(), Lack> {
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
        } else if state.untouched_cpus() < wanted {
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
