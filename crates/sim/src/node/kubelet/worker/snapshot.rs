//! The state of a pod that others may see.

use std::net::Ipv4Addr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::Worker;
use super::prepared::Prepared;
use crate::node::launcher::Process;
use crate::node::status::facts::Run;

/// The state of a pod that others may see.
#[derive(Clone, Debug)]
pub(crate) struct PodSnapshot {
    /// The object, with the resources that its containers are allocated.
    pub(crate) pod: Pod,
    /// The address, once the pod has one.
    pub(crate) address: Option<Ipv4Addr>,
    /// The containers.
    pub(crate) containers: Vec<ContainerSnapshot>,
    /// Whether nothing of the pod runs any more.
    pub(crate) is_over: bool,
}

/// The state of a container that others may see.
#[derive(Clone, Debug)]
pub(crate) struct ContainerSnapshot {
    pub(crate) name: String,
    pub(crate) id: Option<String>,
    pub(crate) attempt: i32,
    pub(crate) process: Option<Process>,
    pub(crate) run: Run,
    pub(crate) env: Arc<Prepared>,
}

impl Worker {
    /// Updates the snapshot that others see.
    pub(super) fn update_snapshot(&self) {
        let containers = self
            .slots
            .iter()
            .zip(&self.prepared)
            .map(|(slot, prepared)| ContainerSnapshot {
                name: slot.facts.container.name.clone(),
                id: slot.facts.id.clone(),
                attempt: slot.facts.restarts,
                process: slot.process.clone(),
                run: slot.facts.run.clone(),
                env: Arc::clone(prepared),
            })
            .collect();
        let snapshot = PodSnapshot {
            pod: self.allocated_pod(),
            address: self.address,
            containers,
            is_over: self.is_over,
        };
        *self.shared.lock() = snapshot;
    }
}
